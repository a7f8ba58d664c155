//! Attention of some rows over one head of the cache, block by block in order.
//!
//! Rows whose pages in a block are the same, of one sequence or of several that share a prefix, meet the block together. For each query the blocks that it
//! sees come from the first to the last, with a running maximum, so that its bits depend on its position and on what it sees only, whatever other
//! queries share the blocks with it.

use super::block::{BLOCK, BLOCK_PAGES, Block, CHUNK, Copied, Head, Scores};
use super::number::{self, exp};
use super::tile::{self, TILE};
use crate::Cache;
use crate::codes;
use crate::dispatch::Operation;
use crate::scalar::attention::Scoring;
use crate::vector::{Floats, LANES, Vector};
use half::f16;

/// A row of the batch: its queries that share the head.
pub struct Row<'a, 'o> {
    /// Pages of its sequence, in order.
    pub pages: &'a [u32],
    /// Its position in its sequence.
    pub position: usize,
    /// `[queries, dim]`
    pub queries: &'a [f32],
    /// Where the results go, as the queries.
    pub out: &'o mut [f32],
}

/// Rows that work together.
pub struct Attend<'a, 'o, 's> {
    /// The head of the cache.
    pub head: Head<'a>,
    /// The rows, those of one sequence together.
    pub rows: Vec<Row<'a, 'o>>,
    /// How scores are made.
    pub scoring: Scoring,
    /// Memory to work in.
    pub scratch: &'s mut Scratch,
}

/// Memory that one task after another works in. What is left there from the one before is never read.
#[derive(Default)]
pub struct Scratch {
    /// The queries, times the scale: `[queries, dim]`.
    queries: Vec<f32>,
    running: Vec<Running>,
    /// The weighted values of each query: `[queries, parts]`.
    sums: Vec<Floats>,
    scores: Vec<Scores>,
    /// Positions of the block that each query sees.
    seen: Vec<Seen>,
    copied: Copied,
}

/// The first position of a block that a row sees, and the end of those that it sees.
type Seen = (usize, usize);

/// What is carried from block to block for one query, besides the weighted values.
#[derive(Clone, Copy)]
struct Running {
    top: f32,
    total: Floats,
}

/// Queries that read a block where it lies; more of them read a copy.
const DIRECT: usize = 8;

const ZERO: Floats = Floats([0.0; LANES]);

impl Operation for Attend<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(mut self, v: V) {
        let dim = self.head.dim;
        let parts = dim.div_ceil(LANES);
        let shared = self.rows.first().map_or(0, |row| row.queries.len() / dim);
        let scratch = &mut *self.scratch;
        let queries = self.rows.len() * shared;
        let scale = self.scoring.scale;
        scratch.queries.resize(queries * dim, 0.0);
        let scaled = scratch.queries.chunks_exact_mut((shared * dim).max(1));
        for (scaled, row) in scaled.zip(&self.rows) {
            for (scaled, query) in scaled.iter_mut().zip(row.queries) {
                *scaled = query * scale;
            }
        }
        if matches!(self.head.keys, Cache::Q8(_)) {
            for query in scratch.queries.chunks_exact_mut(dim) {
                codes::mix(query);
            }
        }
        let start = Running {
            top: f32::NEG_INFINITY,
            total: ZERO,
        };
        scratch.running.clear();
        scratch.running.resize(queries, start);
        scratch.sums.clear();
        scratch.sums.resize(queries * parts, ZERO);
        scratch.scores.resize(queries, [ZERO; BLOCK_PAGES]);

        let window = self.scoring.window;
        let (mut first, mut end) = (usize::MAX, 0);
        for row in &self.rows {
            first = first.min(seen_from(row.position, window) / BLOCK);
            end = end.max(row.position / BLOCK + 1);
        }
        for block in first..end {
            let mut row = 0;
            while let Some(run) = self.next_run(row, block) {
                row = run.end;
                self.meet(v, shared, &run);
            }
        }

        let scratch = &*self.scratch;
        let mut query = 0;
        for row in &mut self.rows {
            for out in row.out.chunks_exact_mut(dim) {
                let total = v.splat(v.sum(v.load(&scratch.running[query].total.0)));
                let sums = &scratch.sums[query * parts..];
                for (sum, out) in sums.iter().zip(out.chunks_mut(LANES)) {
                    number::store(v, v.div(v.load(&sum.0), total), out);
                }
                query += 1;
            }
        }
    }
}

