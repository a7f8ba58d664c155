//! The model: one decoder, families as values. Turns a ragged batch of tokens into logits; knows no text, no schedule
//! and no sampling.

pub mod batch;
pub mod config;

mod keys;

mod names;
pub mod placement;
mod tensors;

mod rope;

mod attention;
mod linear;
mod mlp;
mod moe;
mod norm;

pub mod cache;

mod load;

pub mod decoder;

use thiserror::Error;

/// Why a model file can't be run. Every variant names what in the file is at fault.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The file holds a model of a family that the decoder has no values for.
    #[error("the model architecture {name:?} is not supported (supported: {supported})")]
    Architecture {
        /// What `general.architecture` says.
        name: String,
        /// The names that would do.
        supported: String,
    },
    /// A metadata key that the family needs is absent, or of another type.
    #[error("the model file has no usable metadata key {key:?}")]
    Key {
        /// The key.
        key: String,
    },
    /// A metadata value that no model can have, or that this decoder can't run.
    #[error("metadata key {key:?}: {reason}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong with its value.
        reason: String,
    },
    /// A tensor that the family needs is absent.
    #[error("the model file has no tensor {name:?}")]
    Missing {
        /// The tensor.
        name: String,
    },
    /// A tensor of another shape than the metadata ask for.
    #[error("tensor {name:?} has the shape {found:?}, but the metadata ask for {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape in the file, outermost first.
        found: Vec<usize>,
        /// The shape that follows from the metadata.
        expected: Vec<usize>,
    },
    /// A tensor of a type that its place can't take: norms and biases are F32, F16 or BF16.
    #[error("tensor {name:?} is stored as {found}, which is not supported there")]
    Type {
        /// The tensor.
        name: String,
        /// Its type.
        found: String,
    },
    /// A tensor that nothing in the decoder reads. To leave it out would change the model in silence.
    #[error(
        "tensor {name:?} means something that this decoder doesn't know, so the model would not be computed as made"
    )]
    Unread {
        /// The tensor.
        name: String,
    },
    /// A matrix that the kernels refused.
    #[error("tensor {name:?}: {reason}")]
    Matrix {
        /// The tensor.
        name: String,
        /// What the kernels said.
        reason: String,
    },
    /// The asked context or cache can't be had.
    #[error("{0}")]
    Options(String),
    /// A tensor operation failed while loading.
    #[error("while loading: {0}")]
    Tensor(#[from] candle_core::Error),
}
