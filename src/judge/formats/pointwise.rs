//! Pointwise judging: one answer, one scale, one question.

use crate::ask::{Answer, Failure};
use crate::judge::evaluation::{Evaluation, Format, Nothing, Step};
use crate::judge::formats::Manner;
use crate::judge::prompt;
use crate::judge::question::{self, Question};
use crate::judge::rubric::{Example, Rubric};
use crate::judge::unjudged::Unjudged;
use crate::judge::verdict::{Cost, Verdict};
use crate::trace::Item;
use std::sync::Arc;

/// What the judge writes before the label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A rationale and quotes; the label is conditional on them.
    #[default]
    Rationale,
    /// Nothing: the label is read out right after the prompt, and no token is decoded.
    ScoreOnly,
}

impl Mode {
    /// Its name on the command line and in `run.json`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Rationale => "rationale",
            Mode::ScoreOnly => "score-only",
        }
    }
}

/// Pointwise judging under one rubric.
#[derive(Clone, Debug)]
pub struct Pointwise {
    /// The rubric.
    pub rubric: Rubric,
    /// How the run judges.
    pub manner: Manner,
}

impl Pointwise {
    /// The question about an item.
    ///
    /// # Errors
    /// [`Unjudged::Missing`] names a field that the rubric shows and the item does not have.
    pub fn question<'a>(&'a self, item: &'a Item) -> Result<Question<'a>, Unjudged> {
        // Who has seen the label does not judge the item.
        let shown = |example: &Example| {
            item.answer.as_deref() == Some(&example.answer) && item.input == example.input
        };
        if self.rubric.examples.iter().any(shown) {
            return Err(Unjudged::Shown);
        }
        Question::pointwise(&self.rubric, item, self.manner)
    }

    fn seed(&self, item: &Item) -> u64 {
        let answer = item.answer.as_deref().unwrap_or_default();
        question::seed(self.manner.seed, item, &[answer])
    }

    fn rule(&self, item: &Item, answer: &Answer) -> Result<Verdict, Unjudged> {
        let opinion = self.question(item)?.read(answer)?;
        Ok(Verdict::of(opinion, Cost::of([answer])))
    }
}

impl Format for Pointwise {
    fn rubric(&self) -> &Rubric {
        &self.rubric
    }

    fn wording(&self) -> String {
        let item = super::probe();
        prompt::digest(self.question(&item).as_ref())
    }

    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step) {
        let asked = self
            .question(&item)
            .and_then(|question| question.ask(self.seed(&item)));
        let step = Step::one(asked);
        match step {
            Step::Ask(_) => (Box::new(Asked { format: self, item }), step),
            Step::Settled(_) => (Box::new(Nothing), step),
        }
    }
}

/// An item whose question was asked.
struct Asked {
    format: Arc<Pointwise>,
    item: Arc<Item>,
}

