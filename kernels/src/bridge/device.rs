//! The operations of a pass over weights that lie on a device. Each goes to the device's own kernels, as far as this build has them; on the
//! processor, where tests drive the same path, to the kernels of the processor and to the plain twins of those that they do not have.

use super::products::{Linear, Norm};
use super::weight::Weight;
use super::{Pass, Scoring, plain, twin};
use crate::{Activation, RopeStyle};
use candle_core::{DType, Device, Result, Tensor};

/// A card, as candle's device, with a stream of its own: that of the thread, which candle takes by default, is another one on every thread.
///
/// # Errors
/// What the driver says; in a build without kernels for cards, that there are none. A card that [`crate::probe::usable`] does not pass may not be
/// asked for: candle takes a missing library for a fault of its own.
pub fn open_card(ordinal: usize) -> Result<Device> {
    let device = Device::new_cuda_with_stream(ordinal)?;
    #[cfg(feature = "cuda")]
    if let Device::Cuda(card) = &device {
        // SAFETY: every tensor of this device is made, used and dropped on its one stream, in the order in which it was asked for, so that no use of
        // one has to wait for an event of another stream. Two events a tensor and kernel would cost about what a small kernel does.
        unsafe { card.disable_event_tracking() };
    }
    Ok(device)
}

/// See [`super::embed`].
pub(super) fn embed(ids: &[u32], weight: &Weight) -> Result<Tensor> {
    let ids = |device: &Device| Tensor::new(ids, device);
    match weight {
        Weight::Blocks(blocks) => blocks.embedding(&ids(&blocks.device())?),
        Weight::Dense(dense) => {
            let rows = dense.index_select(&ids(dense.device())?, 0)?;
            rows.to_dtype(DType::F32)
        }
        Weight::Packed(_) => candle_core::bail!("these weights are on the processor"),
    }
}

/// See [`super::rms_norm`]; the result comes in the type in which it is needed.
pub(super) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32, out: DType) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => super::rms_norm(x, weight, eps)?.to_dtype(out),
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => crate::cuda::rms_norm(x, weight, eps, made(out))?.to_dtype(out),
        _ => plain::rms_norm(x, weight, eps)?.to_dtype(out),
    }
}

/// See [`super::rope`].
pub(super) fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, style: RopeStyle) -> Result<Tensor> {
    match x.device() {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => crate::cuda::rope(x, cos, sin, style),
        _ => plain::rope(x, cos, sin, style),
    }
}

/// See [`super::gated`].
pub(super) fn gated(
    gate: &Tensor,
    up: &Tensor,
    activation: Activation,
    out: DType,
) -> Result<Tensor> {
    match gate.device() {
        Device::Cpu => super::gated(gate, up, activation)?.to_dtype(out),
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => crate::cuda::gated(gate, up, activation, made(out))?.to_dtype(out),
        _ => plain::gated(gate, up, activation)?.to_dtype(out),
    }
}

/// See [`super::add`].
pub(super) fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match a.device() {
        Device::Cpu => super::add(a, b),
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => crate::cuda::add(a, b),
        _ => a + b,
    }
}

/// `cap * tanh(x / cap)`.
fn soft_cap(x: &Tensor, cap: f32) -> Result<Tensor> {
    match x.device() {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => crate::cuda::soft_cap(x, cap),
        _ => plain::soft_cap(x, cap),
    }
}

/// See [`super::write_both`].
pub(super) fn write(
    [keys, values]: [&Tensor; 2],
    [new_keys, new_values]: [&Tensor; 2],
    pass: &Pass,
) -> Result<()> {
    match keys.device() {
        Device::Cpu => {
            twin::write_rows(keys, new_keys, &pass.slots)?;
            twin::write_rows(values, new_values, &pass.slots)
        }
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => {
            crate::cuda::write_rows(keys, values, new_keys, new_values, pass.slots_there()?)
        }
        #[cfg(feature = "metal")]
        Device::Metal(_) => {
            crate::metal::write_rows(keys, values, new_keys, new_values, pass.slots_there()?)
        }
        #[allow(unreachable_patterns)]
        _ => absent("the cache"),
    }
}

/// See [`super::copy_page`].
pub(super) fn copy_page(cache: &Tensor, from: u32, to: u32) -> Result<()> {
    match cache.device() {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => crate::cuda::copy_page(cache, from, to),
        #[cfg(feature = "metal")]
        Device::Metal(_) => crate::metal::copy_page(cache, from, to),
        _ => {
            let page = cache.narrow(0, from as usize, 1)?.copy()?;
            cache.slice_set(&page, 0, to as usize)
        }
    }
}

