//! Several engines behind one queue give the answers that one gives, and lose none.

#[path = "common/tiny.rs"]
mod tiny;

use assize::ask::{
    Answer, Answerer, Ask, Decoding, Failure, Labels, Message, Progress, Prompt, Shape, Ticket,
};
use assize::run::devices::{Place, There};
use assize::run::replicas::{Answering, Replicas};
use assize::run::{JudgeSettings, ModelFile};
use candle_core::Device;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// Answers with the prompt, after as many steps as it has letters; comes to an end at `!`, and forgets at `?`.
#[derive(Default)]
struct Echo {
    held: VecDeque<(Ticket, String, usize)>,
    done: u64,
}

impl Answerer for Echo {
    fn submit(&mut self, ticket: Ticket, ask: Ask) {
        let Prompt::Raw(text) = ask.prompt else {
            panic!("a raw prompt")
        };
        let steps = text.len();
        self.held.push_back((ticket, text, steps));
    }

    fn step(&mut self) -> Vec<(Ticket, Result<Answer, Failure>)> {
        let mut settled = Vec::new();
        for (_, text, steps) in &mut self.held {
            assert!(!text.contains('!'), "an end that was asked for");
            *steps = steps.saturating_sub(1);
        }
        self.held.retain(|(ticket, text, steps)| {
            if *steps > 0 {
                return true;
            }
            if !text.contains('?') {
                self.done += 1;
                settled.push((*ticket, Ok(answer(text))));
            }
            false
        });
        settled
    }

    fn progress(&self) -> Progress {
        Progress {
            running: self.held.len(),
            generated_tokens: self.done,
            ..Progress::default()
        }
    }
}

fn answer(text: &str) -> Answer {
    Answer {
        text: text.to_owned(),
        readout: None,
        hidden: None,
        tokens: Default::default(),
        milliseconds: 0.0,
    }
}

fn raw(text: &str) -> Ask {
    Ask {
        prompt: Prompt::Raw(text.to_owned()),
        shape: Shape::Free,
        decoding: Decoding::default(),
    }
}

/// Steps until all asks are settled, or until nothing comes any more.
fn settle(answerer: &mut dyn Answerer, asks: &[Ask]) -> BTreeMap<Ticket, Result<Answer, Failure>> {
    for (ticket, ask) in (0..).zip(asks) {
        answerer.submit(ticket, ask.clone());
    }
    let mut settled = BTreeMap::new();
    while settled.len() < asks.len() {
        for (ticket, result) in answerer.step() {
            assert!(settled.insert(ticket, result).is_none(), "{ticket} twice");
        }
    }
    assert!(answerer.step().is_empty());
    let progress = answerer.progress();
    assert_eq!((progress.waiting, progress.running), (0, 0));
    settled
}

fn echoes(count: usize) -> Replicas {
    let echo = || Box::new(Echo::default()) as Box<dyn Answerer + Send>;
    Replicas::new((0..count).map(|_| echo()).collect(), 3)
}

#[test]
fn every_ask_is_answered_once() {
    let texts: Vec<String> = (0..200).map(|index| "x".repeat(1 + index % 7)).collect();
    let asks: Vec<Ask> = texts.iter().map(|text| raw(text)).collect();
    for count in 1..4 {
        let mut replicas = echoes(count);
        assert!(replicas.step().is_empty());
        for _ in 0..2 {
            let settled = settle(&mut replicas, &asks);
            for (ticket, result) in settled {
                assert_eq!(result.unwrap().text, texts[ticket as usize]);
            }
        }
        assert_eq!(replicas.progress().generated_tokens, 400);
    }
}

#[test]
fn what_a_replica_loses_is_a_failure_and_stops_no_other() {
    let mut asks: Vec<Ask> = (0..30).map(|_| raw("xx")).collect();
    asks[4] = raw("x?");
    let settled = settle(&mut echoes(2), &asks);
    let failed: Vec<Ticket> = (settled.iter())
        .filter(|(_, result)| result.is_err())
        .map(|(ticket, _)| *ticket)
        .collect();
    assert_eq!(failed, [4]);
    // One of two comes to an end, with the three asks at most that it held.
    asks[4] = raw("x!");
    let settled = settle(&mut echoes(2), &asks);
    let failed = settled.values().filter(|result| result.is_err()).count();
    assert!(
        (1..=3).contains(&failed) && settled[&4].is_err(),
        "{failed}"
    );
    // Nobody is left: every ask is settled all the same.
    let settled = settle(&mut echoes(1), &asks);
    assert!(settled[&29].is_err());
    drop(echoes(3));
}

fn asks() -> Vec<Ask> {
    let labels = |quoted| Labels {
        names: ["1", "2", "3", "10"].map(String::from).into(),
        quoted,
    };
    let chat = |text: String| {
        Prompt::Chat(vec![Message {
            role: assize::ask::Role::User,
            parts: vec![assize::ask::Part::Instruction(text)],
        }])
    };
    let schema = r#"{"type":"object","properties":{"why":{"type":"string","maxLength":12},"ok":{"type":"boolean"}},
        "required":["why","ok"],"additionalProperties":false}"#;
    (0..10)
        .map(|index| Ask {
            prompt: chat(format!(
                "Rate the answer number {index} of all that were given."
            )),
            shape: match index % 2 {
                0 => Shape::Labels(labels(false)),
                _ => Shape::Schema(schema.into()),
            },
            decoding: Decoding {
                max_tokens: 64,
                ..Decoding::default()
            },
        })
        .collect()
}

/// Answers of so many twins of a device over one model, or of the packed model.
fn answers(path: &Path, twins: usize) -> BTreeMap<Ticket, Result<Answer, Failure>> {
    let there = (0..twins).map(|index| There {
        name: format!("twin:{index}"),
        about: "the processor".into(),
        device: Device::Cpu,
        free: 4 << 30,
    });
    let place = Place {
        there: there.collect(),
    };
    let settings = JudgeSettings {
        max_batch: 4,
        cache_bytes: Some(16 << 20),
        ..JudgeSettings::default()
    };
    let model = ModelFile::open(path, None).unwrap().compute_on(place);
    let memory = model.plan(&settings).unwrap();
    let loaded = model.load(&settings, &memory, None).unwrap();
    assert_eq!(loaded.others.len(), twins.saturating_sub(1));
    let mut engine = Answering::new(loaded.engine, loaded.others, &settings);
    assert_eq!(engine.alone().is_some(), twins < 2);
    settle(engine.answerer(), &asks())
}

#[test]
fn two_devices_give_the_verdicts_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny::write(folder.path());
    let [packed, one, two] = [0, 1, 2].map(|twins| answers(&path, twins));
    for (ticket, expected) in &one {
        let (expected, found) = (expected.as_ref().unwrap(), two[ticket].as_ref().unwrap());
        assert_eq!(found.text, expected.text, "{ticket}");
        let masses = |answer: &Answer| {
            answer
                .readout
                .as_ref()
                .map(|readout| readout.log_masses.clone())
        };
        let near = |found: &Answer, bound: f64| match (masses(expected), masses(found)) {
            (None, None) => {}
            (Some(expected), Some(found)) => {
                for (expected, found) in expected.iter().zip(&found) {
                    assert!(
                        (expected - found).abs() <= bound,
                        "{ticket}: {found} for {expected}"
                    );
                }
            }
            _ => panic!("{ticket}: a readout and none"),
        };
        near(found, 1e-6);
        near(packed[ticket].as_ref().unwrap(), 0.1);
    }
}
