//! The gated MLP of a layer.

use super::linear::{Linear, forward_many};
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
    /// `[T, hidden]` → `[T, hidden]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [gate, up] = forward_many(x, [&self.gate, &self.up])?; // [T, feed_forward] each
        self.down
            .forward(&bridge::gated(&gate, &up, self.activation)?)
    }
}
