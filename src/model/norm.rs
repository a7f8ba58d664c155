//! Root-mean-square norm over the last dimension.

use assize_kernels::bridge;
use candle_core::{Result, Tensor};

/// `x / √(mean(x²) + ε) · w`. Gemma's files hold `1 + w` already.
pub(super) struct Norm {
    /// `[d]`
    pub(super) weight: Tensor,
    /// ε
    pub(super) epsilon: f32,
}

impl Norm {
    /// `[.., d]` → `[.., d]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        bridge::rms_norm(x, &self.weight, self.epsilon)
    }

    /// The same in the kernels' words, for a product that norms its rows on the way.
    pub(super) fn as_kernel(&self) -> bridge::Norm<'_> {
        bridge::Norm {
            weight: &self.weight,
            eps: self.epsilon,
        }
    }
}
