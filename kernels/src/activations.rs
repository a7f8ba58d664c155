//! Rows of activations, quantized once for all the matrices that they meet. Knows no weights.

use crate::dispatch::{Isa, Operation};
use crate::error::expect_length;
use crate::pack::GROUP;
use crate::vector::Vector;
use crate::{KernelError, Precision};
use rayon::prelude::*;

/// 32 consecutive activations of a row, in 8 bits: an activation is about `scale * code + middle`, where `middle` lies halfway between
/// the least and the greatest. On SmolLM2-135M Q4_1 the divergence from the exact product is 2.6 times smaller than with codes around
/// zero. Sums are of the codes; 0 and 1 are those of the first and the last 16.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Group {
    /// Four signed codes to a word.
    pub(crate) quads: [i32; GROUP / 4],
    /// What a code of 1 is worth; NaN where an activation is not finite, so that no such row looks like a number.
    pub(crate) scale: f32,
    /// What a code of 0 is worth.
    pub(crate) middle: f32,
    /// The sum of the first and the last 16 codes, and of all.
    pub(crate) counts: [i32; 3],
    /// `scale` times those.
    pub(crate) sums: [f32; 3],
}

/// Activations `[rows, columns]`, and their 8-bit form where the products ask for it.
pub struct Activations<'a> {
    rows: usize,
    columns: usize,
    values: &'a [f32],
    pub(crate) groups: Vec<Group>,
}

impl<'a> Activations<'a> {
    /// Prepares `values`, `[rows, columns]`, for products of this precision.
    ///
    /// # Errors
    /// Where `values` is no such matrix.
    pub fn new(
        isa: Isa,
        values: &'a [f32],
        rows: usize,
        columns: usize,
        precision: Precision,
    ) -> Result<Activations<'a>, KernelError> {
        expect_length("activations", &[rows, columns], values.len())?;
        let mut groups = Vec::new();
        // A quantized matrix has whole groups of inputs, so other rows only meet matrices in floating point.
        if precision == Precision::Quantized && columns > 0 && columns.is_multiple_of(GROUP) {
            groups.resize(values.len() / GROUP, Group::default());
            let part = (columns / GROUP).max(1024);
            groups
                .par_chunks_mut(part)
                .zip(values.par_chunks(part * GROUP))
                .for_each(|(groups, values)| isa.run(Quantize { values, groups }));
        }
        Ok(Activations {
            rows,
            columns,
            values,
            groups,
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The activations as they came.
    pub fn values(&self) -> &'a [f32] {
        self.values
    }

    /// How their products are computed with quantized weights.
    pub fn precision(&self) -> Precision {
        if self.groups.is_empty() {
            Precision::Exact
        } else {
            Precision::Quantized
        }
    }
}

struct Quantize<'a> {
    values: &'a [f32],
    groups: &'a mut [Group],
}

impl Operation for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, _: V) {
        for (group, values) in self
            .groups
            .iter_mut()
            .zip(self.values.as_chunks::<GROUP>().0)
        {
            *group = quantize(values);
        }
    }
}

/// Plain Rust, compiled for each instruction set: all its operations are exact or elementwise, so their order is no matter.
#[inline(always)]
fn quantize(values: &[f32; GROUP]) -> Group {
    // Halves of a group against each other again and again, so that each step is one of vectors.
    let (mut least, mut greatest, mut zeros) = (*values, *values, [0f32; GROUP]);
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
    let (least, greatest, finite) = (least[0], greatest[0], zeros[0] == 0.0);
    // Halved before they meet, so that nothing overflows.
    let (low, high) = (0.5 * least, 0.5 * greatest);
    let (middle, reach) = (high + low, high - low);
    let scale = reach / 127.0;
    let inverse = if scale > 0.0 { 127.0 / reach } else { 0.0 };
    let mut codes = [0i8; GROUP];
    for (code, x) in codes.iter_mut().zip(values) {
        let exact = ((x - middle) * inverse).round_ties_even();
        // Rounding may step over the edge by one, and the narrow dot product wants no -128.
        *code = exact.clamp(-127.0, 127.0) as i8;
    }
    let mut group = Group {
        scale: if finite { scale } else { f32::NAN },
        middle: if finite { middle } else { f32::NAN },
        ..Group::default()
    };
    for (quad, codes) in group.quads.iter_mut().zip(codes.as_chunks::<4>().0) {
        *quad = i32::from_le_bytes(codes.map(|code| code as u8));
    }
    let sum = |codes: &[i8]| codes.iter().map(|code| i32::from(*code)).sum::<i32>();
    let (first, last) = (sum(&codes[..GROUP / 2]), sum(&codes[GROUP / 2..]));
    group.counts = [first, last, first + last];
    for (sum, count) in group.sums.iter_mut().zip(group.counts) {
        *sum = group.scale * count as f32;
    }
    group
}
