//! Weights where they are multiplied: packed for the processor, or on a device, in one of two forms. Knows no activations.

use crate::{KernelError, Matrix, Quant};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType, Device, Error, Result, Tensor};
use std::borrow::Cow;
use std::sync::Arc;

/// Weights `[outputs, inputs]`.
#[derive(Clone)]
pub enum Weight {
    /// Packed, for the kernels of the processor.
    Packed(Arc<Matrix>),
    /// On a device, in blocks as in their file, for candle's products with quantized weights.
    Blocks(Arc<QTensor>),
    /// On a device, one number a weight, in bf16 or f16 or, where they are few, in f32.
    Dense(Tensor),
}

/// How weights lie on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Quantized as in their file: the least to read, which is what decoding few sequences waits for.
    Blocks,
    /// In bf16, for dense products: the fastest for many rows, and 3.5 times the memory of four-bit weights.
    Dense,
    /// In f16, for dense products: as fast, and eight times finer, where no activation leaves its range.
    Half,
    /// In single precision: for small matrices whose results decide, such as routers.
    Single,
}

impl Form {
    /// Bytes on the device of weights of this type and number.
    pub fn bytes(self, quant: Quant, weights: u64) -> u64 {
        match (self, quant) {
            (Form::Single, _) => weights.saturating_mul(4),
            (Form::Dense | Form::Half, _) => weights.saturating_mul(2),
            (Form::Blocks, Quant::F32) => weights.saturating_mul(4),
            (Form::Blocks, _) => {
                (weights / quant.block() as u64).saturating_mul(quant.block_bytes() as u64)
            }
        }
    }
}

impl Weight {
    /// Brings the blocks of a GGUF tensor of shape `[outputs, inputs]` to a device.
    pub fn on_device(
        [outputs, inputs]: [usize; 2],
        quant: Quant,
        bytes: &[u8],
        device: &Device,
        form: Form,
    ) -> Result<Weight> {
        let expected = quant
            .row_bytes(inputs)
            .and_then(|row| row.checked_mul(outputs));
        if expected != Some(bytes.len()) || outputs == 0 || inputs == 0 {
            return Err(Error::wrap(KernelError::Length {
                what: "bytes of a matrix",
                expected: expected.unwrap_or(0),
                actual: bytes.len(),
            }));
        }
        let storage = QStorage::from_data(aligned(bytes), device, kind(quant))?;
        let blocks = QTensor::new(storage, (outputs, inputs))?;
        let floats = matches!(quant, Quant::F32 | Quant::F16 | Quant::BF16);
        let dtype = match (form, quant) {
            (Form::Blocks, _) if !floats => return Ok(Weight::Blocks(Arc::new(blocks))),
            (Form::Single, _) | (Form::Blocks, Quant::F32) => DType::F32,
            (Form::Half, _) => DType::F16,
            _ => DType::BF16,
        };
        let dense = blocks.dequantize(device)?.to_dtype(dtype)?;
        Ok(Weight::Dense(dense))
    }

    /// Rows of the matrix: elements of a result row.
    pub fn outputs(&self) -> usize {
        self.shape()[0]
    }

    /// Columns of the matrix: elements of an activation row.
    pub fn inputs(&self) -> usize {
        self.shape()[1]
    }

    fn shape(&self) -> [usize; 2] {
        let dims = match self {
            Weight::Packed(matrix) => return [matrix.outputs(), matrix.inputs()],
            Weight::Blocks(blocks) => blocks.shape().dims(),
            Weight::Dense(dense) => dense.dims(),
        };
        [
            dims.first().copied().unwrap_or(0),
            dims.get(1).copied().unwrap_or(0),
        ]
    }

    /// Bytes that the weights take, wherever they are.
    pub fn memory(&self) -> usize {
        match self {
            Weight::Packed(matrix) => matrix.memory(),
            Weight::Blocks(blocks) => blocks.storage_size_in_bytes(),
            Weight::Dense(dense) => dense.elem_count() * dense.dtype().size_in_bytes(),
        }
    }

    /// The type in which activations meet these weights.
    pub fn activations(&self) -> DType {
        match self {
            Weight::Dense(dense) => dense.dtype(),
            Weight::Packed(_) | Weight::Blocks(_) => DType::F32,
        }
    }

    /// The packed matrix; an error where the weights are on a device.
    pub(super) fn packed(&self) -> Result<&Matrix> {
        match self {
            Weight::Packed(matrix) => Ok(matrix),
            _ => candle_core::bail!("weights on a device among weights on the processor"),
        }
    }
}

impl From<Matrix> for Weight {
    fn from(matrix: Matrix) -> Weight {
        Weight::Packed(Arc::new(matrix))
    }
}

/// The same type in candle's words.
fn kind(quant: Quant) -> GgmlDType {
    match quant {
        Quant::F32 => GgmlDType::F32,
        Quant::F16 => GgmlDType::F16,
        Quant::BF16 => GgmlDType::BF16,
        Quant::Q4_0 => GgmlDType::Q4_0,
        Quant::Q4_1 => GgmlDType::Q4_1,
        Quant::Q5_0 => GgmlDType::Q5_0,
        Quant::Q5_1 => GgmlDType::Q5_1,
        Quant::Q8_0 => GgmlDType::Q8_0,
        Quant::Q2_K => GgmlDType::Q2K,
        Quant::Q3_K => GgmlDType::Q3K,
        Quant::Q4_K => GgmlDType::Q4K,
        Quant::Q5_K => GgmlDType::Q5K,
        Quant::Q6_K => GgmlDType::Q6K,
    }
}

/// The bytes at an address that a single may have, since candle takes any other for a fault of its own. A file may lay tensors out as it likes.
fn aligned(bytes: &[u8]) -> Cow<'_, [u8]> {
    match bytes.as_ptr().addr().is_multiple_of(align_of::<f32>()) {
        true => Cow::Borrowed(bytes),
        // What the system gives out for so many bytes is aligned far better.
        false => Cow::Owned(bytes.to_vec()),
    }
}
