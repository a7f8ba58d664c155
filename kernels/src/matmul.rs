//! Products of activations with a [`Matrix`]: cuts the work into panels and blocks of rows. The cut never shows in the result, since
//! each output of each row is summed by one lane alone, in an order that depends on the inputs' number only.

use crate::activations::Activations;
use crate::dispatch::Isa;
use crate::error::expect_length;
use crate::generic::rows::GateGroup;
use crate::pack::{GROUP, PANEL};
use crate::panel::{Room, compute};
use crate::{Activation, KernelError, Matrix, Precision};
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// Products below this many multiplications are not worth waking a thread for.
const SERIAL: usize = 1 << 18;

/// Bytes of activations that a task works on, so that they stay in the second-level cache while panel after panel meets them.
const ACTIVATION_BYTES: usize = 1 << 19;

/// A product to be computed, and what is added to it.
pub struct Product<'a> {
    /// The weights `[outputs, inputs]`.
    pub weights: &'a Matrix,
    /// Added to every row, `[outputs]`.
    pub bias: Option<&'a [f32]>,
    /// Added after that, `[rows, outputs]`.
    pub residual: Option<&'a [f32]>,
    /// Where it goes, `[rows, outputs]`.
    pub out: &'a mut [f32],
}

/// `out[r, j] = sum over c of x[r, c] * w[j, c]`: the activations are `[m, inputs]`, `out` is `[m, outputs]`. The precision is the one that the
/// activations were prepared for; weights in floating point are always multiplied exactly.
///
/// # Errors
/// Where a length does not fit.
pub fn matmul(
    isa: Isa,
    x: &Activations<'_>,
    weights: &Matrix,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let product = Product {
        weights,
        bias: None,
        residual: None,
        out,
    };
    matmul_many(isa, x, &mut [product])
}

/// Several products of the same activations, in one go over all threads.
///
/// # Errors
/// Where a length does not fit.
pub fn matmul_many(
    isa: Isa,
    x: &Activations<'_>,
    products: &mut [Product<'_>],
) -> Result<(), KernelError> {
    let rows = x.rows();
    for product in products.iter() {
        let w = product.weights;
        check_inputs(x, w)?;
        expect_length("product", &[rows, w.outputs()], product.out.len())?;
        if let Some(bias) = product.bias {
            expect_length("bias", &[w.outputs()], bias.len())?;
        }
        if let Some(residual) = product.residual {
            expect_length("residual", &[rows, w.outputs()], residual.len())?;
        }
    }
    let strips: Vec<Strip> = products.iter_mut().map(Strip::new).collect();
    let tasks: Vec<(usize, usize)> = strips
        .iter()
        .enumerate()
        .flat_map(|(i, strip)| (0..strip.weights.panel_count()).map(move |panel| (i, panel)))
        .collect();
    let work: usize = strips.iter().map(|strip| rows * strip.weights.len()).sum();
    drive(x, tasks.len(), work, |task, range| {
        let (index, panel) = tasks[task];
        let strip = &strips[index];
        SCRATCH.with_borrow_mut(|scratch| {
            let depth = x.depth_with(strip.weights);
            scratch.totals.clear();
            scratch.totals.resize(depth * range.len(), [0.0; PANEL]);
            let Scratch { room, totals } = scratch;
            let deep = depth * range.start..depth * range.end;
            compute(isa, x, strip.weights, panel, deep, room, totals);
            if depth == 2 {
                for row in 0..range.len() {
                    let [first, second] = [totals[2 * row], totals[2 * row + 1]];
                    totals[row] = std::array::from_fn(|i| first[i] + second[i]);
                }
            }
            for (row, totals) in range.zip(&*totals) {
                // SAFETY: each panel of each product is worked on once for each range of rows, and the ranges do not overlap, so no
                // two threads write the same row of the same panel; nothing else touches `out` until all are done.
                unsafe { strip.write(row, panel, totals) }
            }
        });
    });
    Ok(())
}

/// `activation(x · gate) * (x · up)`, quantized for the product that follows, whose weights are `fine` or not: the numbers in between are
/// never written out.
///
/// # Errors
/// Where a length does not fit, or where the number of outputs is no multiple of 32.
pub fn gated(
    isa: Isa,
    x: &Activations<'_>,
    gate: &Matrix,
    up: &Matrix,
    activation: Activation,
    fine: bool,
) -> Result<Activations<'static>, KernelError> {
    check_inputs(x, gate)?;
    check_inputs(x, up)?;
    if x.depth() > 1 {
        return Err(KernelError::Shape(
            "a gated unit takes activations of 8 bits".to_string(),
        ));
    }
    let (rows, outputs) = (x.rows(), gate.outputs());
    if up.outputs() != outputs || !outputs.is_multiple_of(PANEL) {
        return Err(KernelError::Shape(format!(
            "a gate of {outputs} outputs and an up of {}",
            up.outputs()
        )));
    }
    let mut inner = Activations::empty(rows, outputs, Precision::Quantized, fine);
    let target = inner.target();
    let each = outputs.div_ceil(GROUP);
    drive(x, each, 2 * rows * gate.len(), |task, range| {
        let panels = 2 * task..(2 * task + 2).min(gate.panel_count());
        SCRATCH.with_borrow_mut(|scratch| {
            let count = range.len();
            scratch.totals.clear();
            scratch.totals.resize(4 * count, [0.0; PANEL]);
            let Scratch { room, totals } = scratch;
            for (i, panel) in panels.clone().enumerate() {
                let (gates, ups) = totals[2 * i * count..][..2 * count].split_at_mut(count);
                compute(isa, x, gate, panel, range.clone(), room, gates);
                compute(isa, x, up, panel, range.clone(), room, ups);
            }
            for (at, row) in range.enumerate() {
                let mut values = [[0f32; PANEL]; 4];
                for (i, values) in values[..2 * panels.len()].iter_mut().enumerate() {
                    *values = totals[i * count + at];
                }
                let group = isa.run(GateGroup {
                    gates: [&values[0], &values[2]],
                    ups: [&values[1], &values[3]],
                    count: panels.len() * PANEL,
                    activation,
                    fine,
                });
                // SAFETY: every group of every row is computed by one task for one range of rows, and `inner` lives on.
                unsafe { target.put(row, 0, task, group) }
            }
        });
    });
    Ok(inner)
}

