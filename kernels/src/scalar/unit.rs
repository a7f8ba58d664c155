//! The truth of what is done to single numbers, and of softmax.

use crate::Activation;

/// `activation(x)`.
pub fn activate(x: f64, activation: Activation) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x / 2.0 * (1.0 + inner.tanh())
        }
    }
}

/// `cap * tanh(x / cap)`.
pub fn soft_cap(x: f64, cap: f64) -> f64 {
    cap * (x / cap).tanh()
}

/// Probabilities of scores; where a score is minus infinity, 0.
pub fn softmax(scores: &[f64]) -> Vec<f64> {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / total).collect()
}
