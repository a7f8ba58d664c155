//! Rows of activations, quantized once for all the matrices that they meet. Knows no weights.

use crate::dispatch::{Isa, Operation};
use crate::error::expect_length;
use crate::generic::rows::RmsNorm;
use crate::pack::{GROUP, RUN};
use crate::vector::Vector;
use crate::{KernelError, Matrix, Precision};
use rayon::prelude::*;

/// 64 consecutive activations of a row, in 8 bits: an activation is about `scale * code + base`, where `base` is the least of them and a
/// code of 255 is the greatest. In the fine form the two halves are scaled apart. Where a row ends half way, the rest are codes of 0 that
/// count for nothing.
///
/// On SmolLM2-135M Q4_1 the divergence from the exact product is less than half of what codes around zero give.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub struct Group {
    /// Four codes to a word.
    pub quads: [i32; GROUP / 4],
    /// What a code of 1 is worth in each half; NaN where an activation is not finite, so that no such row looks like a number.
    pub scales: [f32; 2],
    /// What a code of 0 is worth.
    pub bases: [f32; 2],
    /// The sums of what the first and the last 32 codes are worth.
    pub halves: [f32; 2],
    /// The same for every 16.
    pub quarters: [f32; 4],
}

/// Activations that a task quantizes, at least: below, waking a thread costs more than it saves.
const TASK: usize = 1 << 15;

/// Activations `[rows, columns]`, and their 8-bit form where the products ask for it.
pub struct Activations<'a> {
    rows: usize,
    columns: usize,
    /// Absent where only the 8-bit form is there.
    values: Option<&'a [f32]>,
    /// `[rows, depth, groups]`.
    pub(crate) groups: Vec<Group>,
    precision: Precision,
    fine: bool,
}

