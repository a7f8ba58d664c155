//! What the real-model tests share: where models and data are found, and how a skip is said aloud.
#![allow(dead_code)] // Each test binary uses its part of this file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The model that the tests fetch by themselves (98 MB).
pub const TEST_MODEL: &str = "smollm2-135m-instruct";

/// The built command.
pub fn assize() -> Command {
    Command::new(env!("CARGO_BIN_EXE_assize"))
}

/// Says that a test did not run, and why, past the harness's capture of passing tests.
pub fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// The test model's file, fetched if need be; `None`, said aloud, where it can't be had.
pub fn test_model(test: &str) -> Option<PathBuf> {
    static FETCHED: OnceLock<Result<(), String>> = OnceLock::new();
    let fetched = FETCHED.get_or_init(|| {
        let output = assize()
            .args(["fetch", TEST_MODEL, "--quiet"])
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(last_line(&output.stderr))
        }
    });
    match fetched {
        Ok(()) => cached_model(test, TEST_MODEL),
        Err(why) => {
            skip(test, &format!("{TEST_MODEL} could not be fetched: {why}"));
            None
        }
    }
}

/// A model's file, if an earlier `assize fetch` brought it; `None`, said aloud, otherwise.
pub fn cached_model(test: &str, name: &str) -> Option<PathBuf> {
    let found = assize::weights::fetch::cached(name);
    if found.is_none() {
        skip(test, &format!("{name} is not here (assize fetch {name})"));
    }
    found
}

/// A file or folder of the shared evaluation data; `None`, said aloud, where it is absent.
pub fn shared(test: &str, path: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared")
        .join(path);
    if found.exists() {
        Some(found)
    } else {
        skip(test, &format!("shared/{path} is not here"));
        None
    }
}

/// Standard output of a run that must succeed.
pub fn stdout_of(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).expect("UTF-8 on stdout")
}

fn last_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim()
        .lines()
        .last()
        .unwrap_or("no message")
        .to_owned()
}

/// A verdict line without what depends on the moment: milliseconds, and how much of the prompt was found in the cache.
pub fn timeless(line: &str) -> String {
    let mut verdict: serde_json::Value =
        serde_json::from_str(line).expect("a verdict line is JSON");
    let fields = verdict.as_object_mut().expect("a verdict is an object");
    fields.shift_remove("milliseconds");
    if let Some(tokens) = fields
        .get_mut("tokens")
        .and_then(serde_json::Value::as_object_mut)
    {
        tokens.shift_remove("cached");
    }
    verdict.to_string()
}
