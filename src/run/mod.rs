//! Runs: the one place where judge and engine meet.
//!
//! The pipeline keeps many evaluations open over an [`crate::ask::Answerer`] and writes what is settled to the journal.

pub mod ceilings;
pub mod devices;
pub mod direct;
pub mod feed;
pub mod fit;
pub mod judges;
pub mod keep;
pub mod loopback;
pub mod parity;
pub mod peer;
pub mod pipeline;
pub mod profile;
pub mod replicas;
pub mod settings;
pub mod snapshot;
pub mod speed;
pub mod workload;

pub use judges::{JudgeSettings, Loaded, Memory, ModelFile};
pub use pipeline::{Pipeline, PipelineError, Run};
