//! Panels and cascades over judges that a script plays.

use assize::ask::{Answer, Failure, Readout, TokenCounts};
use assize::judge::evaluation::Format;
use assize::judge::{
    Cascade, Details, Manner, Member, Mode, Panel, Rubric, Step, Thresholds, Together, Unjudged,
    Verdict, formats,
};
use assize::trace::Item;
use std::sync::Arc;

fn rubric() -> Rubric {
    let levels: String = (1..=5)
        .map(|level| format!("[[level]]\nlabel = {level}\ndescription = \"d\"\n"))
        .collect();
    Rubric::parse(&format!(
        "id = \"r\"\nversion = 1\ncriterion = \"c\"\nquestion = \"q\"\nscale = \"integer\"\nshows = [\"answer\"]\n{levels}"
    ))
    .unwrap()
}

fn format() -> Arc<dyn Format> {
    let manner = Manner {
        mode: Mode::ScoreOnly,
        ..Manner::default()
    };
    formats::of(rubric(), manner).remove(0)
}

/// An answer whose masses over 1 to 5 are these.
fn said(masses: [f64; 5]) -> Result<Answer, Failure> {
    let best = (0..5).fold(
        0,
        |best, at| if masses[at] > masses[best] { at } else { best },
    );
    Ok(Answer {
        text: format!("{{\"score\":{}}}", best + 1),
        readout: Some(Readout {
            labels: (1..=5).map(|level| level.to_string()).collect(),
            log_masses: masses.map(f64::ln).to_vec(),
        }),
        hidden: None,
        tokens: TokenCounts {
            prompt: 10,
            cached: 3,
            forced: 0,
            generated: 1,
        },
        milliseconds: 1.0,
    })
}

/// Drives one item past judges that always say the same; counts what each was asked.
fn drive(
    format: &Arc<dyn Format>,
    name: &str,
    judges: &[Result<Answer, Failure>],
) -> (Result<Verdict, Unjudged>, Vec<usize>) {
    let (mut evaluation, mut step) = format.clone().begin(Arc::new(Item::answered(name, "x")));
    let (mut waiting, mut asked) = (Vec::new(), vec![0; judges.len()]);
    loop {
        match step {
            Step::Settled(outcome) => return (*outcome, asked),
            Step::Ask(posed) => waiting.extend(posed),
        }
        let posed = waiting.pop().expect("an open evaluation owes a question");
        asked[posed.judge] += 1;
        step = evaluation.answer(posed.slot, judges[posed.judge].clone());
    }
}

fn panel(together: Together, count: usize) -> Arc<dyn Format> {
    let member = |judge: usize| Member {
        name: format!("judge {judge}"),
        judge,
        format: format(),
    };
    Arc::new(Panel {
        members: (0..count).map(member).collect(),
        together,
        review_above: 0.6,
        rubric: rubric(),
    })
}

const ONE: [f64; 5] = [0.8, 0.1, 0.0, 0.0, 0.0];
const TWO: [f64; 5] = [0.2, 0.6, 0.1, 0.0, 0.0];
const FIVE: [f64; 5] = [0.0, 0.0, 0.0, 0.1, 0.9];

#[test]
fn votes_are_brought_together() {
    let check = |together, masses: &[[f64; 5]], want: Result<&str, &str>, review: bool| {
        let judges: Vec<_> = masses.iter().map(|masses| said(*masses)).collect();
        let (outcome, asked) = drive(&panel(together, judges.len()), "1", &judges);
        assert!(asked.iter().all(|count| *count == 1));
        match (outcome, want) {
            (Ok(verdict), Ok(label)) => {
                assert_eq!(verdict.label, label, "{masses:?}");
                let Some(Details::Panel(panel)) = verdict.details else {
                    panic!("a panel tells its members")
                };
                assert_eq!((panel.members.len(), panel.review), (masses.len(), review));
                assert_eq!(verdict.tokens.prompt, 10 * masses.len());
            }
            (Err(Unjudged::Panel(reason)), Err(part)) => assert!(reason.contains(part), "{reason}"),
            other => panic!("{masses:?}: {other:?}"),
        }
    };
    use Together::{Majority, Mean, Unanimous};
    check(Majority, &[ONE, ONE, FIVE], Ok("1"), true);
    check(Majority, &[ONE, ONE, ONE], Ok("1"), false);
    // One vote each: 1 has 0.89 + 0.22 of probability, 2 has 0.11 + 0.67.
    check(Majority, &[ONE, TWO], Ok("1"), true);
    check(
        Majority,
        &[ONE, [0.1, 0.8, 0.0, 0.0, 0.0]],
        Err("several labels"),
        true,
    );
    // Means of 1.1, 1.1 and 4.9.
    check(Mean, &[ONE, ONE, FIVE], Ok("2"), true);
    check(Unanimous, &[FIVE, FIVE], Ok("5"), false);
    check(
        Unanimous,
        &[ONE, FIVE],
        Err("do not all agree (1 1, 5 1)"),
        true,
    );
}

