//! The gated MLP of a layer.

use super::linear::Linear;
use super::norm::Norm;
use assize_kernels::{Activation, bridge};
use candle_core::{Result, Tensor};

/// `down(activation(gate(x)) · up(x))`.
pub(super) struct Mlp {
    /// `[feed_forward, hidden]`
    pub(super) gate: Linear,
    /// `[feed_forward, hidden]`
    pub(super) up: Linear,
    /// `[hidden, feed_forward]`
    pub(super) down: Linear,
    /// What the gate goes through.
    pub(super) activation: Activation,
}

impl Mlp {
    /// `[T, hidden]`, normed first where a norm is given → `[T, hidden]`, plus the `residual` where there is one.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        norm: Option<&Norm>,
        residual: Option<&Tensor>,
    ) -> Result<Tensor> {
        bridge::mlp(
            x,
            norm.map(Norm::as_kernel),
            [&self.gate, &self.up, &self.down].map(Linear::as_kernel),
            self.activation,
            residual,
            self.gate.precision,
        )
    }
}
