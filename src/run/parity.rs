//! Whether a device computes what the processor computes: logits of sequences alone and together, with their prefix cached and cold, and the
//! distributions of labels. Knows no device.

use crate::ask::{Answer, Failure};
use crate::model::batch::{Batch, Forward, ForwardError, PAGE, PageId, Span};

/// Tokens that all sequences begin with: two whole pages.
const PREFIX: usize = 2 * PAGE;

/// Steps of decoding after each prompt.
const STEPS: usize = 2;

/// Pages of a sequence at most.
const EACH: usize = PREFIX / PAGE + 2;

/// Pages that the comparison of so many sequences takes.
pub fn pages(batch: usize) -> usize {
    PREFIX / PAGE + batch * EACH
}

/// How far rows of logits lie from those expected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distance {
    /// Rows compared.
    pub rows: usize,
    /// The greatest difference of a logit, as a share of the largest logit of its row.
    pub relative: f64,
    /// Mean divergence, in nats.
    pub mean: f64,
    /// The greatest divergence of a row.
    pub most: f64,
    /// Rows with the same top token.
    pub same_top: usize,
    /// Numbers that are none.
    pub not_finite: usize,
}

impl Distance {
    /// Takes a row in.
    fn meet(&mut self, expected: &[f32], found: &[f32]) {
        self.not_finite += found.iter().filter(|logit| !logit.is_finite()).count();
        let largest = expected
            .iter()
            .fold(0f32, |most, logit| most.max(logit.abs()));
        let pairs = expected.iter().zip(found);
        let widest = pairs.fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        self.relative = self
            .relative
            .max(f64::from(widest) / f64::from(largest.max(1e-9)));
        let nats = divergence(expected, found);
        self.mean = (self.mean * self.rows as f64 + nats) / (self.rows + 1) as f64;
        self.most = self.most.max(nats);
        self.same_top += usize::from(top(expected) == top(found));
        self.rows += 1;
    }
}

/// The divergence of the distribution of `found` from that of `expected`, in nats.
fn divergence(expected: &[f32], found: &[f32]) -> f64 {
    let total = |logits: &[f32]| {
        let most = logits
            .iter()
            .fold(f32::NEG_INFINITY, |most, logit| most.max(*logit));
        let sum: f64 = logits
            .iter()
            .map(|logit| f64::from(logit - most).exp())
            .sum();
        f64::from(most) + sum.ln()
    };
    let (all_expected, all_found) = (total(expected), total(found));
    let nats = |(p, q): (&f32, &f32)| {
        let (p, q) = (f64::from(*p) - all_expected, f64::from(*q) - all_found);
        p.exp() * (p - q)
    };
    expected.iter().zip(found).map(nats).sum()
}

fn top(row: &[f32]) -> Option<usize> {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]))
}

/// One sequence: its tokens, the last [`STEPS`] of which are decoded one by one.
fn sequences(batch: usize, vocabulary: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut state = seed;
    let mut token = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize % vocabulary.max(1)) as u32
    };
    let prefix: Vec<u32> = (0..PREFIX).map(|_| token()).collect();
    (0..batch)
        .map(|index| {
            let own = 3 + 7 * index % 23 + STEPS;
            prefix
                .iter()
                .copied()
                .chain((0..own).map(|_| token()))
                .collect()
        })
        .collect()
}

/// The logits after each prompt, and after each step, sequence by sequence.
///
/// # Errors
/// What the model says.
fn rows(
    model: &mut dyn Forward,
    sequences: &[Vec<u32>],
    cached: bool,
) -> Result<Vec<Vec<f32>>, ForwardError> {
    let shared = PREFIX / PAGE;
    let table = |index: usize| -> Vec<PageId> {
        let own = (shared + index * EACH) as PageId;
        let mut pages: Vec<PageId> = (own..own + EACH as PageId).collect();
        if cached {
            (0..shared).for_each(|page| pages[page] = page as PageId);
        }
        pages
    };
    let mut all = Vec::new();
    let mut run = |parts: &[(usize, usize, usize)], wanted: bool| {
        let mut batch = Batch::default();
        for (index, from, to) in parts {
            let pages = match wanted {
                true => table(*index),
                false => (0..shared as PageId).collect(),
            };
            batch.spans.push(Span {
                first: batch.tokens.len(),
                rows: to - from,
                position: *from,
                pages: pages[..to.div_ceil(PAGE)].to_vec(),
            });
            batch.tokens.extend(&sequences[*index][*from..*to]);
            if wanted {
                batch.outputs.push(batch.tokens.len() - 1);
            }
        }
        let logits = model.forward(&batch)?;
        all.extend(
            logits
                .chunks_exact(model.vocabulary().max(1))
                .map(<[f32]>::to_vec),
        );
        model.recycle(logits);
        Ok::<_, ForwardError>(())
    };
    let begin = if cached { PREFIX } else { 0 };
    if cached {
        run(&[(0, 0, PREFIX)], false)?;
    }
    for step in 0..=STEPS {
        let parts: Vec<(usize, usize, usize)> = sequences
            .iter()
            .enumerate()
            .map(|(index, tokens)| {
                let prompt = tokens.len() - STEPS;
                match step {
                    0 => (index, begin, prompt),
                    _ => (index, prompt + step - 1, prompt + step),
                }
            })
            .collect();
        run(&parts, true)?;
    }
    Ok(all)
}

