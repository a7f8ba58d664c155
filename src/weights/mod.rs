//! Weights: what lies in a model file, and how a named model comes to lie on this disk.
//!
//! [`Store`] opens a GGUF file once and hands out its metadata and tensors; everything in the file is untrusted until
//! [`gguf`] has checked it. [`manifest`] knows the models by name, [`fetch`] brings them here and is the only code of
//! assize that touches the network, [`verify`] and [`lock`] say whether a file is the one that was meant. Nothing here
//! knows what a tensor is for.

mod error;
pub mod gguf;
mod metadata;
mod store;

pub use error::WeightsError;
pub use metadata::{Array, Kind, Metadata, Value};
pub use store::{Store, TensorView};
