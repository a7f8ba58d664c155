//! Draws rows of random weights, right in their quantized form: any codes under sane scales. A row's bytes depend on the
//! seed, the tensor and the row alone, so that a file is the same whatever the number of threads.
//!
//! Codes of most types are not centred: those of Q4_0 mean -8 to 7, half a step too low. Drawn evenly, every row would have
//! a common part, which a decoder of forty layers blows up beyond all else. So either the minimum of a block lies where
//! it centres the codes, or every second block has a negative scale.

use super::plan::Fill;
use assize_kernels::Quant;
use half::{bf16, f16};

/// Normal numbers that are drawn from.
const NORMALS: usize = 4096;

/// Scales that a block's is drawn from.
const SCALES: usize = 16;

/// Packed scales and minima that a block of Q4_K or Q5_K has one of.
const PACKED: usize = 64;

/// Draws rows.
pub struct Drawer {
    seed: u64,
    /// Of mean 0 and deviation 1.
    normals: Vec<f32>,
    /// Eight scales from 32 to 63 and, equal to them, eight minima, in six bits each.
    packed: Vec<[u8; 12]>,
}

/// A small generator (splitmix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fill(&mut self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for word in words {
            *word = self.bits().to_le_bytes();
        }
        let last = self.bits().to_le_bytes();
        for (to, from) in rest.iter_mut().zip(last) {
            *to = from;
        }
    }
}

impl Drawer {
    /// A drawer of the files of this seed.
    pub fn new(seed: u64) -> Drawer {
        let mut random = Random(0x5eed);
        let unit = |random: &mut Random| (random.bits() >> 40) as f32 / (1u64 << 24) as f32;
        // Sums of twelve even numbers are normal enough; in pairs of both signs, their mean is zero to the last bit.
        let mut normals = Vec::with_capacity(NORMALS);
        while normals.len() < NORMALS {
            let x = (0..12).map(|_| unit(&mut random)).sum::<f32>() - 6.0;
            normals.extend([x, -x]);
        }
        let square = normals.iter().map(|x| x * x).sum::<f32>() / NORMALS as f32;
        let factor = 1.0 / square.sqrt();
        normals.iter_mut().for_each(|x| *x *= factor);
        let packed = (0..PACKED)
            .map(|_| {
                let bits = random.bits();
                pack_scales(std::array::from_fn(|j| 32 + ((bits >> (5 * j)) & 31) as u8))
            })
            .collect();
        Drawer {
            seed,
            normals,
            packed,
        }
    }

    /// Draws a row. `out` has as many bytes as the row takes.
    pub fn row(&self, quant: Quant, fill: Fill, tensor: usize, row: usize, out: &mut [u8]) {
        // Three rounds of the generator, so that neighbours in any of the three have nothing in common.
        let mut start = Random(self.seed);
        let tensor = start.bits() ^ tensor as u64;
        let row = Random(tensor).bits() ^ row as u64;
        let mut random = Random(Random(row).bits());
        match (quant, fill) {
            (Quant::F32, _) => {
                let columns = out.len() / 4;
                let cells = out.as_chunks_mut::<4>().0.iter_mut().enumerate();
                cells.for_each(|(i, cell)| {
                    *cell = self.number(fill, &mut random, i, columns).to_le_bytes();
                });
            }
            (Quant::F16 | Quant::BF16, _) => {
                let columns = out.len() / 2;
                let cells = out.as_chunks_mut::<2>().0.iter_mut().enumerate();
                cells.for_each(|(i, cell)| {
                    let x = self.number(fill, &mut random, i, columns);
                    *cell = match quant {
                        Quant::F16 => f16::from_f32(x).to_le_bytes(),
                        _ => bf16::from_f32(x).to_le_bytes(),
                    };
                });
            }
            (_, Fill::Normal { deviation, .. }) => self.blocks(quant, deviation, &mut random, out),
            // Ramps are vectors in single precision.
            (_, Fill::Ramp(_)) => out.fill(0),
        }
    }

    fn number(&self, fill: Fill, random: &mut Random, i: usize, columns: usize) -> f32 {
        match fill {
            Fill::Normal { mean, deviation } => {
                let at = (random.bits() >> 40) as usize % NORMALS;
                mean + deviation * self.normals[at]
            }
            Fill::Ramp(top) => 1.0 + (top - 1.0) * i as f32 / columns.max(1) as f32,
        }
    }

