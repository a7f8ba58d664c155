//! The vectors of x86-64.

pub mod avx2;
pub mod avx512;
