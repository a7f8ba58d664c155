//! The readable truth of each operation: one loop a line of algebra, in double precision. Slow, and never called by a decoder
//! unless it is being checked.
//!
//! These functions are for tests and references: they assert the lengths that the fast ones report as typed errors.

pub mod attention;
pub mod codes;
pub mod matmul;
pub mod norm;
pub mod quant;
pub mod rope;
pub mod unit;
