//! Runs: the one place where judge and engine meet.
//!
//! The pipeline keeps many evaluations open over an [`crate::ask::Answerer`] and writes what is settled to the journal.

pub mod feed;
pub mod judges;
pub mod pipeline;
pub mod settings;
pub mod workload;

pub use judges::{JudgeSettings, Loaded, Memory, ModelFile};
pub use pipeline::{Pipeline, PipelineError, Run};
