//! Attention of a ragged batch over a paged cache.

use crate::error::{expect_length, product};
use crate::scalar::attention::{Scoring, attend};
use crate::{KernelError, PAGE, Span};
use half::f16;

/// The keys, or the values, of all pages: `[pages, PAGE, heads, dim]`.
#[derive(Clone, Copy, Debug)]
pub enum Cache<'a> {
    /// In single precision.
    F32(&'a [f32]),
    /// In half precision.
    F16(&'a [f16]),
}

impl Cache<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Cache::F32(all) => all.len(),
            Cache::F16(all) => all.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self, at: usize, out: &mut [f32]) {
        match self {
            Cache::F32(all) => out.copy_from_slice(&all[at..at + out.len()]),
            Cache::F16(all) => {
                for (out, x) in out.iter_mut().zip(&all[at..]) {
                    *out = x.to_f32();
                }
            }
        }
    }
}

/// Sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of the batch.
    pub rows: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of the cache.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub dim: usize,
    /// Pages of the cache.
    pub pages: usize,
}

/// Each row of `q`, `[rows, heads, dim]`, attends to positions `0..=p` of its span's pages, `p` its own position. `out` is as `q`.
/// Rows that no span covers are left as they were.
///
/// # Errors
/// Where a length does not fit, a span names rows or pages beyond the end, or its pages do not cover its rows.
pub fn attention(
    q: &[f32],
    keys: Cache<'_>,
    values: Cache<'_>,
    sizes: Sizes,
    spans: &[Span],
    scoring: Scoring,
    out: &mut [f32],
) -> Result<(), KernelError> {
    check(q, keys, values, sizes, spans, scoring, out)?;
    let Sizes {
        heads,
        kv_heads,
        dim,
        ..
    } = sizes;
    for span in spans {
        for h in 0..heads {
            let kv = h / (heads / kv_heads);
            let length = span.position + span.rows;
            let (mut k, mut v) = (vec![0f32; length * dim], vec![0f32; length * dim]);
            for p in 0..length {
                let at = ((span.pages[p / PAGE] as usize * PAGE + p % PAGE) * kv_heads + kv) * dim;
                keys.read(at, &mut k[p * dim..(p + 1) * dim]);
                values.read(at, &mut v[p * dim..(p + 1) * dim]);
            }
            for row in 0..span.rows {
                let at = ((span.first + row) * heads + h) * dim;
                let y = attend(&q[at..at + dim], &k, &v, span.position + row, scoring);
                for (out, y) in out[at..at + dim].iter_mut().zip(y) {
                    *out = y as f32;
                }
            }
        }
    }
    Ok(())
}

fn check(
    q: &[f32],
    keys: Cache<'_>,
    values: Cache<'_>,
    sizes: Sizes,
    spans: &[Span],
    scoring: Scoring,
    out: &[f32],
) -> Result<(), KernelError> {
    let Sizes {
        rows,
        heads,
        kv_heads,
        dim,
        pages,
    } = sizes;
    if dim == 0 || kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(KernelError::Shape(format!(
            "{heads} query heads of {dim} over {kv_heads} heads"
        )));
    }
    if scoring.window == Some(0) {
        return Err(KernelError::Shape("a window of no positions".to_string()));
    }
    expect_length("queries", &[rows, heads, dim], q.len())?;
    expect_length("attended", &[rows, heads, dim], out.len())?;
    expect_length("keys", &[pages, PAGE, kv_heads, dim], keys.len())?;
    expect_length("values", &[pages, PAGE, kv_heads, dim], values.len())?;
    let mut next = 0;
    for span in spans {
        if span.first < next {
            return Err(KernelError::Shape(format!(
                "span at row {} overlaps the one before it",
                span.first
            )));
        }
        next = span
            .first
            .checked_add(span.rows)
            .ok_or(KernelError::Overflow { what: "span" })?;
        if next > rows {
            return Err(KernelError::Index {
                what: "end of a span",
                index: next,
                limit: rows + 1,
            });
        }
        let length = span
            .position
            .checked_add(span.rows)
            .ok_or(KernelError::Overflow { what: "span" })?;
        if product("pages of a span", &[span.pages.len(), PAGE])? < length {
            return Err(KernelError::Shape(format!(
                "{} pages do not cover {length} positions",
                span.pages.len()
            )));
        }
        if let Some(page) = span.pages.iter().find(|page| **page as usize >= pages) {
            return Err(KernelError::Index {
                what: "page",
                index: *page as usize,
                limit: pages,
            });
        }
    }
    Ok(())
}
