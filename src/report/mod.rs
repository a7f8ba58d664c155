//! Reports: what a run found, for people and for programs.
//!
//! Reads rows of the journal and a rubric; knows no engine and no trace file.

pub mod review;
pub mod summary;
pub mod table;

pub use summary::Summary;
pub use table::table;
