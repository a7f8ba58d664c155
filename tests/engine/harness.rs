//! Running asks through an engine, and what is compared afterwards.

use crate::fake::{Fake, FakeFrontend, Stats};
use crate::simulation::simulate;
use assize::ask::{
    Answer, Answerer, Ask, Decoding, Failure, Field, FieldValue, Labels, Prompt, Shape,
};
use assize::engine::{Engine, EngineSettings};
use std::sync::{Arc, Mutex};

pub fn settings(
    max_batch: usize,
    max_batch_tokens: usize,
    prefill_chunk: usize,
    prefix_cache: bool,
) -> EngineSettings {
    EngineSettings {
        max_batch,
        max_batch_tokens,
        prefill_chunk,
        prefix_cache,
    }
}

pub fn labels(names: &[&str], quoted: bool) -> Labels {
    Labels {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        quoted,
    }
}

pub fn scales() -> Vec<Labels> {
    vec![
        labels(&["1", "2", "3", "4", "5"], false),
        labels(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"], false),
        labels(&["pass", "fail"], true),
        labels(&["1", "10", "100"], false),
        labels(&["100", "10", "1"], false),
        labels(&["a", "ab", "abc", "b"], true),
    ]
}

pub fn object(max_chars: usize, labels: Labels) -> Shape {
    let field = |name: &str, value| Field {
        name: name.to_owned(),
        value,
    };
    Shape::Object(vec![
        field("r", FieldValue::Text { max_chars }),
        field("s", FieldValue::Labels(labels)),
    ])
}

pub fn ask(prompt: &str, shape: Shape) -> Ask {
    Ask {
        prompt: Prompt::Raw(prompt.to_owned()),
        shape,
        decoding: Decoding {
            max_tokens: 60,
            ..Decoding::default()
        },
    }
}

/// What an answer says, in bits; timings and cache hits aside.
pub type Bits = Result<(String, Option<Vec<u64>>, [usize; 3]), Failure>;

pub fn bits(result: &Result<Answer, Failure>) -> Bits {
    let answer = result.as_ref().map_err(Failure::clone)?;
    let masses = answer.readout.as_ref().map(|readout| {
        readout
            .log_masses
            .iter()
            .map(|mass| mass.to_bits())
            .collect()
    });
    Ok((
        answer.text.clone(),
        masses,
        [
            answer.tokens.prompt,
            answer.tokens.forced,
            answer.tokens.generated,
        ],
    ))
}

pub struct Outcome {
    pub answers: Vec<Result<Answer, Failure>>,
    pub stats: Arc<Mutex<Stats>>,
    pub progress: assize::ask::Progress,
    /// Tickets in order of settling.
    pub settled: Vec<u64>,
}

/// Runs asks in the given order and checks that every one is settled once and that no page is lost.
pub fn run(
    asks: &[Ask],
    order: &[usize],
    context: usize,
    pages: usize,
    settings: EngineSettings,
) -> Outcome {
    let model = Fake::new(context, pages);
    let stats = Arc::clone(&model.stats);
    let mut engine = Engine::new(Box::new(model), Box::new(FakeFrontend), settings);
    for index in order {
        engine.submit(*index as u64, asks[*index].clone());
    }
    let mut answers: Vec<Option<Result<Answer, Failure>>> = vec![None; asks.len()];
    let mut steps = 0;
    let mut settled = Vec::new();
    while engine.progress().waiting + engine.progress().running > 0 {
        steps += 1;
        assert!(steps < 200_000, "no end: {:?}", engine.progress());
        for (ticket, result) in engine.step() {
            settled.push(ticket);
            assert!(
                answers[ticket as usize].replace(result).is_none(),
                "settled twice"
            );
        }
        assert!(engine.progress().running <= settings.max_batch);
    }
    assert!(engine.step().is_empty(), "nothing to do");
    let scheduler = engine.runner().scheduler();
    assert_eq!(
        scheduler.pages().free() + scheduler.prefix().len(),
        pages,
        "a page is lost"
    );
    assert_eq!(
        scheduler.prefix().idle(scheduler.pages()),
        scheduler.prefix().len()
    );
    let answers = answers
        .into_iter()
        .map(|answer| answer.expect("an ask was never settled"))
        .collect();
    Outcome {
        answers,
        stats,
        progress: engine.progress(),
        settled,
    }
}

pub fn alone(ask: &Ask) -> Result<Answer, Failure> {
    let outcome = run(
        std::slice::from_ref(ask),
        &[0],
        4096,
        64,
        settings(1, 4096, 4096, false),
    );
    outcome.answers.into_iter().next().unwrap()
}

pub fn check_against_simulation(ask: &Ask, answer: &Result<Answer, Failure>) {
    match (simulate(ask), answer) {
        (Ok((text, masses)), Ok(answer)) => {
            assert_eq!(answer.text, text);
            assert_eq!(answer.readout.is_some(), masses.is_some());
            if let (Some(masses), Some(readout)) = (masses, &answer.readout) {
                for (mass, log_mass) in masses.iter().zip(&readout.log_masses) {
                    assert!(
                        (mass - log_mass.exp()).abs() < 1e-9,
                        "{masses:?} {:?}",
                        readout.log_masses
                    );
                }
            }
        }
        (Err(expected), Err(found)) => assert_eq!(*found, expected),
        (expected, found) => panic!("{expected:?} against {found:?}"),
    }
}
