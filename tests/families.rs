//! Tiny random models of every family against `transformers` models of the same weights.

mod common;
mod reference;

use assize::model::ModelError;
use assize::model::batch::{Batch, Forward, Span};
use assize::model::cache::KvType;
use assize::model::decoder::{Decoder, LoadOptions};
use assize::weights::Store;
use assize_kernels::Precision;
use reference::{Golden, Job, check_invariance, divergence, golden, load, pages_of, together};

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
        let mut decoder = load(&file, Precision::Exact, KvType::F32, pages, *context);
        let job = Job {
            tokens,
            start: 0,
            chunk: tokens.len(),
            pages: (0..pages as u32).collect(),
        };
        let (mut widest, mut farthest) = (0f32, 0f64);
        together(&mut decoder, &[job], |_, position, found| {
            let expected = &sequence.logits[position];
            assert_eq!(found.len(), expected.len(), "{name}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.is_finite(), "{name}, position {position}: {found}");
                widest = widest.max((found - expected).abs());
            }
            farthest = farthest.max(divergence(expected, found));
        });
        println!(
            "{name}, {}: difference {widest:.1e}, divergence {farthest:.1e} nats",
            sequence.name
        );
        assert!(
            widest <= tolerance,
            "{name}, {}: a logit differs by {widest:e}",
            sequence.name
        );
        assert!(
            farthest <= 1e-5,
            "{name}, {}: a position diverges by {farthest:e} nats",
            sequence.name
        );
    }
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
            // The original context is 24, and serves where none is asked for: the first sequence is to be run by the short
            // factors, the second by the long.
            "phi3-longrope" => check(name, &[None, Some(96)]),
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
        for (precision, cache) in [
            (Precision::Quantized, KvType::F16),
            (Precision::Quantized, KvType::Q8Values),
            (Precision::Quantized, KvType::Q8),
            (Precision::Exact, KvType::F32),
        ] {
            let file = golden(&format!("families/{name}.gguf"));
            check_invariance(name, &file, tokens, &others, precision, cache);
        }
    }
}

/// Loads a family's file after `change`, with a cache of four pages.
fn load_changed(
    name: &str,
    context: Option<usize>,
    change: impl Fn(&mut Vec<u8>),
) -> Option<Result<Decoder, ModelError>> {
    let mut bytes =
        std::fs::read(golden(&format!("families/{name}.gguf"))).expect("a family's file");
    change(&mut bytes);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("a file");
    let store = Store::open(&path).ok()?;
    let options = LoadOptions {
        precision: Precision::Quantized,
        cache: KvType::F16,
        pages: 4,
        context,
        progress: None,
    };
    Some(Decoder::load(&store, &options))
}

/// Replaces a string of the file by another of the same length.
fn rename(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let stored = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let from = stored(from);
    let place = bytes
        .windows(from.len())
        .position(|window| window == from)
        .expect("a string of the file");
    bytes[place..place + from.len()].copy_from_slice(&stored(to));
}

