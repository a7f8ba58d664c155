//! A judge that a script plays: it sees asks alone, as an engine does, and answers from the texts in them.

use assize::ask::{
    Answer, Ask, Failure, FieldValue, Part, Prompt, Readout, Role, Shape, TokenCounts,
};
use assize::judge::evaluation::Format;
use assize::judge::{Manner, Mode, Rubric, Step, Unjudged, Verdict, formats};
use assize::trace::Item;
use std::collections::VecDeque;
use std::sync::Arc;

/// The texts of the item in an ask, each after the name of its section.
pub fn texts(ask: &Ask) -> Vec<(String, String)> {
    let Prompt::Chat(messages) = &ask.prompt else {
        panic!("a judge asks in turns")
    };
    let last = messages.last().unwrap();
    assert_eq!(last.role, Role::User);
    let mut texts = Vec::new();
    for pair in last.parts.windows(2) {
        if let [Part::Instruction(lead), Part::Material(text)] = pair {
            let name = lead.rsplit("<<<").next().unwrap();
            let name = name.trim().rsplit_once(' ').unwrap().0;
            texts.push((name.to_string(), text.clone()));
        }
    }
    texts
}

pub fn text(ask: &Ask, name: &str) -> String {
    let found = texts(ask).into_iter().find(|(section, _)| section == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

/// Answers an ask: a list of claims is the sentences of the ANSWER, any other list is empty, and `masses` decides the label.
pub fn answer(ask: &Ask, masses: &dyn Fn(&Ask, &[String]) -> Vec<f64>) -> Result<Answer, Failure> {
    let Shape::Object(fields) = &ask.shape else {
        panic!("an object is asked for")
    };
    let mut written = Vec::new();
    let mut readout = None;
    for field in fields {
        let value =
            match &field.value {
                FieldValue::Text { .. } => "\"because\"".to_string(),
                FieldValue::Quotes { .. } => "[]".to_string(),
                FieldValue::List { .. } => {
                    let text = text(ask, "ANSWER");
                    let sentences = text.split_inclusive('.').map(str::trim);
                    let claims: Vec<String> = sentences
                        .filter(|sentence| sentence.ends_with('.'))
                        .map(|sentence| format!("{{\"claim\":{sentence:?},\"span\":{sentence:?}}}"))
                        .collect();
                    format!("[{}]", claims.join(","))
                }
                FieldValue::Labels(labels) => {
                    let masses = masses(ask, &labels.names);
                    let best = masses.iter().enumerate().fold(0, |best, (at, mass)| {
                        if *mass > masses[best] { at } else { best }
                    });
                    let name = labels.names[best].clone();
                    readout = Some(Readout {
                        labels: labels.names.clone(),
                        log_masses: masses.iter().map(|mass| mass.ln()).collect(),
                    });
                    if labels.quoted {
                        format!("{name:?}")
                    } else {
                        name
                    }
                }
                other => panic!("{other:?} was not expected"),
            };
        written.push(format!("\"{}\":{value}", field.name));
    }
    Ok(Answer {
        text: format!("{{{}}}", written.join(",")),
        readout,
        hidden: None,
        tokens: TokenCounts {
            prompt: 10,
            cached: 4,
            forced: 2,
            generated: 1,
        },
        milliseconds: 1.0,
    })
}

pub type Masses = dyn Fn(&Ask, &[String]) -> Vec<f64>;

/// Drives an evaluation, the last question first so that order can't matter. Returns the outcome and all asks.
pub fn drive(
    format: &Arc<dyn Format>,
    item: Item,
    judge: &dyn Fn(usize, &Ask) -> Result<Answer, Failure>,
) -> (Result<Verdict, Unjudged>, Vec<Ask>) {
    let (mut evaluation, mut step) = format.clone().begin(Arc::new(item));
    let (mut waiting, mut asks) = (VecDeque::new(), Vec::new());
    loop {
        match step {
            Step::Settled(outcome) => return (*outcome, asks),
            Step::Ask(posed) => {
                asks.extend(posed.iter().map(|posed| posed.ask.clone()));
                waiting.extend(posed);
            }
        }
        let posed = waiting
            .pop_back()
            .expect("an open evaluation owes a question");
        step = evaluation.answer(posed.slot, judge(posed.judge, &posed.ask));
    }
}

pub fn judge_with(
    format: &Arc<dyn Format>,
    item: Item,
    masses: &Masses,
) -> Result<Verdict, Unjudged> {
    drive(format, item, &|_, ask| answer(ask, masses)).0
}

pub fn rubric(text: &str) -> Rubric {
    let head = "id = \"r\"\nversion = 1\ncriterion = \"c\"\nquestion = \"q\"\n";
    Rubric::parse(&format!("{head}{text}")).unwrap()
}

pub fn all(text: &str, mode: Mode) -> Vec<Arc<dyn Format>> {
    let manner = Manner {
        mode,
        ..Manner::default()
    };
    formats::of(rubric(text), manner)
}

pub fn format(text: &str) -> Arc<dyn Format> {
    all(text, Mode::Rationale).remove(0)
}
