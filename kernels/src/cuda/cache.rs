//! What is written to the pages of a cache, `[pages, heads, PAGE, dim]` in bf16, in place.

use super::module::On;
use super::operands::{Guard, contiguous, number, same_card};
use super::shapes::{THREADS, element_blocks};
use crate::{KernelError, PAGE, RopeStyle};
use candle_core::cuda_backend::CudaStorage;
use candle_core::cuda_backend::cudarc::driver::PushKernelArg;
use candle_core::{CpuStorage, Error, InplaceOp1, Layout, Result, Tensor};
use half::bf16;

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
    write(keys_cache, keys, None, slots)?;
    write(values_cache, values, None, slots)
}

/// As [`write_rows`] for one cache, with the rows turned first as [`rope`](super::rope) does: what is written is never stored in between.
///
/// # Errors
/// As [`write_rows`].
pub fn write_rotated(
    cache: &Tensor,
    rows: &Tensor,
    [cos, sin]: [&Tensor; 2],
    style: RopeStyle,
    slots: &Tensor,
) -> Result<()> {
    write(cache, rows, Some((cos, sin, style)), slots)
}

/// Cosines, sines, and what is turned together.
type Turn<'a> = (&'a Tensor, &'a Tensor, RopeStyle);

fn write(cache: &Tensor, rows: &Tensor, turn: Option<Turn<'_>>, slots: &Tensor) -> Result<()> {
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
    let pairs = match turn {
        Some((cos, sin, _)) => {
            let (own, pairs) = cos.dims2()?;
            if cos.dims() != sin.dims() || own != count || 2 * pairs > dim {
                candle_core::bail!(
                    "write_rows: angles {:?}, rows {:?}",
                    cos.dims(),
                    rows.dims()
                );
            }
            pairs
        }
        None => 0,
    };
    if rows.elem_count() == 0 {
        return Ok(());
    }
    cache.inplace_op1(&Write {
        rows,
        turn,
        slots,
        pairs,
        end_slot: number(pages * PAGE)?,
    })
}

struct Write<'a> {
    rows: &'a Tensor,
    turn: Option<Turn<'a>>,
    slots: &'a Tensor,
    pairs: usize,
    end_slot: u32,
}

impl InplaceOp1 for Write<'_> {
    fn name(&self) -> &'static str {
        "write_rows"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        candle_core::bail!("the kernels for NVIDIA cards take tensors that are on one")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        let (start, end) = contiguous(layout)?;
        let on = On::new(&storage.device)?;
        let (rows, slots) = (Guard::new(self.rows)?, Guard::new(self.slots)?);
        let angles = match self.turn {
            Some((cos, sin, _)) => Some((Guard::new(cos)?, Guard::new(sin)?)),
            None => None,
        };
        same_card(&[&rows, &slots])?;
        if rows.device()?.id() != on.device.id() {
            candle_core::bail!("write_rows: the rows are on another card than the cache");
        }
        if let Some((cos, sin)) = &angles {
            same_card(&[&rows, cos, sin])?;
        }
        let (_, heads, dim) = self.rows.dims3()?;
        let [heads, dim, pairs] = [number(heads)?, number(dim)?, number(self.pairs)?];
        let neox = u32::from(matches!(self.turn, Some((_, _, RopeStyle::Neox))));
        let count = self.rows.elem_count();
        let blocks = element_blocks(count).ok_or_else(too_long)?;
        let (rows, slots) = (rows.view::<f32>()?, slots.view::<u32>()?);
        // Without pairs no angle is read, so that anything stands for them.
        let (cos, sin) = match &angles {
            Some((cos, sin)) => (cos.view::<f32>()?, sin.view::<f32>()?),
            None => (rows.slice(..), rows.slice(..)),
        };
        let mut cache = storage.as_cuda_slice_mut::<bf16>()?.slice_mut(start..end);
        let elements = count as u64;
        let mut arguments = on.arguments("write_rows")?;
        arguments.arg(&mut cache).arg(&rows).arg(&slots);
        arguments.arg(&cos).arg(&sin);
        arguments.arg(&heads).arg(&dim).arg(&pairs).arg(&neox);
        arguments.arg(&self.end_slot).arg(&elements);
        // SAFETY: the arguments of `write_rows`, whose shapes were held against each other; a slot beyond the cache is passed over there.
        unsafe { on.launch(arguments, [blocks as usize, 1], THREADS, 0) }
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
        width: cache.elem_count() / pages,
    })
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

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        candle_core::bail!("the kernels for NVIDIA cards take tensors that are on one")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        let (start, end) = contiguous(layout)?;
        let device = storage.device.clone();
        let mut cache = storage.as_cuda_slice_mut::<bf16>()?.slice_mut(start..end);
        // The two pages lie apart: the memory is cut between them.
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        let (mut below, mut above) = cache.split_at_mut(high * self.width);
        let mut below = below.slice_mut(low * self.width..(low + 1) * self.width);
        let mut above = above.slice_mut(..self.width);
        match self.from < self.to {
            true => device.memcpy_dtod(&below, &mut above),
            false => device.memcpy_dtod(&above, &mut below),
        }
    }
}

fn too_long() -> Error {
    Error::wrap(KernelError::Overflow {
        what: "rows for the cache",
    })
}