    fn blocks(&self, quant: Quant, deviation: f32, random: &mut Random, out: &mut [u8]) {
        random.fill(out);
        let unit = deviation / spread(quant).sqrt();
        // Scales around the one that gives the deviation; the odd ones are negative where codes are not centred.
        let scale = |i: usize| {
            let size = 0.75 + 0.5 * i as f32 / (SCALES - 1) as f32;
            let sign = if i % 2 == 1 { -1.0 } else { 1.0 };
            unit * size * sign
        };
        let signed: [[u8; 2]; SCALES] =
            std::array::from_fn(|i| f16::from_f32(scale(i)).to_le_bytes());
        let positive: [[u8; 2]; SCALES] =
            std::array::from_fn(|i| f16::from_f32(scale(i).abs()).to_le_bytes());
        let centre = middle(quant);
        let lower: [[u8; 2]; SCALES] =
            std::array::from_fn(|i| f16::from_f32(scale(i).abs() * centre).to_le_bytes());
        let mut bits = 0u64;
        for (index, block) in out.chunks_exact_mut(quant.block_bytes()).enumerate() {
            if index % 4 == 0 {
                bits = random.bits();
            }
            let (at, which) = ((bits & 15) as usize, (bits >> 4) as usize % PACKED);
            bits >>= 16;
            match quant {
                Quant::F32 | Quant::F16 | Quant::BF16 => (),
                Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 => block[..2].copy_from_slice(&signed[at]),
                Quant::Q4_1 | Quant::Q5_1 => {
                    block[..2].copy_from_slice(&positive[at]);
                    block[2..4].copy_from_slice(&lower[at]);
                }
                Quant::Q2_K => {
                    // From 8 to 15, and a minimum equal to the scale.
                    for both in &mut block[..16] {
                        let scale = *both & 7 | 8;
                        *both = scale | scale << 4;
                    }
                    block[80..82].copy_from_slice(&positive[at]);
                    block[82..84].copy_from_slice(&lower[at]);
                }
                Quant::Q3_K => block[108..110].copy_from_slice(&positive[at]),
                Quant::Q4_K | Quant::Q5_K => {
                    block[..2].copy_from_slice(&positive[at]);
                    block[2..4].copy_from_slice(&lower[at]);
                    block[4..16].copy_from_slice(&self.packed[which]);
                }
                Quant::Q6_K => {
                    // From 64 to 127, of either sign.
                    for scale in &mut block[192..208] {
                        let size = (*scale & 63 | 64) as i8;
                        *scale = if *scale < 128 { size } else { -size } as u8;
                    }
                    block[208..210].copy_from_slice(&positive[at]);
                }
            }
        }
    }
}

/// The mean square of a weight whose block has the scale 1.
fn spread(quant: Quant) -> f32 {
    // An even choice of n neighbouring whole numbers has the variance (n² - 1) / 12; about a point half a step beside its
    // middle, a quarter more.
    let even = |n: f32| (n * n - 1.0) / 12.0;
    match quant {
        Quant::F32 | Quant::F16 | Quant::BF16 => 1.0,
        Quant::Q4_0 => even(16.0) + 0.25,
        Quant::Q4_1 => even(16.0),
        Quant::Q5_0 => even(32.0) + 0.25,
        Quant::Q5_1 => even(32.0),
        Quant::Q8_0 => even(256.0) + 0.25,
        Quant::Q2_K => even(4.0) * (even(8.0) + 11.5 * 11.5),
        Quant::Q3_K => (even(8.0) + 0.25) * (even(64.0) + 0.25),
        Quant::Q4_K => even(16.0) * (even(32.0) + 47.5 * 47.5),
        Quant::Q5_K => even(32.0) * (even(32.0) + 47.5 * 47.5),
        Quant::Q6_K => (even(64.0) + 0.25) * (even(64.0) + 95.5 * 95.5),
    }
}

/// Where a block's second number must lie, in scales, to centre its codes. Blocks of 256 subtract it.
fn middle(quant: Quant) -> f32 {
    match quant {
        Quant::Q4_1 => -7.5,
        Quant::Q5_1 => -15.5,
        Quant::Q2_K => 1.5,
        Quant::Q4_K => 7.5,
        Quant::Q5_K => 15.5,
        _ => 0.0,
    }
}

/// Packs eight scales of six bits, and eight minima equal to them, as Q4_K and Q5_K do.
fn pack_scales(scales: [u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        let (low, high) = (scales[j], scales[j + 4]);
        packed[j] = low | (high >> 4) << 6;
        packed[j + 4] = packed[j];
        packed[j + 8] = high & 15 | (high & 15) << 4;
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use assize_kernels::scalar::quant::dequantize;

    const NORMAL: Fill = Fill::Normal {
        mean: 0.0,
        deviation: 0.02,
    };

    #[test]
    fn weights_have_mean_zero_and_the_deviation_that_was_asked() {
        let drawer = Drawer::new(7);
        for quant in Quant::ALL {
            let (rows, columns) = (64, 2048);
            let mut weights = Vec::new();
            for row in 0..rows {
                let mut bytes = vec![0; quant.row_bytes(columns).unwrap()];
                drawer.row(quant, NORMAL, 3, row, &mut bytes);
                let mut out = vec![0f32; columns];
                dequantize(quant, &bytes, &mut out).unwrap();
                weights.extend(out);
            }
            let count = weights.len() as f64;
            let mean = weights.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
            let square = weights.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / count;
            let deviation = square.sqrt();
            assert!(
                (deviation / 0.02 - 1.0).abs() < 0.05,
                "{quant:?}: {deviation}"
            );
            assert!(mean.abs() < 0.02 * 0.01, "{quant:?}: {mean}");
        }
    }

    #[test]
    fn a_row_depends_on_seed_tensor_and_row() {
        let draw = |seed, tensor, row| {
            let mut bytes = [0; 288];
            Drawer::new(seed).row(Quant::Q4_K, NORMAL, tensor, row, &mut bytes);
            bytes
        };
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        for other in [draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4), draw(1, 3, 2)] {
            assert_ne!(other, draw(1, 2, 3));
        }
    }

    #[test]
    fn ramps_rise_from_one() {
        let mut bytes = [0; 16];
        Drawer::new(0).row(Quant::F32, Fill::Ramp(5.0), 0, 0, &mut bytes);
        let found: Vec<f32> = (bytes.as_chunks::<4>().0.iter())
            .map(|cell| f32::from_le_bytes(*cell))
            .collect();
        assert_eq!(found, [1.0, 2.0, 3.0, 4.0]);
    }
}