/// The first position that a row sees.
#[inline(always)]
fn seen_from(position: usize, window: Option<usize>) -> usize {
    match window {
        Some(window) => (position + 1).saturating_sub(window),
        None => 0,
    }
}

/// Consecutive rows that meet one block together.
struct Run {
    first: usize,
    end: usize,
    /// Those of the block's pages that any of the rows sees.
    pages: [Option<u32>; BLOCK_PAGES],
    /// The pages that the last row has in the block after this one.
    next: [Option<u32>; BLOCK_PAGES],
}

impl Attend<'_, '_, '_> {
    /// The next rows from `first` on that see something of the block, as many as agree about its pages. Leaves in the scratch what each of their
    /// queries sees.
    #[inline(always)]
    fn next_run(&mut self, first: usize, block: usize) -> Option<Run> {
        let start = block * BLOCK;
        let mut run = Run {
            first,
            end: first,
            pages: [None; BLOCK_PAGES],
            next: [None; BLOCK_PAGES],
        };
        let seen = &mut self.scratch.seen;
        seen.clear();
        for (index, row) in self.rows.iter().enumerate().skip(first) {
            let from = seen_from(row.position, self.scoring.window).saturating_sub(start);
            let to = (row.position + 1).saturating_sub(start).min(BLOCK);
            if from >= to {
                // It sees nothing of the block: the rows before it are the run, or else the run begins later.
                if run.first < run.end {
                    break;
                }
                run.first = index + 1;
                run.end = index + 1;
                continue;
            }
            let mut pages = run.pages;
            let mut agree = true;
            for (i, page) in pages.iter_mut().enumerate() {
                if i * LANES < to && from < (i + 1) * LANES {
                    let own = row.pages[block * BLOCK_PAGES + i];
                    agree &= page.is_none_or(|page| page == own);
                    *page = Some(own);
                }
            }
            if !agree {
                break;
            }
            run.pages = pages;
            run.end = index + 1;
            seen.push((from, to));
        }
        let last = self.rows[first..run.end].last()?;
        for (i, next) in run.next.iter_mut().enumerate() {
            *next = last.pages.get((block + 1) * BLOCK_PAGES + i).copied();
        }
        (run.first < run.end).then_some(run)
    }

    /// Takes the run through its block.
    #[inline(always)]
    fn meet<V: Vector>(&mut self, v: V, shared: usize, run: &Run) {
        let scratch = &mut *self.scratch;
        let (from, to) = (run.first * shared, run.end * shared);
        let parts = self.head.dim.div_ceil(LANES);
        let work = Work {
            queries: &scratch.queries[from * self.head.dim..to * self.head.dim],
            dim: self.head.dim,
            seen: &scratch.seen,
            shared,
            soft_cap: self.scoring.soft_cap,
            running: &mut scratch.running[from..to],
            sums: &mut scratch.sums[from * parts..to * parts],
            scores: &mut scratch.scores[..to - from],
        };
        // Where every page is read once only, it is not worth a copy.
        let direct = match to - from <= DIRECT {
            true => self.head.direct(run.pages, run.next),
            false => None,
        };
        let block = match direct {
            Some(block) => Pages::Halves(block),
            None => Pages::Floats(self.head.copy(v, run.pages, &mut scratch.copied)),
        };
        work.meet(v, &block);
    }
}

/// The queries of a run, and what they gather.
struct Work<'a> {
    queries: &'a [f32],
    dim: usize,
    /// For each row.
    seen: &'a [Seen],
    /// Queries of a row.
    shared: usize,
    soft_cap: Option<f32>,
    running: &'a mut [Running],
    sums: &'a mut [Floats],
    scores: &'a mut [Scores],
}

