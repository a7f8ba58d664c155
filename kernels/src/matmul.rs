//! Products of activations with a [`Matrix`].

use crate::activations::Activations;
use crate::error::expect_length;
use crate::{KernelError, Matrix, Precision};
use rayon::prelude::*;

/// `out[r, j] = sum over c of x[r, c] * w[j, c]`: the activations are `[m, inputs]`, `out` is `[m, outputs]`.
///
/// # Errors
/// Where a length does not fit.
pub fn matmul(
    x: &Activations<'_>,
    w: &Matrix,
    precision: Precision,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let _ = precision;
    expect_length("activations", &[x.rows(), w.inputs()], x.values().len())?;
    expect_length("product", &[x.rows(), w.outputs()], out.len())?;
    let mut weights = vec![0f32; w.inputs()];
    for j in 0..w.outputs() {
        w.row(j, &mut weights)?;
        out.par_chunks_mut(w.outputs())
            .zip(x.values().par_chunks(w.inputs()))
            .for_each(|(out, x)| {
                out[j] = crate::scalar::matmul::dot(x, &weights) as f32;
            });
    }
    Ok(())
}
