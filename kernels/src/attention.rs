//! Attention of a ragged batch over a paged cache.

use crate::dispatch::Isa;
use crate::error::{expect_length, product};
use crate::generic::attention::{Attend, Row, Scratch};
use crate::generic::block::Head;
use crate::scalar::attention::Scoring;
use crate::{Cache, KernelError, PAGE, Span};
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

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
    let workers = rayon::current_num_threads();
    let rows: usize = spans.iter().map(|span| span.rows).sum();
    let each = (rows * heads / (workers * TASKS)).clamp(QUERIES.0, QUERIES.1);
    let each = (each / shared).max(1);
    // For each row and head of the cache, in order, the queries that share that head, and their place in the result.
    let mut queries = q.chunks_exact(shared * dim);
    let mut places = out.chunks_exact_mut(shared * dim);
    let mut tasks: Vec<Vec<Row<'_, '_>>> = Vec::new();
    let (mut next, mut covered) = (0, 0);
    for span in spans {
        // Rows between two spans belong to none.
        for _ in next * kv_heads..span.first * kv_heads {
            queries.next();
            places.next();
        }
        next = span.first + span.rows;
        for row in 0..span.rows {
            if covered % each == 0 {
                let rows = each.min(rows - covered);
                tasks.extend((0..kv_heads).map(|_| Vec::with_capacity(rows)));
            }
            let at = covered / each * kv_heads;
            for (task, (queries, out)) in tasks[at..]
                .iter_mut()
                .zip(queries.by_ref().zip(places.by_ref()))
            {
                task.push(Row {
                    pages: &span.pages,
                    position: span.position + row,
                    queries,
                    out,
                });
            }
            covered += 1;
        }
    }
    // Later rows see more, so they go first.
    let workers = workers.min(tasks.len());
    let queue = Mutex::new(tasks.into_iter().enumerate().rev());
    let work = || {
        let mut scratch = Scratch::default();
        loop {
            let task = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((index, rows)) = task else { return };
            let head = Head {
                keys,
                values,
                index: index % kv_heads,
                heads: kv_heads,
                dim,
            };
            let scratch = &mut scratch;
            isa.run(Attend {
                head,
                rows,
                scoring,
                scratch,
            });
        }
    };
    match workers {
        0 | 1 => work(),
        _ => (0..workers)
            .into_par_iter()
            .with_max_len(1)
            .for_each(|_| work()),
    }
    Ok(())
}

/// Queries that work together: enough that a copied block is used often, few enough that what they gather stays near, and that there is work for all
/// threads.
const QUERIES: (usize, usize) = (24, 256);
/// Tasks that each thread should find.
const TASKS: usize = 4;

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
    for (what, cache) in [("keys", keys), ("values", values)] {
        expect_length(what, &[pages, cache.page([kv_heads, dim])?], cache.len())?;
    }
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
