//! The path of a device, driven on the processor by the plain twins of a device's kernels, against the packed path and `transformers`: every family,
//! both plans, one sequence and seven, prefixes cached and cold.
//!
//! What this can't show is that a card's kernels do what their twins do: `.ci/device.sh` shows that where there is a card.

mod common;
mod reference;

use assize::model::batch::{Forward, PAGE, PageId};
use assize::model::cache::KvType;
use assize::model::decoder::{Decoder, LoadOptions};
use assize::model::placement::{Placement, Plan};
use assize::weights::Store;
use assize_kernels::Precision;
use candle_core::Device;
use reference::{Golden, Job, divergence, golden, load, pages_of, together};
use std::path::Path;

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

/// A decoder whose weights lie as on a device.
fn load_there(file: &Path, plan: Plan, pages: usize, context: Option<usize>) -> Decoder {
    let store = Store::open(file).expect("a model file");
    let placement = Placement::Device {
        device: Device::Cpu,
        plan,
    };
    let options = LoadOptions {
        precision: Precision::Quantized,
        cache: KvType::F16,
        pages,
        context,
        progress: None,
    };
    let decoder = Decoder::load_onto(&store, &placement, &options).expect("a decoder");
    let expected = plan.weight_bytes(&store);
    // A head of its own is not in the sum twice, and a tied one is shared.
    assert_eq!(
        decoder.weight_bytes() as u64,
        expected,
        "{}",
        file.display()
    );
    decoder
}

/// The logits of a job beside others, position by position.
fn logits(decoder: &mut Decoder, jobs: &[Job], wanted: usize) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    together(decoder, jobs, |job, _, logits| {
        if job == wanted {
            rows.push(logits.to_vec());
        }
    });
    rows
}

fn top(row: &[f32]) -> usize {
    (0..row.len())
        .max_by(|a, b| row[*a].total_cmp(&row[*b]))
        .expect("a logit")
}

/// Most nats that the two paths may lie apart in the mean over a sequence's positions: both round activations, the one to 8 bits and the other to the 8
/// bits of bf16, and these models are tiny.
const MEAN: f64 = 1e-3;

/// Most nats at one position.
const MOST: f64 = 5e-3;

/// A lead of the top token, in logits, that no rounding may turn.
const LEAD: f32 = 0.15;

/// How far rows lie from those expected.
#[derive(Clone, Copy, Debug)]
struct Distance {
    /// Mean divergence in nats.
    mean: f64,
    /// The greatest.
    most: f64,
    /// Rows with another top token where the expected one leads by more than [`LEAD`].
    turned: usize,
}

fn compare(expected: &[Vec<f32>], found: &[Vec<f32>]) -> Distance {
    assert_eq!(expected.len(), found.len());
    let mut distance = Distance {
        mean: 0.0,
        most: 0.0,
        turned: 0,
    };
    for (expected, found) in expected.iter().zip(found) {
        assert!(found.iter().all(|logit| logit.is_finite()));
        let nats = divergence(expected, found);
        distance.mean += nats;
        distance.most = distance.most.max(nats);
        let best = top(expected);
        let second = (0..expected.len())
            .filter(|token| *token != best)
            .map(|token| expected[token])
            .fold(f32::NEG_INFINITY, f32::max);
        if top(found) != best && expected[best] - second > LEAD {
            distance.turned += 1;
        }
    }
    distance.mean /= expected.len() as f64;
    distance
}

#[test]
fn every_family_computes_on_a_device_what_it_computes_packed() {
    for name in FAMILIES {
        let reference = Golden::read(&format!("families/{name}.txt")).expect("a golden file");
        let sequence = reference.sequences.last().expect("a sequence");
        let (tokens, context) = (&sequence.tokens, (name == "phi3-longrope").then_some(96));
        let file = golden(&format!("families/{name}.gguf"));
        let own = pages_of(tokens.len());
        let whole = Job {
            tokens,
            start: 0,
            chunk: tokens.len(),
            pages: (0..own as PageId).collect(),
        };
        let mut packed = load(&file, Precision::Quantized, KvType::F16, own, context);
        let here = logits(&mut packed, std::slice::from_ref(&whole), 0);
        for plan in [Plan::Quantized, Plan::Dense, Plan::Half] {
            let mut decoder = load_there(&file, plan, own, context);
            let there = logits(&mut decoder, std::slice::from_ref(&whole), 0);
            let truth = compare(&sequence.logits, &there);
            let twin = compare(&here, &there);
            println!(
                "{name}, {}: {:.1e} nats from transformers (at most {:.1e}), {:.1e} from the packed path (at most {:.1e})",
                plan.name(),
                truth.mean,
                truth.most,
                twin.mean,
                twin.most,
            );
            for found in [truth, twin] {
                let near = found.mean <= MEAN && found.most <= MOST && found.turned == 0;
                assert!(near, "{name}, {plan:?}: {found:?}");
            }
        }
    }
}

