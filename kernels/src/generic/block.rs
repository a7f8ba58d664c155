//! A block of positions of one head: where its keys and values are read from. Knows no query.
//!
//! Blocks begin at multiples of their length, whatever the sequence, so that a query meets the same blocks in every batch.

use super::number;
use crate::codes;
use crate::vector::{Floats, LANES, Vector};
use crate::{Cache, PAGE};
use half::f16;

/// Pages of a block.
pub const BLOCK_PAGES: usize = 4;
/// Positions of a block.
pub const BLOCK: usize = BLOCK_PAGES * PAGE;
/// Vectors of a value that are gathered side by side.
pub const CHUNK: usize = 4;

/// What one query makes of a block: its scores, then their weights.
pub type Scores = [Floats; BLOCK_PAGES];

/// Sixteen numbers in memory.
pub trait Lanes: Copy {
    /// Whether they lie in memory that may be far, so that it pays to ask for them a block ahead.
    const FAR: bool;

    /// As single-precision numbers.
    fn read<V: Vector>(&self, v: V) -> V::F;
}

impl Lanes for Floats {
    const FAR: bool = false;

    #[inline(always)]
    fn read<V: Vector>(&self, v: V) -> V::F {
        v.load(&self.0)
    }
}

impl Lanes for [f16; LANES] {
    const FAR: bool = true;

    #[inline(always)]
    fn read<V: Vector>(&self, v: V) -> V::F {
        v.load_half(self)
    }
}

/// A block as the products read it. Pages that no query sees may be any others.
pub struct Block<'a, L> {
    /// For each page `[dim]` vectors, a lane a position.
    pub keys: [&'a [L]; BLOCK_PAGES],
    /// For each page the vectors of its values.
    values: [&'a [L]; BLOCK_PAGES],
    /// As the keys and the values, but of the block that comes next, where the products shall ask for it; elsewhere as above.
    pub next: [[&'a [L]; BLOCK_PAGES]; 2],
    /// From one position's value to the next.
    step: usize,
    /// From one chunk of a value to the next.
    chunk: usize,
}

impl<L> Block<'_, L> {
    /// The vectors from `part` on, to the end of its chunk at least, of the value at offset `t` of a page.
    #[inline(always)]
    pub fn values(&self, page: usize, t: usize, part: usize) -> &[L] {
        &self.values[page][self.place(t, part)..]
    }

    /// Where in a page's values that is.
    #[inline(always)]
    pub fn place(&self, t: usize, part: usize) -> usize {
        part / CHUNK * self.chunk + t * self.step + part % CHUNK
    }
}

/// Where part `part` of the value at offset `t` of a page lies in a copy.
#[inline(always)]
fn place(part: usize, t: usize) -> usize {
    part / CHUNK * CHUNK * PAGE + t * CHUNK + part % CHUNK
}

/// One head of the keys and of the values.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The keys of all heads.
    pub keys: Cache<'a>,
    /// The values of all heads.
    pub values: Cache<'a>,
    /// Which head.
    pub index: usize,
    /// Number of heads.
    pub heads: usize,
    /// Dimensions of a head.
    pub dim: usize,
}

/// Where a block is laid out in single precision.
#[derive(Default)]
pub struct Copied {
    keys: Vec<Floats>,
    values: Vec<Floats>,
}

impl<'a> Head<'a> {
    /// The pages as they lie in the cache, where the products can read them there: in half precision, with whole vectors. `next` are those that the
    /// same queries meet next.
    #[inline(always)]
    pub fn direct(
        &self,
        pages: [Option<u32>; BLOCK_PAGES],
        next: [Option<u32>; BLOCK_PAGES],
    ) -> Option<Block<'a, [f16; LANES]>> {
        let (Cache::F16(keys), Cache::F16(values)) = (self.keys, self.values) else {
            return None;
        };
        let any = pages.into_iter().flatten().next()?;
        if !self.dim.is_multiple_of(LANES) {
            return None;
        }
        let mut block = Block {
            keys: [&[]; BLOCK_PAGES],
            values: [&[]; BLOCK_PAGES],
            next: [[&[]; BLOCK_PAGES]; 2],
            step: self.dim / LANES,
            chunk: CHUNK,
        };
        for i in 0..BLOCK_PAGES {
            let page = pages[i].unwrap_or(any);
            let (range, next) = (self.range(page), self.range(next[i].unwrap_or(page)));
            block.keys[i] = keys[range.clone()].as_chunks().0;
            block.values[i] = values[range].as_chunks().0;
            block.next[0][i] = keys[next.clone()].as_chunks().0;
            block.next[1][i] = values[next].as_chunks().0;
        }
        Some(block)
    }

    /// The pages, in single precision.
    #[inline(always)]
    pub fn copy<'c, V: Vector>(
        &self,
        v: V,
        pages: [Option<u32>; BLOCK_PAGES],
        copied: &'c mut Copied,
    ) -> Block<'c, Floats> {
        let dim = self.dim;
        let chunks = dim.div_ceil(CHUNK * LANES);
        let (each_keys, each_values) = (dim, chunks * CHUNK * PAGE);
        let zero = Floats([0.0; LANES]);
        copied.keys.resize(BLOCK_PAGES * each_keys, zero);
        copied.values.resize(BLOCK_PAGES * each_values, zero);
        for (i, page) in pages.into_iter().enumerate() {
            let Some(page) = page else { continue };
            let keys = &mut copied.keys[i * each_keys..][..each_keys];
            let values = &mut copied.values[i * each_values..][..each_values];
            match self.keys {
                Cache::F32(all) => {
                    for (out, from) in keys.iter_mut().zip(all[self.range(page)].as_chunks().0) {
                        out.0 = *from;
                    }
                }
                Cache::F16(all) => {
                    for (out, from) in keys.iter_mut().zip(all[self.range(page)].as_chunks().0) {
                        v.store(v.load_half(from), &mut out.0);
                    }
                }
                Cache::Q8(all) => expand_keys(v, self.codes(all, page), keys),
            }
            match self.values {
                Cache::F32(all) => {
                    for (t, from) in all[self.range(page)].chunks_exact(dim).enumerate() {
                        for (part, from) in from.chunks(LANES).enumerate() {
                            let out = &mut values[place(part, t)];
                            v.store(number::load(v, from), &mut out.0);
                        }
                    }
                }
                Cache::F16(all) if dim.is_multiple_of(CHUNK * LANES) => {
                    let from = all[self.range(page)]
                        .as_chunks::<LANES>()
                        .0
                        .as_chunks::<CHUNK>()
                        .0;
                    let (outs, _) = values.as_chunks_mut::<CHUNK>();
                    for (t, from) in from.chunks_exact(chunks).enumerate() {
                        for (chunk, from) in from.iter().enumerate() {
                            let out = &mut outs[chunk * PAGE + t];
                            for i in 0..CHUNK {
                                v.store(v.load_half(&from[i]), &mut out[i].0);
                            }
                        }
                    }
                }
                Cache::F16(all) => {
                    for (t, from) in all[self.range(page)].chunks_exact(dim).enumerate() {
                        for (part, from) in from.chunks(LANES).enumerate() {
                            let out = &mut values[place(part, t)];
                            v.store(number::load_half(v, from), &mut out.0);
                        }
                    }
                }
                Cache::Q8(all) => expand_values(v, self.codes(all, page), dim, values),
            }
        }
        let mut block = Block {
            keys: [&[]; BLOCK_PAGES],
            values: [&[]; BLOCK_PAGES],
            next: [[&[]; BLOCK_PAGES]; 2],
            step: CHUNK,
            chunk: CHUNK * PAGE,
        };
        for i in 0..BLOCK_PAGES {
            block.keys[i] = &copied.keys[i * each_keys..][..each_keys];
            block.values[i] = &copied.values[i * each_values..][..each_values];
        }
        block
    }

    /// The codes and scales of this head of a page.
    #[inline(always)]
    fn codes(&self, all: &'a [u32], page: u32) -> (&'a [codes::Codes], &'a [codes::Scales]) {
        let width = codes::words(self.dim).unwrap_or(0);
        let start = (page as usize * self.heads + self.index) * width;
        codes::parts(&all[start..start + width], self.dim)
    }

    /// Where this head of a page lies, in floating point.
    #[inline(always)]
    fn range(&self, page: u32) -> std::ops::Range<usize> {
        let width = PAGE * self.dim;
        let start = (page as usize * self.heads + self.index) * width;
        start..start + width
    }
}

