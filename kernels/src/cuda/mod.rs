//! Kernels for NVIDIA cards.
//!
//! The kernels are CUDA C++ that compiles for the host, too: what they do is tested without a card (`tests/cuda_host`), and so are the tables and the
//! launches' shapes, which are plain Rust. With the feature `cuda` they are compiled by nvcc (`build.rs`) and run on candle's tensors, on candle's own
//! stream. All tensors of a call lie on one card and are contiguous; a result is a fresh contiguous tensor.

pub mod shapes;
pub mod tables;

#[cfg(feature = "cuda")]
mod attention;
#[cfg(feature = "cuda")]
mod cache;
#[cfg(feature = "cuda")]
mod module;
#[cfg(feature = "cuda")]
mod operands;
#[cfg(feature = "cuda")]
mod readout;
#[cfg(feature = "cuda")]
mod rows;

#[cfg(feature = "cuda")]
pub use attention::{Plan, attention};
#[cfg(feature = "cuda")]
pub use cache::{copy_page, write_rotated, write_rows};
#[cfg(feature = "cuda")]
pub use module::module_architectures;
#[cfg(feature = "cuda")]
pub use readout::{Choice, argmax_masked, gather, log_sum_exp, log_sum_exp_without};
#[cfg(feature = "cuda")]
pub use rows::{
    add, add_rms_norm, dequantize, gated, gated_halves, rms_norm, rms_norm_of, rope, soft_cap,
};
