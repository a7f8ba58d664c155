//! Streams a planned model to the disk: some rows at a time, drawn on all threads, under another name until it is whole.

use super::SynthError;
use super::blocks::Drawer;
use super::plan::Plan;
use crate::weights::writer::{Entry, Writer};
use rayon::prelude::*;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that are drawn before they are written. At least one row is.
const DRAWN: usize = 8 << 20;

/// Bytes that are worth a task of their own.
const TASK: usize = 64 << 10;

/// Writes the model and returns the bytes of its file. `progress` is told the bytes of weights written so far.
///
/// # Errors
/// [`SynthError::Exists`] where the file is there and `force` is not given, [`SynthError::Io`] where the disk refuses.
/// What was begun is taken away again.
pub fn write(
    path: &Path,
    plan: &Plan,
    seed: u64,
    force: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, SynthError> {
    if path.exists() && !force {
        return Err(SynthError::Exists { path: path.into() });
    }
    let refused = |action| {
        move |reason| SynthError::Io {
            path: path.into(),
            action,
            reason,
        }
    };
    let unfinished = Unfinished::beside(path);
    let file = File::create(&unfinished.0).map_err(refused("write beside it"))?;
    let file = stream(file, plan, seed, progress).map_err(refused("write it"))?;
    let bytes = file.metadata().map_err(refused("read its size"))?.len();
    drop(file);
    fs::rename(&unfinished.0, path).map_err(refused("give the file its name"))?;
    Ok(bytes)
}

/// A file under another name; it is removed unless it was given its own.
struct Unfinished(PathBuf);

impl Unfinished {
    fn beside(path: &Path) -> Unfinished {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        Unfinished(path.with_file_name(name))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the rename there is nothing of that name, and before it nothing worth keeping.
        let _ = fs::remove_file(&self.0);
    }
}

fn stream(file: File, plan: &Plan, seed: u64, progress: &mut dyn FnMut(u64)) -> io::Result<File> {
    let entries: Vec<Entry> = plan.parts.iter().map(|part| part.entry.clone()).collect();
    let mut writer = Writer::new(file, &plan.metadata, &entries)?;
    let drawer = Drawer::new(seed);
    let mut drawn = Vec::new();
    let mut done = 0u64;
    for (number, part) in plan.parts.iter().enumerate() {
        let entry = &part.entry;
        // The writer has refused rows of broken blocks by now.
        let row_bytes = entry.row_bytes().unwrap_or(1).max(1);
        let step = (DRAWN / row_bytes).max(1);
        for first in (0..entry.rows()).step_by(step) {
            let rows = step.min(entry.rows() - first);
            drawn.resize(rows * row_bytes, 0);
            drawn
                .par_chunks_exact_mut(row_bytes)
                .with_min_len((TASK / row_bytes).max(1))
                .enumerate()
                .for_each(|(row, out)| {
                    drawer.row(entry.quant, part.fill, number, first + row, out)
                });
            writer.write(&drawn)?;
            done += drawn.len() as u64;
            progress(done);
        }
    }
    writer.finish()
}
