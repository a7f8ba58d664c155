//! Real models against a float32 reference on the same dequantized weights.

mod reference;

use assize_kernels::Precision;
use reference::{Golden, Job, cached_model, check_invariance, load, pages_of, together};

/// Runs all sequences of a golden file, and holds the mean divergence to `most` nats and the share of equal top tokens
/// to `least`.
fn check(test: &str, model: &str, golden: &str, precision: Precision, most: f64, least: f64) {
    let Some(file) = cached_model(test, model) else {
        return;
    };
    let golden = Golden::read(&format!("logits/{golden}.txt")).expect("a golden file");
    let longest = golden
        .sequences
        .iter()
        .map(|sequence| sequence.tokens.len())
        .max()
        .unwrap_or(0);
    let mut decoder = load(&file, precision, pages_of(longest), None);
    let pages: Vec<u32> = (0..pages_of(longest) as u32).collect();

    let (mut divergence, mut equal, mut positions) = (0.0, 0usize, 0usize);
    for sequence in &golden.sequences {
        assert_eq!(
            sequence.tokens.len(),
            sequence.distributions.len(),
            "{}",
            sequence.name
        );
        let job = Job {
            tokens: &sequence.tokens,
            start: 0,
            chunk: 128,
            pages: pages.clone(),
        };
        together(&mut decoder, &[job], |_, position, logits| {
            let (nats, same) = sequence.distributions[position].compare(logits);
            divergence += nats;
            equal += usize::from(same);
            positions += 1;
        });
    }
    let (mean, share) = (
        divergence / positions as f64,
        equal as f64 / positions as f64,
    );
    println!(
        "{test}: mean divergence {mean:.3e} nats, top token {:.2} % of {positions}",
        100.0 * share
    );
    assert!(positions >= 512, "only {positions} positions");
    assert!(
        mean <= most,
        "{test}: mean divergence {mean:.3e} nats, at most {most:.1e} are allowed"
    );
    assert!(
        share >= least,
        "{test}: {equal} of {positions} top tokens agree, {least} must"
    );
}

#[test]
fn smollm2_exact() {
    let precision = Precision::Exact;
    check(
        "smollm2_exact",
        "smollm2-135m-instruct",
        "smollm2-135m",
        precision,
        1e-5,
        0.999,
    );
}

#[test]
fn smollm2_quantized() {
    let precision = Precision::Quantized;
    check(
        "smollm2_quantized",
        "smollm2-135m-instruct",
        "smollm2-135m",
        precision,
        2.5e-3,
        0.979,
    );
}

#[test]
fn smollm2_is_the_same_however_it_is_batched() {
    let test = "smollm2_is_the_same_however_it_is_batched";
    let Some(file) = cached_model(test, "smollm2-135m-instruct") else {
        return;
    };
    let golden = Golden::read("logits/smollm2-135m.txt").expect("a golden file");
    let tokens = &golden.sequences[0].tokens;
    let others = [&tokens[100..160], &tokens[200..217], &tokens[30..31]];
    for precision in [Precision::Quantized, Precision::Exact] {
        check_invariance("smollm2", &file, &tokens[..70], &others, precision);
    }
}
