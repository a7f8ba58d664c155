//! A mixture of experts: a router sends each row to a few MLPs and weighs what they return.
//!
//! A row's experts are added in ascending order, whatever else is in the batch, so that its bits depend on it alone.

use super::linear::Linear;
use super::mlp::Mlp;
use candle_core::{Result, Tensor};

/// The experts of a layer.
pub(super) struct Moe {
    /// `[experts, hidden]`
    pub(super) router: Linear,
    /// The experts.
    pub(super) experts: Vec<Mlp>,
    /// How many serve a row.
    pub(super) used: usize,
}

impl Moe {
    /// `[T, hidden]` → `[T, hidden]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let device = x.device();
        let (rows, hidden) = x.dims2()?;
        let scores: Vec<Vec<f32>> = self.router.forward(x, None, None)?.to_vec2()?; // [T, experts]
        let chosen: Vec<Vec<(usize, f32)>> = scores
            .iter()
            .map(|scores| choose(scores, self.used))
            .collect();

        // On the processor rows are added where they lie; on a device they stay there.
        let mut sum = vec![0f32; if device.is_cpu() { rows * hidden } else { 0 }];
        let mut sum_there = match device.is_cpu() {
            true => None,
            false => Some(x.zeros_like()?),
        };
        for (index, expert) in self.experts.iter().enumerate() {
            let served: Vec<(u32, f32)> = (0u32..)
                .zip(&chosen)
                .filter_map(|(row, chosen)| {
                    chosen
                        .iter()
                        .find(|(expert, _)| *expert == index)
                        .map(|(_, weight)| (row, *weight))
                })
                .collect();
            if served.is_empty() {
                continue;
            }
            let indices: Vec<u32> = served.iter().map(|(row, _)| *row).collect();
            let indices = Tensor::from_vec(indices, served.len(), device)?;
            let returned = expert.forward(&x.index_select(&indices, 0)?, None, None)?; // [served, hidden]
            if let Some(there) = sum_there {
                let weights: Vec<f32> = served.iter().map(|(_, weight)| *weight).collect();
                let weights = Tensor::from_vec(weights, (served.len(), 1), device)?;
                let weighed = returned.broadcast_mul(&weights)?;
                sum_there = Some(there.index_add(&indices, &weighed, 0)?);
                continue;
            }
            let returned: Vec<f32> = returned.flatten_all()?.to_vec1()?;
            for ((row, weight), values) in served.iter().zip(returned.chunks_exact(hidden)) {
                let row = *row as usize * hidden;
                for (sum, value) in sum[row..row + hidden].iter_mut().zip(values) {
                    *sum += weight * value;
                }
            }
        }
        match sum_there {
            Some(there) => Ok(there),
            None => Tensor::from_vec(sum, (rows, hidden), device),
        }
    }
}

/// The `used` highest scores in ascending order of expert, with a softmax over these alone. Equal scores go to the lower
/// index.
fn choose(scores: &[f32], used: usize) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    order.truncate(used);
    let highest = order.first().map_or(0.0, |first| scores[*first]);
    order.sort_unstable();
    let weights: Vec<f32> = order
        .iter()
        .map(|expert| (scores[*expert] - highest).exp())
        .collect();
    let total: f32 = weights.iter().sum();
    order
        .into_iter()
        .zip(weights)
        .map(|(expert, weight)| (expert, weight / total))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn the_highest_scores_are_chosen_and_weighed_among_themselves() {
        let check = |scores: &[f32], used, expected: &[(usize, f32)]| {
            let chosen = choose(scores, used);
            assert_eq!(chosen.len(), expected.len(), "{scores:?}");
            for (found, expected) in chosen.iter().zip(expected) {
                assert_eq!(found.0, expected.0, "{scores:?}");
                assert!(
                    (found.1 - expected.1).abs() < 1e-6,
                    "{scores:?}: {found:?} for {expected:?}"
                );
            }
        };
        check(&[0.0, 3f32.ln(), 0.0, -5.0], 2, &[(0, 0.25), (1, 0.75)]);
        check(&[1.0, 2.0, 3.0], 1, &[(2, 1.0)]);
        check(&[-1.0, 7.0, 7.0], 2, &[(1, 0.5), (2, 0.5)]);
    }
}
