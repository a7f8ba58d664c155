//! Why a model file was refused, or could not be had. Each message names the file, the thing in it and the mend.

use super::lock::LockError;
use super::manifest;
use std::io;
use std::path::PathBuf;

/// Why a model file was refused.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The operating system refused the file.
    #[error("{}: can't {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, as in "can't {action}".
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file breaks the GGUF format, or was cut off.
    #[error("{}: {what}, at byte {at}\nhint: the file is damaged or incomplete; fetch it again", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in the file the thing lies, in bytes from its start.
        at: u64,
        /// What is wrong there.
        what: String,
    },
    /// The file is well-formed but of a kind that assize does not read: another format, version or byte order.
    #[error("{}: {what}\nhint: {hint}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
        /// What to do instead.
        hint: &'static str,
    },
    /// Tensors of types that assize does not read.
    #[error(
        "{}: tensor `{tensor}` has type {kind} (number {id}), which assize does not read{}\n\
         hint: take a file in Q4_K_M, Q5_K_M, Q6_K, Q8_0 or another of F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K",
        path.display(),
        more(*others)
    )]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The first such tensor.
        tensor: String,
        /// Name of its type.
        kind: &'static str,
        /// GGUF's number of its type.
        id: u32,
        /// How many more tensors of unread types there are.
        others: usize,
    },
    /// The files of a split model do not fit together.
    #[error("{}: {what}\nhint: put all files of the split model, from one download, into one folder", path.display())]
    Split {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
}

/// Why a model is not here.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No manifest has that name, and no file either.
    #[error(
        "no model is named `{name}`, and no file is there{}\nhint: `assize models` lists the names; a path to a GGUF file does as well",
        resembling(name)
    )]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The model has a name but is not here, and what was asked for fetches none.
    #[error("{name} has not been fetched yet\nhint: run `assize fetch {name}`")]
    Absent {
        /// The model.
        name: String,
    },
    /// The model is not here and the network is forbidden.
    #[error("{name} is not on this disk ({} is missing) and the network is off\nhint: run `assize fetch {name}` without --offline and HF_HUB_OFFLINE, or give --model a path", missing.display())]
    Offline {
        /// The model.
        name: String,
        /// The file that is missing.
        missing: PathBuf,
    },
    /// No source had the model.
    #[error(
        "{name} could not be fetched:{}\nhint: see to the network or the proxy, and run it again: what is here already is kept. Or fetch the file elsewhere and give --model its path",
        list(attempts)
    )]
    NoSource {
        /// The model.
        name: String,
        /// What happened at each source.
        attempts: Vec<String>,
    },
    /// A file is not the one that was meant.
    #[error("{} is not the file that {by} means:\n  expected sha256 {expected}\n  found sha256    {found}\nhint: {hint}", path.display())]
    Mismatch {
        /// The file, or where it would have been fetched from.
        path: PathBuf,
        /// Who says which file is meant.
        by: String,
        /// The digest that it should have, in hex.
        expected: String,
        /// The digest that it has.
        found: String,
        /// The mend.
        hint: String,
    },
    /// The operating system refused.
    #[error("{}: can't {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is nowhere to put models.
    #[error(
        "no folder for models: none of ASSIZE_HOME, XDG_CACHE_HOME and HOME is set\nhint: set ASSIZE_HOME"
    )]
    NoHome,
    /// The lock can't be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The model file can't be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

impl FetchError {
    /// Whether the command line asked for something that does not exist, rather than something having failed.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            FetchError::Unknown { .. } | FetchError::Absent { .. } | FetchError::Offline { .. }
        )
    }
}

fn more(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", nor does it read the type of one more tensor".into(),
        n => format!(", nor does it read the types of {n} more tensors"),
    }
}

fn resembling(name: &str) -> String {
    match manifest::resembling(name) {
        names if names.is_empty() => String::new(),
        names => format!("; did you mean {}?", names.join(", ")),
    }
}

fn list(attempts: &[String]) -> String {
    attempts
        .iter()
        .map(|attempt| format!("\n  - {attempt}"))
        .collect()
}