/// See [`super::attention`].
pub(super) fn attention(
    q: &Tensor,
    caches: [&Tensor; 2],
    pass: &Pass,
    scoring: Scoring,
    out: DType,
) -> Result<Tensor> {
    match q.device() {
        Device::Cpu => twin::attention(q, caches, &pass.spans, scoring)?.to_dtype(out),
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => crate::cuda::attention(
            q,
            caches[0],
            caches[1],
            pass.plan()?,
            scoring.scale,
            scoring.window,
            scoring.soft_cap,
            made(out),
        )?
        .to_dtype(out),
        #[cfg(feature = "metal")]
        Device::Metal(_) => crate::metal::attention(
            q,
            caches[0],
            caches[1],
            &pass.spans,
            scoring.scale,
            scoring.window,
            scoring.soft_cap,
        )?
        .to_dtype(out),
        #[allow(unreachable_patterns)]
        _ => absent("attention"),
    }
}

/// The type in which our kernels give what is wanted in `out`: they know no f16.
#[cfg(feature = "cuda")]
fn made(out: DType) -> DType {
    match out {
        DType::BF16 => DType::BF16,
        _ => DType::F32,
    }
}

#[allow(dead_code)]
fn absent<T>(what: &str) -> Result<T> {
    candle_core::bail!("this build has no kernel for {what} on this device")
}

/// Several products of one input, which is normed once for each type that the weights want: `[T, outputs]` each, in f32.
pub(super) fn linear_many(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    layers: &[Linear<'_>],
    residual: Option<&Tensor>,
) -> Result<Vec<Tensor>> {
    let mut prepared: Vec<Tensor> = Vec::with_capacity(1);
    let mut products = Vec::with_capacity(layers.len());
    for layer in layers {
        let wanted = layer.weight.activations();
        let x = match prepared.iter().find(|x| x.dtype() == wanted) {
            Some(x) => x.clone(),
            None => {
                let x = match norm {
                    Some(norm) => rms_norm(x, norm.weight, norm.eps, wanted)?,
                    None => x.to_dtype(wanted)?,
                };
                prepared.push(x.clone());
                x
            }
        };
        let mut product = multiply(&x, layer.weight)?;
        if let Some(bias) = layer.bias {
            product = product.broadcast_add(bias)?;
        }
        if let Some(residual) = residual {
            product = add(residual, &product)?;
        }
        products.push(product);
    }
    Ok(products)
}

/// See [`super::mlp`].
pub(super) fn mlp(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    [gate, up, down]: [Linear<'_>; 3],
    activation: Activation,
    residual: Option<&Tensor>,
) -> Result<Tensor> {
    let both = linear_many(x, norm, &[gate, up], None)?;
    let inner = gated(&both[0], &both[1], activation, down.weight.activations())?;
    super::only(linear_many(&inner, None, &[down], residual)?)
}

/// The logits of some rows on the host.
pub(super) fn head(
    x: &Tensor,
    norm: Norm<'_>,
    layer: Linear<'_>,
    cap: Option<f32>,
    out: &mut Vec<f32>,
) -> Result<()> {
    let mut logits = super::only(linear_many(x, Some(norm), &[layer], None)?)?;
    if let Some(cap) = cap {
        logits = soft_cap(&logits, cap)?;
    }
    *out = logits.flatten_all()?.to_vec1()?;
    Ok(())
}

/// `x`, `[T, inputs]` in the type that the weights want, times the weights: `[T, outputs]` in f32.
fn multiply(x: &Tensor, weight: &Weight) -> Result<Tensor> {
    match weight {
        Weight::Blocks(blocks) => x.apply_op1_no_bwd(blocks.as_ref()),
        Weight::Dense(dense) => match (x.device(), dense.dtype()) {
            (_, DType::F32) => x.matmul(&dense.t()?),
            #[cfg(feature = "cuda")]
            (Device::Cuda(_), _) => super::dense::multiply(x, dense),
            // What tensor cores do: factors of 16 bits, sums in f32.
            (Device::Cpu, _) => x
                .to_dtype(DType::F32)?
                .matmul(&dense.to_dtype(DType::F32)?.t()?),
            _ => x.matmul(&dense.t()?)?.to_dtype(DType::F32),
        },
        Weight::Packed(_) => {
            candle_core::bail!("weights on the processor among weights on a device")
        }
    }
}
