//! The truth of a matrix product: dequantized weights, sums in double precision. Knows no packing.

use super::quant::dequantize;
use crate::{KernelError, Quant};

/// `out[r, j] = sum over c of x[r, c] * w[j, c]`: `x` is `[m, k]`, the weights' `bytes` are `[n, k]` as in a GGUF file, the result `[m, n]`.
pub fn matmul(
    x: &[f32],
    quant: Quant,
    n: usize,
    k: usize,
    bytes: &[u8],
) -> Result<Vec<f64>, KernelError> {
    let mut weights = vec![0f32; n * k];
    dequantize(quant, bytes, &mut weights)?;
    Ok(product(x, &weights, k))
}

/// The same over weights `[n, k]` in floating point.
pub fn product(x: &[f32], weights: &[f32], k: usize) -> Vec<f64> {
    x.chunks_exact(k)
        .flat_map(|row| weights.chunks_exact(k).map(move |column| dot(row, column)))
        .collect()
}

/// The inner product, in double precision.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| f64::from(*a) * f64::from(*b))
        .sum()
}

/// Activations as the quantized product sees them: for every `group`, codes from 0 for the least to 255 for the greatest.
pub fn rounded(x: &[f32], columns: usize, group: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    for group in x.chunks(columns).flat_map(|row| row.chunks(group)) {
        let least = group.iter().copied().fold(f32::INFINITY, f32::min);
        let greatest = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scale = greatest / 255.0 - least / 255.0;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        out.extend(group.iter().map(|x| {
            let code = ((x - least) * inverse).round_ties_even();
            code.clamp(0.0, 255.0).mul_add(scale, least)
        }));
    }
    out
}