#[test]
fn a_model_that_is_not_whole_is_refused_by_name() {
    let check = |name: &str, from: &str, to: &str, expected: &str| {
        let error = match load_changed(name, None, |bytes| rename(bytes, from, to))
            .expect("a sound file")
        {
            Ok(_) => panic!("{name} loads with {from} renamed to {to}"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{name}, {from}: {error}");
    };
    check(
        "qwen2",
        "blk.1.ffn_gate.weight",
        "blk.1.ffn_late.weight",
        "no tensor \"blk.1.ffn_gate.weight\"",
    );
    check(
        "qwen2",
        "blk.0.attn_q.bias",
        "blk.0.attn_q.bits",
        "no tensor \"blk.0.attn_q.bias\"",
    );
    check(
        "qwen3",
        "blk.1.attn_k_norm.weight",
        "blk.1.attn_k_harm.weight",
        "no tensor \"blk.1.attn_k_norm.weight\"",
    );
    check(
        "gemma3",
        "blk.6.post_ffw_norm.weight",
        "blk.6.past_ffw_norm.weight",
        "blk.6.post_ffw_norm.weight",
    );
    check(
        "mixtral-split",
        "blk.0.ffn_up.3.weight",
        "blk.0.ffn_up.4.weight",
        "blk.0.ffn_up.3.weight",
    );
    // What nothing reads would be left out in silence: here the head, for which the embedding would stand in.
    check(
        "llama",
        "output.weight",
        "outlet.weight",
        "tensor \"outlet.weight\" means something",
    );
    check(
        "llama3",
        "rope_freqs.weight",
        "rope_fields.weigh",
        "tensor \"rope_fields.weigh\" means something",
    );
    check(
        "phi3-longrope",
        "rope_factors_long.weight",
        "rope_factors_last.weight",
        "rope_factors_long.weight",
    );
    // Names of one length and of two shapes.
    check(
        "llama",
        "blk.0.attn_k.weight",
        "blk.0.attn_o.weight",
        "blk.0.attn_k.weight",
    );
}

#[test]
fn what_can_not_be_had_is_refused() {
    let check = |pages: usize, context: Option<usize>, expected: &str| {
        let store = Store::open(&golden("families/llama.gguf")).expect("a sound file");
        let options = LoadOptions {
            precision: Precision::Quantized,
            cache: KvType::F16,
            pages,
            context,
            progress: None,
        };
        let error = Decoder::load(&store, &options)
            .err()
            .expect("no decoder")
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(0, None, "a cache of 0 pages");
    check(usize::MAX, None, "pages can't be had");
    check(4, Some(0), "a context of 0");
    check(4, Some(257), "made for 256");
}

#[test]
fn a_malformed_batch_is_an_error_and_leaves_the_decoder_sound() {
    let mut decoder = load(
        &golden("families/llama.gguf"),
        Precision::Quantized,
        KvType::F16,
        4,
        Some(40),
    );
    let batch = |tokens: &[u32], position: usize, pages: &[u32], outputs: &[usize]| Batch {
        tokens: tokens.to_vec(),
        spans: vec![Span {
            first: 0,
            rows: tokens.len(),
            position,
            pages: pages.to_vec(),
        }],
        outputs: outputs.to_vec(),
    };
    let sound = batch(&[1, 2, 3], 0, &[2], &[2]);
    let before = decoder.forward(&sound).expect("a sound batch");
    assert_eq!(before.len(), decoder.vocabulary());
    let check = |decoder: &mut Decoder, batch: Batch, expected: &str| {
        let error = decoder
            .forward(&batch)
            .expect_err("a malformed batch")
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&mut decoder, batch(&[96], 0, &[0], &[0]), "token 96");
    check(
        &mut decoder,
        batch(&[1], 40, &[0, 1, 2], &[0]),
        "position 40",
    );
    check(&mut decoder, batch(&[1], 0, &[4], &[0]), "page 4");
    check(&mut decoder, batch(&[1], 16, &[0], &[0]), "too few");
    check(&mut decoder, batch(&[1], 0, &[0], &[1]), "output row 1");
    assert!(decoder.copy_page(0, 4).is_err());
    assert_eq!(decoder.forward(&sound).expect("a sound batch"), before);
    let nothing = decoder.forward(&Batch::default());
    assert!(nothing.expect("an empty batch").is_empty());
}

#[test]
fn a_mangled_file_is_refused_or_runs_but_never_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let (mut refused, mut ran) = (0, 0);
    for round in 0..40 * FAMILIES.len() {
        let name = FAMILIES[round % FAMILIES.len()];
        // Most of the blows fall on the head of the file, where keys, names and shapes are.
        let blows: Vec<(usize, u8)> = (0..1 + next(4))
            .map(|_| (next(6000), next(256) as u8))
            .collect();
        let loaded = load_changed(name, None, |bytes| {
            for (at, value) in &blows {
                let at = at % bytes.len();
                bytes[at] ^= value;
            }
        });
        let Some(Ok(mut decoder)) = loaded else {
            refused += 1;
            continue;
        };
        ran += 1;
        let tokens = [1, 2, 3].map(|token| token % decoder.vocabulary() as u32);
        let rows = tokens.len().min(decoder.context());
        let span = Span {
            first: 0,
            rows,
            position: 0,
            pages: vec![1],
        };
        let batch = Batch {
            tokens: tokens[..rows].to_vec(),
            spans: vec![span],
            outputs: vec![rows - 1],
        };
        // Whatever the numbers are, they come back or an error does.
        drop(decoder.forward(&batch));
    }
    assert!(
        refused > 20 && ran > 20,
        "{refused} refused, {ran} ran: the blows show nothing"
    );
}
