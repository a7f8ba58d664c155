//! Readout on real models: the engine against brute force, which teacher-forces every token path to every label.
//!
//! The brute force knows no trie, no branch and no page sharing: it spells labels with every token of the vocabulary whose
//! bytes fit, and runs each history from its start.

mod common;
mod reference;

use assize::ask::{Answerer, Ask, Decoding, Field, FieldValue, Labels, Prompt, Segment, Shape};
use assize::constrain::Next;
use assize::engine::frontend::{Frontend, ModelFrontend};
use assize::engine::{Engine, EngineSettings};
use assize::model::batch::{Batch, Forward, PAGE, Span};
use assize::model::cache::KvType;
use assize::model::decoder::Decoder;
use assize::tokenizer::Tokenizer;
use assize::weights::Store;
use assize_kernels::Precision;
use reference::{cached_model, load};
use std::path::Path;
use std::sync::Arc;

const PAGES: usize = 32;

/// Every token path to every label. Each history is one pass from position 0.
struct BruteForce<'a> {
    decoder: &'a mut Decoder,
    tokenizer: &'a Tokenizer,
    names: &'a [String],
    /// A label may stand behind it, or without it.
    opening: &'a str,
    closing: &'a str,
    masses: Vec<f64>,
    passes: usize,
}

impl BruteForce<'_> {
    fn walk(&mut self, history: &[u32], spelled: &[u8], probability: f64) {
        let probabilities = self.probabilities(history);
        let mut on = 0.0;
        for (token, share) in probabilities.into_iter().enumerate() {
            let word = self.tokenizer.bytes(token as u32);
            if word.is_empty() || self.tokenizer.is_control(token as u32) {
                continue;
            }
            let next = [spelled, word].concat();
            let goes_on =
                |(_, name): &(usize, Vec<u8>)| name.len() > next.len() && name.starts_with(&next);
            let ends = |(label, name): (usize, Vec<u8>)| {
                let full = [name.as_slice(), self.closing.as_bytes()].concat();
                let over = name.len() > spelled.len()
                    && next.starts_with(&name)
                    && full.starts_with(&next);
                over.then_some(label)
            };
            if self.spellings().iter().any(goes_on) {
                self.walk(
                    &[history, &[token as u32]].concat(),
                    &next,
                    probability * share,
                );
            } else if let Some(label) = self.spellings().into_iter().find_map(ends) {
                self.masses[label] += probability * share;
            } else {
                continue;
            }
            on += share;
        }
        if let Some((label, _)) = self
            .spellings()
            .into_iter()
            .find(|(_, name)| name == spelled)
        {
            self.masses[label] += probability * (1.0 - on);
        }
    }

    /// Each text that spells a label.
    fn spellings(&self) -> Vec<(usize, Vec<u8>)> {
        let mut openings = vec!["", self.opening];
        openings.dedup();
        let labels = self.names.iter().enumerate();
        labels
            .flat_map(|(label, name)| {
                let spell = move |opening: &&str| (label, format!("{opening}{name}").into_bytes());
                openings.iter().map(spell).collect::<Vec<_>>()
            })
            .collect()
    }

    fn probabilities(&mut self, history: &[u32]) -> Vec<f64> {
        self.passes += 1;
        let pages = (0..history.len().div_ceil(PAGE) as u32).collect();
        let span = Span {
            first: 0,
            rows: history.len(),
            position: 0,
            pages,
        };
        let batch = Batch {
            tokens: history.to_vec(),
            spans: vec![span],
            outputs: vec![history.len() - 1],
        };
        let logits = self.decoder.forward(&batch).expect("a pass");
        let weights: Vec<f64> = logits.iter().map(|logit| f64::from(*logit).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }
}

fn levels(most: usize) -> Labels {
    Labels {
        names: (1..=most).map(|level| level.to_string()).collect(),
        quoted: false,
    }
}

