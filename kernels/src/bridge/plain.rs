//! Operations on rows in candle's own words, for devices that have no kernels of ours for them. Slower, and of the same meaning.

use crate::{Activation, RopeStyle};
use candle_core::{D, Result, Tensor};

/// See [`super::rms_norm`].
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    let root = (mean + f64::from(eps))?.sqrt()?;
    x.broadcast_div(&root)?.broadcast_mul(weight)
}

/// See [`super::rope`].
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, style: RopeStyle) -> Result<Tensor> {
    let (rows, heads, dim) = x.dims3()?;
    let (_, pairs) = cos.dims2()?;
    if pairs == 0 {
        return Ok(x.clone());
    }
    let (cos, sin) = (cos.unsqueeze(1)?, sin.unsqueeze(1)?); // [T, 1, pairs]
    let turned = match style {
        RopeStyle::Neox => {
            let (a, b) = (x.narrow(2, 0, pairs)?, x.narrow(2, pairs, pairs)?);
            let (a, b) = turn(&a, &b, &cos, &sin)?;
            Tensor::cat(&[a, b], 2)?
        }
        RopeStyle::Normal => {
            let both = x
                .narrow(2, 0, 2 * pairs)?
                .reshape((rows, heads, pairs, 2))?;
            let part = |which: usize| both.narrow(3, which, 1)?.squeeze(3);
            let (a, b) = turn(&part(0)?, &part(1)?, &cos, &sin)?;
            Tensor::stack(&[a, b], 3)?.reshape((rows, heads, 2 * pairs))?
        }
    };
    match dim - 2 * pairs {
        0 => Ok(turned),
        rest => Tensor::cat(&[turned, x.narrow(2, 2 * pairs, rest)?], 2),
    }
}

/// Both parts of each pair, turned.
fn turn(a: &Tensor, b: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<(Tensor, Tensor)> {
    Ok((
        (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?,
        (b.broadcast_mul(cos)? + a.broadcast_mul(sin)?)?,
    ))
}

/// See [`super::gated`].
pub fn gated(gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    let gate = match activation {
        Activation::Silu => gate.silu()?,
        Activation::GeluTanh => gate.gelu()?,
    };
    gate * up
}

/// `cap * tanh(x / cap)`, element by element.
pub fn soft_cap(x: &Tensor, cap: f32) -> Result<Tensor> {
    let cap = f64::from(cap);
    (x / cap)?.tanh()? * cap
}
