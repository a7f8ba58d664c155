//! Formats of judging. Each holds both halves: how the question is posed, and how the answer is ruled on.

pub mod pointwise;
