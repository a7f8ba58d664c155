//! The kernels over candle tensors: with the kernels of devices, the only part of the crate that sees candle.
//!
//! Each function goes where its tensors are: on the processor to the kernels of this crate, else to those of the device (`device`). Inputs may be
//! any contiguous view; a result is a fresh contiguous tensor. Errors of the kernels come wrapped, with their text.

#[cfg(feature = "cuda")]
mod dense;
mod device;
mod pages;
mod pass;
pub mod plain;
mod products;
mod twin;
mod weight;

pub use device::open_card;
pub use pages::{page_bytes, read_page, write_page};
pub use pass::Pass;
pub use products::{Linear, Norm, linear, linear_into, linear_many, mlp};
pub use weight::{Form, Weight};

use crate::attention::Sizes;
use crate::cache::{self, Cache, CacheMut, Part};
use crate::profile::{Phase, span};
use crate::rows::{self, Heads};
pub use crate::scalar::attention::Scoring;
use crate::{Activation, CacheType, KernelError, PAGE, RopeStyle, isa};
use candle_core::{
    CpuStorage, DType, Device, Error, InplaceOp1, Layout, Result, Storage, StorageRef, Tensor,
};
use half::f16;
use half::vec::HalfBitsVecExt;

/// Rows `ids` of the weights, dequantized exactly: `[ids, inputs]` in f32.
pub fn embed(ids: &[u32], w: &Weight) -> Result<Tensor> {
    let _span = span(Phase::Rows);
    let Weight::Packed(w) = w else {
        return device::embed(ids, w);
    };
    let mut out = vec![0f32; ids.len() * w.inputs()];
    for (id, out) in ids.iter().zip(out.chunks_exact_mut(w.inputs().max(1))) {
        w.row(*id as usize, out).map_err(Error::wrap)?;
    }
    Tensor::from_vec(out, (ids.len(), w.inputs()), &Device::Cpu)
}

/// Root-mean-square norm over the last dimension of `x`, `[.., d]`, with a weight `[d]`, all in f32.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let _span = span(Phase::Rows);
    if x.dims().last() != Some(&weight.dims1()?) {
        candle_core::bail!(
            "rms_norm: rows {:?} with a weight {:?}",
            x.dims(),
            weight.dims()
        );
    }
    if !x.device().is_cpu() {
        return device::rms_norm(x, weight, eps, DType::F32);
    }
    let (x_guard, weight) = (Guard::new(x)?, Guard::new(weight)?);
    let mut out = vec![0f32; x.elem_count()];
    rows::rms_norm(isa(), x_guard.floats()?, weight.floats()?, eps, &mut out)
        .map_err(Error::wrap)?;
    Tensor::from_vec(out, x.dims(), &Device::Cpu)
}

/// Rotary embedding of `x`, `[T, heads, dim]`, by the angles of each row: `cos` and `sin` are `[T, r / 2]`; dimensions from `r` on stay.
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, style: RopeStyle) -> Result<Tensor> {
    let _span = span(Phase::Rows);
    if !x.device().is_cpu() {
        return device::rope(x, cos, sin, style);
    }
    let (rows, heads, dim) = x.dims3()?;
    let (_, pairs) = cos.dims2()?;
    let (x_guard, cos, sin) = (Guard::new(x)?, Guard::new(cos)?, Guard::new(sin)?);
    let mut out = vec![0f32; x.elem_count()];
    let shape = Heads {
        rows,
        heads,
        dim,
        pairs,
    };
    rows::rope(
        isa(),
        x_guard.floats()?,
        cos.floats()?,
        sin.floats()?,
        shape,
        style,
        &mut out,
    )
    .map_err(Error::wrap)?;
    Tensor::from_vec(out, x.dims(), &Device::Cpu)
}

/// `activation(gate) * up`, both of one shape, in f32.
pub fn gated(gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    same_shape("gated", gate, up)?;
    if !gate.device().is_cpu() {
        return device::gated(gate, up, activation, DType::F32);
    }
    let (gate_guard, up) = (Guard::new(gate)?, Guard::new(up)?);
    let mut out = vec![0f32; gate.elem_count()];
    rows::gated(
        isa(),
        gate_guard.floats()?,
        up.floats()?,
        activation,
        &mut out,
    )
    .map_err(Error::wrap)?;
    Tensor::from_vec(out, gate.dims(), &Device::Cpu)
}

/// `cap * tanh(x / cap)`, element by element.
pub fn soft_cap_in_place(x: &mut [f32], cap: f32) -> Result<()> {
    let _span = span(Phase::Rows);
    let bent = x.to_vec();
    rows::soft_cap(isa(), &bent, cap, x).map_err(Error::wrap)
}

/// `a + b`, both of one shape, in f32.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _span = span(Phase::Rows);
    same_shape("add", a, b)?;
    if !a.device().is_cpu() {
        return device::add(a, b);
    }
    let (a_guard, b) = (Guard::new(a)?, Guard::new(b)?);
    let mut out = vec![0f32; a.elem_count()];
    rows::add(isa(), a_guard.floats()?, b.floats()?, &mut out).map_err(Error::wrap)?;
    Tensor::from_vec(out, a.dims(), &Device::Cpu)
}

