//! Products of single-precision activations with a piece of a panel whose weights are numbers in single precision.
//!
//! For an output and a row: fused products are summed in order over 32 inputs, and such sums are added up in order, so the error
//! grows with the number of sums, not of inputs. That order is the same for any number of rows in a block.

use crate::dispatch::Operation;
use crate::pack::{PANEL, RUN};
use crate::vector::{Floats, LANES, Vector};
use half::f16;
use std::ops::Range;

/// The product of `R` rows with a piece of a panel, added to the totals.
pub struct Block<'a, const R: usize> {
    /// `[inputs, 2]`; starts at a multiple of 32 inputs.
    pub weights: &'a [[Floats; 2]],
    /// The rows' activations that meet the weights, as many in each.
    pub rows: [&'a [f32]; R],
    /// The totals so far.
    pub totals: &'a mut [[f32; PANEL]; R],
}

impl<const R: usize> Operation for Block<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let mut totals = [[v.splat(0.0); 2]; R];
        for (totals, from) in totals.iter_mut().zip(self.totals.iter()) {
            let (halves, _) = from.as_chunks::<LANES>();
            *totals = [v.load(&halves[0]), v.load(&halves[1])];
        }
        for (run, weights) in self.weights.chunks(RUN).enumerate() {
            let mut rows = [&[][..]; R];
            for (part, row) in rows.iter_mut().zip(&self.rows) {
                *part = &row[run * RUN..][..weights.len()];
            }
            let mut sums = [[v.splat(0.0); 2]; R];
            for (i, w) in weights.iter().enumerate() {
                let w = [v.load(&w[0].0), v.load(&w[1].0)];
                for r in 0..R {
                    let x = v.splat(rows[r][i]);
                    sums[r][0] = v.fma(x, w[0], sums[r][0]);
                    sums[r][1] = v.fma(x, w[1], sums[r][1]);
                }
            }
            for r in 0..R {
                for half in 0..2 {
                    totals[r][half] = v.add(totals[r][half], sums[r][half]);
                }
            }
        }
        for (out, totals) in self.totals.iter_mut().zip(totals) {
            let (halves, _) = out.as_chunks_mut::<LANES>();
            v.store(totals[0], &mut halves[0]);
            v.store(totals[1], &mut halves[1]);
        }
    }
}

/// Widens weights in half precision, or that are upper halves of singles.
pub struct Widen<'a> {
    /// `[inputs, 2]`.
    pub from: Narrow<'a>,
    /// As many.
    pub to: &'a mut [[Floats; 2]],
}

/// Weights of two bytes.
#[derive(Clone, Copy)]
pub enum Narrow<'a> {
    /// In half precision.
    Half(&'a [[f16; LANES]]),
    /// Upper halves of singles.
    Upper(&'a [[u16; LANES]]),
}

impl<'a> Narrow<'a> {
    /// Those vectors alone.
    pub fn part(self, range: Range<usize>) -> Narrow<'a> {
        match self {
            Narrow::Half(all) => Narrow::Half(&all[range]),
            Narrow::Upper(all) => Narrow::Upper(&all[range]),
        }
    }
}

impl Operation for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let to = self.to.as_flattened_mut();
        match self.from {
            Narrow::Half(all) => {
                for (to, from) in to.iter_mut().zip(all) {
                    v.store(v.load_half(from), &mut to.0);
                }
            }
            Narrow::Upper(all) => {
                for (to, from) in to.iter_mut().zip(all) {
                    v.store(v.load_upper(from), &mut to.0);
                }
            }
        }
    }
}
