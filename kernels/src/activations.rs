//! Rows of activations, quantized once for all the matrices that they meet. Knows no weights.

use crate::dispatch::{Isa, Operation};
use crate::error::expect_length;
use crate::generic::expand::CHUNK;
use crate::generic::rows::RmsNorm;
use crate::pack::{GROUP, RUN};
use crate::vector::{LANES, Vector};
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

/// The groups of a row that meet a piece of a panel.
pub type Piece = [Group; CHUNK];

/// Activations that a task quantizes, at least: below, waking a thread costs more than it saves.
const TASK: usize = 1 << 15;

/// Activations `[rows, columns]`, and their 8-bit form where the products ask for it.
pub struct Activations<'a> {
    rows: usize,
    columns: usize,
    /// Absent where only the 8-bit form is there.
    values: Option<&'a [f32]>,
    /// `[pieces, rows, depth]`: what a piece of a panel meets lies side by side, so that a product reads it as one stream.
    pieces: Vec<Piece>,
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
        // A quantized matrix has whole runs of inputs, so other rows only meet matrices in floating point.
        let whole = columns > 0 && columns.is_multiple_of(RUN);
        let precision = if whole { precision } else { Precision::Exact };
        let mut all = Activations::empty(rows, columns, precision, fine);
        all.values = Some(values);
        if precision != Precision::Exact {
            all.fill(values, |values, target, row| {
                isa.run(Quantize {
                    values,
                    target,
                    row,
                });
            });
        }
        Ok(all)
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
        let mut all = Activations::empty(rows, columns, precision, fine);
        all.fill(values, |x, target, row| {
            let mut normed = vec![0f32; columns];
            isa.run(RmsNorm {
                x,
                weight,
                eps,
                out: &mut normed,
            });
            isa.run(Quantize {
                values: &normed,
                target,
                row,
            });
        });
        Ok(all)
    }

    /// Activations in 8 bits, all zeros so far.
    pub(crate) fn empty(rows: usize, columns: usize, precision: Precision, fine: bool) -> Self {
        let pieces = match precision {
            Precision::Exact => 0,
            _ => columns.div_ceil(GROUP * CHUNK),
        };
        Activations {
            rows,
            columns,
            values: None,
            pieces: vec![[Group::default(); CHUNK]; pieces * rows * depth(precision)],
            precision,
            fine,
        }
    }

    /// Has every row quantized, on all threads where that pays.
    fn fill(&mut self, values: &[f32], quantize: impl Fn(&[f32], &Target, usize) + Sync) {
        let columns = self.columns;
        let target = self.target();
        let rows = values.par_chunks(columns).enumerate();
        rows.with_min_len((TASK / columns).max(1))
            .for_each(|(row, values)| quantize(values, &target, row));
    }

    /// Where the groups of rows may be put, by several threads at a time.
    pub(crate) fn target(&mut self) -> Target {
        Target {
            base: self.pieces.as_mut_ptr(),
            columns: self.columns,
            rows: self.rows,
            depth: self.depth(),
            fine: self.fine,
        }
    }

    /// The rows' groups that meet piece `index` of a panel, `[rows, depth]`.
    pub(crate) fn piece(&self, index: usize) -> &[Piece] {
        let each = self.rows * self.depth();
        &self.pieces[index * each..(index + 1) * each]
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

/// The groups of activations, for threads that write them.
pub(crate) struct Target {
    base: *mut Piece,
    columns: usize,
    rows: usize,
    depth: usize,
    fine: bool,
}

// SAFETY: the pointer is only used by `put`, whose callers see to it that no two threads write the same group.
unsafe impl Sync for Target {}

impl Target {
    /// Writes group `index` of the `level`th of a row's rows of groups.
    ///
    /// # Safety
    /// The activations that this is the target of live, and no other thread reads or writes this group meanwhile.
    pub(crate) unsafe fn put(&self, row: usize, level: usize, index: usize, group: Group) {
        assert!(row < self.rows && level < self.depth && index < self.columns.div_ceil(GROUP));
        let at = (index / CHUNK * self.rows + row) * self.depth + level;
        // SAFETY: `at` is below `pieces * rows * depth`, the length that `empty` allocated, since each index is below its own limit; that nobody
        // else touches the group is this function's contract.
        unsafe { (*self.base.add(at))[index % CHUNK] = group }
    }
}

/// Quantizes a row.
struct Quantize<'a> {
    values: &'a [f32],
    target: &'a Target,
    row: usize,
}

