//! The plain speed of a model: prefill of one prompt and decoding in batches, on random tokens, without engine, grammar or
//! sampling; and what a pass asks of the machine at least, so that a speed can be held against a limit.

use super::devices::Place;
use super::fit::{Wish, fit};
use super::judges::{JudgeSettings, rows_there};
use super::settings::free_memory;
use crate::model::batch::{Batch, Forward, ForwardError, PAGE, PageId, Span};
use crate::model::cache::page_bytes;
use crate::model::config::Config;
use crate::model::decoder::{Decoder, LoadOptions};
use crate::model::placement::{Placement, Plan};
use crate::weights::Store;
use anyhow::Result;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// One prompt of so many tokens, of which the last one's logits are wanted.
    Prefill {
        /// Tokens.
        tokens: usize,
        /// Most rows in a pass.
        chunk: usize,
    },
    /// So many steps of as many sequences, one token each.
    Decode {
        /// Sequences.
        batch: usize,
        /// Steps.
        steps: usize,
        /// Tokens that each has before, which are not computed: what lies in their pages does not change how long a step takes.
        depth: usize,
    },
}

/// Why tests can't be run.
#[derive(Debug, thiserror::Error)]
pub enum TooLarge {
    /// A sequence that the model was not made for.
    #[error("a sequence of {longest} tokens is beyond the context of {context}")]
    Sequence {
        /// Its tokens.
        longest: usize,
        /// The most that there may be.
        context: usize,
    },
    /// More pages than fit.
    #[error("the KV cache of these tests takes {needed} bytes, and {free} are free")]
    Cache {
        /// Bytes of all pages.
        needed: u64,
        /// Bytes that there are.
        free: u64,
    },
}

impl Test {
    /// Tokens that it computes.
    pub fn tokens(self) -> usize {
        match self {
            Test::Prefill { tokens, .. } => tokens,
            Test::Decode { batch, steps, .. } => batch * steps,
        }
    }

    /// The longest sequence in it.
    pub fn longest(self) -> usize {
        match self {
            Test::Prefill { tokens, .. } => tokens,
            Test::Decode { steps, depth, .. } => depth + steps,
        }
    }

    /// Pages of the cache that it takes.
    pub fn pages(self) -> usize {
        match self {
            Test::Prefill { tokens, .. } => tokens.div_ceil(PAGE),
            Test::Decode { batch, .. } => batch * self.longest().div_ceil(PAGE),
        }
    }
}

/// Runs the test once and returns its seconds. Equal seeds give equal tokens.
///
/// # Errors
/// What the model says.
pub fn run(
    model: &mut dyn Forward,
    test: Test,
    seed: u64,
) -> std::result::Result<f64, ForwardError> {
    let vocabulary = model.vocabulary().max(1);
    let mut state = seed;
    let mut token = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize % vocabulary) as u32
    };
    let batches = match test {
        Test::Prefill { tokens, chunk } => prefill(tokens, chunk.max(1), &mut token),
        Test::Decode {
            batch,
            steps,
            depth,
        } => decode(batch, depth..depth + steps, &mut token),
    };
    let began = Instant::now();
    for batch in &batches {
        let logits = model.forward(batch)?;
        let wanted = batch.outputs.len() * model.vocabulary();
        if logits.len() != wanted {
            let found = logits.len();
            return Err(ForwardError(format!("{found} logits instead of {wanted}")));
        }
        model.recycle(logits);
    }
    Ok(began.elapsed().as_secs_f64())
}

fn prefill(tokens: usize, chunk: usize, token: &mut dyn FnMut() -> u32) -> Vec<Batch> {
    let pages: Vec<PageId> = (0..tokens.div_ceil(PAGE) as PageId).collect();
    let starts = (0..tokens).step_by(chunk);
    starts
        .map(|start| {
            let rows = chunk.min(tokens - start);
            let span = Span {
                first: 0,
                rows,
                position: start,
                pages: pages[..(start + rows).div_ceil(PAGE)].to_vec(),
            };
            let last = start + rows == tokens;
            Batch {
                tokens: (0..rows).map(|_| token()).collect(),
                spans: vec![span],
                outputs: last.then_some(rows - 1).into_iter().collect(),
            }
        })
        .collect()
}

