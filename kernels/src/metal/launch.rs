//! The kernels of `kernels.metal` over candle's tensors and its stream of commands. Attention is a threadgroup for each row and head, plain and correct.

use crate::cuda::tables::check;
use crate::{KernelError, PAGE, Span};
use candle_core::backend::BackendStorage as _;
use candle_core::metal_backend::{MetalDevice, MetalStorage};
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, DType, Error, InplaceOp1, Layout, Result, Storage, StorageRef, Tensor,
};
use candle_metal_kernels::metal::{Buffer, ComputeCommandEncoder, ComputePipeline};
use objc2_metal::{MTLCompileOptions, MTLSize};
use std::sync::{Mutex, PoisonError};

/// Threads of a threadgroup, and the most dimensions of a head; as `kernels.metal` has them.
const THREADS: usize = 128;
const WIDEST: usize = 256;

const SOURCE: &str = include_str!("kernels.metal");

/// What is the same for an attention; the structure of `kernels.metal`.
#[repr(C)]
struct Shape {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    window: u32,
    scale: f32,
    soft_cap: f32,
}

/// What is the same for a write; the structure of `kernels.metal`.
#[repr(C)]
struct Write {
    heads: u32,
    dim: u32,
    end_slot: u32,
    count: u32,
}

/// A kernel of a device, compiled once.
fn pipeline(device: &MetalDevice, name: &'static str) -> Result<ComputePipeline> {
    static MADE: Mutex<Vec<(u64, &'static str, ComputePipeline)>> = Mutex::new(Vec::new());
    let own = device.metal_device().registry_id();
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, _, pipeline)) = made
        .iter()
        .find(|(id, known, _)| (*id, *known) == (own, name))
    {
        return Ok(pipeline.clone());
    }
    // Infinities and NaN mean something here.
    let options = MTLCompileOptions::new();
    #[allow(deprecated)]
    options.setFastMathEnabled(false);
    let metal = device.metal_device();
    let library = metal
        .new_library_with_source(SOURCE, Some(&options))
        .map_err(Error::wrap)?;
    let function = library.get_function(name, None).map_err(Error::wrap)?;
    let pipeline = metal
        .new_compute_pipeline_state_with_function(&function)
        .map_err(Error::wrap)?;
    made.push((own, name, pipeline.clone()));
    Ok(pipeline)
}

/// Read access to a contiguous tensor of a type.
struct Guard<'a> {
    storage: StorageRef<'a>,
    /// Bytes before it.
    offset: usize,
}

impl<'a> Guard<'a> {
    fn new(tensor: &'a Tensor, kind: DType) -> Result<Guard<'a>> {
        if tensor.dtype() != kind {
            candle_core::bail!(
                "the kernels for Metal want {kind:?} here, not {:?}",
                tensor.dtype()
            );
        }
        let (storage, layout) = tensor.storage_and_layout();
        let offset = contiguous(layout)?.0 * kind.size_in_bytes();
        let guard = Guard { storage, offset };
        guard.metal()?;
        Ok(guard)
    }

    fn metal(&self) -> Result<&MetalStorage> {
        match &*self.storage {
            Storage::Metal(storage) => Ok(storage),
            _ => candle_core::bail!("the kernels for Metal take tensors that are on its device"),
        }
    }

    fn buffer(&self) -> Result<(&Buffer, usize)> {
        Ok((self.metal()?.buffer(), self.offset))
    }
}

fn contiguous(layout: &Layout) -> Result<(usize, usize)> {
    layout
        .contiguous_offsets()
        .ok_or_else(|| Error::Msg("the kernels take contiguous tensors".to_string()))
}

fn number(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(Error::wrap)
}

fn size(width: usize, height: usize) -> MTLSize {
    MTLSize {
        width,
        height,
        depth: 1,
    }
}

/// Attention of `q`, `[R, heads, dim]` in f32, over keys `k` and values `v`, `[pages, kv_heads, PAGE, dim]` in bf16: `[R, heads * dim]` in f32. A row at
/// position `p` of its span sees positions `0..=p`, or, with a window `w`, those above `p - w`. Rows outside all spans are zero.
///
/// # Errors
/// Where shapes or types do not fit, or spans overlap or lack pages.
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
    let (pages, kv_heads, page, own) = k.dims4()?;
    if k.dims() != v.dims() || page != PAGE || own != dim || kv_heads == 0 || heads % kv_heads != 0
    {
        candle_core::bail!(
            "attention: queries {:?}, keys {:?}, values {:?}",
            q.dims(),
            k.dims(),
            v.dims()
        );
    }
    if dim == 0 || dim > WIDEST || window == Some(0) {
        candle_core::bail!("attention: heads of {dim}, window {window:?}");
    }
    let (end, end_page) = check(spans).map_err(Error::wrap)?;
    for (what, index, limit) in [
        ("end of a span", end, rows + 1),
        ("end of the pages", end_page, pages + 1),
    ] {
        if index >= limit {
            return Err(Error::wrap(KernelError::Index { what, index, limit }));
        }
    }
    let (mut table, mut lists) = (Vec::new(), Vec::<u32>::new());
    for span in spans {
        let first = number(lists.len())?;
        lists.extend(&span.pages);
        for row in 0..span.rows {
            table.extend([
                number(span.first + row)?,
                number(span.position + row)?,
                first,
            ]);
        }
    }
    let (q, k, v) = (
        Guard::new(q, DType::F32)?,
        Guard::new(k, DType::BF16)?,
        Guard::new(v, DType::BF16)?,
    );
    let device = q.metal()?.device().clone();
    let count = rows * heads * dim;
    let out = device.allocate_zeros((count * 4).max(4))?;
    let covered = table.len() / 3;
    if covered > 0 {
        let shape = Shape {
            heads: number(heads)?,
            kv_heads: number(kv_heads)?,
            dim: number(dim)?,
            // A window beyond all positions is none.
            window: window.map_or(0, |window| u32::try_from(window).unwrap_or(0)),
            scale,
            soft_cap: soft_cap.unwrap_or(0.0),
        };
        let pipeline = pipeline(&device, "attend")?;
        let table = device.new_buffer_with_data(&table)?;
        let lists = device.new_buffer_with_data(&lists)?;
        let guard = device.command_encoder()?;
        let encoder: &ComputeCommandEncoder = guard.as_ref();
        encoder.set_compute_pipeline_state(&pipeline);
        for (index, guard) in [&q, &k, &v].into_iter().enumerate() {
            let (buffer, offset) = guard.buffer()?;
            encoder.set_input_buffer(index, Some(buffer), offset);
        }
        encoder.set_input_buffer(3, Some(&table), 0);
        encoder.set_input_buffer(4, Some(&lists), 0);
        encoder.set_output_buffer(5, Some(&out), 0);
        encoder.set_bytes(6, &shape);
        encoder.dispatch_thread_groups(size(covered, heads), size(THREADS, 1));
    }
    let storage = Storage::Metal(MetalStorage::new(out, device, count, DType::F32));
    Ok(Tensor::from_storage(
        storage,
        (rows, heads * dim),
        BackpropOp::none(),
        false,
    ))
}