/// The keys of a page, `[dim]` vectors of codes, times the scales of their positions.
#[inline(always)]
fn expand_keys<V: Vector>(
    v: V,
    (codes, scales): (&[codes::Codes], &[codes::Scales]),
    keys: &mut [Floats],
) {
    let runs = keys.chunks_mut(codes::RUN).zip(codes.chunks(codes::RUN));
    for ((outs, codes), scales) in runs.zip(scales) {
        let scales = v.load_halves(scales);
        for (out, codes) in outs.iter_mut().zip(codes) {
            v.store(v.mul(v.load_signed(codes), scales), &mut out.0);
        }
    }
}

/// The values of a page, `[PAGE, vectors]` of codes, times the scale of each position.
#[inline(always)]
fn expand_values<V: Vector>(
    v: V,
    (codes, scales): (&[codes::Codes], &[codes::Scales]),
    dim: usize,
    values: &mut [Floats],
) {
    let vectors = codes::vectors(dim);
    let mut each = [0f32; LANES];
    for (run, scales) in scales.iter().enumerate() {
        v.store(v.load_halves(scales), &mut each);
        let first = run * codes::RUN / LANES;
        for part in first..vectors.min(first + codes::RUN / LANES) {
            for (t, scale) in each.iter().enumerate() {
                let numbers = v.load_signed(&codes[t * vectors + part]);
                let out = &mut values[place(part, t)];
                v.store(v.mul(numbers, v.splat(*scale)), &mut out.0);
            }
        }
    }
}
