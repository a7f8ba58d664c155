//! The truth of rotary embeddings.

use crate::RopeStyle;

/// Turns the first `2 * half` dimensions of every head of `x`, `[rows, heads, dim]`; `cos` and `sin` are `[rows, half]`.
pub fn rope(
    x: &[f32],
    heads: usize,
    dim: usize,
    cos: &[f32],
    sin: &[f32],
    half: usize,
    style: RopeStyle,
) -> Vec<f64> {
    let mut out: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    for (index, head) in out.chunks_exact_mut(dim).enumerate() {
        let row = index / heads;
        for i in 0..half {
            let (a, b) = match style {
                RopeStyle::Neox => (i, i + half),
                RopeStyle::Normal => (2 * i, 2 * i + 1),
            };
            let (cos, sin) = (
                f64::from(cos[row * half + i]),
                f64::from(sin[row * half + i]),
            );
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
        }
    }
    out
}