fn decode(batch: usize, positions: Range<usize>, token: &mut dyn FnMut() -> u32) -> Vec<Batch> {
    let each = positions.end.div_ceil(PAGE);
    let span = |sequence: usize, position: usize| Span {
        first: sequence,
        rows: 1,
        position,
        pages: (0..=position / PAGE)
            .map(|page| (sequence * each + page) as PageId)
            .collect(),
    };
    positions
        .map(|position| Batch {
            tokens: (0..batch).map(|_| token()).collect(),
            spans: (0..batch)
                .map(|sequence| span(sequence, position))
                .collect(),
            outputs: (0..batch).collect(),
        })
        .collect()
}

/// What a model's products ask of the machine, from its file alone. Attention and norms are left out: they are small beside
/// the weights where sequences are short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Weights that every row meets.
    pub weights: u64,
    /// Weights that a row meets whose logits are wanted.
    pub head: u64,
    /// Bytes of both, as they lie: what a row that is decoded alone must read.
    pub bytes: u64,
}

impl Cost {
    /// Reads the sizes of the tensors. `experts` is how many of how many serve a row.
    pub fn of(store: &Store, experts: Option<(usize, usize)>) -> Cost {
        let tied = store.tensor("output.weight").is_none();
        let mut cost = Cost::default();
        for (name, view) in store.tensors() {
            if view.shape.len() < 2 {
                continue;
            }
            let weights: u64 = view.shape.iter().map(|size| *size as u64).product();
            let bytes = view.bytes.len() as u64;
            match name {
                "token_embd.weight" if !tied => (),
                "token_embd.weight" | "output.weight" => {
                    cost.head += weights;
                    cost.bytes += bytes;
                }
                _ => {
                    let (used, count) = match experts {
                        Some((used, count)) if is_expert(name) => (used as u64, count as u64),
                        _ => (1, 1),
                    };
                    cost.weights += weights * used / count.max(1);
                    cost.bytes += bytes * used / count.max(1);
                }
            }
        }
        cost
    }

    /// Operations of a test, a product and an addition being two.
    pub fn operations(&self, test: Test) -> f64 {
        let outputs = match test {
            Test::Prefill { .. } => 1,
            Test::Decode { .. } => test.tokens(),
        };
        2.0 * (self.weights as f64 * test.tokens() as f64 + self.head as f64 * outputs as f64)
    }
}

/// A model that is open for tests.
pub struct Opened {
    /// It.
    pub model: Decoder,
    /// What its products ask of the machine.
    pub cost: Cost,
    /// How its weights lie, where they lie on a device.
    pub plan: Option<Plan>,
}

/// Opens a model for some tests, with no larger a cache than they need. The file needs no tokenizer.
///
/// # Errors
/// The typed error of weights or model.
pub fn open(
    path: &Path,
    settings: &JudgeSettings,
    tests: &[Test],
    place: &Place,
) -> Result<Opened> {
    let store = Store::open(path)?;
    let config = Config::from_metadata(store.metadata())?;
    let longest = tests.iter().map(|test| test.longest()).max().unwrap_or(0);
    let context = config.context;
    if longest > context {
        return Err(TooLarge::Sequence { longest, context }.into());
    }
    let pages = tests.iter().map(|test| test.pages()).max().unwrap_or(1);
    let experts = config.experts.as_ref();
    let mut cost = Cost::of(&store, experts.map(|experts| (experts.used, experts.count)));
    let batch = tests.iter().map(|test| match test {
        Test::Prefill { .. } => 1,
        Test::Decode { batch, .. } => *batch,
    });
    let settings = &JudgeSettings {
        max_batch: batch.max().unwrap_or(1),
        ..*settings
    };
    let (model, plan) = open_for(path, settings, pages, place)?;
    if let Some(Plan::Dense | Plan::Half) = plan {
        cost.bytes = 2 * (cost.weights + cost.head);
    }
    Ok(Opened { model, cost, plan })
}