/// Compares the logits of so many sequences: with all of each computed, and with what they begin with computed once for all.
///
/// # Errors
/// What either model says.
pub fn compare(
    reference: &mut dyn Forward,
    subject: &mut dyn Forward,
    batch: usize,
    seed: u64,
) -> Result<[Distance; 2], ForwardError> {
    let sequences = sequences(batch, reference.vocabulary(), seed);
    let expected = rows(reference, &sequences, false)?;
    let mut distances = [Distance::default(); 2];
    for (distance, cached) in distances.iter_mut().zip([false, true]) {
        let found = rows(subject, &sequences, cached)?;
        if found.len() != expected.len() {
            return Err(ForwardError(format!(
                "{} rows instead of {}",
                found.len(),
                expected.len()
            )));
        }
        for (expected, found) in expected.iter().zip(&found) {
            distance.meet(expected, found);
        }
    }
    Ok(distances)
}

/// The greatest difference of a label's probability among all labels, between two answers to one ask; `None` where either failed or has none.
pub fn labels_apart(
    expected: &Result<Answer, Failure>,
    found: &Result<Answer, Failure>,
) -> Option<f64> {
    let probabilities = |answer: &Result<Answer, Failure>| -> Option<Vec<f64>> {
        let masses = &answer.as_ref().ok()?.readout.as_ref()?.log_masses;
        let most = masses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = masses.iter().map(|mass| (mass - most).exp()).collect();
        let total: f64 = shares.iter().sum();
        Some(shares.iter().map(|share| share / total).collect())
    };
    let (expected, found) = (probabilities(expected)?, probabilities(found)?);
    let pairs = expected.iter().zip(&found);
    Some(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Logits are a hash of the tokens that the pages hold. `forgets`, it takes a prefix for another.
    struct Fake {
        slots: HashMap<u32, u32>,
        forgets: bool,
    }

    impl Forward for Fake {
        fn vocabulary(&self) -> usize {
            11
        }

        fn context(&self) -> usize {
            1000
        }

        fn pages(&self) -> usize {
            1000
        }

        fn forward(&mut self, batch: &Batch) -> Result<Vec<f32>, ForwardError> {
            batch.check(11, 1000, 1000)?;
            for (slot, token) in batch.slots().iter().zip(&batch.tokens) {
                self.slots.insert(*slot, *token);
            }
            let mut logits = Vec::new();
            for row in &batch.outputs {
                let span = batch
                    .spans
                    .iter()
                    .find(|span| (span.first..span.first + span.rows).contains(row))
                    .unwrap();
                let last = span.position + row - span.first;
                let mut hash = 7u32;
                for at in 0..=last {
                    let slot = span.pages[at / PAGE] * PAGE as u32 + (at % PAGE) as u32;
                    let lost = self.forgets && span.pages[0] == 0 && at == 3;
                    let token = if lost { 99 } else { self.slots[&slot] };
                    hash = hash.wrapping_mul(31).wrapping_add(token);
                }
                logits.extend((0..11).map(|token| (hash.rotate_left(token) % 1000) as f32 / 100.0));
            }
            Ok(logits)
        }

        fn copy_page(&mut self, _: PageId, _: PageId) -> Result<(), ForwardError> {
            Ok(())
        }
    }

    #[test]
    fn what_is_alike_lies_together_and_a_lost_prefix_is_seen() {
        let fake = |forgets| Fake {
            slots: HashMap::new(),
            forgets,
        };
        for batch in [1, 7] {
            let [cold, cached] = compare(&mut fake(false), &mut fake(false), batch, 3).unwrap();
            assert_eq!((cold, cold.most, cold.same_top), (cached, 0.0, cold.rows));
            assert_eq!(cold.rows, batch * (1 + STEPS));
            let [cold, cached] = compare(&mut fake(false), &mut fake(true), batch, 3).unwrap();
            assert!(cold.most == 0.0 && cached.most > 0.1, "{cached:?}");
        }
        let mut distance = Distance::default();
        distance.meet(&[1.0, 2.0], &[1.0, f32::NAN]);
        assert_eq!(distance.not_finite, 1);
    }
}
