//! Kernels of assize: what a decoder needs, on slices, and a thin bridge to candle tensors.
//!
//! The promise that everything above stands on: the bits of a result row depend on that row's own input (and, for
//! attention, on its own sequence) alone. Never on the other rows of the batch, on how the work was cut into tiles,
//! on the number of threads, nor on the instruction set that was found at start: each fast kernel is written once
//! over a trait of vectors, and every instruction set performs the same IEEE operations in the same order.
//!
//! [`scalar`] holds the readable truth of each operation; `tests/parity.rs` holds the fast ones to it.

mod error;
mod kinds;

pub mod scalar;

#[cfg(target_arch = "aarch64")]
mod arm;
mod dispatch;
mod generic;
mod pack;
mod panel;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

mod activations;
mod attention;
pub mod cache;
mod codes;
mod matmul;
mod matrix;
mod region;
pub mod rows;

pub mod limits;
pub mod probe;
pub mod profile;

#[cfg(feature = "candle")]
pub mod bridge;
pub mod cuda;
#[cfg(feature = "metal")]
pub mod metal;

/// Version of the arithmetic: raised whenever a bit of any result may be another than before, so that what was computed earlier and kept is not
/// taken for what would be computed now (`tests/keep.rs` notices).
pub const ARITHMETIC: u32 = 1;

pub use activations::Activations;
pub use attention::{Sizes, attention};
pub use cache::Cache;
pub use dispatch::{ISA_VARIABLE, Isa, isa};
pub use error::KernelError;
pub use kinds::{Activation, CacheType, PAGE, Precision, Quant, RopeStyle, Span};
pub use matmul::{Product, gated, matmul, matmul_many};
pub use matrix::Matrix;
pub use region::Region;
