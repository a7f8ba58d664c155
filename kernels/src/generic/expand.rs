//! Expands lines of a panel into what products want: codes as signed bytes, scales and offsets in single precision. Knows no activations.
//!
//! A chunk is expanded once and then multiplied with all rows, so that unpacking costs little where there are many. All numbers here are
//! exact but the levels.

use crate::dispatch::Operation;
use crate::pack::{GROUP, Layout, PANEL, RUN, planes};
use crate::vector::{Floats, LANES, Line, Vector};

/// Groups of 64 inputs that a chunk holds at most: few enough that it stays in the first-level cache beside the rows that it meets, and many
/// enough that to read and write the totals in between takes little time.
pub const CHUNK: usize = 4;

/// Quads of a run of 32 inputs.
const QUADS: usize = RUN / 4;

/// A one in every byte.
const ONES: i32 = 0x0101_0101;

/// A piece of a panel, ready for integer products.
pub struct Chunk {
    /// For every 32 inputs, for each of their quads, each half's codes, less the center where the layout has no offsets.
    pub codes: [[[Line; 2]; QUADS]; 2 * CHUNK],
    /// `[groups, parts, 2]`.
    pub scales: [[Floats; 2]; 4 * CHUNK],
    /// As the scales: what a code of 0 is worth. Unused where the layout has no offsets.
    pub offsets: [[Floats; 2]; 4 * CHUNK],
    /// For each group, or in a fine layout for every 32 inputs, the sum of all scaled codes: what the base of the activations is multiplied by.
    /// `[groups, 2, 2]`, the second of two unused where it is one a group.
    pub levels: [[[Floats; 2]; 2]; CHUNK],
}

impl Chunk {
    /// All zeros.
    pub fn new() -> Chunk {
        let zero = Floats([0.0; LANES]);
        Chunk {
            codes: [[[Line([0; LANES]); 2]; QUADS]; 2 * CHUNK],
            scales: [[zero; 2]; 4 * CHUNK],
            offsets: [[zero; 2]; 4 * CHUNK],
            levels: [[[zero; 2]; 2]; CHUNK],
        }
    }
}

/// Expands whole blocks, as many as the chunk holds at most.
pub struct Expand<'a> {
    /// How the lines are packed.
    pub layout: Layout,
    /// The blocks.
    pub lines: &'a [Line],
    /// Where they go.
    pub chunk: &'a mut Chunk,
}

impl Operation for Expand<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        match self.layout.bits {
            2 => expand::<V, 2, 4>(v, self),
            3 => expand::<V, 3, 4>(v, self),
            4 => expand::<V, 4, 2>(v, self),
            5 => expand::<V, 5, 2>(v, self),
            6 => expand::<V, 6, 4>(v, self),
            _ => expand::<V, 8, 2>(v, self),
        }
    }
}

/// `BITS` and `PARTS` are the layout's: known here, they let the compiler unroll the quads.
#[inline(always)]
fn expand<V: Vector, const BITS: usize, const PARTS: usize>(v: V, work: Expand<'_>) {
    let Expand {
        layout,
        lines,
        chunk,
    } = work;
    let center = v.splat_int((layout.center() * 0x0101_0101).cast_signed());
    for (index, block) in lines.chunks_exact(layout.lines()).enumerate() {
        let (scaling, codes) = block.split_at(layout.scaling_lines());
        let scaling = Scaling::new(v, layout, scaling);
        let runs = codes.as_chunks::<BITS>().0;
        for (half, runs) in runs.chunks_exact(2 * layout.groups).enumerate() {
            let mut level = v.splat(0.0);
            for (run, planes) in runs.iter().enumerate() {
                let at = index * layout.groups + run / 2;
                if layout.fine() || run % 2 == 0 {
                    level = v.splat(0.0);
                }
                let to = &mut chunk.codes[2 * at + run % 2];
                let planes = load::<V, BITS>(v, planes);
                let mut sums = [CodeSum::<V>::new(v), CodeSum::new(v)];
                for (q, to) in to.iter_mut().enumerate() {
                    let mut code = quad::<V, BITS>(v, &planes, q);
                    if !layout.offsets {
                        code = v.sub_bytes(code, center);
                    }
                    sums[q * PARTS / 2 / QUADS].add::<BITS>(v, code);
                    v.store_line(code, &mut to[half]);
                }
                for (p, sum) in sums.into_iter().enumerate().take(PARTS / 2) {
                    let sum = v.to_float(sum.sum::<BITS>(v, layout.offsets));
                    let part = run * PARTS / 2 + p;
                    let scale = scaling.scale(v, part, half);
                    level = v.fma(scale, sum, level);
                    let place = index * layout.groups * PARTS + part;
                    v.store(scale, &mut chunk.scales[place][half].0);
                    if layout.offsets {
                        let offset = scaling.offset(v, part, half);
                        v.store(offset, &mut chunk.offsets[place][half].0);
                    }
                }
                let place = if layout.fine() { run % 2 } else { 0 };
                v.store(level, &mut chunk.levels[at][place][half].0);
            }
        }
    }
}

