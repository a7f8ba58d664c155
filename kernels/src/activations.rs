//! Rows of activations, quantized once for all the matrices they meet.

use crate::KernelError;

/// Activations `[rows, columns]`.
pub struct Activations<'a> {
    rows: usize,
    values: &'a [f32],
}

impl<'a> Activations<'a> {
    /// Prepares `values`, `[rows, columns]`.
    ///
    /// # Errors
    /// Where `values` is no such matrix.
    pub fn new(
        values: &'a [f32],
        rows: usize,
        columns: usize,
    ) -> Result<Activations<'a>, KernelError> {
        crate::error::expect_length("activations", &[rows, columns], values.len())?;
        Ok(Activations { rows, values })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The activations as they came.
    pub fn values(&self) -> &'a [f32] {
        self.values
    }
}
