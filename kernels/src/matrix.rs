//! A matrix of weights, ready for products. Knows no activations.

use crate::error::{expect_length, product};
use crate::{KernelError, Quant, scalar};

/// Weights `[outputs, inputs]`.
pub struct Matrix {
    quant: Quant,
    outputs: usize,
    inputs: usize,
    bytes: Vec<u8>,
}

impl Matrix {
    /// Packs the blocks of a GGUF tensor of shape `[outputs, inputs]`.
    ///
    /// # Errors
    /// Where `inputs` is no whole number of blocks, or `bytes` is not exactly as long as type and shape ask for.
    pub fn new(
        quant: Quant,
        outputs: usize,
        inputs: usize,
        bytes: &[u8],
    ) -> Result<Matrix, KernelError> {
        let row = quant.row_bytes(inputs).ok_or(KernelError::Blocks {
            quant,
            columns: inputs,
            block: quant.block(),
        })?;
        expect_length("bytes of a matrix", &[outputs, row], bytes.len())?;
        product("a matrix", &[outputs, inputs, 8])?;
        Ok(Matrix {
            quant,
            outputs,
            inputs,
            bytes: bytes.to_vec(),
        })
    }

    /// The type that the weights had in their file.
    pub fn quant(&self) -> Quant {
        self.quant
    }

    /// Rows of the matrix: elements of a result row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the matrix: elements of an activation row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Bytes of memory that the packed weights take.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Dequantizes row `index` into `out`, exactly as [`scalar::quant::dequantize`] would.
    ///
    /// # Errors
    /// Where there is no such row, or `out` has not [`Matrix::inputs`] elements.
    pub fn row(&self, index: usize, out: &mut [f32]) -> Result<(), KernelError> {
        if index >= self.outputs {
            return Err(KernelError::Index {
                what: "row",
                index,
                limit: self.outputs,
            });
        }
        expect_length("a row of weights", &[self.inputs], out.len())?;
        let row = self.bytes.len() / self.outputs;
        scalar::quant::dequantize(self.quant, &self.bytes[index * row..(index + 1) * row], out)
    }
}