/// Writes row `i` of `keys` and of `values`, `[T, kv_heads, dim]` in f32, to slot `slots[i]` (`page * PAGE + offset`, u32, `[T]`) of the caches, rounded to
/// nearest even. A slot beyond the cache is passed over.
///
/// # Errors
/// Where shapes or types do not fit.
pub fn write_rows(
    keys_cache: &Tensor,
    values_cache: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    slots: &Tensor,
) -> Result<()> {
    for (cache, rows) in [(keys_cache, keys), (values_cache, values)] {
        let (count, heads, dim) = rows.dims3()?;
        let (pages, own_heads, page, own_dim) = cache.dims4()?;
        if (own_heads, page, own_dim) != (heads, PAGE, dim) || slots.dims1()? != count {
            candle_core::bail!(
                "write_rows: rows {:?} to {} slots of a cache {:?}",
                rows.dims(),
                slots.elem_count(),
                cache.dims()
            );
        }
        if rows.elem_count() == 0 {
            continue;
        }
        cache.inplace_op1(&WriteRows {
            rows,
            slots,
            shape: Write {
                heads: number(heads)?,
                dim: number(dim)?,
                end_slot: number(pages * PAGE)?,
                count: number(rows.elem_count())?,
            },
        })?;
    }
    Ok(())
}

struct WriteRows<'a> {
    rows: &'a Tensor,
    slots: &'a Tensor,
    shape: Write,
}

impl InplaceOp1 for WriteRows<'_> {
    fn name(&self) -> &'static str {
        "write_rows"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        candle_core::bail!("the kernels for Metal take tensors that are on its device")
    }

    fn metal_fwd(&self, storage: &mut MetalStorage, layout: &Layout) -> Result<()> {
        let offset = bf16_offset(storage, layout)?;
        let (rows, slots) = (
            Guard::new(self.rows, DType::F32)?,
            Guard::new(self.slots, DType::U32)?,
        );
        let pipeline = pipeline(storage.device(), "write_rows")?;
        let guard = storage.device().command_encoder()?;
        let encoder: &ComputeCommandEncoder = guard.as_ref();
        encoder.set_compute_pipeline_state(&pipeline);
        encoder.set_output_buffer(0, Some(storage.buffer()), offset);
        for (index, guard) in [&rows, &slots].into_iter().enumerate() {
            let (buffer, offset) = guard.buffer()?;
            encoder.set_input_buffer(index + 1, Some(buffer), offset);
        }
        encoder.set_bytes(3, &self.shape);
        let groups = (self.shape.count as usize).div_ceil(THREADS);
        encoder.dispatch_thread_groups(size(groups, 1), size(THREADS, 1));
        Ok(())
    }
}

/// Copies a page of a cache, keys or values, over another, in place.
///
/// # Errors
/// Where there is no such page.
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
    if from == to {
        return Ok(());
    }
    cache.inplace_op1(&CopyPage {
        from: from as usize,
        to: to as usize,
        bytes: cache.elem_count() / pages * DType::BF16.size_in_bytes(),
    })
}

struct CopyPage {
    from: usize,
    to: usize,
    bytes: usize,
}

impl InplaceOp1 for CopyPage {
    fn name(&self) -> &'static str {
        "copy_page"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        candle_core::bail!("the kernels for Metal take tensors that are on its device")
    }

    fn metal_fwd(&self, storage: &mut MetalStorage, layout: &Layout) -> Result<()> {
        let offset = bf16_offset(storage, layout)?;
        let mut encoder = storage.device().blit_command_encoder()?;
        let buffer = storage.buffer();
        let (from, to) = (
            offset + self.from * self.bytes,
            offset + self.to * self.bytes,
        );
        encoder.copy_from_buffer(buffer, from, buffer, to, self.bytes);
        Ok(())
    }
}

/// Bytes before a contiguous cache in bf16.
fn bf16_offset(storage: &MetalStorage, layout: &Layout) -> Result<usize> {
    if storage.dtype() != DType::BF16 {
        candle_core::bail!(
            "the kernels for Metal keep a cache in BF16, not in {:?}",
            storage.dtype()
        );
    }
    Ok(contiguous(layout)?.0 * DType::BF16.size_in_bytes())
}
