//! Attention of a few consecutive rows of one sequence over one head of the cache, page by page in order.
//!
//! A page's scores fill one vector, a lane a position. For each query the pages that it sees are met from the first to the last, with a running maximum,
//! so that its bits depend on its position and on what it sees only, whatever other queries share the pages with it.

use super::number::{self, exp};
use crate::Cache;
use crate::dispatch::Operation;
use crate::scalar::attention::Scoring;
use crate::vector::{Floats, LANES, Vector};
use half::f16;

/// One head of a cache: element `d` of the key at offset `t` of a page lies at `page * page_stride + t * stride + start + d`.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The whole cache.
    pub cache: Cache<'a>,
    /// Elements of a page.
    pub page_stride: usize,
    /// Elements from one position to the next.
    pub stride: usize,
    /// First element of this head.
    pub start: usize,
}

/// The rows that work on the same pages.
pub struct Attend<'a, 'o> {
    /// Keys of the head.
    pub keys: Head<'a>,
    /// Values of the head.
    pub values: Head<'a>,
    /// Pages of the sequence, in order.
    pub pages: &'a [u32],
    /// Position of the first row; the rows are consecutive.
    pub position: usize,
    /// Dimensions of a head.
    pub dim: usize,
    /// For each row, its queries that share this head, `[queries, dim]`.
    pub queries: Vec<&'a [f32]>,
    /// For each row, where its results go, as the queries.
    pub out: Vec<&'o mut [f32]>,
    /// How scores are made.
    pub scoring: Scoring,
}

/// Queries that are scored side by side.
const BLOCK: usize = 8;

/// What is carried from page to page for one query, besides the weighted values.
#[derive(Clone, Copy)]
struct Running {
    top: f32,
    total: Floats,
}

impl Operation for Attend<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let dim = self.dim;
        let padded = dim.next_multiple_of(LANES);
        let parts = padded / LANES;
        let zero = Floats([0.0; LANES]);
        let shared = self
            .queries
            .first()
            .map_or(0, |queries| queries.len() / dim);
        let rows = self.queries.len();

        // Queries, times the scale: `[rows * shared, dim]`.
        let scale = self.scoring.scale;
        let queries: Vec<f32> = self
            .queries
            .iter()
            .flat_map(|row| row.iter())
            .map(|q| q * scale)
            .collect();
        let mut running = vec![
            Running {
                top: f32::NEG_INFINITY,
                total: zero
            };
            rows * shared
        ];
        let mut sums = vec![zero; rows * shared * parts];
        let mut keys = vec![zero; padded];
        let mut values = vec![zero; LANES * parts];

        let seen_from = |row: usize| match self.scoring.window {
            Some(window) => (self.position + row + 1).saturating_sub(window),
            None => 0,
        };
        let last = self.position + rows;
        for page in seen_from(0) / LANES..last.div_ceil(LANES) {
            let start = page * LANES;
            let at = self.pages[page] as usize;
            // Rows that see any position of this page: those at or after its start, whose window has not left it.
            let first_row = start.saturating_sub(self.position);
            let end_row = (first_row..rows)
                .find(|row| seen_from(*row) >= start + LANES)
                .unwrap_or(rows);
            if first_row >= end_row {
                continue;
            }
            self.keys.read_turned(v, at, dim, &mut keys);
            self.values.read(v, at, dim, &mut values);
            let mut query = first_row * shared;
            let end = end_row * shared;
            while query < end {
                let count = if query + BLOCK <= end { BLOCK } else { 1 };
                let mut scores = [v.splat(0.0); BLOCK];
                if count == BLOCK {
                    scores = score::<V, BLOCK>(
                        v,
                        &queries[query * dim..(query + BLOCK) * dim],
                        dim,
                        &keys,
                    );
                } else {
                    [scores[0]] =
                        score::<V, 1>(v, &queries[query * dim..(query + 1) * dim], dim, &keys);
                }
                for scores in &scores[..count] {
                    let row = query / shared;
                    let from = seen_from(row).saturating_sub(start);
                    let to = (self.position + row + 1 - start).min(LANES);
                    let sums = &mut sums[query * parts..(query + 1) * parts];
                    meet(
                        v,
                        *scores,
                        (from, to),
                        self.scoring,
                        &mut running[query],
                        sums,
                        &values,
                    );
                    query += 1;
                }
            }
        }
        let mut query = 0;
        for out in self.out {
            for out in out.chunks_exact_mut(dim) {
                let total = v.splat(v.sum(v.load(&running[query].total.0)));
                for (sum, out) in sums[query * parts..].iter().zip(out.chunks_mut(LANES)) {
                    number::store(v, v.div(v.load(&sum.0), total), out);
                }
                query += 1;
            }
        }
    }
}

