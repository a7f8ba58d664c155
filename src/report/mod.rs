//! Reports: what a run found, for people and for programs.
//!
//! Reads rows of the journal and a rubric; knows no engine and no trace file.

pub mod findings;
pub mod review;
pub mod summary;
pub mod table;
mod tally;

pub use findings::Findings;
pub use summary::Summary;
pub use table::table;