/// The keys or the values of so many pages, heads and dimensions, all zeros. In f32 and f16 keys are `[pages, heads, dim, PAGE]` and values
/// `[pages, heads, PAGE, dim]`; in 8 bits both are `[pages, heads, words]` of u32, and in bf16, which is for devices, both lie as values do.
pub fn new_cache(
    kind: CacheType,
    part: Part,
    [pages, heads, dim]: [usize; 3],
    device: &Device,
) -> Result<Tensor> {
    if kind == CacheType::Bf16 {
        return Tensor::zeros((pages, heads, PAGE, dim), DType::BF16, device);
    }
    if !device.is_cpu() {
        candle_core::bail!("keys and values lie in bf16 on a device");
    }
    let shape = match part {
        Part::Keys => [pages, heads, dim, PAGE],
        Part::Values => [pages, heads, PAGE, dim],
    };
    // Zeroed integers come untouched from the system, so that a page costs memory only once it is written.
    match kind {
        CacheType::F32 => {
            Tensor::from_vec(vec![0f32; shape.iter().product()], &shape, &Device::Cpu)
        }
        CacheType::F16 => {
            let zeros: Vec<f16> = vec![0u16; shape.iter().product()].reinterpret_into();
            Tensor::from_vec(zeros, &shape, &Device::Cpu)
        }
        CacheType::Q8 => {
            let words = kind.head_bytes(dim).ok_or_else(too_long)? / 4;
            let shape = [pages, heads, words];
            Tensor::from_vec(vec![0u32; shape.iter().product()], &shape, &Device::Cpu)
        }
        CacheType::Bf16 => candle_core::bail!("made above"),
    }
}

/// Writes the new keys and values of a pass's rows, `[T, heads, dim]` in f32 each, to their slots of the two caches, in place.
pub fn write_both(
    [keys, values]: [&Tensor; 2],
    [new_keys, new_values]: [&Tensor; 2],
    pass: &Pass,
) -> Result<()> {
    if keys.dtype() == DType::BF16 {
        let _span = span(Phase::Attention);
        return device::write([keys, values], [new_keys, new_values], pass);
    }
    write_rows(keys, Part::Keys, new_keys, &pass.slots)?;
    write_rows(values, Part::Values, new_values, &pass.slots)
}

/// Writes row `i` of `rows`, `[T, heads, dim]` in f32, to slot `slots[i]` (`page * PAGE + offset`) of a [`new_cache`], in place, rounded to
/// nearest even.
pub fn write_rows(cache: &Tensor, part: Part, rows: &Tensor, slots: &[u32]) -> Result<()> {
    let _span = span(Phase::Attention);
    let (count, heads, dim) = rows.dims3()?;
    pages_of(cache, part, [heads, dim])?;
    if count != slots.len() {
        candle_core::bail!("write_rows: {count} rows for {} slots", slots.len());
    }
    if slots.is_empty() {
        return Ok(());
    }
    let guard = Guard::new(rows)?;
    cache.inplace_op1(&WriteRows {
        part,
        shape: [heads, dim],
        rows: guard.floats()?,
        slots,
    })
}

/// Pages of the keys or of the values, which have so many heads and dimensions.
fn pages_of(cache: &Tensor, part: Part, [heads, dim]: [usize; 2]) -> Result<usize> {
    let fits = match (cache.dtype(), part, cache.dims()) {
        (DType::U32, _, [_, own, words]) => {
            *own == heads && CacheType::Q8.head_bytes(dim) == words.checked_mul(4)
        }
        (_, Part::Keys, [_, rest @ ..]) => rest == [heads, dim, PAGE],
        (_, Part::Values, [_, rest @ ..]) => rest == [heads, PAGE, dim],
        _ => false,
    };
    match (fits, cache.dims()) {
        (true, [pages, ..]) => Ok(*pages),
        (_, dims) => candle_core::bail!("{heads} heads of {dim} do not fit {part:?} {dims:?}"),
    }
}

fn too_long() -> Error {
    Error::wrap(KernelError::Overflow { what: "page" })
}

/// Copies a page of `cache`, keys or values, over another, in place.
pub fn copy_page(cache: &Tensor, from: u32, to: u32) -> Result<()> {
    let pages = cache.dim(0)?;
    for page in [from, to] {
        if page as usize >= pages {
            return Err(Error::wrap(KernelError::Index {
                what: "page",
                index: page as usize,
                limit: pages,
            }));
        }
    }
    if !cache.device().is_cpu() {
        return device::copy_page(cache, from, to);
    }
    cache.inplace_op1(&CopyPage {
        from: from as usize,
        to: to as usize,
        width: cache.elem_count() / pages,
    })
}

