//! What is done to each row or element by itself: norm, rope, gated units, soft cap, and the reading of a logits row.

use crate::dispatch::{Isa, Operation};
use crate::error::{expect_length, product};
use crate::generic::rows::{Add, Gated, RmsNorm, Rope, SoftCap};
use crate::{Activation, KernelError, RopeStyle};
use rayon::prelude::*;

/// Elements that are worth a task of their own.
const TASK: usize = 1 << 14;

/// `x / sqrt(mean(x^2) + eps) * weight` for each row of `weight.len()` elements of `x`; `out` is as long as `x`.
///
/// # Errors
/// Where `x` is no whole number of rows, or `out` has another length.
pub fn rms_norm(
    isa: Isa,
    x: &[f32],
    weight: &[f32],
    eps: f32,
    out: &mut [f32],
) -> Result<(), KernelError> {
    if weight.is_empty() || !x.len().is_multiple_of(weight.len()) {
        return Err(KernelError::Shape(format!(
            "{} elements are no rows of {}",
            x.len(),
            weight.len()
        )));
    }
    expect_length("normed rows", &[x.len()], out.len())?;
    let part = weight.len() * (TASK / weight.len()).max(1);
    each(
        isa,
        x.chunks(part)
            .zip(out.chunks_mut(part))
            .map(|(x, out)| RmsNorm {
                x,
                weight,
                eps,
                out,
            }),
    );
    Ok(())
}

/// Shape of the heads that [`rope`] turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Rows, each at its own position.
    pub rows: usize,
    /// Heads in a row.
    pub heads: usize,
    /// Dimensions of a head.
    pub dim: usize,
    /// Pairs of dimensions that turn: the first `2 * pairs` of a head do, the rest stay.
    pub pairs: usize,
}

/// Turns the heads of `x`, `[rows, heads, dim]`, by the angles whose `cos` and `sin` are `[rows, pairs]`.
///
/// # Errors
/// Where a length does not fit, or a head has fewer than `2 * pairs` dimensions.
pub fn rope(
    isa: Isa,
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    shape: Heads,
    style: RopeStyle,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let Heads {
        rows,
        heads,
        dim,
        pairs,
    } = shape;
    if product("rope pairs", &[pairs, 2])? > dim {
        return Err(KernelError::Shape(format!(
            "{pairs} rope pairs do not fit a head of {dim}"
        )));
    }
    expect_length("heads", &[rows, heads, dim], x.len())?;
    expect_length("turned heads", &[rows, heads, dim], out.len())?;
    expect_length("cosines", &[rows, pairs], cos.len())?;
    expect_length("sines", &[rows, pairs], sin.len())?;
    if x.is_empty() {
        return Ok(());
    }
    out.copy_from_slice(x);
    if pairs == 0 {
        return Ok(());
    }
    let angles = cos.chunks_exact(pairs).zip(sin.chunks_exact(pairs));
    let rows = out.chunks_exact_mut(heads * dim).zip(angles);
    each(
        isa,
        rows.map(|(heads, (cos, sin))| Rope {
            heads,
            dim,
            cos,
            sin,
            style,
        }),
    );
    Ok(())
}

/// `activation(gate) * up`, element by element.
///
/// # Errors
/// Where the lengths differ.
pub fn gated(
    isa: Isa,
    gate: &[f32],
    up: &[f32],
    activation: Activation,
    out: &mut [f32],
) -> Result<(), KernelError> {
    expect_length("up", &[gate.len()], up.len())?;
    expect_length("gated", &[gate.len()], out.len())?;
    let parts = gate
        .chunks(TASK)
        .zip(up.chunks(TASK))
        .zip(out.chunks_mut(TASK));
    each(
        isa,
        parts.map(|((gate, up), out)| Gated {
            gate,
            up,
            activation,
            out,
        }),
    );
    Ok(())
}

/// `a + b`, element by element.
///
/// # Errors
/// Where the lengths differ.
pub fn add(isa: Isa, a: &[f32], b: &[f32], out: &mut [f32]) -> Result<(), KernelError> {
    expect_length("b", &[a.len()], b.len())?;
    expect_length("sum", &[a.len()], out.len())?;
    let parts = a.chunks(TASK).zip(b.chunks(TASK)).zip(out.chunks_mut(TASK));
    each(isa, parts.map(|((a, b), out)| Add { a, b, out }));
    Ok(())
}

/// `cap * tanh(x / cap)`, element by element.
///
/// # Errors
/// Where the lengths differ.
pub fn soft_cap(isa: Isa, x: &[f32], cap: f32, out: &mut [f32]) -> Result<(), KernelError> {
    expect_length("capped", &[x.len()], out.len())?;
    each(
        isa,
        x.chunks(TASK)
            .zip(out.chunks_mut(TASK))
            .map(|(x, out)| SoftCap { x, cap, out }),
    );
    Ok(())
}

/// Runs all of them, on all threads where there are several.
fn each<O: Operation<Output = ()> + Send>(isa: Isa, operations: impl Iterator<Item = O>) {
    let operations: Vec<O> = operations.collect();
    if operations.len() < 2 {
        operations
            .into_iter()
            .for_each(|operation| isa.run(operation));
    } else {
        operations
            .into_par_iter()
            .with_min_len(2)
            .for_each(|operation| isa.run(operation));
    }
}

/// `ln(sum of exp(x))` in double precision, summed in order. Minus infinity for no elements or where all are; NaN where one is.
pub fn log_sum_exp(x: &[f32]) -> f64 {
    if x.iter().any(|x| x.is_nan()) {
        return f64::NAN;
    }
    let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if top.is_infinite() {
        return f64::from(top);
    }
    let top = f64::from(top);
    top + x
        .iter()
        .map(|x| (f64::from(*x) - top).exp())
        .sum::<f64>()
        .ln()
}

/// Index of the largest element, the first of equals; NaN is passed over. `None` where there is no other element.
pub fn argmax(x: &[f32]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for (index, x) in x.iter().enumerate() {
        if !x.is_nan() && best.is_none_or(|(_, top)| *x > top) {
            best = Some((index, *x));
        }
    }
    best.map(|(index, _)| index)
}
