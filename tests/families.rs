//! Tiny random models of every family against `transformers` models of the same weights.

mod reference;

use assize_kernels::Precision;
use reference::{Golden, Job, check_invariance, golden, load, pages_of, together};

/// Holds every logit of the model's golden file to the file's own tolerance, and each position's divergence to 1e-5
/// nats. `contexts` are the contexts that its sequences are run under.
fn check(name: &str, contexts: &[Option<usize>]) {
    let reference = Golden::read(&format!("families/{name}.txt")).expect("a golden file");
    let tolerance: f32 = reference.origin["tolerance"].parse().expect("a number");
    assert_eq!(reference.sequences.len(), contexts.len(), "{name}");
    for (sequence, context) in reference.sequences.iter().zip(contexts) {
        let tokens = &sequence.tokens;
        assert_eq!(sequence.logits.len(), tokens.len(), "{name}");
        let pages = pages_of(tokens.len());
        let file = golden(&format!("families/{name}.gguf"));
        let mut decoder = load(&file, Precision::Exact, pages, *context);
        let job = Job {
            tokens,
            start: 0,
            chunk: tokens.len(),
            pages: (0..pages as u32).collect(),
        };
        let (mut widest, mut divergence) = (0f32, 0f64);
        together(&mut decoder, &[job], |_, position, found| {
            let expected = &sequence.logits[position];
            assert_eq!(found.len(), expected.len(), "{name}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.is_finite(), "{name}, position {position}: {found}");
                widest = widest.max((found - expected).abs());
            }
            divergence = divergence.max(nats(expected, found));
        });
        println!(
            "{name}, {}: difference {widest:.1e}, divergence {divergence:.1e} nats",
            sequence.name
        );
        assert!(
            widest <= tolerance,
            "{name}, {}: a logit differs by {widest:e}",
            sequence.name
        );
        assert!(
            divergence <= 1e-5,
            "{name}, {}: a position diverges by {divergence:e} nats",
            sequence.name
        );
    }
}

/// The divergence of `found` from `expected`.
fn nats(expected: &[f32], found: &[f32]) -> f64 {
    let logs = |logits: &[f32]| -> Vec<f64> {
        let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        logits
            .iter()
            .map(|logit| f64::from(*logit) - total.ln())
            .collect()
    };
    logs(expected)
        .iter()
        .zip(logs(found))
        .map(|(p, q)| p.exp() * (p - q))
        .sum()
}

const FAMILIES: [&str; 13] = [
    "llama",
    "llama-mixed",
    "llama3",
    "mistral",
    "mixtral-stacked",
    "mixtral-split",
    "qwen2",
    "qwen3",
    "phi3-longrope",
    "phi3-window",
    "gemma2",
    "gemma3",
    "gemma3-scaled",
];

#[test]
fn every_family_equals_its_transformers_model() {
    for name in FAMILIES {
        match name {
            // The original context is 24: the first sequence is to be run by the short factors, the second by the long.
            "phi3-longrope" => check(name, &[Some(24), None]),
            _ => check(name, &[None]),
        }
    }
}

#[test]
fn every_family_is_the_same_however_it_is_batched() {
    for name in FAMILIES {
        let reference = Golden::read(&format!("families/{name}.txt")).expect("a golden file");
        let tokens = &reference.sequences.last().expect("a sequence").tokens;
        let others = [&tokens[3..40], &tokens[7..17], &tokens[5..6]];
        for precision in [Precision::Quantized, Precision::Exact] {
            let file = golden(&format!("families/{name}.gguf"));
            check_invariance(name, &file, tokens, &others, precision);
        }
    }
}
