//! Why a line of a trace file is not an item, and what to do about it.
//!
//! Names the file, the line and the field; never holds the text of a trace.

use std::fmt;

/// What is wrong with one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The line is not JSON. The reason is the parser's, which names positions and never text.
    #[error("not valid JSON: {0}")]
    NotJson(String),
    /// The line is JSON, but not an object.
    #[error("{0} where a JSON object is expected")]
    NotObject(&'static str),
    /// A field that every item needs is absent.
    #[error("no field \"{field}\"")]
    NoField {
        /// The field's own name, before any mapping.
        field: &'static str,
        /// Where it was looked for.
        looked_for: String,
        /// The keys that the line has, shortened.
        present: Vec<String>,
    },
    /// A field holds something that can't be read as text.
    #[error("field \"{field}\" holds {found}, but text is expected")]
    NotText {
        /// The field's own name.
        field: &'static str,
        /// What it holds.
        found: &'static str,
    },
    /// The line is not UTF-8.
    #[error("not valid UTF-8: the first bad byte is number {0} of the line")]
    NotUtf8(usize),
    /// The line is longer than the reader accepts.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// Another line already has this id.
    #[error("its id was already used by line {0}")]
    Duplicate(u64),
    /// A CSV row with too few or too many cells.
    #[error("{found} cells, but the header has {expected}")]
    Cells {
        /// Cells of the row.
        found: usize,
        /// Cells of the header.
        expected: usize,
    },
    /// The file could not be read any further; nothing follows.
    #[error("the file can't be read any further: {0}")]
    Read(String),
}

/// A line that is not an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemError {
    /// The file's name, without its folder.
    pub file: String,
    /// The line, counted from 1; for CSV the line on which the row begins.
    pub line: u64,
    /// The name under which the failure is reported: the line number, prefixed with the file where there are several.
    pub name: String,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for ItemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {} of {}: {}", self.line, self.file, self.fault)
    }
}

impl std::error::Error for ItemError {}

impl ItemError {
    /// What the user can do about it, in one sentence without a full stop.
    pub fn hint(&self) -> String {
        match &self.fault {
            Fault::NotJson(reason) if reason.contains("surrogate") => {
                "a \\uD800–\\uDFFF escape stands alone, so the text is not Unicode; write the pair or U+FFFD".into()
            }
            Fault::NotJson(_) => "each line must be one whole JSON object; is the file one big JSON array?".into(),
            Fault::NotObject(_) => "each line must be one JSON object such as {\"id\": …, \"answer\": …}".into(),
            Fault::NoField { field, looked_for, present } => {
                let keys: Vec<String> = present.iter().map(|key| format!("\"{key}\"")).collect();
                let has = if keys.is_empty() { "no keys".to_string() } else { format!("the keys {}", keys.join(", ")) };
                if looked_for == field {
                    format!("the line has {has}; map one with --map {field}=KEY (dots reach inside: response.text)")
                } else {
                    format!("it was looked for at \"{looked_for}\", and the line has {has}")
                }
            }
            Fault::NotText { field, .. } => {
                format!("text, a number or a boolean can be read; reach inside with --map {field}=KEY.KEY")
            }
            Fault::NotUtf8(_) => "convert the file to UTF-8".into(),
            Fault::TooLong(_) => "put one item on a line; for CSV, look for a quote that is never closed".into(),
            Fault::Duplicate(_) => "give every item its own id, or map another field with --map id=KEY".into(),
            Fault::Cells { .. } => "cells that hold commas, quotes or line ends must be quoted".into(),
            Fault::Read(_) => "check the file and the disk, then run the same command again".into(),
        }
    }
}
