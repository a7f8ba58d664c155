//! What the kernels' tests share: random inputs, the same ones on every run, and a run on every instruction set and number of threads.

// Each test file uses a part.
#![allow(dead_code)]

use assize_kernels::{Isa, Quant};
use half::{bf16, f16};

/// A small generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly from 0 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Roughly normal, of deviation 1.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }

    /// Roughly normal numbers, every 37th one ten times as large, as activations have them.
    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|i| self.normal() * if i % 37 == 0 { 10.0 } else { 1.0 })
            .collect()
    }

    /// The bytes of `weights` random weights: any codes, with scales in half precision that are finite and not tiny.
    pub fn blocks(&mut self, quant: Quant, weights: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..weights / quant.block() {
            let mut block: Vec<u8> = (0..quant.block_bytes())
                .map(|_| self.bits() as u8)
                .collect();
            let halves: &[usize] = match quant {
                Quant::F32 => {
                    block.copy_from_slice(&self.normal().to_le_bytes());
                    &[]
                }
                Quant::BF16 => {
                    block.copy_from_slice(&bf16::from_f32(self.normal()).to_le_bytes());
                    &[]
                }
                Quant::F16 | Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 => &[0],
                Quant::Q4_1 | Quant::Q5_1 | Quant::Q4_K | Quant::Q5_K => &[0, 2],
                Quant::Q2_K => &[80, 82],
                Quant::Q3_K => &[108],
                Quant::Q6_K => &[208],
            };
            for at in halves {
                let scale = f16::from_f32(0.01 + 0.02 * self.unit());
                block[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
            bytes.extend(block);
        }
        bytes
    }
}

/// Runs `work` on a pool of so many threads.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
        .install(work)
}

/// The bits of each number, all NaN being one.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter()
        .map(|x| {
            if x.is_nan() {
                f32::NAN.to_bits()
            } else {
                x.to_bits()
            }
        })
        .collect()
}

/// Largest difference, as a share of the largest magnitude in the truth.
pub fn difference(truth: &[f64], x: &[f32]) -> f64 {
    assert_eq!(truth.len(), x.len());
    let top = truth
        .iter()
        .fold(f64::MIN_POSITIVE, |top, x| top.max(x.abs()));
    truth.iter().zip(x).fold(0f64, |worst, (t, x)| {
        let off = (t - f64::from(*x)).abs() / top;
        if off.is_nan() {
            f64::INFINITY
        } else {
            worst.max(off)
        }
    })
}

/// One computation on every instruction set and on 1 and 3 threads, its output poisoned beforehand.
pub fn check_everywhere(
    case: &str,
    truth: &[f64],
    tolerance: f64,
    work: impl Fn(Isa, &mut [f32]) + Sync,
) -> Vec<f32> {
    let mut first = vec![f32::NAN; truth.len()];
    work(Isa::PORTABLE, &mut first);
    let off = difference(truth, &first);
    assert!(off <= tolerance, "{case}: off by {off:e}");
    for isa in Isa::available() {
        for threads in [1, 3] {
            let mut out = vec![f32::NAN; truth.len()];
            on_threads(threads, || work(isa, &mut out));
            assert_eq!(
                bits(&out),
                bits(&first),
                "{case} on {} with {threads} threads",
                isa.name()
            );
        }
    }
    first
}
