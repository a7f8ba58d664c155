//! Real models against a float32 reference on the same dequantized weights.
//!
//! The goldens hold the head of each distribution and the rest in buckets, which shows a little less than the true
//! divergence. Where `ASSIZE_REFERENCE_DIR` names a folder with the whole rows, these are held to the same bounds.

mod common;
mod reference;

use assize::model::cache::KvType;
use assize_kernels::Precision;
use reference::{
    Golden, Job, Rows, cached_model, check_invariance, divergence, load, pages_of, together,
};

/// Runs all sequences of a golden file, and holds the mean divergence to `most` nats and the share of equal top tokens
/// to `least`.
///
/// Keys and values in 8 bits are run beside those in half precision, and the divergence of one from the other is told, too.
fn check(
    test: &str,
    model: &str,
    golden: &str,
    (precision, cache): (Precision, KvType),
    most: f64,
    least: f64,
) {
    let Some(file) = cached_model(test, model) else {
        return;
    };
    let reference = Golden::read(&format!("logits/{golden}.txt")).expect("a golden file");
    let vocabulary = reference.origin["vocabulary"].parse().expect("a number");
    let mut rows = Rows::open(golden, vocabulary);
    let longest = reference
        .sequences
        .iter()
        .map(|sequence| sequence.tokens.len())
        .max()
        .unwrap_or(0);
    let load = |cache| load(&file, precision, cache, pages_of(longest), None);
    let mut decoder = load(cache);
    let mut halves = matches!(cache, KvType::Q8 | KvType::Q8Values).then(|| load(KvType::F16));
    let pages: Vec<u32> = (0..pages_of(longest) as u32).collect();

    let (mut shown, mut full, mut equal, mut positions) = (0.0, 0.0, 0usize, 0usize);
    let (mut apart, mut together_top) = (0.0, 0usize);
    for sequence in &reference.sequences {
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
        let mut beside = Vec::new();
        if let Some(halves) = &mut halves {
            let job = std::slice::from_ref(&job);
            together(halves, job, |_, _, logits| beside.push(logits.to_vec()));
        }
        together(&mut decoder, &[job], |_, position, logits| {
            if let Some(halves) = beside.get(position) {
                apart += divergence(halves, logits);
                together_top += usize::from(top(halves) == top(logits));
            }
            assert_eq!(logits.len(), vocabulary, "{test}");
            let (nats, same) = sequence.distributions[position].compare(logits);
            shown += nats;
            full += rows
                .as_mut()
                .map_or(0.0, |rows| divergence(&rows.read(), logits));
            equal += usize::from(same);
            positions += 1;
        });
    }
    let count = positions as f64;
    let (mean, full, share) = (shown / count, full / count, equal as f64 / count);
    let whole = rows.map_or(String::new(), |_| format!(" ({full:.3e} over whole rows)"));
    println!(
        "{test}: divergence {mean:.3e}{whole} nats, top token {:.2} % of {positions}",
        100.0 * share
    );
    if halves.is_some() {
        println!(
            "{test}: from f16 keys and values {:.3e} nats, top token {:.2} %",
            apart / count,
            100.0 * together_top as f64 / count
        );
    }
    assert!(positions >= 512, "only {positions} positions");
    let nats = mean.max(full);
    assert!(
        nats <= most,
        "{test}: mean divergence {nats:.3e} nats, at most {most:.1e} are allowed"
    );
    assert!(
        share >= least,
        "{test}: {equal} of {positions} top tokens agree, {least} must"
    );
}

/// The most probable token.
fn top(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
}

/// The exact path: the reference's own arithmetic, but for the order of sums.
fn check_exact(test: &str, model: &str, golden: &str) {
    let kept = (Precision::Exact, KvType::F32);
    check(test, model, golden, kept, 1e-5, 0.999);
}

#[test]
fn smollm2_exact() {
    check_exact("smollm2_exact", "smollm2-135m-instruct", "smollm2-135m");
}

#[test]
fn qwen2_half_exact() {
    check_exact(
        "qwen2_half_exact",
        "qwen2.5-coder-0.5b-instruct",
        "qwen2.5-coder-0.5b",
    );
}

#[test]
fn qwen2_exact() {
    check_exact(
        "qwen2_exact",
        "qwen2.5-coder-1.5b-instruct",
        "qwen2.5-coder-1.5b",
    );
}

#[test]
fn gemma3_exact() {
    check_exact("gemma3_exact", "gemma-3-270m", "gemma-3-270m");
}

/// Activations in eight bits. The bounds are what llama.cpp's arithmetic came to against such a reference; `eight` are those with keys and values
/// in 8 bits, too, which is worse where keys have large biases.
fn check_quantized(test: &str, model: &str, golden: &str, bounds: (f64, f64), eight: (f64, f64)) {
    for (cache, (most, least)) in [
        (KvType::F16, bounds),
        (KvType::Q8Values, bounds),
        (KvType::Q8, eight),
    ] {
        let test = format!("{test}, {}", cache.name());
        let kept = (Precision::Quantized, cache);
        check(&test, model, golden, kept, most, least);
    }
}

#[test]
fn smollm2_quantized() {
    check_quantized(
        "smollm2_quantized",
        "smollm2-135m-instruct",
        "smollm2-135m",
        (2.5e-3, 0.979),
        (2.5e-3, 0.975),
    );
}

#[test]
fn qwen2_half_quantized() {
    check_quantized(
        "qwen2_half_quantized",
        "qwen2.5-coder-0.5b-instruct",
        "qwen2.5-coder-0.5b",
        (0.83e-3, 0.985),
        (7e-3, 0.94),
    );
}

#[test]
fn qwen2_quantized() {
    check_quantized(
        "qwen2_quantized",
        "qwen2.5-coder-1.5b-instruct",
        "qwen2.5-coder-1.5b",
        (1.4e-3, 0.978),
        (2e-3, 0.978),
    );
}

#[test]
fn gemma3_quantized() {
    check_quantized(
        "gemma3_quantized",
        "gemma-3-270m",
        "gemma-3-270m",
        (4.8e-3, 0.961),
        (4.8e-3, 0.961),
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
    let others = [&tokens[100..125], &tokens[200..209], &tokens[30..31]];
    for (precision, cache) in [
        (Precision::Quantized, KvType::F16),
        (Precision::Quantized, KvType::Q8Values),
        (Precision::Quantized, KvType::Q8),
        (Precision::Exact, KvType::F32),
    ] {
        check_invariance("smollm2", &file, &tokens[..40], &others, precision, cache);
    }
}