impl<'a> Activations<'a> {
    /// Prepares `values`, `[rows, columns]`, for products of this precision; in 8 bits every 64 share a scale, or every 32 where the weights
    /// that they meet are `fine` ([`Matrix::is_fine`](crate::Matrix::is_fine)).
    ///
    /// # Errors
    /// Where `values` is no such matrix.
    pub fn new(
        isa: Isa,
        values: &'a [f32],
        rows: usize,
        columns: usize,
        precision: Precision,
        fine: bool,
    ) -> Result<Activations<'a>, KernelError> {
        expect_length("activations", &[rows, columns], values.len())?;
        let mut groups = Vec::new();
        // A quantized matrix has whole runs of inputs, so other rows only meet matrices in floating point.
        let whole = columns > 0 && columns.is_multiple_of(RUN);
        let precision = if whole { precision } else { Precision::Exact };
        if precision != Precision::Exact {
            let each = depth(precision) * columns.div_ceil(GROUP);
            groups.resize(rows * each, Group::default());
            let part = (TASK / columns).max(1);
            groups
                .par_chunks_mut(part * each)
                .zip(values.par_chunks(part * columns))
                .for_each(|(groups, values)| {
                    isa.run(Quantize {
                        columns,
                        values,
                        groups,
                        fine,
                        refined: precision == Precision::Refined,
                    });
                });
        }
        Ok(Activations {
            rows,
            columns,
            values: Some(values),
            groups,
            precision,
            fine,
        })
    }

    /// Prepares the root-mean-square norm of `values`, each element times its `weight`, for products with quantized weights: the normed rows are
    /// never written out.
    ///
    /// # Errors
    /// Where `values` is no such matrix, its rows are no whole number of 32, or the precision is the exact one.
    pub fn normed(
        isa: Isa,
        values: &[f32],
        rows: usize,
        weight: &[f32],
        eps: f32,
        precision: Precision,
        fine: bool,
    ) -> Result<Activations<'static>, KernelError> {
        let columns = weight.len();
        expect_length("activations", &[rows, columns], values.len())?;
        if columns == 0 || !columns.is_multiple_of(RUN) || precision == Precision::Exact {
            return Err(KernelError::Shape(format!(
                "rows of {columns} are not quantized"
            )));
        }
        let each = depth(precision) * columns.div_ceil(GROUP);
        let mut groups = vec![Group::default(); rows * each];
        let part = (TASK / columns).max(1);
        groups
            .par_chunks_mut(part * each)
            .zip(values.par_chunks(part * columns))
            .for_each(|(groups, values)| {
                let mut row = vec![0f32; columns];
                let values = values.chunks_exact(columns);
                for (groups, x) in groups.chunks_exact_mut(each).zip(values) {
                    isa.run(RmsNorm {
                        x,
                        weight,
                        eps,
                        out: &mut row,
                    });
                    isa.run(Quantize {
                        columns,
                        values: &row,
                        groups,
                        fine,
                        refined: precision == Precision::Refined,
                    });
                }
            });
        Ok(Activations::from_groups(
            rows, columns, groups, precision, fine,
        ))
    }

    /// Activations that are only there in their 8-bit form.
    pub(crate) fn from_groups(
        rows: usize,
        columns: usize,
        groups: Vec<Group>,
        precision: Precision,
        fine: bool,
    ) -> Activations<'static> {
        Activations {
            rows,
            columns,
            values: None,
            groups,
            precision,
            fine,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Whether every 32 have their own scale.
    pub(crate) fn fine(&self) -> bool {
        self.fine
    }

    /// Whether they are there as they came, not in 8 bits only.
    pub fn has_values(&self) -> bool {
        self.values.is_some()
    }

    /// The activations as they came; none where only their 8-bit form is there.
    pub(crate) fn values(&self) -> &[f32] {
        self.values.unwrap_or(&[])
    }

    /// Bytes that products read of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        match self.precision() {
            Precision::Quantized | Precision::Refined => {
                self.depth() * self.columns.div_ceil(GROUP) * size_of::<Group>()
            }
            Precision::Exact => self.columns * size_of::<f32>(),
        }
    }

    /// How their products are computed with quantized weights.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// As [`Activations::depth`], and one where weights in floating point take the values themselves.
    pub(crate) fn depth_with(&self, weights: &Matrix) -> usize {
        if weights.is_packed() { self.depth() } else { 1 }
    }

    /// Rows of groups that there are of a row of activations: one, or two where the second holds what the first leaves over.
    pub(crate) fn depth(&self) -> usize {
        depth(self.precision)
    }
}

fn depth(precision: Precision) -> usize {
    match precision {
        Precision::Refined => 2,
        Precision::Quantized | Precision::Exact => 1,
    }
}

/// Quantizes whole rows.
struct Quantize<'a> {
    fine: bool,
    refined: bool,
    columns: usize,
    values: &'a [f32],
    groups: &'a mut [Group],
}

impl Operation for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, _: V) {
        let each = self.columns.div_ceil(GROUP);
        let rows = self.values.chunks_exact(self.columns);
        if !self.refined {
            for (groups, row) in self.groups.chunks_exact_mut(each).zip(rows) {
                quantize_row(row, groups, self.fine);
            }
            return;
        }
        let mut rest = vec![0f32; self.columns];
        for (both, row) in self.groups.chunks_exact_mut(2 * each).zip(rows) {
            let (first, second) = both.split_at_mut(each);
            quantize_row(row, first, self.fine);
            for ((rest, row), group) in rest.chunks_mut(GROUP).zip(row.chunks(GROUP)).zip(first) {
                let codes = group.quads.iter().flat_map(|quad| quad.to_le_bytes());
                for (i, ((rest, x), code)) in rest.iter_mut().zip(row).zip(codes).enumerate() {
                    let (scale, base) = (group.scales[i / RUN], group.bases[i / RUN]);
                    *rest = x - f32::from(code).mul_add(scale, base);
                }
            }
            quantize_row(&rest, second, self.fine);
        }
    }
}