/// The products of `R` queries with a page's keys, turned to `[dim, 16]`.
#[inline(always)]
fn score<V: Vector, const R: usize>(
    v: V,
    queries: &[f32],
    dim: usize,
    keys: &[Floats],
) -> [V::F; R] {
    let mut rows = [&queries[..dim]; R];
    for (r, row) in rows.iter_mut().enumerate() {
        *row = &queries[r * dim..(r + 1) * dim];
    }
    let mut scores = [v.splat(0.0); R];
    for (d, key) in keys[..dim].iter().enumerate() {
        let key = v.load(&key.0);
        for r in 0..R {
            scores[r] = v.fma(v.splat(rows[r][d]), key, scores[r]);
        }
    }
    scores
}

/// Adds a page to what one query has gathered: `seen` says which of its positions count.
#[inline(always)]
fn meet<V: Vector>(
    v: V,
    scores: V::F,
    seen: (usize, usize),
    scoring: Scoring,
    running: &mut Running,
    sums: &mut [Floats],
    values: &[Floats],
) {
    let mut scores = scores;
    if let Some(cap) = scoring.soft_cap {
        scores = number::soft_cap(v, scores, v.splat(cap));
    }
    let (from, to) = seen;
    if to - from < LANES {
        let positions = v.load(&POSITIONS);
        let hidden = v.splat(f32::NEG_INFINITY);
        scores = v.select_le(positions, v.splat(to as f32 - 1.0), scores, hidden);
        scores = v.select_le(v.splat(from as f32), positions, scores, hidden);
    }
    let top = v.top(scores);
    let mut total = v.load(&running.total.0);
    if top > running.top {
        let shrink = exp(v, v.sub(v.splat(running.top), v.splat(top)));
        running.top = top;
        total = v.mul(total, shrink);
        for sum in sums.iter_mut() {
            v.store(v.mul(v.load(&sum.0), shrink), &mut sum.0);
        }
    }
    let powers = exp(v, v.sub(scores, v.splat(running.top)));
    v.store(v.add(total, powers), &mut running.total.0);
    let mut weights = [0f32; LANES];
    v.store(powers, &mut weights);
    let parts = sums.len();
    if to - from == LANES {
        for (part, sum) in sums.iter_mut().enumerate() {
            let mut total = v.load(&sum.0);
            for t in 0..LANES {
                let value = v.load(&values[t * parts + part].0);
                total = v.fma(v.splat(weights[t]), value, total);
            }
            v.store(total, &mut sum.0);
        }
    } else {
        // What lies at positions that are not seen may be anything, so it is not even multiplied by 0.
        for (part, sum) in sums.iter_mut().enumerate() {
            let mut total = v.load(&sum.0);
            for t in from..to {
                total = v.fma(
                    v.splat(weights[t]),
                    v.load(&values[t * parts + part].0),
                    total,
                );
            }
            v.store(total, &mut sum.0);
        }
    }
}

const POSITIONS: [f32; LANES] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

impl Head<'_> {
    /// Part `part` of the vector at offset `t` of a page: sixteen elements, or fewer and zeros.
    #[inline(always)]
    fn part<V: Vector>(self, v: V, page: usize, t: usize, part: usize, dim: usize) -> V::F {
        let at = page * self.page_stride + t * self.stride + self.start;
        let (first, end) = (at + part * LANES, at + dim.min((part + 1) * LANES));
        match self.cache {
            Cache::F32(all) => number::load(v, &all[first..end]),
            Cache::F16(all) => match all[first..end].first_chunk::<LANES>() {
                Some(whole) => v.load_half(whole),
                None => {
                    let mut padded = [f16::ZERO; LANES];
                    padded[..end - first].copy_from_slice(&all[first..end]);
                    v.load_half(&padded)
                }
            },
        }
    }

    /// The page's vectors as `[16, parts]`.
    #[inline(always)]
    fn read<V: Vector>(self, v: V, page: usize, dim: usize, out: &mut [Floats]) {
        let parts = out.len() / LANES;
        for (t, out) in out.chunks_exact_mut(parts).enumerate() {
            for (part, out) in out.iter_mut().enumerate() {
                v.store(self.part(v, page, t, part, dim), &mut out.0);
            }
        }
    }

    /// The page's vectors as `[dim, 16]`.
    #[inline(always)]
    fn read_turned<V: Vector>(self, v: V, page: usize, dim: usize, out: &mut [Floats]) {
        for (part, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let mut rows = [v.splat(0.0); LANES];
            for (t, row) in rows.iter_mut().enumerate() {
                *row = self.part(v, page, t, part, dim);
            }
            for (column, out) in v.transpose(rows).iter().zip(out) {
                v.store(*column, &mut out.0);
            }
        }
    }
}
