//! Keys and values in 8 bits: how a head of a page lies in words, and how numbers become codes. Knows no page but one, and no attention.
//!
//! A scale belongs to one position, one head and a run of 32 dimensions: whatever is written to other positions later, in whichever order, what
//! stands at one depends on its own row alone.
//!
//! Some models' keys have a few dimensions that are a hundred times as large as the others, and a scale of 32 would leave nothing of these. So keys
//! are mixed before they are rounded, and queries before they meet them: a turn of the whole space, which changes no product.

use crate::PAGE;
use crate::cache::Part;
use crate::vector::LANES;
use half::f16;

/// Dimensions that share a scale.
pub const RUN: usize = 32;

/// Codes of one vector of lanes, four to a word from its low end.
pub type Codes = [u32; LANES / 4];

/// The scales of all positions for one run, two to a word.
pub type Scales = [u32; PAGE / 2];

/// The greatest code. The least is its negative, so that a number and its negative have the same size.
const MOST: f32 = 127.0;

/// Adding this to a number below 2^22, and taking it away again, rounds to the nearest integer, even where two are.
const ROUND: f32 = 12_582_912.0;

/// Words of a head of a page: codes, `[dim, PAGE]` for keys and `[PAGE, dim]` for values, `dim` filled up to whole vectors; then scales,
/// `[runs, PAGE]`. `None` where they are too many to count.
pub fn words(dim: usize) -> Option<usize> {
    let codes = vectors(dim).checked_mul(LANES * PAGE / 4)?;
    codes.checked_add(dim.div_ceil(RUN).checked_mul(PAGE / 2)?)
}

/// Vectors of a value.
pub fn vectors(dim: usize) -> usize {
    dim.div_ceil(LANES)
}

/// The codes and the scales of a head of a page.
pub fn parts(head: &[u32], dim: usize) -> (&[Codes], &[Scales]) {
    let (codes, scales) = head.split_at(vectors(dim) * LANES * PAGE / 4);
    (codes.as_chunks().0, scales.as_chunks().0)
}

/// Mixes a head, `[dim]`: Hadamard's transform over blocks of the largest power of two that divides `dim`, divided by the root of its size. Products of
/// two mixed heads are those of the heads, and a head that is mixed twice is itself again, but for rounding.
#[inline(always)]
pub fn mix(head: &mut [f32]) {
    if head.is_empty() {
        return;
    }
    let size = 1 << head.len().trailing_zeros();
    let root = 1.0 / (size as f32).sqrt();
    for block in head.chunks_exact_mut(size) {
        let mut step = 1;
        while step < size {
            for pair in block.chunks_exact_mut(2 * step) {
                let (a, b) = pair.split_at_mut(step);
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            step *= 2;
        }
        for x in block {
            *x *= root;
        }
    }
}

/// Writes one head of a row, `[dim]`, to position `offset` of its head of a page.
pub fn write(head: &mut [u32], part: Part, offset: usize, row: &[f32]) {
    let mut mixed;
    let row = match part {
        Part::Keys => {
            mixed = row.to_vec();
            mix(&mut mixed);
            &mixed
        }
        Part::Values => row,
    };
    let wide = vectors(row.len()) * LANES;
    let (codes, scales) = head.split_at_mut(wide * PAGE / 4);
    for (run, numbers) in row.chunks(RUN).enumerate() {
        let scale = scale(numbers);
        put(scales, run * PAGE + offset, 16, u32::from(scale.to_bits()));
        let mut rounded = [0u32; RUN];
        encode(numbers, scale.to_f32(), &mut rounded);
        for (i, code) in rounded[..numbers.len()].iter().enumerate() {
            let at = match part {
                Part::Keys => (run * RUN + i) * PAGE + offset,
                Part::Values => offset * wide + run * RUN + i,
            };
            put(codes, at, 8, *code);
        }
    }
}

/// The scale of a run: its largest number is 127 times as large. What is not finite makes it NaN, so that it can't pass for a number.
fn scale(numbers: &[f32]) -> f16 {
    let largest = numbers.iter().fold(0f32, |most, x| most.max(x.abs()));
    match numbers.iter().all(|x| x.is_finite()) {
        true => f16::from_f32(largest / MOST),
        false => f16::NAN,
    }
}

/// The codes of a run, each in the low eight bits of its word.
fn encode(numbers: &[f32], scale: f32, codes: &mut [u32; RUN]) {
    // Without a scale the run holds zeros, or what is too small for half precision; with one that is not finite it holds no numbers any more.
    if scale > 0.0 && scale.is_finite() {
        for (x, code) in numbers.iter().zip(codes) {
            let rounded = (x / scale).clamp(-MOST, MOST) + ROUND;
            // The integer stands in the low bits of the sum, a negative one as the complement of two.
            *code = rounded.to_bits() & 0xff;
        }
    }
}

/// Sets element `at` of those that lie `bits` wide in words.
fn put(words: &mut [u32], at: usize, bits: usize, value: u32) {
    let each = 32 / bits;
    let (word, shift) = (&mut words[at / each], at % each * bits);
    let mask = (u32::MAX >> (32 - bits)) << shift;
    *word = *word & !mask | value << shift;
}