#[inline(always)]
fn quantize_row(row: &[f32], groups: &mut [Group], fine: bool) {
    let (whole, rest) = row.as_chunks::<GROUP>();
    for (group, values) in groups.iter_mut().zip(whole) {
        *group = quantize(values, GROUP, fine);
    }
    if let (Some(first), Some(group)) = (rest.first(), groups.get_mut(whole.len())) {
        // Filled up with what is there already, so that the extremes stay.
        let mut values = [*first; GROUP];
        values[..rest.len()].copy_from_slice(rest);
        *group = quantize(&values, rest.len(), fine);
    }
}

/// A group of the first `count` values; the others only have to lie between them.
#[inline(always)]
pub(crate) fn quantize(values: &[f32; GROUP], count: usize, fine: bool) -> Group {
    let (halves, _) = values.as_chunks::<RUN>();
    let (first, last) = (Range::of(&halves[0]), Range::of(&halves[1]));
    let whole = first.and(last);
    let ranges = if fine { [first, last] } else { [whole; 2] };
    let mut group = Group::default();
    let mut codes = [0u8; GROUP];
    for (half, range) in ranges.iter().enumerate() {
        let (scale, inverse) = range.scale();
        let there = if half * RUN < count { RUN } else { 0 };
        for (code, x) in codes[half * RUN..][..there].iter_mut().zip(&halves[half]) {
            *code = ((x - range.least) * inverse).round_ties_even() as u8;
        }
        group.scales[half] = if range.finite { scale } else { f32::NAN };
        group.bases[half] = if range.finite { range.least } else { f32::NAN };
        for (i, codes) in codes[half * RUN..].as_chunks::<16>().0[..2]
            .iter()
            .enumerate()
        {
            let sum: i32 = codes.iter().map(|code| i32::from(*code)).sum();
            let base = if there > 0 {
                16.0 * group.bases[half]
            } else {
                0.0
            };
            group.quarters[2 * half + i] = group.scales[half] * sum as f32 + base;
        }
        group.halves[half] = group.quarters[2 * half] + group.quarters[2 * half + 1];
    }
    for (quad, codes) in group.quads.iter_mut().zip(codes.as_chunks::<4>().0) {
        *quad = i32::from_le_bytes(*codes);
    }
    group
}

/// Where some values lie.
#[derive(Clone, Copy)]
struct Range {
    least: f32,
    greatest: f32,
    finite: bool,
}

impl Range {
    /// Plain Rust, compiled for each instruction set: halves against each other again and again, so that each step is one of vectors, and
    /// all steps are exact, so that their order is no matter.
    #[inline(always)]
    fn of(values: &[f32; RUN]) -> Range {
        let (mut least, mut greatest, mut zeros) = (*values, *values, [0f32; RUN]);
        for (zero, x) in zeros.iter_mut().zip(values) {
            // Nothing, unless it is not finite.
            *zero = x * 0.0;
        }
        for step in [16, 8, 4, 2, 1] {
            for i in 0..step {
                let (a, b) = (least[i], least[i + step]);
                least[i] = if a < b { a } else { b };
                let (a, b) = (greatest[i], greatest[i + step]);
                greatest[i] = if a > b { a } else { b };
                zeros[i] += zeros[i + step];
            }
        }
        Range {
            least: least[0],
            greatest: greatest[0],
            finite: zeros[0] == 0.0,
        }
    }

    /// What holds both.
    #[inline(always)]
    fn and(self, other: Range) -> Range {
        let least = if self.least < other.least {
            self.least
        } else {
            other.least
        };
        let greater = self.greatest > other.greatest;
        Range {
            least,
            greatest: if greater {
                self.greatest
            } else {
                other.greatest
            },
            finite: self.finite && other.finite,
        }
    }

    /// What a step of 255 is worth, and its inverse. Divided before they meet, so that nothing overflows; steps below the smallest normal
    /// number are none.
    #[inline(always)]
    fn scale(self) -> (f32, f32) {
        let scale = self.greatest / 255.0 - self.least / 255.0;
        if scale < f32::MIN_POSITIVE {
            (0.0, 0.0)
        } else {
            (scale, 1.0 / scale)
        }
    }
}
