//! Why a model file was refused. Each message names the file, the thing in it and the mend; it knows no command line.

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
        source: std::io::Error,
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

fn more(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", nor does it read the type of one more tensor".into(),
        n => format!(", nor does it read the types of {n} more tensors"),
    }
}
