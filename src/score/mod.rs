//! Scores: what a readout of label masses says. Knows `std` alone: no rubric, no ask and no token.

mod distribution;
mod expectation;

pub use distribution::{Distribution, ScoreError};
pub use expectation::expected;
