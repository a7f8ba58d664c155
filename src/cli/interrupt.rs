//! Interrupts of a run: the first lets what is running settle, and nothing that was settled is lost.

use super::fault::INTERRUPTED;
use super::style::{Console, this_command};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long after an interrupt the process may still be there.
const PATIENCE: Duration = Duration::from_millis(1800);

/// The first interrupt sets the flag; the second, or [`PATIENCE`] after the first, ends the process. A pass over a large
/// model can't be broken off, and ending it loses nothing: every settled verdict is in its file already.
///
/// # Errors
/// The signals can't be caught.
pub(super) fn watch(console: Console, last_words: String) -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    ctrlc::set_handler(move || {
        if set.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        let last_words = last_words.clone();
        std::thread::spawn(move || {
            std::thread::sleep(PATIENCE);
            console.say(format!("\ninterrupted: {last_words}"));
            std::process::exit(i32::from(INTERRUPTED));
        });
    })?;
    Ok(flag)
}

/// The command that goes on with a run.
pub(super) fn resume_command(traces: &[PathBuf], folder: &Path) -> String {
    let command = this_command();
    // A folder that was chosen is part of the command already, and a default one follows from it.
    let from_stdin = traces.iter().any(|path| path.as_os_str() == "-");
    let note = if from_stdin {
        format!(" (with the same input; the folder is {})", folder.display())
    } else {
        String::new()
    };
    format!("{command}{note}")
}
