//! The paged cache of keys and values: how it lies in memory, and how rows come into it. Knows no attention.
//!
//! One head of one page is contiguous. Its keys lie by dimension, `[dim, PAGE]`, so that a vector holds one dimension of sixteen positions and scores
//! need no transposition; its values lie by position, `[PAGE, dim]`. In 8 bits the same codes lie four to a word, with their scales behind them.

use crate::codes;
use crate::error::{expect_length, product};
use crate::{KernelError, PAGE};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// The keys of all pages, `[pages, heads, dim, PAGE]`, or their values, `[pages, heads, PAGE, dim]`.
#[derive(Clone, Copy, Debug)]
pub enum Cache<'a> {
    /// In single precision.
    F32(&'a [f32]),
    /// In half precision.
    F16(&'a [f16]),
    /// In 8 bits, in words.
    Q8(&'a [u32]),
}

impl Cache<'_> {
    /// Number of elements: numbers, or words of codes and scales.
    pub fn len(&self) -> usize {
        match self {
            Cache::F32(all) => all.len(),
            Cache::F16(all) => all.len(),
            Cache::Q8(all) => all.len(),
        }
    }

    /// Elements of a page.
    pub(crate) fn page(&self, shape: [usize; 2]) -> Result<usize, KernelError> {
        match self {
            Cache::F32(_) | Cache::F16(_) => page(shape),
            Cache::Q8(_) => page_words(shape),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A [`Cache`] that rows are written to.
#[derive(Debug)]
pub enum CacheMut<'a> {
    /// In single precision.
    F32(&'a mut [f32]),
    /// In half precision.
    F16(&'a mut [f16]),
    /// In 8 bits, in words.
    Q8(&'a mut [u32]),
}

/// Which of the two caches: it decides how a head of a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// By dimension: `[dim, PAGE]`.
    Keys,
    /// By position: `[PAGE, dim]`.
    Values,
}

/// Writes row `i` of `rows`, `[T, heads, dim]`, to slot `slots[i]`, `page * PAGE + offset`, of the keys or of the values. Half precision is rounded
/// to nearest even; in 8 bits the largest of 32 dimensions has the code 127, and the others are rounded to nearest even.
///
/// # Errors
/// Where a length does not fit, or a slot is beyond the cache.
pub fn write_rows(
    cache: CacheMut<'_>,
    part: Part,
    [heads, dim]: [usize; 2],
    rows: &[f32],
    slots: &[u32],
) -> Result<(), KernelError> {
    expect_length("rows for the cache", &[slots.len(), heads, dim], rows.len())?;
    let (length, page) = match &cache {
        CacheMut::F32(all) => (all.len(), page([heads, dim])?),
        CacheMut::F16(all) => (all.len(), page([heads, dim])?),
        CacheMut::Q8(all) => (all.len(), page_words([heads, dim])?),
    };
    if page == 0 {
        return Ok(());
    }
    let pages = length / page;
    expect_length("cache", &[pages, page], length)?;
    if let Some(slot) = slots.iter().find(|slot| **slot as usize / PAGE >= pages) {
        return Err(KernelError::Index {
            what: "slot",
            index: *slot as usize,
            limit: pages * PAGE,
        });
    }
    let shape = [heads, dim];
    match cache {
        CacheMut::F32(all) => scatter(all, part, shape, rows, slots, |out, row| {
            out.copy_from_slice(row);
        }),
        CacheMut::F16(all) => scatter(all, part, shape, rows, slots, |out, row| {
            out.convert_from_f32_slice(row);
        }),
        CacheMut::Q8(all) => {
            for (slot, row) in slots.iter().zip(rows.chunks_exact(heads * dim)) {
                let (at, offset) = (*slot as usize / PAGE, *slot as usize % PAGE);
                let heads = all[at * page..][..page].chunks_exact_mut(page / heads);
                for (head, row) in heads.zip(row.chunks_exact(dim)) {
                    codes::write(head, part, offset, row);
                }
            }
        }
    }
    Ok(())
}

/// Numbers of a page of so many heads and dimensions.
fn page([heads, dim]: [usize; 2]) -> Result<usize, KernelError> {
    product("page", &[heads, dim, PAGE])
}

/// Words of a page in 8 bits.
fn page_words([heads, dim]: [usize; 2]) -> Result<usize, KernelError> {
    let words = codes::words(dim).ok_or(KernelError::Overflow { what: "page" })?;
    product("page", &[heads, words])
}

/// `round` turns one head of a row into the type of the cache.
fn scatter<T: Copy + Default>(
    all: &mut [T],
    part: Part,
    [heads, dim]: [usize; 2],
    rows: &[f32],
    slots: &[u32],
    round: impl Fn(&mut [T], &[f32]),
) {
    let mut rounded = vec![T::default(); dim];
    for (slot, row) in slots.iter().zip(rows.chunks_exact(heads * dim)) {
        let (page, offset) = (*slot as usize / PAGE, *slot as usize % PAGE);
        let page = &mut all[page * heads * dim * PAGE..][..heads * dim * PAGE];
        let heads = page.chunks_exact_mut(dim * PAGE);
        for (head, row) in heads.zip(row.chunks_exact(dim)) {
            match part {
                Part::Keys => {
                    round(&mut rounded, row);
                    for (lanes, x) in head.as_chunks_mut::<PAGE>().0.iter_mut().zip(&rounded) {
                        lanes[offset] = *x;
                    }
                }
                Part::Values => round(&mut head[offset * dim..(offset + 1) * dim], row),
            }
        }
    }
}