#[test]
fn neither_company_nor_a_cached_prefix_changes_a_row_on_a_device() {
    for name in FAMILIES {
        let reference = Golden::read(&format!("families/{name}.txt")).expect("a golden file");
        let tokens = &reference.sequences.last().expect("a sequence").tokens;
        let context = (name == "phi3-longrope").then_some(96);
        let file = golden(&format!("families/{name}.gguf"));
        let own = pages_of(tokens.len());
        let pages = |first: usize| (first as PageId..(first + own) as PageId).collect::<Vec<_>>();
        let whole = Job {
            tokens,
            start: 0,
            chunk: tokens.len(),
            pages: pages(0),
        };
        for plan in [Plan::Quantized, Plan::Dense, Plan::Half] {
            let mut decoder = load_there(&file, plan, 9 * own, context);
            let alone = logits(&mut decoder, std::slice::from_ref(&whole), 0);
            // Sums in another order turn a rounding here and there, and nothing more.
            let near = |what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]| {
                let distance = compare(expected, found);
                println!("{name} {plan:?} {what}: {distance:?}");
                assert!(
                    distance.most <= 1e-3,
                    "{name} {plan:?} {what}: {distance:?}"
                );
            };
            let crowd: Vec<Job> = (0..7)
                .map(|index| Job {
                    tokens: if index == 3 { tokens } else { &tokens[index..] },
                    start: 0,
                    chunk: [5, 40, 1, 7, 16, 33, 2][index],
                    pages: pages((1 + index) * own),
                })
                .collect();
            near("among seven", &logits(&mut decoder, &crowd, 3), &alone);
            // The first page is the first run's; the rest is computed again behind it, seven times at once, on pages of their own.
            logits(&mut decoder, std::slice::from_ref(&whole), 0);
            let behind: Vec<Job> = (0..7)
                .map(|index| {
                    let mut pages = pages((1 + index) * own);
                    pages[0] = 0;
                    Job {
                        start: PAGE,
                        chunk: 1 + index,
                        pages,
                        ..whole.clone()
                    }
                })
                .collect();
            near(
                "behind a prefix",
                &logits(&mut decoder, &behind, 4),
                &alone[PAGE..],
            );
            let copied = 8 * own as PageId;
            decoder.copy_page(1, copied).expect("a sound copy");
            let mut pages = pages(0);
            pages[1] = copied;
            let rest = Job {
                start: PAGE + 5,
                chunk: 3,
                pages,
                ..whole.clone()
            };
            near(
                "behind a copied page",
                &logits(&mut decoder, &[rest], 0),
                &alone[PAGE + 5..],
            );
        }
    }
}

#[test]
fn a_real_model_judges_alike_on_a_device() {
    let test = "a_real_model_judges_alike_on_a_device";
    let Some(file) = reference::cached_model(test, "smollm2-135m-instruct") else {
        return;
    };
    let reference = Golden::read("logits/smollm2-135m.txt").expect("a golden file");
    let sequence = &reference.sequences[0];
    let tokens = &sequence.tokens[..sequence.tokens.len().min(160)];
    let own = pages_of(tokens.len());
    let whole = Job {
        tokens,
        start: 0,
        chunk: tokens.len(),
        pages: (0..own as PageId).collect(),
    };
    // In blocks, activations are rounded to 8 bits with one scale for 32 of them, as llama.cpp has it; in bf16 each keeps 8 bits of its own.
    for (plan, bound, least) in [
        (Plan::Quantized, 4e-3, 0.92),
        (Plan::Dense, 5e-4, 0.97),
        (Plan::Half, 1e-4, 0.98),
    ] {
        let mut decoder = load_there(&file, plan, own, None);
        assert!(decoder.page_bytes().is_none());
        let rows = logits(&mut decoder, std::slice::from_ref(&whole), 0);
        let (mut sum, mut same) = (0.0, 0);
        for (row, expected) in rows.iter().zip(&sequence.distributions) {
            let (nats, top) = expected.compare(row);
            sum += nats;
            same += usize::from(top);
        }
        let (mean, share) = (sum / rows.len() as f64, same as f64 / rows.len() as f64);
        println!(
            "{}: {mean:.1e} nats, top token {:.1} %",
            plan.name(),
            100.0 * share
        );
        assert!(
            mean <= bound && share >= least,
            "{plan:?}: {mean:e} nats, {share}"
        );
    }
}