/// Compares label masses on two scales, with and without JSON around the label.
fn check(test: &str, model: &str) {
    let Some(file) = cached_model(test, model) else {
        return;
    };
    let store = Store::open(&file).expect("the model file");
    let tokenizer = Arc::new(Tokenizer::from_metadata(store.metadata()).expect("its tokenizer"));
    let mut decoder = load(&file, Precision::Quantized, KvType::F16, PAGES, None);
    let frontend = ModelFrontend::new(Arc::clone(&tokenizer), None).expect("its vocabulary");
    let words = Labels {
        names: vec!["yes".to_owned(), "no".to_owned()],
        quoted: true,
    };
    let field = |labels| {
        Shape::Object(vec![Field {
            name: "score".to_owned(),
            value: FieldValue::Labels(labels),
        }])
    };
    let written = |labels, closing: Option<&str>| {
        let mut segments = vec![
            Segment::Literal("It is very well known: [RESULT] ".to_owned()),
            Segment::Labels(labels),
        ];
        segments.extend(closing.map(|text| Segment::Literal(text.to_owned())));
        Shape::Written(segments)
    };
    let prompt =
        Prompt::Raw("Rate from 1 to 10 how well Paris is a city in France. Rating: ".to_owned());
    let cases = [
        (Shape::Labels(levels(5)), levels(5), "", ""),
        (Shape::Labels(levels(10)), levels(10), "", ""),
        (field(levels(5)), levels(5), "", "}"),
        (field(levels(10)), levels(10), "", "}"),
        (field(words.clone()), words, "", "\"}"),
        (written(levels(10), None), levels(10), " ", ""),
        (written(levels(5), Some("\n")), levels(5), " ", "\n"),
    ];
    let mut expected = Vec::new();
    for (shape, labels, opening, closing) in &cases {
        let mut history = frontend.encode(&prompt).expect("a prompt");
        let mut constraint = frontend.constrain(shape).expect("a shape");
        while let Next::Forced(tokens) = constraint.next().expect("a literal") {
            constraint.advance(&tokens).expect("its own tokens");
            history.extend(tokens);
        }
        let masses = vec![0.0; labels.names.len()];
        let names = &labels.names;
        let mut brute = BruteForce {
            decoder: &mut decoder,
            tokenizer: &tokenizer,
            names,
            opening,
            closing,
            masses,
            passes: 0,
        };
        brute.walk(&history, &[], 1.0);
        println!(
            "{test}: {} labels before {closing:?} took {} passes",
            names.len(),
            brute.passes
        );
        expected.push(brute.masses);
    }
    let mut engine = Engine::new(
        Box::new(decoder),
        Box::new(frontend),
        EngineSettings::default(),
    );
    for (ticket, (shape, ..)) in (0..).zip(&cases) {
        let decoding = Decoding {
            max_tokens: 40,
            ..Decoding::default()
        };
        engine.submit(
            ticket,
            Ask {
                prompt: prompt.clone(),
                shape: shape.clone(),
                decoding,
            },
        );
    }
    let mut settled = 0;
    while engine.progress().waiting + engine.progress().running > 0 {
        for (ticket, result) in engine.step() {
            let readout = result.expect("an answer").readout.expect("a readout");
            let expected = &expected[ticket as usize];
            let mass: f64 = expected.iter().sum();
            assert!(
                mass > 1e-6 && mass <= 1.0 + 1e-9,
                "{test}: the labels have a mass of {mass}"
            );
            for ((label, log_mass), expected) in
                readout.labels.iter().zip(&readout.log_masses).zip(expected)
            {
                let found = log_mass.exp();
                assert!(
                    (found - expected).abs() < 1e-5 * mass.min(1.0),
                    "{test}, case {ticket}: {label} has {found}, brute force says {expected}"
                );
            }
            println!("{test}: case {ticket}, mass {mass:.4}");
            settled += 1;
        }
    }
    assert_eq!(settled, cases.len());
}

/// One answer in bits: text, label masses, and the counts that no cache can change.
type Bits = (String, Vec<u64>, [usize; 3]);

/// Answers in the order of the asks, submitted in another order.
fn answers(
    file: &Path,
    asks: &[Ask],
    order: &[usize],
    pages: usize,
    settings: EngineSettings,
) -> Vec<Bits> {
    let store = Store::open(file).expect("the model file");
    let tokenizer = Arc::new(Tokenizer::from_metadata(store.metadata()).expect("its tokenizer"));
    let frontend = ModelFrontend::new(tokenizer, None).expect("its vocabulary");
    let decoder = load(file, Precision::Quantized, KvType::F16, pages, None);
    let mut engine = Engine::new(Box::new(decoder), Box::new(frontend), settings);
    for index in order {
        engine.submit(*index as u64, asks[*index].clone());
    }
    let mut answers = vec![Bits::default(); asks.len()];
    while engine.progress().waiting + engine.progress().running > 0 {
        for (ticket, result) in engine.step() {
            let answer = result.expect("an answer");
            let masses = answer.readout.expect("a readout").log_masses;
            let counts = [
                answer.tokens.prompt,
                answer.tokens.forced,
                answer.tokens.generated,
            ];
            answers[ticket as usize] = (
                answer.text,
                masses.iter().map(|mass| mass.to_bits()).collect(),
                counts,
            );
        }
    }
    answers
}

#[test]
fn smollm2_answers_are_the_same_bits_in_any_company() {
    let test = "smollm2_answers_are_the_same_bits_in_any_company";
    let Some(file) = cached_model(test, "smollm2-135m-instruct") else {
        return;
    };
    let field = |name: &str, value| Field {
        name: name.to_owned(),
        value,
    };
    let shape = Shape::Object(vec![
        field("rationale", FieldValue::Text { max_chars: 24 }),
        field("score", FieldValue::Labels(levels(10))),
    ]);
    let asks: Vec<Ask> = ["Paris.", "Rome is it.", "I don't know"]
        .into_iter()
        .zip([0.0, 0.0, 0.8])
        .map(|(answer, temperature)| Ask {
            prompt: Prompt::Raw(format!(
                "Rate from 1 to 10. What is the capital of France? {answer}\n"
            )),
            shape: shape.clone(),
            decoding: Decoding {
                temperature,
                max_tokens: 60,
                ..Decoding::default()
            },
        })
        .collect();
    let alone = EngineSettings {
        max_batch: 1,
        max_batch_tokens: 512,
        prefill_chunk: 256,
        prefix_cache: false,
    };
    let expected = answers(&file, &asks, &[0, 1, 2], 16, alone);
    for (text, masses, counts) in &expected {
        println!("{test}: {text} {counts:?}");
        assert!(text.starts_with("{\"rationale\":\"") && text.ends_with('}') && masses.len() == 10);
    }
    let together = EngineSettings {
        max_batch: 3,
        max_batch_tokens: 40,
        prefill_chunk: 7,
        prefix_cache: true,
    };
    assert_eq!(answers(&file, &asks, &[2, 0, 1], 16, together), expected);
    // Pages for little more than one of them: the others wait or are preempted.
    assert_eq!(answers(&file, &asks, &[1, 2, 0], 7, together), expected);
}

#[test]
fn smollm2_byte_level() {
    check("smollm2_byte_level", "smollm2-135m-instruct");
}

#[test]
fn gemma3_sentence_piece() {
    check("gemma3_sentence_piece", "gemma-3-270m");
}
