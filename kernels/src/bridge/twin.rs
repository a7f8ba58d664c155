//! Plain twins of the kernels over a device's cache, on the processor: pages in bf16, `[pages, heads, PAGE, dim]` for keys and values alike. They
//! are what tests drive a device's path with where there is no device; slow, and written to be read.

use super::{Guard, Scoring, contiguous, unexpected};
use crate::scalar::attention::{Scoring as Plain, attend};
use crate::{KernelError, PAGE, Span};
use candle_core::{CpuStorage, Device, Error, InplaceOp1, Layout, Result, Tensor};
use half::bf16;
use rayon::prelude::*;

/// Writes row `i` of `rows`, `[T, heads, dim]` in f32, to slot `slots[i]` of the cache, rounded to nearest even.
pub(super) fn write_rows(cache: &Tensor, rows: &Tensor, slots: &[u32]) -> Result<()> {
    let (count, heads, dim) = rows.dims3()?;
    let (pages, own, page, width) = cache.dims4()?;
    if [own, page, width] != [heads, PAGE, dim] || count != slots.len() {
        candle_core::bail!("{:?} do not fit a cache {:?}", rows.dims(), cache.dims());
    }
    if let Some(slot) = slots.iter().find(|slot| **slot as usize / PAGE >= pages) {
        return Err(Error::wrap(KernelError::Index {
            what: "slot",
            index: *slot as usize,
            limit: pages * PAGE,
        }));
    }
    let rows = Guard::new(rows)?;
    cache.inplace_op1(&Write {
        shape: [heads, dim],
        rows: rows.floats()?,
        slots,
    })
}

struct Write<'a> {
    shape: [usize; 2],
    rows: &'a [f32],
    slots: &'a [u32],
}

impl InplaceOp1 for Write<'_> {
    fn name(&self) -> &'static str {
        "write_rows"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (start, end) = contiguous(layout)?;
        let CpuStorage::BF16(all) = storage else {
            return Err(unexpected(storage));
        };
        let ([heads, dim], all) = (self.shape, &mut all[start..end]);
        for (slot, row) in self.slots.iter().zip(self.rows.chunks_exact(heads * dim)) {
            let (page, offset) = (*slot as usize / PAGE, *slot as usize % PAGE);
            for (head, row) in row.chunks_exact(dim).enumerate() {
                let at = ((page * heads + head) * PAGE + offset) * dim;
                for (out, x) in all[at..at + dim].iter_mut().zip(row) {
                    *out = bf16::from_f32(*x);
                }
            }
        }
        Ok(())
    }
}

/// Attention of `q`, `[R, heads, dim]` in f32: `[R, heads * dim]` in f32.
pub(super) fn attention(
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    spans: &[Span],
    scoring: Scoring,
) -> Result<Tensor> {
    let (rows, heads, dim) = q.dims3()?;
    let (pages, kv_heads, page, width) = k.dims4()?;
    let fits = page == PAGE && width == dim && v.dims() == k.dims() && kv_heads > 0;
    if !fits || !heads.is_multiple_of(kv_heads) {
        candle_core::bail!("attention: {:?} over {:?}", q.dims(), k.dims());
    }
    for span in spans {
        let length = span.position + span.rows;
        let paged = length.div_ceil(PAGE) <= span.pages.len();
        if span.first + span.rows > rows
            || !paged
            || span.pages.iter().any(|page| *page as usize >= pages)
        {
            candle_core::bail!("attention: a span beyond the rows or the pages");
        }
    }
    let (q, k, v) = (Guard::new(q)?, Guard::new(k)?, Guard::new(v)?);
    let (q, k, v) = (q.floats()?, numbers(&k)?, numbers(&v)?);
    let scoring = Plain {
        scale: scoring.scale,
        window: scoring.window,
        soft_cap: scoring.soft_cap,
    };
    let mut out = vec![0f32; rows * heads * dim];
    for span in spans {
        let length = span.position + span.rows;
        // One head of the sequence, laid out plainly: `[length, dim]`.
        let gather = |all: &[bf16], head: usize| -> Vec<f32> {
            (0..length)
                .flat_map(|position| {
                    let page = span.pages[position / PAGE] as usize;
                    let at = ((page * kv_heads + head) * PAGE + position % PAGE) * dim;
                    all[at..at + dim].iter().map(|x| x.to_f32())
                })
                .collect()
        };
        let cached: Vec<[Vec<f32>; 2]> = (0..kv_heads)
            .map(|head| [gather(k, head), gather(v, head)])
            .collect();
        let first = span.first * heads * dim;
        let mine = &mut out[first..first + span.rows * heads * dim];
        mine.par_chunks_exact_mut(dim)
            .enumerate()
            .for_each(|(at, out)| {
                let (row, head) = (at / heads, at % heads);
                let [keys, values] = &cached[head * kv_heads / heads];
                let query = &q[first + at * dim..][..dim];
                let sums = attend(query, keys, values, span.position + row, scoring);
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = sum as f32;
                }
            });
    }
    Tensor::from_vec(out, (rows, heads * dim), &Device::Cpu)
}

fn numbers<'a>(guard: &'a Guard<'_>) -> Result<&'a [bf16]> {
    match guard.cpu()? {
        CpuStorage::BF16(all) => Ok(&all[guard.start..guard.end]),
        other => Err(unexpected(other)),
    }
}
