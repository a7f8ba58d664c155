//! Attention of a ragged batch over a paged cache.

use crate::dispatch::Isa;
use crate::error::{expect_length, product};
use crate::generic::attention::{Attend, Head};
use crate::scalar::attention::Scoring;
use crate::{KernelError, PAGE, Span};
use half::f16;
use rayon::prelude::*;

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

/// Each row of `q`, `[rows, heads, dim]`, attends to positions `0..=p` of its span's pages, `p` its own position. The
/// caches are the keys' and the values'. `out` is as `q`.
/// Rows that no span covers are left as they were.
///
/// # Errors
/// Where a length does not fit, a span names rows or pages beyond the end, or its pages do not cover its rows.
pub fn attention(
    isa: Isa,
    q: &[f32],
    [keys, values]: [Cache<'_>; 2],
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
    let shared = heads / kv_heads;
    // For each row and head of the cache, in order, the queries that share that head, and their place in the result.
    let mut queries = q.chunks_exact(shared * dim);
    let mut places = out.chunks_exact_mut(shared * dim);
    let rows_each = (QUERIES / shared).max(1);
    let mut tasks = Vec::new();
    let mut next = 0;
    for span in spans {
        // Rows between two spans belong to none.
        for _ in next * kv_heads..span.first * kv_heads {
            queries.next();
            places.next();
        }
        next = span.first + span.rows;
        for first in (0..span.rows).step_by(rows_each) {
            let rows = rows_each.min(span.rows - first);
            let at = tasks.len();
            tasks.extend((0..kv_heads).map(|kv| Attend {
                keys: head(keys, sizes, kv),
                values: head(values, sizes, kv),
                pages: &span.pages,
                position: span.position + first,
                dim,
                queries: Vec::with_capacity(rows),
                out: Vec::with_capacity(rows),
                scoring,
            }));
            for _ in 0..rows {
                for task in &mut tasks[at..] {
                    task.queries.extend(queries.next());
                    task.out.extend(places.next());
                }
            }
        }
    }
    tasks.into_par_iter().for_each(|task| isa.run(task));
    Ok(())
}

/// Queries that work on the same pages at a time, at least where that is a whole row of them.
const QUERIES: usize = 64;

fn head(cache: Cache<'_>, sizes: Sizes, kv: usize) -> Head<'_> {
    let Sizes { kv_heads, dim, .. } = sizes;
    Head {
        cache,
        page_stride: PAGE * kv_heads * dim,
        stride: kv_heads * dim,
        start: kv * dim,
    }
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