/// The sum of each output's codes, of 16 inputs or of 32. Byte by byte first, which takes less than products do: 8 codes of up to 5 bits, or 4 of 6,
/// stay below 256, and less their center within a signed byte. Codes of 8 bits are multiplied by one.
pub(super) struct CodeSum<V: Vector>(V::I);

impl<V: Vector> CodeSum<V> {
    #[inline(always)]
    pub(super) fn new(v: V) -> Self {
        CodeSum(v.splat_int(0))
    }

    #[inline(always)]
    pub(super) fn add<const BITS: usize>(&mut self, v: V, code: V::I) {
        self.0 = if BITS < 8 {
            v.add_bytes(self.0, code)
        } else {
            v.dot(self.0, v.splat_int(ONES), code)
        };
    }

    /// The codes are unsigned where the layout has offsets.
    #[inline(always)]
    pub(super) fn sum<const BITS: usize>(self, v: V, unsigned: bool) -> V::I {
        let (zero, ones) = (v.splat_int(0), v.splat_int(ONES));
        match (BITS, unsigned) {
            (8, _) => self.0,
            (_, true) => v.dot(zero, self.0, ones),
            (_, false) => v.dot(zero, ones, self.0),
        }
    }
}

/// The planes of a run.
#[inline(always)]
pub(super) fn load<V: Vector, const BITS: usize>(v: V, lines: &[Line; BITS]) -> [V::I; BITS] {
    let mut all = [v.splat_int(0); BITS];
    for (to, from) in all.iter_mut().zip(lines) {
        *to = v.load_line(from);
    }
    all
}

/// The codes of quad `q`, a byte each.
#[inline(always)]
pub(super) fn quad<V: Vector, const BITS: usize>(v: V, lines: &[V::I; BITS], q: usize) -> V::I {
    if BITS == 8 {
        return lines[q];
    }
    let mut code = v.splat_int(0);
    let mut done = 0;
    for width in planes(BITS) {
        let (line, at) = (lines[done + q % width], width * (q / width));
        let mask = ((255 >> (8 - width)) << done) * 0x0101_0101;
        let moved = if at >= done {
            v.shift_right(line, (at - done) as u32)
        } else {
            v.shift_left(line, (done - at) as u32)
        };
        code = v.or(code, v.and(moved, v.splat_int(mask)));
        done += width;
    }
    code
}

/// Scales and offsets of a block.
pub(super) struct Scaling<'a, V: Vector> {
    layout: Layout,
    /// Those of the block as a whole, where it has sub-scales.
    whole: [[V::F; 2]; 2],
    scales: &'a [Line],
    offsets: &'a [Line],
    sub_scales: &'a [Line],
    sub_offsets: &'a [Line],
}

impl<'a, V: Vector> Scaling<'a, V> {
    #[inline(always)]
    pub(super) fn new(v: V, layout: Layout, lines: &'a [Line]) -> Self {
        let count = layout.scale_lines();
        let (scales, lines) = lines.split_at(count);
        let (offsets, lines) = lines.split_at(if layout.offsets { count } else { 0 });
        let (sub_scales, sub_offsets) = lines.split_at(layout.sub_lines());
        let mut whole = [[v.splat(0.0); 2]; 2];
        if layout.sub_scales {
            whole[0] = halves(v, &scales[0]);
            if layout.offsets {
                whole[1] = halves(v, &offsets[0]);
            }
        }
        Scaling {
            layout,
            whole,
            scales,
            offsets,
            sub_scales,
            sub_offsets,
        }
    }

