//! The journal: the folder of a run, with what was run and every verdict as it was settled.
//!
//! Knows verdicts and failures; knows no engine and no trace file.

mod cache;
mod description;
mod error;
mod facts;
mod log;
mod record;
mod resume;

pub use cache::VerdictCache;
pub use description::{
    FurtherModel, ModelDescription, RubricDescription, RunDescription, SettingsDescription,
};
pub use error::JournalError;
pub use facts::Facts;
pub use log::{Journal, Opened};
pub use record::{FailureKind, Outcome, Record, Row, RowOutcome};
