//! The command line.

pub mod fetch;
pub mod inspect;
pub mod models;

use std::process::ExitCode;

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
