//! The kernels over candle tensors: the only file here that sees candle. CPU tensors; another device is a clear error.
//!
//! Inputs may be any contiguous view; a result is a fresh contiguous tensor. Errors of the kernels come wrapped, with their text.

use crate::attention::{Cache, Sizes};
use crate::rows::{self, Heads};
use crate::scalar::attention::Scoring;
use crate::{Activation, Activations, KernelError, Matrix, PAGE, Precision, RopeStyle, Span, isa};
use candle_core::{
    CpuStorage, DType, Device, Error, InplaceOp1, Layout, Result, Storage, StorageRef, Tensor,
};
use half::f16;
use std::sync::Arc;

/// `x`, `[T, inputs]` in f32, times the weights: `[T, outputs]`.
pub fn linear(x: &Tensor, w: &Arc<Matrix>, precision: Precision) -> Result<Tensor> {
    let (rows, columns) = x.dims2()?;
    let guard = Guard::new(x)?;
    let activations =
        Activations::new(isa(), guard.floats()?, rows, columns, precision).map_err(Error::wrap)?;
    product(&activations, w)
}

/// The same `x` times several matrices, the activations being quantized once.
pub fn linear_many(x: &Tensor, ws: &[&Arc<Matrix>], precision: Precision) -> Result<Vec<Tensor>> {
    let (rows, columns) = x.dims2()?;
    let guard = Guard::new(x)?;
    let activations =
        Activations::new(isa(), guard.floats()?, rows, columns, precision).map_err(Error::wrap)?;
    ws.iter().map(|w| product(&activations, w)).collect()
}

fn product(x: &Activations<'_>, w: &Matrix) -> Result<Tensor> {
    let mut out = vec![0f32; x.rows() * w.outputs()];
    crate::matmul(isa(), x, w, &mut out).map_err(Error::wrap)?;
    Tensor::from_vec(out, (x.rows(), w.outputs()), &Device::Cpu)
}

/// Rows `ids` of the weights, dequantized exactly: `[ids, inputs]` in f32.
pub fn embed(ids: &[u32], w: &Arc<Matrix>) -> Result<Tensor> {
    let mut out = vec![0f32; ids.len() * w.inputs()];
    for (id, out) in ids.iter().zip(out.chunks_exact_mut(w.inputs().max(1))) {
        w.row(*id as usize, out).map_err(Error::wrap)?;
    }
    Tensor::from_vec(out, (ids.len(), w.inputs()), &Device::Cpu)
}

/// Root-mean-square norm over the last dimension of `x`, `[.., d]`, with a weight `[d]`, all in f32.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    if x.dims().last() != Some(&weight.dims1()?) {
        candle_core::bail!(
            "rms_norm: rows {:?} with a weight {:?}",
            x.dims(),
            weight.dims()
        );
    }
    let (x_guard, weight) = (Guard::new(x)?, Guard::new(weight)?);
    let mut out = vec![0f32; x.elem_count()];
    rows::rms_norm(isa(), x_guard.floats()?, weight.floats()?, eps, &mut out)
        .map_err(Error::wrap)?;
    Tensor::from_vec(out, x.dims(), &Device::Cpu)
}

/// Rotary embedding of `x`, `[T, heads, dim]`, by the angles of each row: `cos` and `sin` are `[T, r / 2]`; dimensions from `r` on stay.
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, style: RopeStyle) -> Result<Tensor> {
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

/// `cap * tanh(x / cap)`, in f32.
pub fn soft_cap(x: &Tensor, cap: f32) -> Result<Tensor> {
    let guard = Guard::new(x)?;
    let mut out = vec![0f32; x.elem_count()];
    rows::soft_cap(isa(), guard.floats()?, cap, &mut out).map_err(Error::wrap)?;
    Tensor::from_vec(out, x.dims(), &Device::Cpu)
}

/// `a + b`, both of one shape, in f32.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    same_shape("add", a, b)?;
    let (a_guard, b) = (Guard::new(a)?, Guard::new(b)?);
    let out = a_guard
        .floats()?
        .iter()
        .zip(b.floats()?)
        .map(|(a, b)| a + b)
        .collect();
    Tensor::from_vec::<_, f32>(out, a.dims(), &Device::Cpu)
}

