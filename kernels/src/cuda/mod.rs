//! Kernels for NVIDIA cards.
//!
//! The kernels are CUDA C++ that compiles for the host, too: what they do is tested without a card (`tests/cuda_host.rs`), and so are the tables and
//! the launches, which are plain Rust.

pub mod shapes;
pub mod tables;
