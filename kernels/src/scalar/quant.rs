//! The truth of every block layout: GGUF bytes to weights. Written from the layouts' definition, block by block, with
//! the operations in the order that the `gguf` package performs them, so results are equal to the last bit.

use crate::error::expect_length;
use crate::{KernelError, Quant};
use half::{bf16, f16};

/// Dequantizes `bytes` into `out`. `out.len()` must be a whole number of blocks and `bytes` exactly as long as it asks for.
pub fn dequantize(quant: Quant, bytes: &[u8], out: &mut [f32]) -> Result<(), KernelError> {
    let expected = quant.row_bytes(out.len()).ok_or(KernelError::Blocks {
        quant,
        columns: out.len(),
        block: quant.block(),
    })?;
    expect_length("bytes of quantized weights", &[expected], bytes.len())?;
    let blocks = bytes.chunks_exact(quant.block_bytes());
    for (block, out) in blocks.zip(out.chunks_exact_mut(quant.block())) {
        match quant {
            Quant::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            Quant::F16 => out[0] = half_at(block, 0),
            Quant::BF16 => out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
            Quant::Q4_0 => q4_0(block, out),
            Quant::Q4_1 => q4_1(block, out),
            Quant::Q5_0 => q5_0(block, out),
            Quant::Q5_1 => q5_1(block, out),
            Quant::Q8_0 => q8_0(block, out),
            Quant::Q2_K => q2_k(block, out),
            Quant::Q3_K => q3_k(block, out),
            Quant::Q4_K => q4_k(block, out),
            Quant::Q5_K => q5_k(block, out),
            Quant::Q6_K => q6_k(block, out),
        }
    }
    Ok(())
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Byte `i % 16` of `codes`: its low nibble for the first 16 weights, its high nibble for the others.
fn nibble(codes: &[u8], i: usize) -> u8 {
    (codes[i % 16] >> (4 * (i / 16))) & 15
}

/// Bit `i` of the little-endian word at `at`.
fn bit(block: &[u8], at: usize, i: usize) -> u8 {
    (block[at + i / 8] >> (i % 8)) & 1
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = scale * (f32::from(nibble(&block[2..], i)) - 8.0);
    }
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (scale, offset) = (half_at(block, 0), half_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        *out = scale * f32::from(nibble(&block[4..], i)) + offset;
    }
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        let code = nibble(&block[6..], i) | bit(block, 2, i) << 4;
        *out = scale * (f32::from(code) - 16.0);
    }
}

fn q5_1(block: &[u8], out: &mut [f32]) {
    let (scale, offset) = (half_at(block, 0), half_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        let code = nibble(&block[8..], i) | bit(block, 4, i) << 4;
        *out = scale * f32::from(code) + offset;
    }
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = scale * f32::from(block[2 + i] as i8);
    }
}

/// 16 scale bytes (scale low, minimum high), 64 bytes of codes, scale, scale of the minima. Weight `i` lies in byte
/// `32 (i / 128) + i % 32`, at bit `2 (i / 32 % 4)`.
fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (scale, minimum) = (half_at(block, 80), half_at(block, 82));
    for (i, out) in out.iter_mut().enumerate() {
        let code = (codes[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
        let both = scales[i / 16];
        *out = (scale * f32::from(both & 15)) * f32::from(code) - minimum * f32::from(both >> 4);
    }
}

/// 32 bytes of high bits, 64 of low pairs as in Q2_K, 12 of scales, the scale. Weight `i`'s high bit is bit `i / 32` of byte `i % 32`.
/// Scale `s` has its low nibble in byte `s % 8`, its high pair in byte `8 + s % 4` at bit `2 (s / 4)`.
fn q3_k(block: &[u8], out: &mut [f32]) {
    let (high, codes, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = half_at(block, 108);
    for (i, out) in out.iter_mut().enumerate() {
        let low = (codes[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
        let code = low | ((high[i % 32] >> (i / 32)) & 1) << 2;
        let s = i / 16;
        let six =
            (scales[s % 8] >> (4 * (s / 8))) & 15 | ((scales[8 + s % 4] >> (2 * (s / 4))) & 3) << 4;
        *out = (scale * (f32::from(six) - 32.0)) * (f32::from(code) - 4.0);
    }
}

/// The 6-bit scale and minimum of sub-block `j` in the 12 bytes that Q4_K and Q5_K pack them in.
fn scale_and_minimum(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, minimum) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (
            packed[j + 4] & 15 | (packed[j - 4] >> 6) << 4,
            packed[j + 4] >> 4 | (packed[j] >> 6) << 4,
        )
    };
    (f32::from(scale), f32::from(minimum))
}

/// Scale, scale of the minima, 12 bytes of both, 128 bytes of codes. Weight `i` lies in byte `32 (i / 64) + i % 32`, high nibble for
/// the odd runs of 32.
fn q4_k(block: &[u8], out: &mut [f32]) {
    let (scale, minimum, codes) = (half_at(block, 0), half_at(block, 2), &block[16..]);
    for (i, out) in out.iter_mut().enumerate() {
        let code = (codes[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2))) & 15;
        let (s, m) = scale_and_minimum(&block[4..16], i / 32);
        *out = (scale * s) * f32::from(code) - minimum * m;
    }
}

/// As Q4_K, with 32 bytes of fifth bits before the codes: bit `i / 32` of byte `i % 32`.
fn q5_k(block: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    let (high, codes) = (&block[16..48], &block[48..]);
    for (i, out) in out.iter_mut().enumerate() {
        let low = (codes[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2))) & 15;
        let code = low | ((high[i % 32] >> (i / 32)) & 1) << 4;
        let (s, m) = scale_and_minimum(&block[4..16], i / 32);
        *out = (scale * s) * f32::from(code) - minimum * m;
    }
}

/// 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, the scale. Weight `i` has its nibble in byte
/// `64 (i / 128) + i % 64`, high for `i % 128 >= 64`; its pair in byte `32 (i / 128) + i % 32` at bit `2 (i / 32 % 4)`.
fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    for (i, out) in out.iter_mut().enumerate() {
        let nibble = (low[i / 128 * 64 + i % 64] >> (4 * (i / 64 % 2))) & 15;
        let pair = (high[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
        let s = f32::from(scales[i / 16] as i8);
        *out = (scale * s) * (f32::from(nibble | pair << 4) - 32.0);
    }
}
