//! Why a run folder can't be used.

use std::path::{Path, PathBuf};

/// A fault of the run folder. None of them loses a verdict.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Another process works in the folder.
    #[error("{0} is in use by another process")]
    Locked(PathBuf),
    /// The folder holds a run of something else.
    #[error("{folder} holds another run: {differences}")]
    OtherRun {
        /// The folder.
        folder: PathBuf,
        /// What differs, each as `name: there, here`.
        differences: String,
    },
    /// Verdicts without a `run.json`: what they were made by is not known.
    #[error("{0} holds verdicts but no run.json")]
    NoDescription(PathBuf),
    /// `run.json` can't be read.
    #[error("{path} is not a run description: {reason}")]
    BadDescription {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A whole line of `verdicts.jsonl` is not a verdict.
    #[error("line {line} of {path} is not a verdict: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Why; never holds text of a trace.
        reason: &'static str,
    },
}

impl JournalError {
    /// What the user can do about it, in one sentence without a full stop.
    pub fn hint(&self) -> &'static str {
        match self {
            JournalError::Io { .. } => {
                "check that the folder can be written to and that the disk is not full"
            }
            JournalError::Locked(_) => {
                "wait for the other process, or give another folder with --out"
            }
            JournalError::OtherRun { .. } => {
                "give a new folder with --out, or run the command that made this one"
            }
            JournalError::NoDescription(_) => "give a new folder with --out",
            JournalError::BadDescription { .. } => {
                "give a new folder with --out, or put the file right"
            }
            JournalError::Corrupt { .. } => {
                "remove the line to have its item judged again, or give a new folder"
            }
        }
    }

    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> JournalError + '_ {
        move |source| JournalError::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}
