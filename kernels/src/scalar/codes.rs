//! The truth of keys and values in 8 bits.

use half::f16;

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
