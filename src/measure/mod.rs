//! Measures: how far a judge's verdicts agree with labels that people gave.
//!
//! Knows labels and numbers alone: no run folder, no rubric and no engine. A measure that is not defined for what it was
//! given is a typed refusal, never a zero.

pub mod agreement;
mod bootstrap;
pub mod correlation;
pub mod findings;
pub mod labels;

pub use agreement::{Confusion, Proportion, Rates, wilson};
pub use correlation::{Correlation, MeasureError, correlate};
pub use findings::{Findings, Resampling, Said};
pub use labels::{Labels, LabelsError};
