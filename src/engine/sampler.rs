//! The sampler: one token out of a row of logits.
//!
//! A choice depends on the row, the mask, the settings and the place in the output alone. The random number is computed
//! from the ask's seed and the number of tokens before it, so no other ask can move it. Knows no sequence and no grammar.

use crate::ask::Decoding;
use crate::constrain::Mask;

/// The token that comes next: under the mask, the most probable one at temperature 0 (the lowest id on ties), or one
/// drawn at random. `index` is the number of output tokens so far. `None` where the mask admits none of the row's tokens.
pub fn choose(logits: &[f32], mask: &Mask, decoding: &Decoding, index: usize) -> Option<u32> {
    if decoding.temperature <= 0.0 {
        most_probable(logits, mask)
    } else {
        draw(logits, mask, decoding, index)
    }
}

/// Whether all logits are finite.
pub fn is_finite(logits: &[f32]) -> bool {
    logits.iter().all(|logit| logit.is_finite())
}

/// A number in `[0, 1)`, the same for the same seed and index.
pub fn uniform(seed: u64, index: u64) -> f64 {
    let mixed = mix(mix(seed) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// The token ids that the mask admits, ascending, with their logits.
fn admitted<'a>(logits: &'a [f32], mask: &'a Mask) -> impl Iterator<Item = (u32, f32)> + 'a {
    mask.words
        .iter()
        .zip(logits.chunks(32))
        .enumerate()
        .flat_map(|(index, (word, logits))| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                logits
                    .get(bit as usize)
                    .map(|logit| (index as u32 * 32 + bit, *logit))
            })
        })
}

/// Word by word: the highest admitted logit of 32 needs no branches, and its place is looked up only when it leads.
fn most_probable(logits: &[f32], mask: &Mask) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (index, (word, logits)) in mask.words.iter().zip(logits.chunks(32)).enumerate() {
        if *word == 0 {
            continue;
        }
        let admitted = |bit: usize, logit: f32| {
            if word >> bit & 1 == 1 {
                logit
            } else {
                f32::NEG_INFINITY
            }
        };
        let mut highest = f32::NEG_INFINITY;
        for (bit, logit) in logits.iter().enumerate() {
            let logit = admitted(bit, *logit);
            highest = if logit > highest { logit } else { highest };
        }
        if best.is_none_or(|(_, leader)| highest > leader)
            && let Some(bit) = logits
                .iter()
                .enumerate()
                .position(|(bit, logit)| word >> bit & 1 == 1 && *logit == highest)
        {
            best = Some((index as u32 * 32 + bit as u32, highest));
        }
    }
    best.map(|(token, _)| token)
}

fn draw(logits: &[f32], mask: &Mask, decoding: &Decoding, index: usize) -> Option<u32> {
    let mut tokens: Vec<(u32, f32)> = admitted(logits, mask).collect();
    let highest = tokens.iter().map(|(_, logit)| *logit).reduce(f32::max)?;
    let weight = |logit: f32| {
        ((f64::from(logit) - f64::from(highest)) / f64::from(decoding.temperature)).exp()
    };
    let mut total: f64 = tokens.iter().map(|(_, logit)| weight(*logit)).sum();
    if decoding.top_p < 1.0 {
        tokens.sort_by(|(a, first), (b, second)| second.total_cmp(first).then(a.cmp(b)));
        let nucleus = total * f64::from(decoding.top_p);
        let mut kept = 0.0;
        let enough = tokens.iter().position(|(_, logit)| {
            kept += weight(*logit);
            kept >= nucleus
        });
        tokens.truncate(enough.map_or(tokens.len(), |last| last + 1));
        total = kept;
    }
    let target = uniform(decoding.seed, index as u64) * total;
    let mut passed = 0.0;
    let drawn = tokens.iter().find(|(_, logit)| {
        passed += weight(*logit);
        passed > target
    });
    // Rounding may leave the target a hair above the sum; the last token is meant then.
    drawn.or(tokens.last()).map(|(token, _)| *token)
}

/// The finalizer of SplitMix64: every bit of the input moves every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(tokens: &[u32]) -> Mask {
        let mut words = vec![0; 2];
        for token in tokens {
            words[*token as usize / 32] |= 1 << (token % 32);
        }
        Mask { words }
    }

    #[test]
    fn the_most_probable_admitted_token_with_the_lowest_id() {
        let mut logits = vec![0.0; 40];
        logits[3] = 2.0;
        logits[31] = 5.0;
        logits[32] = 5.0;
        logits[39] = 9.0;
        for (allowed, expected) in [
            (vec![], None),
            (vec![0, 3], Some(3)),
            (vec![3, 31, 32], Some(31)),
            (vec![32, 31], Some(31)),
            (vec![0, 1, 2], Some(0)),
            (vec![39, 63], Some(39)),
            (vec![63], None),
        ] {
            assert_eq!(
                choose(&logits, &mask(&allowed), &Decoding::default(), 0),
                expected,
                "{allowed:?}"
            );
        }
    }

    #[test]
    fn draws_follow_temperature_and_nucleus() {
        let logits = [1.0f32, 0.0, -1.0, 3.0];
        let allowed = mask(&[0, 1, 2]);
        for (temperature, top_p) in [(1.0, 1.0), (0.5, 1.0), (1.0, 0.9), (1.0, 0.5), (2.0, 0.95)] {
            let weights: Vec<f64> = logits[..3]
                .iter()
                .map(|logit| (f64::from(*logit) / f64::from(temperature)).exp())
                .collect();
            let total: f64 = weights.iter().sum();
            let mut kept = 0;
            let mut mass = 0.0;
            while kept < 3 && (kept == 0 || mass < f64::from(top_p) * total) {
                mass += weights[kept];
                kept += 1;
            }
            let draws = 20_000;
            let mut counts = [0usize; 4];
            for index in 0..draws {
                let decoding = Decoding {
                    temperature,
                    top_p,
                    seed: 11,
                    ..Decoding::default()
                };
                counts[choose(&logits, &allowed, &decoding, index).unwrap() as usize] += 1;
            }
            for token in 0..4 {
                let expected = if token < kept {
                    weights[token] / mass
                } else {
                    0.0
                };
                let found = counts[token] as f64 / draws as f64;
                assert!(
                    (found - expected).abs() < 0.015,
                    "{temperature} {top_p}: {token} {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn random_numbers_depend_on_seed_and_index_alone() {
        assert_eq!(uniform(5, 9).to_bits(), uniform(5, 9).to_bits());
        assert_ne!(uniform(5, 9).to_bits(), uniform(5, 10).to_bits());
        assert_ne!(uniform(5, 9).to_bits(), uniform(6, 9).to_bits());
        let mean = (0..10_000).map(|index| uniform(1, index)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn what_is_not_finite_is_seen() {
        for (logits, finite) in [
            (vec![0.0, 1.0], true),
            (vec![0.0, f32::NAN], false),
            (vec![f32::NEG_INFINITY], false),
        ] {
            assert_eq!(is_finite(&logits), finite);
        }
    }
}
