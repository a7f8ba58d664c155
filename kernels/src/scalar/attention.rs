//! The truth of attention over one sequence's keys and values, laid out plainly. Knows no pages.

use super::unit::{soft_cap, softmax};

/// What shapes the scores of one head.
#[derive(Clone, Copy, Debug)]
pub struct Scoring {
    /// Multiplies each product of query and key.
    pub scale: f32,
    /// A row at position `p` sees positions above `p - window`.
    pub window: Option<usize>,
    /// Scores are bent to stay within this.
    pub soft_cap: Option<f32>,
}

/// One query `[dim]` at `position` over keys and values `[positions, dim]` of its head.
pub fn attend(
    query: &[f32],
    keys: &[f32],
    values: &[f32],
    position: usize,
    scoring: Scoring,
) -> Vec<f64> {
    let dim = query.len();
    let first = scoring
        .window
        .map_or(0, |window| (position + 1).saturating_sub(window));
    let scores: Vec<f64> = (first..=position)
        .map(|p| {
            let score =
                super::matmul::dot(query, &keys[p * dim..(p + 1) * dim]) * f64::from(scoring.scale);
            scoring
                .soft_cap
                .map_or(score, |cap| soft_cap(score, f64::from(cap)))
        })
        .collect();
    let mut out = vec![0f64; dim];
    for (offset, probability) in softmax(&scores).into_iter().enumerate() {
        let value = &values[(first + offset) * dim..];
        for (out, value) in out.iter_mut().zip(value) {
            *out += probability * f64::from(*value);
        }
    }
    out
}
