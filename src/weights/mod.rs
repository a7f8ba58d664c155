//! Weights: what lies in a model file, and how a named model comes to lie on this disk.
//!
//! [`Store`] opens a GGUF file once and hands out its metadata and tensors; everything in the file is untrusted until
//! [`gguf`] has checked it. [`manifest`] knows the models by name, [`fetch`] brings them here and is, with its sources
//! `hub` and `pip`, the only code of assize that touches the network; [`verify`] and [`lock`] say whether a file is the
//! one that was meant; [`layouts`] keeps packed weights from one start to the next. Nothing here knows what a tensor is for.

mod error;
pub mod fetch;
pub mod gguf;
pub mod hub;
pub mod layouts;
pub mod lock;
pub mod manifest;
mod metadata;
mod pip;
pub mod progress;
#[cfg(feature = "hub")]
mod reach;
mod store;
pub mod verify;
pub mod writer;

pub use error::{FetchError, WeightsError};
pub use metadata::{Array, Kind, Metadata, Value};
pub use store::{Store, TensorView};
