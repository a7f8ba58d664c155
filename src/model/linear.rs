//! A matrix product with an optional bias. Knows nothing of where its input comes from.

use assize_kernels::{Matrix, Precision, bridge};
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// `x · Wᵀ + b`.
pub(super) struct Linear {
    /// `[out, in]`
    pub(super) weight: Arc<Matrix>,
    /// `[out]`
    pub(super) bias: Option<Tensor>,
    /// How activations meet the weights.
    pub(super) precision: Precision,
}

impl Linear {
    /// `[T, in]` → `[T, out]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.add_bias(bridge::linear(x, &self.weight, self.precision)?)
    }

    fn add_bias(&self, y: Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => bridge::add_bias(&y, bias),
            None => Ok(y),
        }
    }
}

/// Several products of one input, which is prepared once: `[T, in]` → `[T, out]` each.
pub(super) fn forward_many<const N: usize>(
    x: &Tensor,
    layers: [&Linear; N],
) -> Result<[Tensor; N]> {
    let weights = layers.map(|layer| &layer.weight);
    let products = bridge::linear_many(x, &weights, layers[0].precision)?;
    let mut sums = Vec::with_capacity(N);
    for (product, layer) in products.into_iter().zip(layers) {
        sums.push(layer.add_bias(product)?);
    }
    sums.try_into()
        .map_err(|_| candle_core::Error::Msg("a product of several matrices lost one".into()))
}
