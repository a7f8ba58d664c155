//! What is done to each row or element by itself: norm, rope, gated units, soft cap, and the reading of a logits row.

use crate::error::{expect_length, product};
use crate::{Activation, KernelError, RopeStyle, scalar};

/// `x / sqrt(mean(x^2) + eps) * weight` for each row of `weight.len()` elements of `x`; `out` is as long as `x`.
///
/// # Errors
/// Where `x` is no whole number of rows, or `out` has another length.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) -> Result<(), KernelError> {
    if weight.is_empty() || !x.len().is_multiple_of(weight.len()) {
        return Err(KernelError::Shape(format!(
            "{} elements are no rows of {}",
            x.len(),
            weight.len()
        )));
    }
    expect_length("normed rows", &[x.len()], out.len())?;
    for (out, y) in out.iter_mut().zip(scalar::norm::rms_norm(x, weight, eps)) {
        *out = y as f32;
    }
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
    for (out, y) in out
        .iter_mut()
        .zip(scalar::rope::rope(x, heads, dim, cos, sin, pairs, style))
    {
        *out = y as f32;
    }
    Ok(())
}

/// `activation(gate) * up`, element by element.
///
/// # Errors
/// Where the lengths differ.
pub fn gated(
    gate: &[f32],
    up: &[f32],
    activation: Activation,
    out: &mut [f32],
) -> Result<(), KernelError> {
    expect_length("up", &[gate.len()], up.len())?;
    expect_length("gated", &[gate.len()], out.len())?;
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = scalar::unit::activate(f64::from(*gate), activation) as f32 * up;
    }
    Ok(())
}

/// `cap * tanh(x / cap)`, element by element.
///
/// # Errors
/// Where the lengths differ.
pub fn soft_cap(x: &[f32], cap: f32, out: &mut [f32]) -> Result<(), KernelError> {
    expect_length("capped", &[x.len()], out.len())?;
    for (out, x) in out.iter_mut().zip(x) {
        *out = scalar::unit::soft_cap(f64::from(*x), f64::from(cap)) as f32;
    }
    Ok(())
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
