//! Matrix products with their biases. Knows nothing of where an input comes from.

use super::norm::Norm;
use assize_kernels::Precision;
use assize_kernels::bridge::{self, Weight};
use candle_core::{Result, Tensor};

/// `x · Wᵀ + b`.
pub(super) struct Linear {
    /// `[out, in]`
    pub(super) weight: Weight,
    /// `[out]`
    pub(super) bias: Option<Tensor>,
    /// How activations meet packed weights.
    pub(super) precision: Precision,
}

impl Linear {
    /// `[T, in]`, normed first where a norm is given → `[T, out]`, plus the `residual` where there is one.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        norm: Option<&Norm>,
        residual: Option<&Tensor>,
    ) -> Result<Tensor> {
        let norm = norm.map(Norm::as_kernel);
        bridge::linear(x, norm, self.as_kernel(), residual, self.precision)
    }

    /// `[T, in]`, normed first → `[T, out]`, bent by the cap where there is one, in place of whatever is in `out`.
    pub(super) fn forward_into(
        &self,
        x: &Tensor,
        norm: &Norm,
        cap: Option<f32>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let (norm, layer) = (norm.as_kernel(), self.as_kernel());
        bridge::linear_into(x, norm, layer, self.precision, cap, out)
    }

    /// The same in the kernels' words.
    pub(super) fn as_kernel(&self) -> bridge::Linear<'_> {
        bridge::Linear {
            weight: &self.weight,
            bias: self.bias.as_ref(),
        }
    }
}

/// Several products of one input, which is normed and prepared once: `[T, in]` → `[T, out]` each.
pub(super) fn forward_many<const N: usize>(
    x: &Tensor,
    norm: &Norm,
    layers: [&Linear; N],
) -> Result<[Tensor; N]> {
    let kernels = layers.map(Linear::as_kernel);
    bridge::linear_many(
        x,
        Some(norm.as_kernel()),
        &kernels,
        layers[0].precision,
        None,
    )?
    .try_into()
    .map_err(|_| candle_core::Error::Msg("a product of several matrices lost one".into()))
}