    #[inline(always)]
    pub(super) fn scale(&self, v: V, part: usize, half: usize) -> V::F {
        if self.layout.sub_scales {
            v.mul(self.whole[0][half], factor(v, self.sub_scales, part, half))
        } else {
            halves(v, &self.scales[part])[half]
        }
    }

    #[inline(always)]
    pub(super) fn offset(&self, v: V, part: usize, half: usize) -> V::F {
        if self.layout.sub_scales {
            v.mul(self.whole[1][half], factor(v, self.sub_offsets, part, half))
        } else {
            halves(v, &self.offsets[part])[half]
        }
    }
}

/// The numbers in half precision of a line, for both halves of the outputs.
#[inline(always)]
fn halves<V: Vector>(v: V, line: &Line) -> [V::F; 2] {
    let words = line.0.as_chunks::<{ LANES / 2 }>().0;
    [v.load_halves(&words[0]), v.load_halves(&words[1])]
}

/// The signed bytes of a part.
#[inline(always)]
fn factor<V: Vector>(v: V, lines: &[Line], part: usize, half: usize) -> V::F {
    let words = lines[part / 2].0.as_chunks::<{ LANES / 4 }>().0;
    v.load_signed(&words[part % 2 * 2 + half])
}

/// A piece of a panel, ready for products in single precision: `[inputs, 2]`.
pub type Weights = [[Floats; 2]; GROUP * CHUNK];

/// Expands whole blocks to the very numbers that they stand for.
pub struct Dequantize<'a> {
    /// How the lines are packed.
    pub layout: Layout,
    /// The blocks.
    pub lines: &'a [Line],
    /// Where they go.
    pub weights: &'a mut Weights,
}

impl Operation for Dequantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        match self.layout.bits {
            2 => dequantize::<V, 2>(v, self),
            3 => dequantize::<V, 3>(v, self),
            4 => dequantize::<V, 4>(v, self),
            5 => dequantize::<V, 5>(v, self),
            6 => dequantize::<V, 6>(v, self),
            _ => dequantize::<V, 8>(v, self),
        }
    }
}

#[inline(always)]
fn dequantize<V: Vector, const BITS: usize>(v: V, work: Dequantize<'_>) {
    let layout = work.layout;
    let minus_center = v.splat(-(layout.center() as f32));
    let low = v.splat_int(255);
    let quads_each = 4 * QUADS / layout.parts / 2;
    for (index, block) in work.lines.chunks_exact(layout.lines()).enumerate() {
        let (scaling, codes) = block.split_at(layout.scaling_lines());
        let scaling = Scaling::new(v, layout, scaling);
        let runs = codes.as_chunks::<BITS>().0;
        for (half, runs) in runs.chunks_exact(2 * layout.groups).enumerate() {
            for (run, lines) in runs.iter().enumerate() {
                let first = (index * layout.groups * 2 + run) * RUN;
                let lines = load::<V, BITS>(v, lines);
                for q in 0..QUADS {
                    let part = run * layout.parts / 2 + q / quads_each;
                    let scale = scaling.scale(v, part, half);
                    let codes = quad::<V, BITS>(v, &lines, q);
                    for byte in 0..4 {
                        let code = v.and(v.shift_right(codes, 8 * byte), low);
                        let code = v.to_float(code);
                        let weight = if layout.offsets {
                            v.fma(code, scale, scaling.offset(v, part, half))
                        } else {
                            v.mul(v.add(code, minus_center), scale)
                        };
                        let to = &mut work.weights[first + 4 * q + byte as usize];
                        v.store(weight, &mut to[half].0);
                    }
                }
            }
        }
    }
}

const _: () = assert!(PANEL == 2 * LANES && GROUP == 2 * RUN);
