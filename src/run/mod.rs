//! Runs: the one place where judge and engine meet.
//!
//! The pipeline keeps many evaluations open over an [`crate::ask::Answerer`] and writes what is settled to the journal.

pub mod pipeline;
pub mod settings;

pub use pipeline::{Pipeline, PipelineError, Run};
