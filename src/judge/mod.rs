//! The judge: rubrics, prompts, verdicts, and the state machine of one item's evaluation.
//!
//! Builds [`crate::ask::Ask`]s and reads [`crate::ask::Answer`]s. Knows no token, no tensor and no file of a run.

pub mod attacks;
pub mod cascade;
pub mod checks;
pub mod contracts;
pub mod details;
pub mod digest;
pub mod evaluation;
pub mod expected;
pub mod formats;
pub mod order;
pub mod panel;
pub mod prompt;
pub mod question;
pub mod rubric;
mod rubric_check;
pub mod rubric_error;
mod rubric_toml;
pub mod rules;
mod rules_toml;
pub mod shots;
pub mod trajectory;
pub mod unjudged;
pub mod verdict;

pub use cascade::{Cascade, Thresholds};
pub use details::Details;
pub use evaluation::{Evaluation, Format, Posed, Step};
pub use formats::Manner;
pub use formats::pointwise::{Mode, Pointwise};
pub use order::PromptOrder;
pub use panel::{Member, Panel, Together};
pub use rubric::Rubric;
pub use rubric_error::RubricError;
pub use unjudged::Unjudged;
pub use verdict::{Opinion, Quote, Reading, Verdict};
