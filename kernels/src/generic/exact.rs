//! Products of single-precision activations with a panel of weights of any type, expanded on the way.
//!
//! For an output and a row: fused products are summed in order over 32 inputs, and such sums are added up in order, so the error
//! grows with the number of groups, not of inputs. That order is the same for any number of rows in a block.

use crate::dispatch::Operation;
use crate::pack::{GROUP, Layout, PANEL};
use crate::vector::{Codes, Floats, LANES, Vector};
use half::f16;

use super::quantized::Weights;

/// A panel's weights, whatever their type.
#[derive(Clone, Copy)]
pub enum AnyWeights<'a> {
    /// Quantized.
    Codes(Layout, Weights<'a>),
    /// `[inputs, 2]`.
    Single(&'a [Floats]),
    /// `[inputs, 2]`, in half precision.
    Half(&'a [[f16; LANES]]),
    /// `[inputs, 2]`, upper halves of singles.
    Upper(&'a [[u16; LANES]]),
}

/// The product of `R` rows with a panel, given back by value.
pub struct Block<'a, const R: usize> {
    /// The panel.
    pub weights: AnyWeights<'a>,
    /// The rows' activations, all of one length.
    pub rows: [&'a [f32]; R],
}

impl<const R: usize> Operation for Block<'_, R> {
    type Output = [[f32; PANEL]; R];

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> [[f32; PANEL]; R] {
        let mut totals = [[v.splat(0.0); 2]; R];
        let inputs = self.rows[0].len();
        for first in (0..inputs).step_by(GROUP) {
            let mut partial = [[v.splat(0.0); 2]; R];
            let end = (first + GROUP).min(inputs);
            match self.weights {
                AnyWeights::Codes(layout, weights) => {
                    codes(v, layout, weights, first / GROUP, &self.rows, &mut partial);
                }
                AnyWeights::Single(all) => {
                    for (i, w) in all.as_chunks::<2>().0[first..end].iter().enumerate() {
                        step(
                            v,
                            &self.rows,
                            first + i,
                            [v.load(&w[0].0), v.load(&w[1].0)],
                            &mut partial,
                        );
                    }
                }
                AnyWeights::Half(all) => {
                    for (i, w) in all.as_chunks::<2>().0[first..end].iter().enumerate() {
                        step(
                            v,
                            &self.rows,
                            first + i,
                            [v.load_half(&w[0]), v.load_half(&w[1])],
                            &mut partial,
                        );
                    }
                }
                AnyWeights::Upper(all) => {
                    for (i, w) in all.as_chunks::<2>().0[first..end].iter().enumerate() {
                        step(
                            v,
                            &self.rows,
                            first + i,
                            [v.load_upper(&w[0]), v.load_upper(&w[1])],
                            &mut partial,
                        );
                    }
                }
            }
            for r in 0..R {
                for half in 0..2 {
                    totals[r][half] = v.add(totals[r][half], partial[r][half]);
                }
            }
        }
        let mut out = [[0f32; PANEL]; R];
        for (out, totals) in out.iter_mut().zip(totals) {
            let (halves, _) = out.as_chunks_mut::<LANES>();
            v.store(totals[0], &mut halves[0]);
            v.store(totals[1], &mut halves[1]);
        }
        out
    }
}

/// Adds the products of input `i` to the sums.
#[inline(always)]
fn step<V: Vector, const R: usize>(
    v: V,
    rows: &[&[f32]; R],
    i: usize,
    weights: [V::F; 2],
    sums: &mut [[V::F; 2]; R],
) {
    for r in 0..R {
        let x = v.splat(rows[r][i]);
        sums[r][0] = v.fma(x, weights[0], sums[r][0]);
        sums[r][1] = v.fma(x, weights[1], sums[r][1]);
    }
}

/// Adds the products of one group of a quantized panel to the sums.
#[inline(always)]
fn codes<V: Vector, const R: usize>(
    v: V,
    layout: Layout,
    weights: Weights<'_>,
    group: usize,
    rows: &[&[f32]; R],
    sums: &mut [[V::F; 2]; R],
) {
    let lines = layout.lines();
    let lines_of = |half: usize| &weights.codes[(group * 2 + half) * lines..][..lines];
    let (first, last) = (lines_of(0), lines_of(1));
    for quad in 0..8 {
        let at = (group * layout.scales + quad * layout.scales / 8) * 2;
        let load = |line: &Codes| {
            let line = v.load_codes(line);
            match (layout.nibbles, quad < 4) {
                (false, _) => line,
                (true, true) => v.low_nibbles(line),
                (true, false) => v.high_nibbles(line),
            }
        };
        let quads = [load(&first[quad % lines]), load(&last[quad % lines])];
        let scales = [
            v.load(&weights.scales[at].0),
            v.load(&weights.scales[at + 1].0),
        ];
        let offsets = match layout.zero {
            Some(zero) => [v.splat(-zero as f32); 2],
            None => [
                v.load(&weights.offsets[at].0),
                v.load(&weights.offsets[at + 1].0),
            ],
        };
        let weight = |codes: V::I, half: usize| {
            let code = v.to_float(codes);
            match layout.zero {
                Some(_) => v.mul(v.add(code, offsets[half]), scales[half]),
                None => v.fma(code, scales[half], offsets[half]),
            }
        };
        let i = group * GROUP + quad * 4;
        step(
            v,
            rows,
            i,
            [
                weight(v.byte::<0>(quads[0]), 0),
                weight(v.byte::<0>(quads[1]), 1),
            ],
            sums,
        );
        step(
            v,
            rows,
            i + 1,
            [
                weight(v.byte::<1>(quads[0]), 0),
                weight(v.byte::<1>(quads[1]), 1),
            ],
            sums,
        );
        step(
            v,
            rows,
            i + 2,
            [
                weight(v.byte::<2>(quads[0]), 0),
                weight(v.byte::<2>(quads[1]), 1),
            ],
            sums,
        );
        step(
            v,
            rows,
            i + 3,
            [
                weight(v.byte::<3>(quads[0]), 0),
                weight(v.byte::<3>(quads[1]), 1),
            ],
            sums,
        );
    }
}