/// `x + bias` for every row: `x` is `[T, n]`, `bias` is `[n]`, in f32.
pub fn add_bias(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (_, columns) = x.dims2()?;
    if bias.dims1()? != columns {
        candle_core::bail!(
            "add_bias: rows of {columns} with a bias of {:?}",
            bias.dims()
        );
    }
    let (x_guard, bias) = (Guard::new(x)?, Guard::new(bias)?);
    let mut out = x_guard.floats()?.to_vec();
    let bias = bias.floats()?;
    for row in out.chunks_exact_mut(columns.max(1)) {
        for (x, bias) in row.iter_mut().zip(bias) {
            *x += bias;
        }
    }
    Tensor::from_vec(out, x.dims(), &Device::Cpu)
}

/// Writes row `i` of `rows`, `[T, heads, dim]` in f32, to slot `slots[i]` (`page * PAGE + offset`) of `cache`, `[pages, PAGE, heads, dim]`
/// in f32 or f16 (rounded to nearest even), in place.
pub fn write_rows(cache: &Tensor, rows: &Tensor, slots: &[u32]) -> Result<()> {
    let (pages, page, heads, dim) = cache.dims4()?;
    let wanted = [slots.len(), heads, dim];
    if page != PAGE || rows.dims() != wanted {
        candle_core::bail!(
            "write_rows: rows {:?} for a cache {:?} and {} slots",
            rows.dims(),
            cache.dims(),
            slots.len()
        );
    }
    if let Some(slot) = slots.iter().find(|slot| **slot as usize / PAGE >= pages) {
        return Err(Error::wrap(KernelError::Index {
            what: "slot",
            index: *slot as usize,
            limit: pages * PAGE,
        }));
    }
    if slots.is_empty() {
        return Ok(());
    }
    let guard = Guard::new(rows)?;
    cache.inplace_op1(&WriteRows {
        rows: guard.floats()?,
        slots,
        width: heads * dim,
    })
}

/// Copies a page of `cache`, `[pages, PAGE, heads, dim]`, over another, in place.
pub fn copy_page(cache: &Tensor, from: u32, to: u32) -> Result<()> {
    let (pages, _, _, _) = cache.dims4()?;
    for page in [from, to] {
        if page as usize >= pages {
            return Err(Error::wrap(KernelError::Index {
                what: "page",
                index: page as usize,
                limit: pages,
            }));
        }
    }
    cache.inplace_op1(&CopyPage {
        from: from as usize,
        to: to as usize,
        width: cache.elem_count() / pages,
    })
}

/// Attention of `q`, `[T, heads, dim]` in f32, over caches `k` and `v`, `[pages, PAGE, kv_heads, dim]` in f32 or f16: `[T, heads * dim]`. A row at
/// position `p` of its span sees positions `0..=p`, or, with a window `w`, those above `p - w`. Rows outside all spans are zero.
pub fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    spans: &[Span],
    scale: f32,
    window: Option<usize>,
    soft_cap: Option<f32>,
) -> Result<Tensor> {
    let (rows, heads, dim) = q.dims3()?;
    let (pages, page, kv_heads, cache_dim) = k.dims4()?;
    if k.dims() != v.dims() || page != PAGE || cache_dim != dim {
        candle_core::bail!(
            "attention: queries {:?}, keys {:?}, values {:?}",
            q.dims(),
            k.dims(),
            v.dims()
        );
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
    let scoring = Scoring {
        scale,
        window,
        soft_cap,
    };
    crate::attention(
        isa(),
        q_guard.floats()?,
        [k.cache()?, v.cache()?],
        sizes,
        spans,
        scoring,
        &mut out,
    )
    .map_err(Error::wrap)?;
    Tensor::from_vec(out, (rows, heads * dim), &Device::Cpu)
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
    rows: &'a [f32],
    slots: &'a [u32],
    width: usize,
}

impl InplaceOp1 for WriteRows<'_> {
    fn name(&self) -> &'static str {
        "write_rows"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (start, end) = contiguous(layout)?;
        let rows = self
            .slots
            .iter()
            .zip(self.rows.chunks_exact(self.width.max(1)));
        match storage {
            CpuStorage::F32(all) => {
                let all = &mut all[start..end];
                for (slot, row) in rows {
                    all[*slot as usize * self.width..][..self.width].copy_from_slice(row);
                }
            }
            CpuStorage::F16(all) => {
                let all = &mut all[start..end];
                for (slot, row) in rows {
                    let out = &mut all[*slot as usize * self.width..][..self.width];
                    for (out, x) in out.iter_mut().zip(row) {
                        *out = f16::from_f32(*x);
                    }
                }
            }
            other => return Err(unexpected(other)),
        }
        Ok(())
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
            other => return Err(unexpected(other)),
        }
        Ok(())
    }
}
