//! From the blocks of a file to panels of columns. Knows the block layouts and the panel layout, and no arithmetic of products.
//!
//! A panel is 32 outputs. Along the inputs it is cut into groups of 32; of each group it holds, for the first and the last 16
//! outputs, lines of 64 bytes: a lane of four bytes is one output's weights for four consecutive inputs (a quad). Codes of up to four
//! bits share a byte: quad `q` in the low nibbles, quad `q + 4` in the high ones. So one instruction multiplies a quad of a row's
//! activations with sixteen outputs, and no lane ever meets another.

use crate::Quant;
use crate::vector::{Codes, Floats, LANES};
use half::f16;

/// Outputs of a panel.
pub const PANEL: usize = 2 * LANES;

/// Inputs of a group.
pub const GROUP: usize = 32;

/// What the panels of a quantized type look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whether codes take four bits, not eight.
    pub nibbles: bool,
    /// Scales that a group of 32 inputs has: 1 or 2.
    pub scales: usize,
    /// What is subtracted from each code; `None` where each scale comes with an offset instead.
    pub zero: Option<i32>,
}

/// The layout of a quantized type, `None` for floating point.
pub fn layout(quant: Quant) -> Option<Layout> {
    let (nibbles, scales, zero) = match quant {
        Quant::F32 | Quant::F16 | Quant::BF16 => return None,
        Quant::Q4_0 => (true, 1, Some(8)),
        Quant::Q4_1 | Quant::Q4_K => (true, 1, None),
        Quant::Q5_0 => (false, 1, Some(16)),
        Quant::Q5_1 | Quant::Q5_K => (false, 1, None),
        Quant::Q8_0 => (false, 1, Some(128)),
        Quant::Q2_K => (true, 2, None),
        Quant::Q3_K => (true, 2, Some(4)),
        Quant::Q6_K => (false, 2, Some(32)),
    };
    Some(Layout {
        nibbles,
        scales,
        zero,
    })
}

impl Layout {
    /// Lines of codes that half a panel has in a group.
    pub fn lines(self) -> usize {
        if self.nibbles { 4 } else { 8 }
    }
}

/// A block taken apart: `weight = scale * code + offset`, with a scale and an offset for every 16 or 32 codes. Where the layout has a
/// zero, the offset is unused.
pub struct Block {
    codes: [u8; 256],
    scales: [f32; 16],
    offsets: [f32; 16],
}

/// The panels of a quantized matrix, of `groups` groups each.
pub struct Panel<'a> {
    /// `[groups, 2, lines]`.
    pub codes: &'a mut [Codes],
    /// `[groups, scales, 2]`.
    pub scales: &'a mut [Floats],
    /// As the scales, or empty.
    pub offsets: &'a mut [Floats],
    /// `[groups, 2]`: the sum of a group's weights. What the activations' middle is multiplied by.
    pub levels: &'a mut [Floats],
}

