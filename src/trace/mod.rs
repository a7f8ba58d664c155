//! Traces: what is judged, read item by item from files.
//!
//! [`open`] turns paths into one stream of items. A line that can't be read is an [`ItemError`] in that stream, and the
//! lines after it still come. Knows no rubric and no model; the text of a trace never stands in an error.

mod csv;
mod fault;
mod item;
mod jsonl;
mod stream;

pub use fault::{Fault, ItemError};
pub use item::{FIELDS, FieldMap, Item, MapError};
pub use stream::{OpenError, TraceFormat, Traces, count, open};
