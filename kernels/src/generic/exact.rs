//! Products of single-precision activations with a panel of weights of any type, expanded on the way.
//!
//! For an output and a row: fused products are summed in order over 32 inputs, and such sums are added up in order, so the error
//! grows with the number of groups, not of inputs. That order is the same for any number of rows in a block.

use crate::dispatch::Operation;
use crate::pack::{GROUP, Layout, PANEL};
use crate::vector::{Floats, LANES, Vector};
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
                    let mut rows = [&[0f32; GROUP]; R];
                    for (to, from) in rows.iter_mut().zip(&self.rows) {
                        let Some(chunk) = from[first..].first_chunk() else {
                            break;
                        };
                        *to = chunk;
                    }
                    let group = first / GROUP;
                    match (layout.nibbles, layout.zero) {
                        (true, None) => {
                            codes::<V, R, 4, true>(v, layout, weights, group, rows, &mut partial)
                        }
                        (true, Some(_)) => {
                            codes::<V, R, 4, false>(v, layout, weights, group, rows, &mut partial)
                        }
                        (false, None) => {
                            codes::<V, R, 8, true>(v, layout, weights, group, rows, &mut partial)
                        }
                        (false, Some(_)) => {
                            codes::<V, R, 8, false>(v, layout, weights, group, rows, &mut partial)
                        }
                    }
                }
                AnyWeights::Single(all) => {
                    for (i, w) in (first..end).zip(&all.as_chunks::<2>().0[first..end]) {
                        step(
                            v,
                            at(self.rows, i),
                            [v.load(&w[0].0), v.load(&w[1].0)],
                            &mut partial,
                        );
                    }
                }
                AnyWeights::Half(all) => {
                    for (i, w) in (first..end).zip(&all.as_chunks::<2>().0[first..end]) {
                        step(
                            v,
                            at(self.rows, i),
                            [v.load_half(&w[0]), v.load_half(&w[1])],
                            &mut partial,
                        );
                    }
                }
                AnyWeights::Upper(all) => {
                    for (i, w) in (first..end).zip(&all.as_chunks::<2>().0[first..end]) {
                        step(
                            v,
                            at(self.rows, i),
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

/// Element `i` of each row.
#[inline(always)]
fn at<const R: usize>(rows: [&[f32]; R], i: usize) -> [f32; R] {
    let mut x = [0f32; R];
    for r in 0..R {
        x[r] = rows[r][i];
    }
    x
}

/// Adds the products of one input to the sums.
#[inline(always)]
fn step<V: Vector, const R: usize>(
    v: V,
    x: [f32; R],
    weights: [V::F; 2],
    sums: &mut [[V::F; 2]; R],
) {
    for r in 0..R {
        let x = v.splat(x[r]);
        sums[r][0] = v.fma(x, weights[0], sums[r][0]);
        sums[r][1] = v.fma(x, weights[1], sums[r][1]);
    }
}

/// Adds the products of one group of a quantized panel, whose half has `LINES` lines, to the sums.
#[inline(always)]
fn codes<V: Vector, const R: usize, const LINES: usize, const OFFSETS: bool>(
    v: V,
    layout: Layout,
    weights: Weights<'_>,
    group: usize,
    rows: [&[f32; GROUP]; R],
    sums: &mut [[V::F; 2]; R],
) {
    let lines = &weights.codes.as_chunks::<LINES>().0[2 * group..2 * group + 2];
    let zero = v.splat(-layout.zero.unwrap_or(0) as f32);
    for quad in 0..8 {
        let at = (group * layout.scales + quad * layout.scales / 8) * 2;
        let mut bytes = [
            v.load_codes(&lines[0][quad % LINES]),
            v.load_codes(&lines[1][quad % LINES]),
        ];
        if LINES == 4 && quad < 4 {
            bytes = [v.low_nibbles(bytes[0]), v.low_nibbles(bytes[1])];
        } else if LINES == 4 {
            bytes = [v.high_nibbles(bytes[0]), v.high_nibbles(bytes[1])];
        }
        let scales = [
            v.load(&weights.scales[at].0),
            v.load(&weights.scales[at + 1].0),
        ];
        let mut offsets = [zero; 2];
        if OFFSETS {
            offsets = [
                v.load(&weights.offsets[at].0),
                v.load(&weights.offsets[at + 1].0),
            ];
        }
        for byte in 0..4 {
            let mut w = [zero; 2];
            for half in 0..2 {
                let code = v.to_float(match byte {
                    0 => v.byte::<0>(bytes[half]),
                    1 => v.byte::<1>(bytes[half]),
                    2 => v.byte::<2>(bytes[half]),
                    _ => v.byte::<3>(bytes[half]),
                });
                w[half] = if OFFSETS {
                    v.fma(code, scales[half], offsets[half])
                } else {
                    v.mul(v.add(code, offsets[half]), scales[half])
                };
            }
            let mut x = [0f32; R];
            for r in 0..R {
                x[r] = rows[r][4 * quad + byte];
            }
            step(v, x, w, sums);
        }
    }
}
