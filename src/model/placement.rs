//! Where a decoder lies, and what that takes: on the processor, packed, or on a device, by one of two plans. Knows no card and no driver.

use super::config::Config;
use super::names;
use crate::weights::{Store, TensorView};
use assize_kernels::bridge::Form;
use candle_core::Device;

/// How the weights of a whole model lie on a device, and what multiplies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// In blocks as in their file.
    Quantized,
    /// In bf16, dequantized once.
    Dense,
    /// In f16, dequantized once.
    Half,
}

impl Plan {
    /// Its name: `quantized`, `dense` or `half`.
    pub fn name(self) -> &'static str {
        match self {
            Plan::Quantized => "quantized",
            Plan::Dense => "dense",
            Plan::Half => "half",
        }
    }

    /// The form of a matrix of this name.
    pub(super) fn form(self, tensor: &str) -> Form {
        match self {
            // Experts are chosen by scores that may lie close together, and a router is small.
            _ if tensor.ends_with(names::ROUTER) => Form::Single,
            Plan::Quantized => Form::Blocks,
            Plan::Dense => Form::Dense,
            Plan::Half => Form::Half,
        }
    }

    /// Bytes on the device of all weights of a model file.
    pub fn weight_bytes(self, store: &Store) -> u64 {
        let of = |(name, view): (&str, TensorView<'_>)| match view.shape {
            shape @ [_, _, ..] => self.form(name).bytes(view.quant, numbers(shape)),
            shape => numbers(shape).saturating_mul(4),
        };
        store.tensors().map(of).fold(0, u64::saturating_add)
    }

    /// Bytes that bringing the weights there takes for a while: the largest tensor as it was, and in single precision where it is dequantized.
    pub fn loading_bytes(self, store: &Store) -> u64 {
        let of = |view: TensorView<'_>| match self {
            Plan::Quantized => view.bytes.len() as u64,
            Plan::Dense | Plan::Half => {
                (view.bytes.len() as u64).saturating_add(numbers(view.shape).saturating_mul(4))
            }
        };
        store.tensors().map(|(_, view)| of(view)).max().unwrap_or(0)
    }
}

fn numbers(shape: &[usize]) -> u64 {
    let sizes = shape.iter().map(|size| *size as u64);
    sizes.fold(1, u64::saturating_mul)
}

/// Bytes that a pass of so many rows takes beside weights and cache, with the logits of `outputs` of them: what is alive at once in a layer, and
/// the activations once more in the type of the products.
pub fn pass_bytes(config: &Config, rows: usize, outputs: usize) -> u64 {
    let heads = config
        .heads
        .saturating_add(config.kv_heads.saturating_mul(2));
    let widths = config
        .hidden
        .saturating_mul(6)
        .saturating_add(heads.saturating_mul(config.head_dim).saturating_mul(3))
        .saturating_add(config.feed_forward.saturating_mul(4));
    let numbers = (rows as u64)
        .saturating_mul(widths as u64)
        .saturating_add((outputs as u64).saturating_mul(2 * config.vocabulary as u64));
    numbers.saturating_mul(4)
}

/// Where a decoder lies.
#[derive(Clone, Debug)]
pub enum Placement {
    /// On the processor, its weights packed for the kernels there.
    Processor,
    /// On a device.
    Device {
        /// candle's device. The processor is one, too: tests drive a device's path there, with plain twins of its kernels.
        device: Device,
        /// How its weights lie.
        plan: Plan,
    },
}

impl Placement {
    /// candle's device.
    pub(super) fn device(&self) -> &Device {
        match self {
            Placement::Processor => &Device::Cpu,
            Placement::Device { device, .. } => device,
        }
    }
}