/// Attention of `q`, `[R, heads, dim]` in f32, over keys and values that are each a [`new_cache`]: `[R, heads * dim]` in the type `out`, which on the
/// processor is f32. A row at position `p` of its span sees positions `0..=p`, or, with a window `w`, those above `p - w`. Rows outside all spans
/// are zero.
pub fn attention(
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    pass: &Pass,
    scoring: Scoring,
    out: DType,
) -> Result<Tensor> {
    let _span = span(Phase::Attention);
    if k.dtype() == DType::BF16 {
        return device::attention(q, [k, v], pass, scoring, out);
    }
    let (rows, heads, dim) = q.dims3()?;
    let kv_heads = k.dim(1)?;
    let pages = pages_of(k, Part::Keys, [kv_heads, dim])?;
    if pages_of(v, Part::Values, [kv_heads, dim])? != pages {
        candle_core::bail!("attention: keys {:?}, values {:?}", k.dims(), v.dims());
    }
    let (q_guard, k, v) = (Guard::new(q)?, Guard::new(k)?, Guard::new(v)?);
    let mut out = vec![0f32; q.elem_count()];
    let sizes = Sizes {
        rows,
        heads,
        kv_heads,
        dim,
        pages,
    };
    crate::attention(
        isa(),
        q_guard.floats()?,
        [k.cache()?, v.cache()?],
        sizes,
        &pass.spans,
        scoring,
        &mut out,
    )
    .map_err(Error::wrap)?;
    Tensor::from_vec(out, (rows, heads * dim), &Device::Cpu)
}

/// The product of the one layer that was asked for.
fn only(all: Vec<Tensor>) -> Result<Tensor> {
    all.into_iter()
        .next()
        .ok_or_else(|| Error::Msg("a product is missing".to_string()))
}

/// Read access to a contiguous CPU tensor, for as long as it lives.
struct Guard<'a> {
    storage: StorageRef<'a>,
    start: usize,
    end: usize,
}

impl<'a> Guard<'a> {
    fn new(tensor: &'a Tensor) -> Result<Guard<'a>> {
        let (storage, layout) = tensor.storage_and_layout();
        let (start, end) = contiguous(layout)?;
        Ok(Guard {
            storage,
            start,
            end,
        })
    }

    fn cpu(&self) -> Result<&CpuStorage> {
        match &*self.storage {
            Storage::Cpu(storage) => Ok(storage),
            _ => candle_core::bail!("this build of the kernels computes on the CPU only"),
        }
    }

    fn floats(&self) -> Result<&[f32]> {
        match self.cpu()? {
            CpuStorage::F32(all) => Ok(&all[self.start..self.end]),
            other => Err(unexpected(other)),
        }
    }

    fn cache(&self) -> Result<Cache<'_>> {
        match self.cpu()? {
            CpuStorage::F32(all) => Ok(Cache::F32(&all[self.start..self.end])),
            CpuStorage::F16(all) => Ok(Cache::F16(&all[self.start..self.end])),
            CpuStorage::U32(all) => Ok(Cache::Q8(&all[self.start..self.end])),
            other => Err(unexpected(other)),
        }
    }
}

fn contiguous(layout: &Layout) -> Result<(usize, usize)> {
    layout
        .contiguous_offsets()
        .ok_or_else(|| Error::Msg("the kernels take contiguous tensors".to_string()))
}

fn unexpected(storage: &CpuStorage) -> Error {
    use candle_core::backend::BackendStorage;
    Error::UnexpectedDType {
        msg: "kernel",
        expected: DType::F32,
        got: storage.dtype(),
    }
}

fn same_shape(what: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dims() == b.dims() {
        Ok(())
    } else {
        candle_core::bail!("{what}: shapes {:?} and {:?}", a.dims(), b.dims())
    }
}

struct WriteRows<'a> {
    part: Part,
    shape: [usize; 2],
    rows: &'a [f32],
    slots: &'a [u32],
}

impl InplaceOp1 for WriteRows<'_> {
    fn name(&self) -> &'static str {
        "write_rows"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (start, end) = contiguous(layout)?;
        let cache = match storage {
            CpuStorage::F32(all) => CacheMut::F32(&mut all[start..end]),
            CpuStorage::F16(all) => CacheMut::F16(&mut all[start..end]),
            CpuStorage::U32(all) => CacheMut::Q8(&mut all[start..end]),
            other => return Err(unexpected(other)),
        };
        cache::write_rows(cache, self.part, self.shape, self.rows, self.slots).map_err(Error::wrap)
    }
}

struct CopyPage {
    from: usize,
    to: usize,
    width: usize,
}

impl InplaceOp1 for CopyPage {
    fn name(&self) -> &'static str {
        "copy_page"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (start, end) = contiguous(layout)?;
        let source = self.from * self.width..(self.from + 1) * self.width;
        let target = self.to * self.width;
        match storage {
            CpuStorage::F32(all) => all[start..end].copy_within(source, target),
            CpuStorage::F16(all) => all[start..end].copy_within(source, target),
            CpuStorage::U32(all) => all[start..end].copy_within(source, target),
            CpuStorage::BF16(all) => all[start..end].copy_within(source, target),
            other => return Err(unexpected(other)),
        }
        Ok(())
    }
}
