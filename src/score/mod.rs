//! Scores: what a readout of label masses says, of one answer or of two. Knows `std` alone: no rubric, no ask and no token.

mod bradley_terry;
mod distribution;
mod expectation;
mod inverse;
mod preference;
mod prior;

pub use bradley_terry::{BradleyTerryError, MOST_CANDIDATES, Strengths, Wins};
pub use distribution::{Distribution, ScoreError};
pub use expectation::expected;
pub use preference::{
    Band, BandError, Decide, MOST_LOG_ODDS, Order, Orders, Place, Winner, one_to_two,
};
pub use prior::{Kept, Prior};