/// A block, wherever it is read from.
enum Pages<'a> {
    Floats(Block<'a, Floats>),
    Halves(Block<'a, [f16; LANES]>),
}

impl Work<'_> {
    /// First all scores, while the keys are near, then all sums, while a chunk of the values is.
    #[inline(always)]
    fn meet<V: Vector>(self, v: V, block: &Pages<'_>) {
        let (dim, parts) = (self.dim, self.dim.div_ceil(LANES));
        let count = self.scores.len();
        let mut query = 0;
        while query < count {
            let end = query + tile::tile::<V>(count - query);
            let mut pages = 0;
            for (_, to) in self.rows(query, end) {
                pages = pages.max(to.div_ceil(LANES));
            }
            let queries = &self.queries[query * dim..end * dim];
            let scores = &mut self.scores[query..end];
            match block {
                Pages::Floats(block) => tile::score(v, queries, block, pages, scores),
                Pages::Halves(block) => tile::score(v, queries, block, pages, scores),
            }
            for query in query..end {
                weigh(
                    v,
                    &mut self.scores[query],
                    self.seen[query / self.shared],
                    self.soft_cap,
                    &mut self.running[query],
                    &mut self.sums[query * parts..(query + 1) * parts],
                );
            }
            query = end;
        }
        for chunk in 0..parts.div_ceil(CHUNK) {
            let mut query = 0;
            while query < count {
                let end = query + tile::tile::<V>(count - query);
                let (pieces, cut) = self.pieces(query, end);
                for (first, end, seen) in &pieces[..cut] {
                    let weights = &self.scores[*first..*end];
                    let sums = &mut self.sums[first * parts..end * parts];
                    match block {
                        Pages::Floats(block) => tile::gather(v, block, chunk, *seen, weights, sums),
                        Pages::Halves(block) => tile::gather(v, block, chunk, *seen, weights, sums),
                    }
                }
                query = end;
            }
        }
    }

    /// What the rows of these queries see.
    #[inline(always)]
    fn rows(&self, query: usize, end: usize) -> &[Seen] {
        &self.seen[query / self.shared..(end - 1) / self.shared + 1]
    }

    /// What is gathered for a tile, in order: what all its queries see for all of them at once, what comes before and after it for each apart. And
    /// the number of these pieces.
    #[inline(always)]
    fn pieces(&self, query: usize, end: usize) -> ([(usize, usize, Seen); 2 * TILE + 1], usize) {
        let rows = self.rows(query, end);
        let (mut from, mut to) = rows[0];
        let mut same = true;
        for row in rows {
            same &= *row == rows[0];
            from = from.max(row.0);
            to = to.min(row.1);
        }
        let to = to.max(from);
        let mut pieces = [(query, end, (from, to)); 2 * TILE + 1];
        if same {
            return (pieces, 1);
        }
        let mut count = 0;
        for query in query..end {
            let (first, last) = self.seen[query / self.shared];
            if first < from.min(last) {
                pieces[count] = (query, query + 1, (first, from.min(last)));
                count += 1;
            }
        }
        if from < to {
            pieces[count] = (query, end, (from, to));
            count += 1;
        }
        for query in query..end {
            let (first, last) = self.seen[query / self.shared];
            if to.max(first) < last {
                pieces[count] = (query, query + 1, (to.max(first), last));
                count += 1;
            }
        }
        (pieces, count)
    }
}

/// Turns a query's scores into weights, and what it has gathered to the new maximum. `seen` says which positions count.
#[inline(always)]
fn weigh<V: Vector>(
    v: V,
    scores: &mut Scores,
    (from, to): (usize, usize),
    soft_cap: Option<f32>,
    running: &mut Running,
    sums: &mut [Floats],
) {
    let mut vectors = [v.splat(0.0); BLOCK_PAGES];
    for (vector, scores) in vectors.iter_mut().zip(scores.iter()) {
        *vector = v.load(&scores.0);
    }
    if let Some(cap) = soft_cap {
        for vector in &mut vectors {
            *vector = number::soft_cap(v, *vector, v.splat(cap));
        }
    }
    if to - from < BLOCK {
        let hidden = v.splat(f32::NEG_INFINITY);
        let (low, high) = (v.splat(from as f32), v.splat(to as f32 - 1.0));
        for (page, vector) in vectors.iter_mut().enumerate() {
            let positions = v.add(v.load(&POSITIONS), v.splat((page * LANES) as f32));
            *vector = v.select_le(positions, high, *vector, hidden);
            *vector = v.select_le(low, positions, *vector, hidden);
        }
    }
    let mut top = vectors[0];
    for vector in &vectors[1..] {
        top = v.max(top, *vector);
    }
    let top = v.top(top);
    let mut total = v.load(&running.total.0);
    if top > running.top {
        let shrink = exp(v, v.sub(v.splat(running.top), v.splat(top)));
        running.top = top;
        total = v.mul(total, shrink);
        for sum in sums.iter_mut() {
            v.store(v.mul(v.load(&sum.0), shrink), &mut sum.0);
        }
    }
    let top = v.splat(running.top);
    for (vector, weights) in vectors.iter().zip(scores.iter_mut()) {
        let powers = exp(v, v.sub(*vector, top));
        v.store(powers, &mut weights.0);
        total = v.add(total, powers);
    }
    v.store(total, &mut running.total.0);
}

const POSITIONS: [f32; LANES] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];
