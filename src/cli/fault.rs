//! Errors as the user sees them: what is wrong, whose fault it is, and a hint.

use crate::journal::JournalError;
use crate::model::ModelError;
use crate::run::PipelineError;
use crate::run::fit::TooLarge;
use crate::tokenizer::TokenizerError;
use crate::weights::{FetchError, WeightsError};

/// Exit code of our own faults.
pub const OURS: u8 = 1;
/// Exit code of bad usage or input.
pub const USAGE: u8 = 2;
/// Exit code of a run in which some items failed.
pub const SOME_FAILED: u8 = 3;
/// Exit code of a run that was interrupted: 128 and the signal's number, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// An error with its exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The exit code.
    pub code: u8,
    /// What is wrong.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl Fault {
    /// Bad usage or input.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Fault {
        Fault {
            code: USAGE,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Finds out whose fault an error is.
    pub fn of(error: &anyhow::Error) -> Fault {
        let whole = format!("{error:#}");
        let (message, hint) = match whole.split_once("\nhint: ") {
            Some((message, hint)) => (message.to_string(), hint.to_string()),
            None => (whole, String::new()),
        };
        for cause in error.chain() {
            if let Some(fault) = cause.downcast_ref::<Fault>() {
                return fault.clone();
            }
            let journal = match cause.downcast_ref::<PipelineError>() {
                Some(PipelineError::Strict { message, hint }) => {
                    return Fault::usage(message, hint);
                }
                Some(PipelineError::Journal(journal)) => Some(journal),
                _ => cause.downcast_ref::<JournalError>(),
            };
            if let Some(journal) = journal
                && !matches!(journal, JournalError::Io { .. })
            {
                return Fault::usage(journal.to_string(), journal.hint());
            }
            if let Some(FetchError::NoSource { .. } | FetchError::Io { .. }) =
                cause.downcast_ref::<FetchError>()
            {
                return Fault {
                    code: OURS,
                    message,
                    hint,
                };
            }
            if cause.is::<TooLarge>() {
                let hint = "give --plan quantized, a smaller model, or --device cpu";
                return Fault::usage(message, hint);
            }
            // A file that can't be used is bad input, whichever layer refused it.
            if cause.is::<FetchError>()
                || cause.is::<WeightsError>()
                || cause.is::<ModelError>()
                || cause.is::<TokenizerError>()
            {
                return Fault {
                    code: USAGE,
                    message,
                    hint,
                };
            }
        }
        Fault {
            code: OURS,
            message,
            hint,
        }
    }
}