impl Evaluation for Asked {
    fn answer(&mut self, _slot: usize, answer: Result<Answer, Failure>) -> Step {
        let answer = answer.map_err(Unjudged::from);
        Step::settled(answer.and_then(|answer| self.format.rule(&self.item, &answer)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ask::{Readout, Shape, TokenCounts};
    use crate::judge::Quote;

    pub(crate) fn rubric(extra: &str) -> Rubric {
        Rubric::parse(&format!(
            "id = \"r\"\nversion = 1\ncriterion = \"c\"\nquestion = \"q\"\nscale = \"binary\"\n{extra}\n\
             [[level]]\nlabel = \"pass\"\ndescription = \"good\"\n[[level]]\nlabel = \"fail\"\ndescription = \"bad\"\n"
        ))
        .unwrap()
    }

    pub(crate) fn item(answer: &str) -> Item {
        Item {
            input: Some("what?".into()),
            ..Item::answered("1", answer)
        }
    }

    fn answer(text: &str, masses: [f64; 2]) -> Answer {
        Answer {
            text: text.into(),
            readout: Some(Readout {
                labels: vec!["pass".into(), "fail".into()],
                log_masses: masses.to_vec(),
            }),
            hidden: None,
            tokens: TokenCounts::default(),
            milliseconds: 1.0,
        }
    }

    const MASSES: [f64; 2] = [-0.2231435513142097, -std::f64::consts::LN_10]; // ln 0.8, ln 0.1

    fn check(text: &str, masses: [f64; 2], want: Result<&str, Failure>) {
        let format = Pointwise {
            rubric: rubric(""),
            manner: Manner {
                mode: Mode::Rationale,
                seed: 0,
                ..Manner::default()
            },
        };
        let found = format.rule(&item("one two"), &answer(text, masses));
        assert_eq!(
            found.map(|verdict| verdict.label),
            want.map(String::from).map_err(Unjudged::Asked),
            "{text}"
        );
    }

    #[test]
    fn a_verdict_is_read() {
        let format = Pointwise {
            rubric: rubric("mass_threshold = 0.95"),
            manner: Manner {
                mode: Mode::Rationale,
                seed: 0,
                ..Manner::default()
            },
        };
        let text = r#"{"rationale":"r","evidence":["two"],"verdict":"pass"}"#;
        let verdict = format
            .rule(&item("one two"), &answer(text, MASSES))
            .unwrap();
        assert_eq!(
            (
                verdict.label.as_str(),
                verdict.reading.as_ref().unwrap().low_mass
            ),
            ("pass", true)
        );
        assert!((verdict.expected.unwrap() - 8.0 / 9.0).abs() < 1e-12);
        assert!((verdict.reading.unwrap().mass - 0.9).abs() < 1e-12);
        assert_eq!(
            verdict.evidence,
            [Quote {
                quote: "two".into(),
                start: 4,
                end: 7
            }]
        );
    }

    #[test]
    fn nothing_is_guessed() {
        let grammar = |reason: &str| Err(Failure::Grammar(reason.into()));
        let none = f64::NEG_INFINITY;
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"pass"}"#,
            MASSES,
            Ok("pass"),
        );
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"fail"}"#,
            [-1.0, -1.0],
            Ok("fail"),
        );
        check(
            "pass",
            MASSES,
            grammar("the judge's output is not one JSON object"),
        );
        check(
            r#"{"rationale":"r","evidence":[]}"#,
            MASSES,
            grammar("the judge's output has no label"),
        );
        check(
            r#"{"rationale":"r","evidence":["six"],"verdict":"pass"}"#,
            MASSES,
            grammar("a quote is not in the answer"),
        );
        check(
            r#"{"rationale":"r","evidence":[""],"verdict":"pass"}"#,
            MASSES,
            grammar("a quote is not in the answer"),
        );
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"fail"}"#,
            MASSES,
            grammar("the written label is not the most probable one"),
        );
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"pass"}"#,
            [f64::NAN, 0.0],
            Err(Failure::NonFiniteLogits),
        );
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"pass"}"#,
            [none, none],
            grammar("no label has any probability"),
        );
    }

    #[test]
    fn score_only_asks_for_the_label_alone() {
        let format = Pointwise {
            rubric: rubric(""),
            manner: Manner {
                mode: Mode::ScoreOnly,
                seed: 0,
                ..Manner::default()
            },
        };
        let Shape::Object(fields) = format.question(&item("x")).unwrap().ask(0).unwrap().shape
        else {
            panic!("an object")
        };
        assert_eq!(
            fields
                .iter()
                .map(|field| field.name.as_str())
                .collect::<Vec<_>>(),
            ["verdict"]
        );
        let verdict = format
            .rule(&item("x"), &answer(r#"{"verdict":"pass"}"#, MASSES))
            .unwrap();
        assert_eq!((verdict.rationale, verdict.evidence.len()), (None, 0));
    }

    #[test]
    fn seeds_are_an_items_own() {
        let seed = |seed, answer| {
            let format = Pointwise {
                rubric: rubric(""),
                manner: Manner {
                    mode: Mode::Rationale,
                    seed,
                    ..Manner::default()
                },
            };
            format.seed(&item(answer))
        };
        assert_eq!(seed(1, "x"), seed(1, "x"));
        assert_ne!(seed(1, "x"), seed(2, "x"));
        assert_ne!(seed(1, "x"), seed(1, "y"));
    }
}
