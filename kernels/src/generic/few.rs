//! Products of a few rows with a piece of a panel, its codes multiplied as they are unpacked: nothing is written in between.
//!
//! With so few rows, writing the expanded codes and reading them again would take longer than the products. Each output of each row is summed by the
//! same operations in the same order as in [`super::quantized`], so that both give the same bits; only the halves of the panel come
//! one after the other, which leaves registers for more rows.

use super::expand::{CodeSum, Scaling, load, quad};
use crate::activations::{Group, Piece};
use crate::dispatch::Operation;
use crate::pack::{Layout, PANEL, RUN};
use crate::vector::{Line, Vector};
use std::hint::black_box;

/// Quads of a run of 32 inputs.
const QUADS: usize = RUN / 4;

/// The products of `R` rows with a piece of a panel, added to the totals. `BITS`, `PARTS`, `OFFSETS` and `FINE` are the layout's.
pub struct Few<
    'a,
    const R: usize,
    const BITS: usize,
    const PARTS: usize,
    const OFFSETS: bool,
    const FINE: bool,
> {
    /// The piece: whole blocks.
    pub lines: &'a [Line],
    /// The rows' groups that meet the piece.
    pub rows: &'a [Piece; R],
    /// How many groups count: all but at the end of a panel.
    pub groups: usize,
    /// The totals so far, one a row.
    pub totals: &'a mut [[f32; PANEL]; R],
}

impl<const R: usize, const BITS: usize, const PARTS: usize, const OFFSETS: bool, const FINE: bool>
    Few<'_, R, BITS, PARTS, OFFSETS, FINE>
{
    const LAYOUT: Layout = Layout {
        bits: BITS,
        groups: if FINE { 1 } else { 4 },
        parts: PARTS,
        sub_scales: !FINE,
        offsets: OFFSETS,
    };
}

impl<const R: usize, const BITS: usize, const PARTS: usize, const OFFSETS: bool, const FINE: bool>
    Operation for Few<'_, R, BITS, PARTS, OFFSETS, FINE>
{
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        // Known when this is compiled, so that no instruction set gets code for more rows than its registers bear.
        assert!(R <= few_rows::<V>(), "more rows than registers");
        let Few {
            lines,
            rows,
            groups,
            totals: out,
        } = self;
        let layout = Self::LAYOUT;
        for (index, block) in lines.chunks_exact(layout.lines()).enumerate() {
            let (scaling, codes) = block.split_at(layout.scaling_lines());
            // All of them now, in order: that is what the processor takes for a stream.
            for line in scaling {
                v.fetch(line);
            }
            let scaling = Scaling::new(v, layout, scaling);
            let runs = codes.as_chunks::<BITS>().0.as_chunks::<2>().0;
            for (half, groups_of_half) in runs.chunks_exact(layout.groups).enumerate() {
                // Were it plain that both halves meet the same activations, the compiler would keep those of all rows for the second one, in registers
                // that there are not.
                let rows = black_box(rows);
                let mut totals = [v.splat(0.0); R];
                for (total, out) in totals.iter_mut().zip(out.iter()) {
                    *total = v.load(&out.as_chunks().0[half]);
                }
                for (group, runs) in groups_of_half.iter().enumerate() {
                    let at = index * layout.groups + group;
                    if at == groups {
                        break;
                    }
                    let rows = rows.each_ref().map(|row| &row[at]);
                    add_group::<V, R, BITS, PARTS, OFFSETS, FINE>(
                        v,
                        runs,
                        &scaling,
                        group,
                        half,
                        rows,
                        &mut totals,
                    );
                }
                for (total, out) in totals.iter().zip(out.iter_mut()) {
                    v.store(*total, &mut out.as_chunks_mut().0[half]);
                }
            }
        }
    }
}

/// Rows that the registers of `V` bear: 8 where there are 32 that hold a vector each, 2 where there are fewer.
fn few_rows<V: Vector>() -> usize {
    (V::SUMS / 3).max(1)
}

/// Adds the products of one half's outputs with one group.
#[inline(always)]
fn add_group<
    V: Vector,
    const R: usize,
    const BITS: usize,
    const PARTS: usize,
    const OFFSETS: bool,
    const FINE: bool,
>(
    v: V,
    runs: &[[Line; BITS]; 2],
    scaling: &Scaling<'_, V>,
    group: usize,
    half: usize,
    rows: [&Group; R],
    totals: &mut [V::F; R],
) {
    let center = v.splat_int((0x0101_0101u32 << (BITS - 1)) as i32);
    let mut level = v.splat(0.0);
    let mut scaled = [v.splat(0.0); R];
    let mut offsets = [v.splat(0.0); PARTS];
    for (part, offset) in offsets.iter_mut().enumerate() {
        let run = 2 * part / PARTS;
        let planes = load::<V, BITS>(v, &runs[run]);
        let mut sums = [v.splat_int(0); R];
        let mut codes = CodeSum::<V>::new(v);
        for q in part * 16 / PARTS..(part + 1) * 16 / PARTS {
            let mut code = quad::<V, BITS>(v, &planes, q % QUADS);
            if !OFFSETS {
                code = v.sub_bytes(code, center);
            }
            codes.add::<BITS>(v, code);
            for r in 0..R {
                let x = v.splat_int(rows[r].quads[q]);
                sums[r] = if BITS < 8 {
                    v.dot_narrow(sums[r], x, code)
                } else {
                    v.dot(sums[r], x, code)
                };
            }
        }
        let sum = v.to_float(codes.sum::<BITS>(v, OFFSETS));
        let scale = scaling.scale(v, group * PARTS + part, half);
        if OFFSETS {
            *offset = scaling.offset(v, group * PARTS + part, half);
        }
        if FINE {
            level = v.fma(scale, sum, v.splat(0.0));
        } else {
            level = v.fma(scale, sum, level);
        }
        for r in 0..R {
            let sum = v.to_float(sums[r]);
            if FINE {
                let mut total = totals[r];
                total = v.fma(v.mul(sum, scale), v.splat(rows[r].scales[part]), total);
                totals[r] = v.fma(level, v.splat(rows[r].bases[part]), total);
            } else if part == 0 {
                scaled[r] = v.mul(sum, scale);
            } else {
                scaled[r] = v.fma(sum, scale, scaled[r]);
            }
        }
    }
    for r in 0..R {
        let mut total = totals[r];
        if !FINE {
            total = v.fma(scaled[r], v.splat(rows[r].scales[0]), total);
            total = v.fma(level, v.splat(rows[r].bases[0]), total);
        }
        if OFFSETS {
            for (part, offset) in offsets.iter().enumerate() {
                let sum = if PARTS == 2 {
                    rows[r].halves[part]
                } else {
                    rows[r].quarters[part]
                };
                total = v.fma(*offset, v.splat(sum), total);
            }
        }
        totals[r] = total;
    }
}
