//! Pages of a cache as bytes, little end first, to be kept outside of it.

use super::{Guard, contiguous, unexpected};
use crate::{Cache, KernelError};
use candle_core::{CpuStorage, Error, InplaceOp1, Layout, Result, Tensor};
use half::f16;
use std::ops::Range;

/// Bytes of a page of the keys or of the values.
pub fn page_bytes(cache: &Tensor) -> usize {
    let pages = cache.dims().first().copied().unwrap_or(0).max(1);
    cache.elem_count() / pages * cache.dtype().size_in_bytes()
}

/// Appends the bytes of a page.
pub fn read_page(cache: &Tensor, page: u32, out: &mut Vec<u8>) -> Result<()> {
    let range = range(cache, page)?;
    match Guard::new(cache)?.cache()? {
        Cache::F32(all) => out.extend(all[range].iter().flat_map(|x| x.to_le_bytes())),
        Cache::F16(all) => out.extend(all[range].iter().flat_map(|x| x.to_le_bytes())),
        Cache::Q8(all) => out.extend(all[range].iter().flat_map(|x| x.to_le_bytes())),
    }
    Ok(())
}

/// Fills a page with bytes that [`read_page`] gave, in place.
pub fn write_page(cache: &Tensor, page: u32, bytes: &[u8]) -> Result<()> {
    let range = range(cache, page)?;
    if bytes.len() != page_bytes(cache) {
        return Err(Error::wrap(KernelError::Length {
            what: "bytes of a page",
            expected: page_bytes(cache),
            actual: bytes.len(),
        }));
    }
    cache.inplace_op1(&WritePage { range, bytes })
}

/// Where a page lies.
fn range(cache: &Tensor, page: u32) -> Result<Range<usize>> {
    let (pages, page) = (cache.dim(0)?, page as usize);
    if page >= pages {
        return Err(Error::wrap(KernelError::Index {
            what: "page",
            index: page,
            limit: pages,
        }));
    }
    let width = cache.elem_count() / pages;
    Ok(page * width..(page + 1) * width)
}

struct WritePage<'a> {
    range: Range<usize>,
    bytes: &'a [u8],
}

impl InplaceOp1 for WritePage<'_> {
    fn name(&self) -> &'static str {
        "write_page"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (start, end) = contiguous(layout)?;
        let (range, bytes) = (self.range.clone(), self.bytes);
        match storage {
            CpuStorage::F32(all) => fill(&mut all[start..end][range], bytes, f32::from_le_bytes),
            CpuStorage::F16(all) => fill(&mut all[start..end][range], bytes, f16::from_le_bytes),
            CpuStorage::U32(all) => fill(&mut all[start..end][range], bytes, u32::from_le_bytes),
            other => return Err(unexpected(other)),
        }
        Ok(())
    }
}

fn fill<T, const N: usize>(out: &mut [T], bytes: &[u8], number: impl Fn([u8; N]) -> T) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *out = number(*bytes);
    }
}
