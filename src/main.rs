//! The `assize` command.

use std::process::ExitCode;

/// Keeps the pages of tensors that come and go with every layer; the system's allocator gives them back and faults them in
/// again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    assize::cli::main()
}