/// Opens a model with so many pages, on the processor or on the first device of the place.
///
/// # Errors
/// As [`open`].
pub fn open_for(
    path: &Path,
    settings: &JudgeSettings,
    pages: usize,
    place: &Place,
) -> Result<(Decoder, Option<Plan>)> {
    let store = Store::open(path)?;
    let config = Config::from_metadata(store.metadata())?;
    let options = LoadOptions {
        precision: settings.precision(),
        cache: settings.kv_type(),
        pages,
        context: settings.context,
        progress: None,
    };
    if let Some(there) = place.there.first() {
        let wish = Wish {
            free: there.free,
            plan: settings.plan,
            sequences: settings.max_batch,
            rows: rows_there(settings),
            cache: None,
            most_pages: pages,
        };
        let fit = fit(&store, &config, &wish)?;
        if fit.pages < pages {
            let each = fit.cache / fit.pages.max(1) as u64;
            let (needed, free) = (each * pages as u64, fit.cache);
            return Err(TooLarge::Cache { needed, free }.into());
        }
        let placement = Placement::Device {
            device: there.device.clone(),
            plan: fit.plan,
        };
        let decoder = Decoder::load_onto(&store, &placement, &options)?;
        return Ok((decoder, Some(fit.plan)));
    }
    let needed = pages as u64 * page_bytes(&config, settings.kv_type()) as u64;
    if let Some(free) = free_memory().filter(|free| needed > *free) {
        return Err(TooLarge::Cache { needed, free }.into());
    }
    Ok((Decoder::load(&store, &options)?, None))
}

/// Whether the tensor belongs to one expert of several, or to a stack of them.
fn is_expert(name: &str) -> bool {
    let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    name.contains("_exps.") || name.split('.').rev().nth(1).is_some_and(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        seen: Vec<usize>,
    }

    impl Forward for Fake {
        fn vocabulary(&self) -> usize {
            7
        }

        fn context(&self) -> usize {
            100
        }

        fn pages(&self) -> usize {
            12
        }

        fn forward(&mut self, batch: &Batch) -> std::result::Result<Vec<f32>, ForwardError> {
            batch.check(7, 100, 12)?;
            self.seen.push(batch.tokens.len());
            Ok(vec![0.0; 7 * batch.outputs.len()])
        }

        fn copy_page(&mut self, _: PageId, _: PageId) -> std::result::Result<(), ForwardError> {
            Ok(())
        }
    }

    #[test]
    fn batches_are_sound_and_cover_the_test() {
        let check = |test: Test, pages: usize, passes: &[usize]| {
            assert_eq!(test.pages(), pages);
            let mut model = Fake { seen: Vec::new() };
            assert!(run(&mut model, test, 1).unwrap() >= 0.0);
            assert_eq!(model.seen, passes);
            assert_eq!(passes.iter().sum::<usize>(), test.tokens());
        };
        let prefill = |tokens, chunk| Test::Prefill { tokens, chunk };
        check(prefill(40, 512), 3, &[40]);
        check(prefill(40, 16), 3, &[16, 16, 8]);
        check(prefill(1, 0), 1, &[1]);
        check(
            Test::Decode {
                batch: 1,
                steps: 17,
                depth: 0,
            },
            2,
            &[1; 17],
        );
        check(
            Test::Decode {
                batch: 4,
                steps: 33,
                depth: 0,
            },
            12,
            &[4; 33],
        );
        check(
            Test::Decode {
                batch: 2,
                steps: 3,
                depth: 40,
            },
            6,
            &[2; 3],
        );
        let mut model = Fake { seen: Vec::new() };
        assert!(run(&mut model, prefill(101, 512), 1).is_err());
    }

    #[test]
    fn experts_are_told_by_name() {
        assert!(is_expert("blk.0.ffn_up_exps.weight") && is_expert("blk.3.ffn_down.7.weight"));
        assert!(!is_expert("blk.0.ffn_up.weight") && !is_expert("output.weight"));
    }
}
