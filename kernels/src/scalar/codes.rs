//! The truth of keys and values in 8 bits.

use half::f16;

/// A head of a row, `[dim]`, multiplied with Hadamard's matrix of the largest power of two that divides `dim`, block by block, and divided by the
/// root of its size. Keys are written so; it is its own inverse.
pub fn mixed(row: &[f32]) -> Vec<f32> {
    fn transform(block: &[f32]) -> Vec<f32> {
        if block.len() == 1 {
            return block.to_vec();
        }
        let (a, b) = block.split_at(block.len() / 2);
        let (a, b) = (transform(a), transform(b));
        let sums = a.iter().zip(&b).map(|(a, b)| a + b);
        sums.chain(a.iter().zip(&b).map(|(a, b)| a - b)).collect()
    }
    let size = 1 << row.len().trailing_zeros();
    let root = 1.0 / (size as f32).sqrt();
    let blocks = row.chunks_exact(size).flat_map(transform);
    blocks.map(|x| x * root).collect()
}

/// What is read of one head of a row, `[dim]`, after it was written in 8 bits: each run of 32 dimensions has a scale in half precision, by which the
/// largest number is 127, and codes rounded to nearest even. A run with a number that is not finite is NaN throughout.
pub fn written(row: &[f32]) -> Vec<f32> {
    let mut read = Vec::new();
    for run in row.chunks(32) {
        let largest = run.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = f16::from_f32(largest / 127.0).to_f32();
        for x in run {
            read.push(if !run.iter().all(|x| x.is_finite()) {
                f32::NAN
            } else if scale == 0.0 {
                0.0
            } else {
                let code = (x / scale).round_ties_even().clamp(-127.0, 127.0) as i8;
                f32::from(code) * scale
            });
        }
    }
    read
}
