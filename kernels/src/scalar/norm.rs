//! The truth of the root-mean-square norm.

/// `x / sqrt(mean(x^2) + eps) * weight`, for each row of `weight.len()` elements.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len()) {
        let squares: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let scale = 1.0 / (squares / row.len() as f64 + f64::from(eps)).sqrt();
        out.extend(
            row.iter()
                .zip(weight)
                .map(|(x, w)| f64::from(*x) * scale * f64::from(*w)),
        );
    }
    out
}