/// Whether `x` has the inputs of `w`, in the form that it needs.
fn check_inputs(x: &Activations<'_>, w: &Matrix) -> Result<(), KernelError> {
    if x.precision() != Precision::Exact && w.is_packed() && x.fine() != w.is_fine() {
        return Err(KernelError::Shape(
            "activations are scaled for another type of weights".to_string(),
        ));
    }
    if !x.has_values() && !w.is_packed() {
        return Err(KernelError::Shape(
            "activations that are only there in 8 bits meet weights in floating point".to_string(),
        ));
    }
    expect_length(
        "activations",
        &[x.rows(), w.inputs()],
        x.rows() * x.columns(),
    )
}

/// Calls `work` for each task and range of rows, on all threads where that pays.
fn drive(
    x: &Activations<'_>,
    tasks: usize,
    size: usize,
    work: impl Fn(usize, Range<usize>) + Sync,
) {
    let rows = x.rows();
    let pass = (ACTIVATION_BYTES / x.row_bytes().max(1)).max(48);
    // As even as can be, so that no pass is left with a few rows.
    let passes = rows.div_ceil(pass);
    let range = |pass: usize| rows * pass / passes..rows * (pass + 1) / passes;
    let one = |index: usize| work(index % tasks, range(index / tasks));
    if size < SERIAL || rayon::current_num_threads() == 1 {
        (0..passes * tasks).for_each(one);
    } else {
        (0..passes * tasks).into_par_iter().for_each(one);
    }
}

/// What a thread needs for its tasks, made once.
struct Scratch {
    room: Room,
    totals: Vec<[f32; PANEL]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        room: Room::new(),
        totals: Vec::new(),
    });
}

/// The result of a product, to be written by panels.
struct Strip<'a> {
    weights: &'a Matrix,
    bias: Option<&'a [f32]>,
    residual: Option<&'a [f32]>,
    base: *mut f32,
    rows: usize,
    outputs: usize,
}

// SAFETY: the pointer is only used by `write`, whose callers see to it that no two threads write the same place.
unsafe impl Sync for Strip<'_> {}

impl<'a> Strip<'a> {
    fn new(product: &'a mut Product<'_>) -> Strip<'a> {
        let outputs = product.weights.outputs();
        Strip {
            weights: product.weights,
            bias: product.bias,
            residual: product.residual,
            rows: product.out.len() / outputs.max(1),
            base: product.out.as_mut_ptr(),
            outputs,
        }
    }

    /// Writes the panel's outputs of a row.
    ///
    /// # Safety
    /// `base` points to `rows * outputs` elements that outlive this call, and no other thread reads or writes this panel of this row meanwhile.
    unsafe fn write(&self, row: usize, panel: usize, totals: &[f32; PANEL]) {
        let first = panel * PANEL;
        if row >= self.rows || first >= self.outputs {
            return;
        }
        let count = PANEL.min(self.outputs - first);
        let mut result = *totals;
        if let Some(bias) = self.bias {
            for (result, bias) in result.iter_mut().zip(&bias[first..first + count]) {
                *result += bias;
            }
        }
        if let Some(residual) = self.residual {
            let residual = &residual[row * self.outputs + first..][..count];
            for (result, residual) in result.iter_mut().zip(residual) {
                *result += residual;
            }
        }
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
