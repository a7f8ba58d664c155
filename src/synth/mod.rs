//! Model files of random weights: any size of any family in any quantization, for measuring speed where the real file is
//! not at hand. What such a model says means nothing.
//!
//! `shape` says how large, `mix` which tensor gets which type, `plan` which metadata and tensors make a family,
//! `blocks` draws rows, and `file` streams them to the disk. Knows no terminal.

mod blocks;
pub mod file;
pub mod mix;
pub mod plan;
pub mod shape;

use std::io;
use std::path::PathBuf;

/// Why no model was written.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// A name of a preset, a family or a quantization that there is none of.
    #[error("no {what} is named `{name}`\nhint: there are {known}")]
    Unknown {
        /// What it should be the name of.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// Sizes that no model can have.
    #[error("{what}\nhint: {mend}")]
    Shape {
        /// What is wrong.
        what: String,
        /// What to do about it.
        mend: String,
    },
    /// A file is there already.
    #[error("{} is there already\nhint: give another --out, or --force to overwrite it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: can't {action}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        reason: io::Error,
    },
}

impl SynthError {
    fn shape(what: impl Into<String>, mend: impl Into<String>) -> SynthError {
        SynthError::Shape {
            what: what.into(),
            mend: mend.into(),
        }
    }
}
