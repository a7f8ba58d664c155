//! Weights: what lies in a model file.

use assize_kernels::Quant;
use std::path::Path;

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// Placeholder.
    #[error("{0}")]
    Refused(String),
}

/// Key-value metadata of a GGUF file.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    _private: (),
}

impl Metadata {
    /// The value of any integer width that fits, or `None` where the key is absent or of another type.
    pub fn integer(&self, _key: &str) -> Option<u64> {
        todo!()
    }
    /// A float of either width, or an integer.
    pub fn float(&self, _key: &str) -> Option<f64> {
        todo!()
    }
    /// A boolean.
    pub fn boolean(&self, _key: &str) -> Option<bool> {
        todo!()
    }
    /// A string.
    pub fn string(&self, _key: &str) -> Option<&str> {
        todo!()
    }
    /// An array of strings.
    pub fn strings(&self, _key: &str) -> Option<&[String]> {
        todo!()
    }
    /// An array of floats.
    pub fn floats(&self, _key: &str) -> Option<Vec<f64>> {
        todo!()
    }
    /// An array of integers of any width (signed ones included), or of booleans as 0 and 1.
    pub fn integers(&self, _key: &str) -> Option<Vec<i64>> {
        todo!()
    }
}

/// A tensor as it lies in the file.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Type of its blocks.
    pub quant: Quant,
    /// Shape, outermost first (the reverse of GGUF's order): a matrix is `[rows out, columns in]`.
    pub shape: &'a [usize],
    /// Its bytes, exactly as many as type and shape need.
    pub bytes: &'a [u8],
}

/// A model file, or the files of a split one, mapped and checked once.
pub struct Store {
    _private: (),
}

impl Store {
    /// Opens a GGUF file; given one file of a split model, opens all of them.
    pub fn open(_path: &Path) -> Result<Store, WeightsError> {
        todo!()
    }
    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        todo!()
    }
    /// A tensor by name.
    pub fn tensor(&self, _name: &str) -> Option<TensorView<'_>> {
        todo!()
    }
    /// All tensors, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, TensorView<'_>)> {
        std::iter::empty()
    }
}
