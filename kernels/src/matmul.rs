//! Products of activations with a [`Matrix`]: cuts the work into panels and blocks of rows. The cut never shows in the result, since
//! each output of each row is summed by one lane alone, in an order that depends on the inputs' number only.

use crate::activations::{Activations, Group};
use crate::dispatch::{Isa, Operation};
use crate::error::expect_length;
use crate::generic::exact::{self, AnyWeights};
use crate::generic::quantized::{self, Weights};
use crate::matrix::{Packed, Panels};
use crate::pack::{GROUP, Layout, PANEL};
use crate::vector::{Codes, Floats};
use crate::{KernelError, Matrix, Precision};
use rayon::prelude::*;
use std::ops::Range;

/// Products below this many multiplications are not worth waking a thread for.
const SERIAL: usize = 1 << 18;

/// Bytes of activations that a pass over the panels works on, so that they stay in the second-level cache.
const ACTIVATION_BYTES: usize = 1 << 20;

/// `out[r, j] = sum over c of x[r, c] * w[j, c]`: the activations are `[m, inputs]`, `out` is `[m, outputs]`. The precision is the one that the
/// activations were prepared for; weights in floating point are always multiplied exactly.
///
/// # Errors
/// Where a length does not fit.
pub fn matmul(
    isa: Isa,
    x: &Activations<'_>,
    w: &Matrix,
    out: &mut [f32],
) -> Result<(), KernelError> {
    expect_length(
        "activations",
        &[x.rows(), w.inputs()],
        x.rows() * x.columns(),
    )?;
    expect_length("product", &[x.rows(), w.outputs()], out.len())?;
    if out.is_empty() {
        return Ok(());
    }
    match (&w.panels, x.precision()) {
        (Panels::Codes(packed), Precision::Quantized) => {
            let product = quantized_block(packed.layout);
            let groups_each = w.inputs() / GROUP;
            let of = |panel: usize| packed.panel(panel, groups_each);
            drive(
                w,
                x.rows(),
                size_of::<Group>() * groups_each,
                out,
                |panel, rows, sink| {
                    product(
                        isa,
                        packed.layout,
                        of(panel),
                        &x.groups,
                        groups_each,
                        rows,
                        sink,
                    );
                },
            );
        }
        _ => {
            let inputs = w.inputs();
            drive(
                w,
                x.rows(),
                size_of::<f32>() * inputs,
                out,
                |panel, rows, sink| {
                    let weights = any_panel(w, panel);
                    exact_block(isa, weights, x.values(), inputs, rows, sink);
                },
            );
        }
    }
    Ok(())
}

/// Where a block's results go: row, and the panel's outputs of that row.
type Sink<'a> = &'a mut dyn FnMut(usize, &[f32; PANEL]);

/// Calls `block` for every panel and every range of rows, on all threads, and puts its results in their place.
fn drive(
    w: &Matrix,
    rows: usize,
    row_bytes: usize,
    out: &mut [f32],
    block: impl Fn(usize, Range<usize>, Sink<'_>) + Sync,
) {
    let outputs = w.outputs();
    let strip = Strip {
        base: out.as_mut_ptr(),
        rows,
        outputs,
    };
    let pass = (ACTIVATION_BYTES / row_bytes.max(1)).max(32);
    let work = |first: usize, panel: usize| {
        let range = first..(first + pass).min(rows);
        block(panel, range, &mut |row, result| {
            // SAFETY: each panel is worked on once for each range of rows, and the ranges do not overlap, so no two threads
            // write the same row of the same panel; nothing reads `out` until all are done.
            unsafe { strip.write(row, panel, result) }
        });
    };
    let panels = w.panel_count();
    let serial = rows * outputs * w.inputs() < SERIAL || rayon::current_num_threads() == 1;
    for first in (0..rows).step_by(pass) {
        if serial {
            (0..panels).for_each(|panel| work(first, panel));
        } else {
            (0..panels)
                .into_par_iter()
                .for_each(|panel| work(first, panel));
        }
    }
}

/// The result matrix, to be written by panels.
struct Strip {
    base: *mut f32,
    rows: usize,
    outputs: usize,
}

// SAFETY: the pointer is only used by `write`, whose callers see to it that no two threads write the same place.
unsafe impl Sync for Strip {}

impl Strip {
    /// Writes the panel's outputs of a row.
    ///
    /// # Safety
    /// `base` points to `rows * outputs` elements that outlive this call, and no other thread reads or writes this panel of this row meanwhile.
    unsafe fn write(&self, row: usize, panel: usize, result: &[f32; PANEL]) {
        let first = panel * PANEL;
        if row >= self.rows || first >= self.outputs {
            return;
        }
        let count = PANEL.min(self.outputs - first);
        // SAFETY: `row < rows` and `first + count <= outputs`, so the target lies inside the matrix; it is exclusive by this function's contract.
        unsafe {
            std::ptr::copy_nonoverlapping(
                result.as_ptr(),
                self.base.add(row * self.outputs + first),
                count,
            )
        }
    }
}

impl Packed {
    fn panel(&self, panel: usize, groups: usize) -> Weights<'_> {
        let codes = groups * 2 * self.layout.lines();
        let scales = groups * self.layout.scales * 2;
        let offsets = if self.layout.zero.is_none() {
            scales
        } else {
            0
        };
        Weights {
            codes: &self.codes[panel * codes..(panel + 1) * codes],
            scales: &self.scales[panel * scales..(panel + 1) * scales],
            offsets: &self.offsets[panel * offsets..(panel + 1) * offsets],
            levels: &self.levels[panel * groups * 2..(panel + 1) * groups * 2],
        }
    }
}

