//! The `assize` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    assize::cli::main()
}
