//! Rotation by position: a table of frequencies made once in `f64`, and cosine and sine for the positions of a batch.
//!
//! Phi 3's files bring two lists of factors, for sequences within and beyond the original context. The choice between
//! them is made once, by the context that the engine was set up for: were it made by each sequence's length, then the
//! keys that a growing sequence had cached before it crossed the border would be turned by other frequencies than the
//! queries after it.

use super::config::{Rope, Scaling};
use candle_core::{Device, Result, Tensor};

/// The frequencies of a rotation.
pub(super) struct Frequencies {
    /// Radians a position, `[rotated / 2]`.
    turns: Vec<f64>,
    /// Factor of cosine and sine.
    factor: f64,
}

/// Cosine and sine of the rows of a batch.
pub(super) struct Rotation {
    /// `[T, rotated / 2]`
    pub(super) cos: Tensor,
    /// `[T, rotated / 2]`
    pub(super) sin: Tensor,
}

impl Frequencies {
    /// The frequencies of `rope`, each divided by its entry in `divisors` where these are given. `factor` takes the place
    /// of the factor of cosine and sine that follows from the scaling and the file.
    pub(super) fn new(rope: &Rope, divisors: Option<&[f32]>, factor: Option<f64>) -> Frequencies {
        let plain = |pair: usize| rope.base.powf(-((2 * pair) as f64) / rope.dims as f64);
        let mut turns: Vec<f64> = (0..rope.dims / 2).map(plain).collect();
        let mut implied = 1.0;
        match rope.scaling {
            Scaling::None => {}
            Scaling::Linear { factor } => turns.iter_mut().for_each(|turn| *turn /= factor),
            Scaling::Yarn { factor, fast, slow } => {
                let (low, high) = (
                    ramp_end(rope, fast).floor().max(0.0),
                    ramp_end(rope, slow).ceil(),
                );
                let high = high.min((rope.dims - 1) as f64);
                for (pair, turn) in turns.iter_mut().enumerate() {
                    let stretched = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    *turn = *turn / factor * stretched + *turn * (1.0 - stretched);
                }
                implied = 0.1 * factor.max(1.0).ln() + 1.0;
            }
        }
        if let Some(divisors) = divisors {
            turns
                .iter_mut()
                .zip(divisors)
                .for_each(|(turn, divisor)| *turn /= f64::from(*divisor));
        }
        Frequencies {
            turns,
            factor: factor.unwrap_or(implied * rope.attention_factor.unwrap_or(1.0)),
        }
    }

    /// Cosine and sine for one position a row, on the device where the rows are.
    pub(super) fn rotation(&self, positions: &[usize], device: &Device) -> Result<Rotation> {
        let length = positions.len() * self.turns.len();
        let (mut cos, mut sin) = (Vec::with_capacity(length), Vec::with_capacity(length));
        for position in positions {
            for turn in &self.turns {
                let angle = *position as f64 * turn;
                cos.push((angle.cos() * self.factor) as f32);
                sin.push((angle.sin() * self.factor) as f32);
            }
        }
        let shape = (positions.len(), self.turns.len());
        Ok(Rotation {
            cos: Tensor::from_vec(cos, shape, device)?,
            sin: Tensor::from_vec(sin, shape, device)?,
        })
    }
}

/// The factor of cosine and sine of a model whose context was extended by per-dimension factors: attention over more
/// positions spreads out, and this sharpens it again.
pub(super) fn long_factor(rope: &Rope, context: usize) -> f64 {
    let stretch = context as f64 / rope.original_context as f64;
    match stretch > 1.0 && rope.original_context > 1 {
        true => (1.0 + stretch.ln() / (rope.original_context as f64).ln()).sqrt(),
        false => 1.0,
    }
}

/// The pair, as a real number, that turns `times` times in the original context.
fn ramp_end(rope: &Rope, times: f64) -> f64 {
    let wavelength = rope.original_context as f64 / (times * std::f64::consts::TAU);
    rope.dims as f64 * wavelength.ln() / (2.0 * rope.base.ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: Scaling) -> Rope {
        Rope {
            dims: 8,
            base: 10_000.0,
            scaling,
            original_context: 64,
            attention_factor: None,
        }
    }

    #[test]
    fn frequencies_follow_the_scaling() {
        let check = |scaling: Scaling, divisors: Option<&[f32]>, turns: [f64; 4], factor: f64| {
            let found = Frequencies::new(&rope(scaling.clone()), divisors, None);
            for (found, expected) in found.turns.iter().zip(turns) {
                assert!(
                    (found - expected).abs() < 1e-12,
                    "{scaling:?}: {found} for {expected}"
                );
            }
            assert!(
                (found.factor - factor).abs() < 1e-12,
                "{scaling:?}: {}",
                found.factor
            );
        };
        check(Scaling::None, None, [1.0, 0.1, 0.01, 0.001], 1.0);
        check(
            Scaling::None,
            Some(&[1.0, 2.0, 4.0, 8.0]),
            [1.0, 0.05, 0.0025, 0.000125],
            1.0,
        );
        check(
            Scaling::Linear { factor: 4.0 },
            None,
            [0.25, 0.025, 0.0025, 0.00025],
            1.0,
        );
        // 64 positions hold 10.2 turns of the first pair, and one turn of pair 1.008: the ramp runs from 0 to 2.
        let yarn = Scaling::Yarn {
            factor: 4.0,
            fast: 32.0,
            slow: 1.0,
        };
        check(
            yarn,
            None,
            [1.0, 0.1 * 0.625, 0.0025, 0.00025],
            0.1 * 4f64.ln() + 1.0,
        );
    }

    /// Against the `yarn` frequencies of transformers 5.24.0: 64 rotated values, base 10,000, factor 4 over 4,096 positions.
    #[test]
    fn yarn_equals_the_reference() {
        let scaling = Scaling::Yarn {
            factor: 4.0,
            fast: 32.0,
            slow: 1.0,
        };
        let rope = Rope {
            dims: 64,
            original_context: 4096,
            ..rope(scaling)
        };
        let found = Frequencies::new(&rope, None, None);
        assert!(
            (found.factor - 1.138629436111989).abs() < 1e-12,
            "{}",
            found.factor
        );
        for (pair, expected) in [
            (0, 1.0),
            (1, 0.749894202),
            (10, 0.0562341288),
            (11, 0.039736785),
            (15, 0.00948851742),
            (19, 0.0020273868),
            (22, 0.000547162897),
            (23, 0.000333380362),
            (31, 3.33380376e-05),
        ] {
            let turn = found.turns[pair];
            assert!(
                (turn / expected - 1.0).abs() < 1e-6,
                "pair {pair}: {turn} for {expected}"
            );
        }
    }

    #[test]
    fn the_long_factor_is_one_within_the_original_context() {
        assert_eq!(long_factor(&rope(Scaling::None), 64), 1.0);
        assert!((long_factor(&rope(Scaling::None), 4096) - 2f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_row_is_turned_by_its_own_position() {
        let frequencies = Frequencies::new(&rope(Scaling::None), None, Some(2.0));
        let rows = frequencies.rotation(&[7, 0], &Device::Cpu).unwrap();
        let cos: Vec<Vec<f32>> = rows.cos.to_vec2().unwrap();
        let sin: Vec<Vec<f32>> = rows.sin.to_vec2().unwrap();
        assert_eq!(cos[0][0], (7f64.cos() * 2.0) as f32);
        assert_eq!(sin[0][1], (0.7f64.sin() * 2.0) as f32);
        assert_eq!((cos[1][3], sin[1][3]), (2.0, 0.0));
    }
}