fn any_panel(w: &Matrix, panel: usize) -> AnyWeights<'_> {
    let range = panel * w.inputs() * 2..(panel + 1) * w.inputs() * 2;
    match &w.panels {
        Panels::Codes(packed) => {
            AnyWeights::Codes(packed.layout, packed.panel(panel, w.inputs() / GROUP))
        }
        Panels::Single(all) => AnyWeights::Single(&all[range]),
        Panels::Half(all) => AnyWeights::Half(&all[range]),
        Panels::Upper(all) => AnyWeights::Upper(&all[range]),
    }
}

/// What the panels' kernel is, the panel, all rows' groups, and which rows.
type QuantizedBlock = fn(Isa, Layout, Weights<'_>, &[Group], usize, Range<usize>, Sink<'_>);

/// Bytes of a panel that are worked on for all rows before the next ones, so that they stay in the first-level cache.
const PANEL_BYTES: usize = 24 << 10;

/// The kernel for a layout.
fn quantized_block(layout: Layout) -> QuantizedBlock {
    match (layout.nibbles, layout.scales, layout.zero) {
        (true, 1, None) => quantized_rows::<true, true, 1, true>,
        (true, 1, Some(_)) => quantized_rows::<true, true, 1, false>,
        (true, _, None) => quantized_rows::<true, true, 2, true>,
        (true, _, Some(_)) => quantized_rows::<true, true, 2, false>,
        (false, 1, None) => quantized_rows::<false, true, 1, true>,
        (false, 1, Some(128)) => quantized_rows::<false, false, 1, false>,
        (false, 1, Some(_)) => quantized_rows::<false, true, 1, false>,
        // Every type of this shape has a zero.
        (false, _, _) => quantized_rows::<false, true, 2, false>,
    }
}

fn quantized_rows<
    const NIBBLES: bool,
    const NARROW: bool,
    const SCALES: usize,
    const OFFSETS: bool,
>(
    isa: Isa,
    layout: Layout,
    weights: Weights<'_>,
    groups: &[Group],
    groups_each: usize,
    rows: Range<usize>,
    sink: Sink<'_>,
) {
    let mut all = vec![[0f32; PANEL]; rows.len()];
    let group_bytes = 2 * size_of::<Codes>() * layout.lines()
        + 2 * size_of::<Floats>() * (SCALES * if OFFSETS { 2 } else { 1 } + 1);
    let step = PANEL_BYTES / group_bytes;
    let zero = layout.zero.unwrap_or(0);
    for start in (0..groups_each).step_by(step) {
        let part = start..(start + step).min(groups_each);
        let weights = weights.part(part.clone(), layout.lines(), SCALES);
        let row = |r: usize| &groups[r * groups_each..][part.clone()];
        let mut at = rows.start;
        let (fours, rest) = all.as_chunks_mut::<4>();
        for totals in fours {
            let rows = std::array::from_fn(|r| row(at + r));
            isa.run(quantized::Block::<4, NIBBLES, NARROW, SCALES, OFFSETS> {
                weights,
                zero,
                rows,
                totals,
            });
            at += 4;
        }
        let (pairs, rest) = rest.as_chunks_mut::<2>();
        for totals in pairs {
            let rows = [row(at), row(at + 1)];
            isa.run(quantized::Block::<2, NIBBLES, NARROW, SCALES, OFFSETS> {
                weights,
                zero,
                rows,
                totals,
            });
            at += 2;
        }
        if let Some(totals) = rest.first_chunk_mut::<1>() {
            isa.run(quantized::Block::<1, NIBBLES, NARROW, SCALES, OFFSETS> {
                weights,
                zero,
                rows: [row(at)],
                totals,
            });
        }
    }
    for (row, total) in rows.zip(&all) {
        sink(row, total);
    }
}

fn exact_block(
    isa: Isa,
    weights: AnyWeights<'_>,
    x: &[f32],
    inputs: usize,
    rows: Range<usize>,
    sink: Sink<'_>,
) {
    let row = |r: usize| &x[r * inputs..(r + 1) * inputs];
    let mut at = rows.start;
    while at < rows.end {
        at += match rows.end - at {
            1..4 => put(
                isa,
                exact::Block::<1> {
                    weights,
                    rows: [row(at)],
                },
                at,
                sink,
            ),
            _ => put(
                isa,
                exact::Block::<4> {
                    weights,
                    rows: std::array::from_fn(|r| row(at + r)),
                },
                at,
                sink,
            ),
        };
    }
}

/// Runs a block and hands its rows to the sink; gives back how many they were.
fn put<const R: usize>(
    isa: Isa,
    block: impl Operation<Output = [[f32; PANEL]; R]>,
    first: usize,
    sink: Sink<'_>,
) -> usize {
    let results = isa.run(block);
    for (r, result) in results.iter().enumerate() {
        sink(first + r, result);
    }
    R
}
