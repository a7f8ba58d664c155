//! The vectors of AArch64.

pub mod neon;
pub mod products;