/// Fills a panel from the rows of up to 32 outputs, each `row` bytes long.
pub fn fill(quant: Quant, layout: Layout, rows: &[u8], row: usize, panel: Panel<'_>) {
    let mut block = Block {
        codes: [0; 256],
        scales: [0.0; 16],
        offsets: [0.0; 16],
    };
    let lines = layout.lines();
    for (output, bytes) in rows.chunks_exact(row).enumerate() {
        let (half, lane) = (output / LANES, output % LANES);
        for (at, bytes) in bytes.chunks_exact(quant.block_bytes()).enumerate() {
            take_apart(quant, bytes, &mut block);
            let groups = quant.block() / GROUP;
            for inner in 0..groups {
                let group = at * groups + inner;
                let codes = &block.codes[inner * GROUP..(inner + 1) * GROUP];
                let target = &mut panel.codes[(group * 2 + half) * lines..][..lines];
                for (line, Codes(target)) in target.iter_mut().enumerate() {
                    let target = &mut target[4 * lane..4 * lane + 4];
                    target.copy_from_slice(&codes[4 * line..4 * line + 4]);
                    if layout.nibbles {
                        for (target, high) in target.iter_mut().zip(&codes[4 * line + 16..]) {
                            *target |= high << 4;
                        }
                    }
                }
                let mut level = 0f64;
                for s in 0..layout.scales {
                    let (from, to) = (
                        inner * layout.scales + s,
                        (group * layout.scales + s) * 2 + half,
                    );
                    panel.scales[to].0[lane] = block.scales[from];
                    if layout.zero.is_none() {
                        panel.offsets[to].0[lane] = block.offsets[from];
                    }
                    let part = GROUP / layout.scales;
                    let sum: i32 = codes[s * part..(s + 1) * part]
                        .iter()
                        .map(|code| i32::from(*code))
                        .sum();
                    let sum = sum - layout.zero.unwrap_or(0) * part as i32;
                    level += f64::from(block.scales[from]) * f64::from(sum);
                    if layout.zero.is_none() {
                        level += f64::from(block.offsets[from]) * part as f64;
                    }
                }
                panel.levels[group * 2 + half].0[lane] = level as f32;
            }
        }
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Low nibbles of 16 bytes, then their high nibbles.
fn nibbles_of_32(packed: &[u8], codes: &mut [u8]) {
    for (i, byte) in packed[..16].iter().enumerate() {
        codes[i] = byte & 15;
        codes[i + 16] = byte >> 4;
    }
}

fn fifth_bits(bits: &[u8], codes: &mut [u8]) {
    for (i, code) in codes[..32].iter_mut().enumerate() {
        *code |= ((bits[i / 8] >> (i % 8)) & 1) << 4;
    }
}

/// Takes a block apart: its codes, scales and offsets, each computed in single precision as the block's definition says.
fn take_apart(quant: Quant, bytes: &[u8], block: &mut Block) {
    let Block {
        codes,
        scales,
        offsets,
    } = block;
    match quant {
        Quant::F32 | Quant::F16 | Quant::BF16 => {}
        Quant::Q4_0 => {
            scales[0] = half_at(bytes, 0);
            nibbles_of_32(&bytes[2..], codes);
        }
        Quant::Q4_1 => {
            (scales[0], offsets[0]) = (half_at(bytes, 0), half_at(bytes, 2));
            nibbles_of_32(&bytes[4..], codes);
        }
        Quant::Q5_0 => {
            scales[0] = half_at(bytes, 0);
            nibbles_of_32(&bytes[6..], codes);
            fifth_bits(&bytes[2..6], codes);
        }
        Quant::Q5_1 => {
            (scales[0], offsets[0]) = (half_at(bytes, 0), half_at(bytes, 2));
            nibbles_of_32(&bytes[8..], codes);
            fifth_bits(&bytes[4..8], codes);
        }
        Quant::Q8_0 => {
            scales[0] = half_at(bytes, 0);
            for (code, byte) in codes.iter_mut().zip(&bytes[2..34]) {
                *code = byte ^ 128;
            }
        }
        Quant::Q2_K => {
            let (scale, minimum) = (half_at(bytes, 80), half_at(bytes, 82));
            for (i, both) in bytes[..16].iter().enumerate() {
                scales[i] = scale * f32::from(both & 15);
                offsets[i] = -(minimum * f32::from(both >> 4));
            }
            pairs(&bytes[16..80], codes);
        }
        Quant::Q3_K => {
            let (high, packed) = (&bytes[..32], &bytes[96..108]);
            let scale = half_at(bytes, 108);
            for i in 0..16 {
                let low = (packed[i % 8] >> (4 * (i / 8))) & 15;
                let six = low | ((packed[8 + i % 4] >> (2 * (i / 4))) & 3) << 4;
                scales[i] = scale * (f32::from(six) - 32.0);
            }
            pairs(&bytes[32..96], codes);
            for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
                for (code, high) in codes.iter_mut().zip(high) {
                    *code |= ((high >> run) & 1) << 2;
                }
            }
        }
        Quant::Q4_K => {
            sub_blocks(bytes, scales, offsets);
            nibbles_of_256(&bytes[16..144], codes);
        }
        Quant::Q5_K => {
            sub_blocks(bytes, scales, offsets);
            nibbles_of_256(&bytes[48..176], codes);
            for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
                for (code, high) in codes.iter_mut().zip(&bytes[16..48]) {
                    *code |= ((high >> run) & 1) << 4;
                }
            }
        }
        Quant::Q6_K => {
            let scale = half_at(bytes, 208);
            for (target, s) in scales.iter_mut().zip(&bytes[192..208]) {
                *target = scale * f32::from(*s as i8);
            }
            for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
                let (half, quarter) = (run / 4, run % 4);
                let low = &bytes[half * 64 + quarter % 2 * 32..][..32];
                let high = &bytes[128 + half * 32..][..32];
                for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
                    *code = (low >> (4 * (quarter / 2))) & 15 | ((high >> (2 * quarter)) & 3) << 4;
                }
            }
        }
    }
}

/// Two-bit codes of 256 weights, four runs of 32 to each 32 bytes.
fn pairs(packed: &[u8], codes: &mut [u8; 256]) {
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (code, byte) in codes.iter_mut().zip(&packed[run / 4 * 32..]) {
            *code = (byte >> (2 * (run % 4))) & 3;
        }
    }
}

/// Four-bit codes of 256 weights, two runs of 32 to each 32 bytes.
fn nibbles_of_256(packed: &[u8], codes: &mut [u8; 256]) {
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (code, byte) in codes.iter_mut().zip(&packed[run / 2 * 32..]) {
            *code = (byte >> (4 * (run % 2))) & 15;
        }
    }
}

/// The eight scales and minima of a Q4_K or Q5_K block.
fn sub_blocks(bytes: &[u8], scales: &mut [f32; 16], offsets: &mut [f32; 16]) {
    let (scale, minimum, packed) = (half_at(bytes, 0), half_at(bytes, 2), &bytes[4..16]);
    for j in 0..4 {
        let (a, b, c) = (packed[j], packed[j + 4], packed[j + 8]);
        scales[j] = scale * f32::from(a & 63);
        offsets[j] = -(minimum * f32::from(b & 63));
        scales[j + 4] = scale * f32::from(c & 15 | (a >> 6) << 4);
        offsets[j + 4] = -(minimum * f32::from(c >> 4 | (b >> 6) << 4));
    }
}