impl Operation for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let Quantize {
            values,
            target,
            row,
        } = self;
        for (index, values) in values.chunks(GROUP).enumerate() {
            let mut group = quantize_some(v, values, target.fine);
            // SAFETY: each row is quantized by one call alone, and the target's activations are borrowed by what makes the calls.
            unsafe { target.put(row, 0, index, group) }
            if target.depth == 2 {
                let mut rest = [0f32; GROUP];
                let codes = group.quads.iter().flat_map(|quad| quad.to_le_bytes());
                for (i, ((rest, x), code)) in rest.iter_mut().zip(values).zip(codes).enumerate() {
                    let (scale, base) = (group.scales[i / RUN], group.bases[i / RUN]);
                    *rest = x - f32::from(code).mul_add(scale, base);
                }
                group = quantize_some(v, &rest[..values.len()], target.fine);
                // SAFETY: as above.
                unsafe { target.put(row, 1, index, group) }
            }
        }
    }
}

/// A group of a row, or the half of one where a row ends.
#[inline(always)]
fn quantize_some<V: Vector>(v: V, values: &[f32], fine: bool) -> Group {
    if let Some(whole) = values.first_chunk::<GROUP>() {
        return quantize(v, whole, GROUP, fine);
    }
    // Filled up with what is there already, so that the extremes stay.
    let mut filled = [values[0]; GROUP];
    filled[..values.len()].copy_from_slice(values);
    quantize(v, &filled, values.len(), fine)
}

/// A group of the first `count` values, 32 or 64; the others only have to lie between them.
#[inline(always)]
pub(crate) fn quantize<V: Vector>(v: V, values: &[f32; GROUP], count: usize, fine: bool) -> Group {
    let zero = v.splat(0.0);
    let mut x = [zero; GROUP / LANES];
    for (x, values) in x.iter_mut().zip(values.as_chunks::<LANES>().0) {
        *x = v.load(values);
    }
    // The least, negated, and the greatest of each half, and what is nothing unless a value is not finite.
    let (mut least, mut greatest, mut nothing) = ([zero; 2], [zero; 2], [zero; 2]);
    for half in 0..2 {
        let (a, b) = (x[2 * half], x[2 * half + 1]);
        greatest[half] = v.max(a, b);
        least[half] = v.max(v.negate(a), v.negate(b));
        nothing[half] = v.add(v.mul(a, zero), v.mul(b, zero));
    }
    if !fine {
        greatest = [v.max(greatest[0], greatest[1]); 2];
        least = [v.max(least[0], least[1]); 2];
        nothing = [v.add(nothing[0], nothing[1]); 2];
    }
    let mut group = Group::default();
    let mut words = [[0u32; LANES / 4]; GROUP / LANES];
    let (mut scale, mut base, mut inverse) = (0.0, 0.0, 0.0);
    for half in 0..2 {
        if fine || half == 0 {
            base = -v.top(least[half]);
            // Divided before they meet, so that nothing overflows; steps below the smallest normal number are none.
            scale = v.top(greatest[half]) / 255.0 - base / 255.0;
            inverse = 1.0 / scale;
            if scale < f32::MIN_POSITIVE {
                (scale, inverse) = (0.0, 0.0);
            }
            if v.sum(nothing[half]) != 0.0 {
                (scale, base) = (f32::NAN, f32::NAN);
            }
        }
        group.scales[half] = scale;
        group.bases[half] = base;
        if half * RUN >= count {
            continue;
        }
        for (x, words) in x[2 * half..].iter().zip(&mut words[2 * half..]).take(2) {
            let code = v.mul(v.sub(*x, v.splat(base)), v.splat(inverse));
            let code = v.max(code, zero);
            let top = v.splat(255.0);
            *words = v.to_bytes(v.select_le(code, top, code, top));
        }
        for (i, words) in words.iter().enumerate().skip(2 * half).take(2) {
            let mut sum = 0;
            for word in words {
                // Bytes in pairs, then both: none of the sums overflows.
                let pairs = (word & 0x00ff_00ff) + ((word >> 8) & 0x00ff_00ff);
                sum += (pairs & 0xffff) + (pairs >> 16);
            }
            group.quarters[i] = scale * sum as f32 + base * LANES as f32;
        }
        group.halves[half] = group.quarters[2 * half] + group.quarters[2 * half + 1];
    }
    for (quad, word) in group.quads.iter_mut().zip(words.as_flattened()) {
        *quad = word.cast_signed();
    }
    group
}
