//! The model: one decoder, families as values.

pub mod batch;
