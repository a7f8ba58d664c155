//! The judge: rubrics, prompts, verdicts, and the state machine of one item's evaluation.
//!
//! Builds [`crate::ask::Ask`]s and reads [`crate::ask::Answer`]s. Knows no token, no tensor and no file of a run.

pub mod contracts;
pub mod digest;
pub mod evaluation;
pub mod formats;
pub mod prompt;
pub mod rubric;
mod rubric_check;
pub mod rubric_error;
mod rubric_toml;
pub mod verdict;

pub use evaluation::{Evaluation, Step};
pub use formats::pointwise::{Mode, Pointwise};
pub use rubric::Rubric;
pub use rubric_error::RubricError;
pub use verdict::{Quote, Verdict};