#[test]
fn a_judge_that_fails_has_no_vote_and_is_told() {
    let judges = [said(ONE), Err(Failure::NonFiniteLogits), said(ONE)];
    let (outcome, _) = drive(&panel(Together::Majority, 3), "1", &judges);
    let Some(Details::Panel(told)) = outcome.unwrap().details else {
        panic!("a panel tells its members")
    };
    assert!(told.review && told.members[1].label.is_none() && told.members[1].failure.is_some());
    let (outcome, _) = drive(&panel(Together::Unanimous, 3), "1", &judges);
    assert!(matches!(outcome, Err(Unjudged::Panel(_))));
    let all: Vec<_> = (0..2).map(|_| Err(Failure::NonFiniteLogits)).collect();
    let (outcome, _) = drive(&panel(Together::Mean, 2), "1", &all);
    assert_eq!(outcome, Err(Unjudged::Asked(Failure::NonFiniteLogits)));
}

#[test]
fn what_may_pass_decides_nothing() {
    let short = Failure::ContextOverflow {
        prompt: 9,
        answer: 1,
        context: 8,
    };
    let judges = [said(ONE), Err(short.clone()), said(ONE)];
    let (outcome, _) = drive(&panel(Together::Majority, 3), "1", &judges);
    assert_eq!(outcome, Err(Unjudged::Asked(short.clone())));
    let (outcome, asked) = drive(&cascade(0.0), "1", &[Err(short.clone()), said(FIVE)]);
    assert_eq!((outcome, asked), (Err(Unjudged::Asked(short)), vec![1, 0]));
}

fn cascade(audit: f64) -> Arc<dyn Format> {
    Arc::new(Cascade {
        first: format(),
        second: format(),
        thresholds: Thresholds {
            margin: 0.5,
            entropy: Some(1.1),
            mass: 0.5,
        },
        audit,
        seed: 0,
    })
}

#[test]
fn what_the_first_judge_is_not_sure_of_is_handed_on() {
    let check = |first: Result<Answer, Failure>, label: &str, by: usize, reason: Option<&str>| {
        let (outcome, asked) = drive(&cascade(0.0), "1", &[first, said(FIVE)]);
        let verdict = outcome.unwrap();
        let Some(Details::Cascade(told)) = verdict.details else {
            panic!("a cascade tells its way")
        };
        assert_eq!((verdict.label.as_str(), told.settled_by), (label, by));
        assert_eq!(told.handed_on.as_deref(), reason);
        assert_eq!((asked, told.cost), (vec![1, by], [8, 8 * by]));
    };
    check(said(ONE), "1", 0, None);
    check(said([0.4, 0.3, 0.0, 0.0, 0.0]), "5", 1, Some("margin"));
    check(said([0.3, 0.0, 0.0, 0.0, 0.01]), "5", 1, Some("mass"));
    check(
        said([0.64, 0.09, 0.09, 0.09, 0.09]),
        "5",
        1,
        Some("entropy"),
    );

    let (outcome, asked) = drive(
        &cascade(0.0),
        "1",
        &[Err(Failure::NonFiniteLogits), said(FIVE)],
    );
    assert_eq!((outcome.unwrap().label.as_str(), asked), ("5", vec![1, 1]));
    // Where the larger judge fails, the doubtful verdict does not take its place.
    let doubtful = said([0.4, 0.3, 0.0, 0.0, 0.0]);
    let (outcome, _) = drive(
        &cascade(0.0),
        "1",
        &[doubtful, Err(Failure::NonFiniteLogits)],
    );
    assert_eq!(outcome, Err(Unjudged::Asked(Failure::NonFiniteLogits)));
}

#[test]
fn an_audit_asks_both_and_keeps_the_first() {
    let mut audited = 0;
    for item in 0..200 {
        let (outcome, asked) = drive(&cascade(0.25), &item.to_string(), &[said(ONE), said(FIVE)]);
        let verdict = outcome.unwrap();
        let Some(Details::Cascade(told)) = verdict.details else {
            panic!("a cascade tells its way")
        };
        assert_eq!((verdict.label.as_str(), told.settled_by), ("1", 0));
        if asked[1] == 1 {
            audited += 1;
            assert_eq!(
                (told.handed_on.as_deref(), told.second.as_deref()),
                (Some("audit"), Some("5"))
            );
        }
    }
    assert!((25..80).contains(&audited), "{audited} of 200");
}
