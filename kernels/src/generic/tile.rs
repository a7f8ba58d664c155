//! The two products of attention, over a block of positions and a few queries whose sums stay in registers. Knows neither masks nor maxima.
//!
//! What is summed for one query, and in which order, never depends on how many others are beside it.

use super::block::{BLOCK, Block, CHUNK, Lanes, Scores};
use crate::vector::{Floats, LANES, Vector};

/// Queries that a tile may have.
pub const TILE: usize = 6;

/// How many of `left` queries the next tile takes: 6, or, towards the end, what leaves no narrow tile over.
#[inline(always)]
pub fn tile<V: Vector>(left: usize) -> usize {
    match left {
        _ if V::SUMS < TILE => 1,
        7 | 8 => 4,
        5 => 3,
        left => left.min(TILE),
    }
}

/// Calls `$body` with the constant `$r` as the number of queries, one of those that [`tile`] gives.
macro_rules! by_queries {
    ($count:expr, $r:ident, $body:expr) => {
        match $count {
            _ if V::SUMS < TILE => {
                const $r: usize = 1;
                $body
            }
            6 => {
                const $r: usize = 6;
                $body
            }
            4 => {
                const $r: usize = 4;
                $body
            }
            3 => {
                const $r: usize = 3;
                $body
            }
            2 => {
                const $r: usize = 2;
                $body
            }
            _ => {
                const $r: usize = 1;
                $body
            }
        }
    };
}

/// The products of a tile's queries, `[R, dim]`, with the keys of the first `pages` pages of the block.
#[inline(always)]
pub fn score<V: Vector, L: Lanes>(
    v: V,
    queries: &[f32],
    block: &Block<'_, L>,
    pages: usize,
    scores: &mut [Scores],
) {
    by_queries!(
        scores.len(),
        R,
        score_tile::<V, L, R>(v, queries, block, pages, scores)
    );
}

#[inline(always)]
fn score_tile<V: Vector, L: Lanes, const R: usize>(
    v: V,
    queries: &[f32],
    block: &Block<'_, L>,
    pages: usize,
    scores: &mut [Scores],
) {
    let mut first = 0;
    while first < pages {
        if V::SUMS >= 24 && pages - first >= 4 {
            score_pages::<V, L, R, 4>(v, queries, block, first, scores);
            first += 4;
        } else if V::SUMS >= 24 && pages - first >= 2 {
            score_pages::<V, L, R, 2>(v, queries, block, first, scores);
            first += 2;
        } else {
            score_pages::<V, L, R, 1>(v, queries, block, first, scores);
            first += 1;
        }
    }
}

/// Each score is one chain of multiply-adds over the dimensions.
#[inline(always)]
fn score_pages<V: Vector, L: Lanes, const R: usize, const N: usize>(
    v: V,
    queries: &[f32],
    block: &Block<'_, L>,
    first: usize,
    scores: &mut [Scores],
) {
    let dim = queries.len() / R;
    let mut rows = [&queries[..dim]; R];
    for (r, row) in rows.iter_mut().enumerate() {
        *row = &queries[r * dim..(r + 1) * dim];
    }
    let mut keys = [&block.keys[first][..dim]; N];
    for (n, keys) in keys.iter_mut().enumerate() {
        *keys = &block.keys[first + n][..dim];
    }
    let mut next = keys;
    if L::FAR {
        for (n, next) in next.iter_mut().enumerate() {
            *next = &block.next[0][first + n][..dim];
        }
    }
    let mut sums = [[v.splat(0.0); N]; R];
    for d in 0..dim {
        if L::FAR {
            for next in &next {
                v.fetch(&next[d]);
            }
        }
        let mut key = [v.splat(0.0); N];
        for n in 0..N {
            key[n] = keys[n][d].read(v);
        }
        for r in 0..R {
            let query = v.splat(rows[r][d]);
            for n in 0..N {
                sums[r][n] = v.fma(query, key[n], sums[r][n]);
            }
        }
    }
    for (sums, scores) in sums.iter().zip(scores) {
        for (n, sum) in sums.iter().enumerate() {
            v.store(*sum, &mut scores[first + n].0);
        }
    }
}

/// Adds to chunk `chunk` of each query's `sums`, `[R, parts]`, the block's values at positions `from..to` times their weights.
#[inline(always)]
pub fn gather<V: Vector, L: Lanes>(
    v: V,
    block: &Block<'_, L>,
    chunk: usize,
    seen: (usize, usize),
    weights: &[Scores],
    sums: &mut [Floats],
) {
    by_queries!(
        weights.len(),
        R,
        gather_tile::<V, L, R>(v, block, chunk, seen, weights, sums)
    );
}

#[inline(always)]
fn gather_tile<V: Vector, L: Lanes, const R: usize>(
    v: V,
    block: &Block<'_, L>,
    chunk: usize,
    seen: (usize, usize),
    weights: &[Scores],
    sums: &mut [Floats],
) {
    let parts = sums.len() / R;
    let end = parts.min((chunk + 1) * CHUNK);
    let mut part = chunk * CHUNK;
    while part < end {
        if V::SUMS >= 24 && end - part >= 4 {
            gather_parts::<V, L, R, 4>(v, block, part, seen, weights, sums);
            part += 4;
        } else if V::SUMS >= 24 && end - part >= 2 {
            gather_parts::<V, L, R, 2>(v, block, part, seen, weights, sums);
            part += 2;
        } else {
            gather_parts::<V, L, R, 1>(v, block, part, seen, weights, sums);
            part += 1;
        }
    }
}

/// Each sum is one chain of multiply-adds over the positions. What lies at others may be anything, so it is not even multiplied by 0.
#[inline(always)]
fn gather_parts<V: Vector, L: Lanes, const R: usize, const N: usize>(
    v: V,
    block: &Block<'_, L>,
    part: usize,
    (from, to): (usize, usize),
    weights: &[Scores],
    sums: &mut [Floats],
) {
    let Some(weights) = weights.first_chunk::<R>() else {
        return;
    };
    let parts = sums.len() / R;
    let mut totals = [[v.splat(0.0); N]; R];
    for r in 0..R {
        let sums = &sums[r * parts + part..][..N];
        for n in 0..N {
            totals[r][n] = v.load(&sums[n].0);
        }
    }
    let to = to.min(BLOCK);
    let mut page = from / LANES;
    while page * LANES < to {
        let start = page * LANES;
        let (low, high) = (from.max(start) - start, (to - start).min(LANES));
        for t in low..high {
            let values = &block.values(page, t, part)[..N];
            if L::FAR {
                let next = &block.next[1][page][block.place(t, part)..][..N];
                for n in (0..N).step_by(2) {
                    v.fetch(&next[n]);
                }
            }
            let mut value = [v.splat(0.0); N];
            for n in 0..N {
                value[n] = values[n].read(v);
            }
            for r in 0..R {
                let weight = v.splat(weights[r][page].0[t]);
                for n in 0..N {
                    totals[r][n] = v.fma(weight, value[n], totals[r][n]);
                }
            }
        }
        page += 1;
    }
    for r in 0..R {
        let sums = &mut sums[r * parts + part..][..N];
        for n in 0..N {
            v.store(totals[r][n], &mut sums[n].0);
        }
    }
}
