//! Products of 8-bit activations with a panel of quantized weights.
//!
//! For an output and a row, group by group in order: the integer product of the group (exact), times scale of weights times scale of
//! activations, is added by one fused operation; where weights have an offset, its product with the activations' sum is added by
//! another; the last one adds the product of the weights' level with the activations' middle. That order is the same for any number
//! of rows in a block.

use crate::activations::Group;
use crate::dispatch::Operation;
use crate::pack::PANEL;
use crate::vector::{Codes, Floats, LANES, Vector};

/// A panel's weights.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    /// `[groups, 2, lines]`.
    pub codes: &'a [Codes],
    /// `[groups, scales, 2]`.
    pub scales: &'a [Floats],
    /// As the scales; empty where there is a zero.
    pub offsets: &'a [Floats],
    /// `[groups, 2]`.
    pub levels: &'a [Floats],
}

/// The product of `R` rows with a panel, given back by value.
pub struct Block<
    'a,
    const R: usize,
    const NIBBLES: bool,
    const NARROW: bool,
    const SCALES: usize,
    const OFFSETS: bool,
> {
    /// The panel.
    pub weights: Weights<'a>,
    /// What the codes are counted from, where there are no offsets.
    pub zero: i32,
    /// The rows' groups.
    pub rows: [&'a [Group]; R],
    /// The totals so far.
    pub totals: &'a mut [[f32; PANEL]; R],
}

impl<
    const R: usize,
    const NIBBLES: bool,
    const NARROW: bool,
    const SCALES: usize,
    const OFFSETS: bool,
> Operation for Block<'_, R, NIBBLES, NARROW, SCALES, OFFSETS>
{
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let mut totals = [[v.splat(0.0); 2]; R];
        for (totals, from) in totals.iter_mut().zip(self.totals.iter()) {
            let (halves, _) = from.as_chunks::<LANES>();
            *totals = [v.load(&halves[0]), v.load(&halves[1])];
        }
        if NIBBLES {
            let (codes, _) = self.weights.codes.as_chunks::<8>();
            for (g, codes) in codes.iter().enumerate() {
                let Some(scaling) = Scaling::<SCALES, OFFSETS>::at(self.weights, g) else {
                    break;
                };
                let Some(groups) = at(self.rows, g) else {
                    break;
                };
                let quads = |half: usize, quad: usize| {
                    let line = v.load_codes(&codes[half * 4 + quad % 4]);
                    if quad < 4 {
                        v.low_nibbles(line)
                    } else {
                        v.high_nibbles(line)
                    }
                };
                group::<V, R, true, SCALES, OFFSETS>(
                    v,
                    quads,
                    scaling,
                    self.zero,
                    groups,
                    &mut totals,
                );
            }
        } else {
            let (codes, _) = self.weights.codes.as_chunks::<16>();
            for (g, codes) in codes.iter().enumerate() {
                let Some(scaling) = Scaling::<SCALES, OFFSETS>::at(self.weights, g) else {
                    break;
                };
                let Some(groups) = at(self.rows, g) else {
                    break;
                };
                let quads = |half: usize, quad: usize| v.load_codes(&codes[half * 8 + quad]);
                group::<V, R, NARROW, SCALES, OFFSETS>(
                    v,
                    quads,
                    scaling,
                    self.zero,
                    groups,
                    &mut totals,
                );
            }
        }
        for (out, totals) in self.totals.iter_mut().zip(totals) {
            let (halves, _) = out.as_chunks_mut::<LANES>();
            v.store(totals[0], &mut halves[0]);
            v.store(totals[1], &mut halves[1]);
        }
    }
}

impl<'a> Weights<'a> {
    /// Some of the groups: `lines` and `scales` are those of the layout.
    pub fn part(self, groups: std::ops::Range<usize>, lines: usize, scales: usize) -> Weights<'a> {
        let scale_range = groups.start * 2 * scales..groups.end * 2 * scales;
        Weights {
            codes: &self.codes[groups.start * 2 * lines..groups.end * 2 * lines],
            levels: &self.levels[groups.start * 2..groups.end * 2],
            scales: &self.scales[scale_range.clone()],
            offsets: if self.offsets.is_empty() {
                &[]
            } else {
                &self.offsets[scale_range]
            },
        }
    }
}

/// The scales, offsets and levels of one group.
#[derive(Clone, Copy)]
struct Scaling<'a, const SCALES: usize, const OFFSETS: bool> {
    scales: &'a [[Floats; 2]; SCALES],
    offsets: Option<&'a [[Floats; 2]; SCALES]>,
    levels: &'a [Floats; 2],
}

impl<'a, const SCALES: usize, const OFFSETS: bool> Scaling<'a, SCALES, OFFSETS> {
    #[inline(always)]
    fn at(weights: Weights<'a>, g: usize) -> Option<Self> {
        let of = |all: &'a [Floats]| all.as_chunks::<2>().0.as_chunks::<SCALES>().0.get(g);
        let scales = of(weights.scales)?;
        let offsets = if OFFSETS {
            Some(of(weights.offsets)?)
        } else {
            None
        };
        let levels = weights.levels.as_chunks::<2>().0.get(g)?;
        Some(Scaling {
            scales,
            offsets,
            levels,
        })
    }
}

#[inline(always)]
fn at<const R: usize>(rows: [&[Group]; R], g: usize) -> Option<[&Group; R]> {
    let mut groups = [rows.first()?.get(g)?; R];
    for r in 1..R {
        groups[r] = rows[r].get(g)?;
    }
    Some(groups)
}

/// Adds one group's products to the totals.
#[inline(always)]
fn group<
    V: Vector,
    const R: usize,
    const NARROW: bool,
    const SCALES: usize,
    const OFFSETS: bool,
>(
    v: V,
    quads: impl Fn(usize, usize) -> V::I,
    scaling: Scaling<'_, SCALES, OFFSETS>,
    zero: i32,
    groups: [&Group; R],
    totals: &mut [[V::F; 2]; R],
) {
    for part in 0..SCALES {
        let term = if SCALES == 1 { 2 } else { part };
        let mut sums = [[v.splat_int(0); 2]; R];
        if !OFFSETS {
            for r in 0..R {
                sums[r] = [v.splat_int(-zero * groups[r].counts[term]); 2];
            }
        }
        for quad in part * 8 / SCALES..(part + 1) * 8 / SCALES {
            let codes = [quads(0, quad), quads(1, quad)];
            for r in 0..R {
                let activations = v.splat_int(groups[r].quads[quad]);
                for half in 0..2 {
                    sums[r][half] = if NARROW {
                        v.dot_narrow(sums[r][half], codes[half], activations)
                    } else {
                        v.dot(sums[r][half], codes[half], activations)
                    };
                }
            }
        }
        for half in 0..2 {
            let scale = v.load(&scaling.scales[part][half].0);
            for r in 0..R {
                let scale = v.mul(scale, v.splat(groups[r].scale));
                totals[r][half] = v.fma(v.to_float(sums[r][half]), scale, totals[r][half]);
            }
            if let Some(offsets) = scaling.offsets {
                let offset = v.load(&offsets[part][half].0);
                for r in 0..R {
                    totals[r][half] = v.fma(offset, v.splat(groups[r].sums[term]), totals[r][half]);
                }
            }
        }
    }
    for (half, level) in scaling.levels.iter().enumerate() {
        let level = v.load(&level.0);
        for r in 0..R {
            totals[r][half] = v.fma(level, v.splat(groups[r].middle), totals[r][half]);
        }
    }
}
