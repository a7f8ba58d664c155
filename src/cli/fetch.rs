//! `assize fetch`: brings models by name to this disk. The bar, the lines and the table are drawn here; the work is
//! [`crate::weights::fetch`]'s.

use super::style::line_of_stderr;
use crate::weights::FetchError;
use crate::weights::fetch::{FetchOptions, fetch};
use crate::weights::manifest::{self, Kind, Manifest};
use crate::weights::progress::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::cell::RefCell;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::{Duration, Instant};

/// Arguments of `assize fetch`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  assize fetch                      the default model
  assize fetch prometheus-7b-v2.0   an evaluator
  assize fetch --all-tests          what the tests use
  ASSIZE_HOME=/data/models assize fetch qwen2.5-7b-instruct")]
pub struct Args {
    /// Names of models, as `assize models` lists them; the default model if none is given.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Fetch the small models that the tests use.
    #[arg(long, conflicts_with = "names")]
    pub all_tests: bool,
}

/// Fetches the models and prints where each lies: a line, or with `json` an object, for each file on stdout.
///
/// # Errors
/// [`FetchError`], of the first model that can't be had.
pub fn run(args: &Args, json: bool, quiet: bool, offline: bool) -> anyhow::Result<()> {
    let manifests = chosen(args)?;
    let bar = Bar::new(quiet);
    let options = FetchOptions::from_environment(offline, &bar)?;
    for manifest in manifests {
        for ((path, sha256), file) in fetch(manifest, &options)?.into_iter().zip(&manifest.files) {
            let bytes = std::fs::metadata(&path).map(|file| file.len()).ok();
            let mut out = stdout().lock();
            if json {
                let line = json!({
                    "model": manifest.name, "file": file.name, "path": path, "bytes": bytes, "sha256": sha256,
                    "pinned": file.sha256.is_some(), "licence": manifest.licence,
                });
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "{}", path.display())?;
            }
        }
        if !quiet {
            let licence = &manifest.licence;
            line_of_stderr(format!(
                "{}: here and checked (licence: {licence})",
                manifest.name
            ));
        }
    }
    Ok(())
}

fn chosen(args: &Args) -> Result<Vec<&'static Manifest>, FetchError> {
    if args.all_tests {
        let small = |manifest: &&Manifest| {
            manifest.kind == Kind::Test || manifest.name == "qwen2.5-coder-0.5b-instruct"
        };
        return Ok(manifest::all().iter().filter(small).collect());
    }
    let default = [manifest::DEFAULT.to_owned()];
    let names = if args.names.is_empty() {
        &default[..]
    } else {
        &args.names[..]
    };
    names
        .iter()
        .map(|name| manifest::find(name).ok_or(FetchError::Unknown { name: name.clone() }))
        .collect()
}

/// Draws [`Progress`] on stderr: a bar on a terminal, else a line now and then.
pub struct Bar {
    quiet: bool,
    terminal: bool,
    state: RefCell<State>,
}

struct State {
    bar: ProgressBar,
    label: String,
    total: Option<u64>,
    began: Instant,
    said: Instant,
}

impl Bar {
    /// With `quiet`, only notes are shown.
    pub fn new(quiet: bool) -> Bar {
        let now = Instant::now();
        let state = State {
            bar: ProgressBar::hidden(),
            label: String::new(),
            total: None,
            began: now,
            said: now,
        };
        Bar {
            quiet,
            terminal: stderr().is_terminal(),
            state: RefCell::new(state),
        }
    }
}

impl Progress for Bar {
    fn begin(&self, label: &str, total: Option<u64>) {
        let mut state = self.state.borrow_mut();
        // A retried download begins anew under the same label.
        if state.label == label
            && state.total == total
            && !state.bar.is_finished()
            && !state.bar.is_hidden()
        {
            return;
        }
        state.bar.finish_and_clear();
        *state = State {
            label: label.into(),
            total,
            began: Instant::now(),
            said: Instant::now(),
            bar: ProgressBar::hidden(),
        };
        if self.quiet {
            return;
        }
        if self.terminal {
            let template = match total {
                Some(_) => "{msg} [{bar:30}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
                None => "{msg} {bytes}, {bytes_per_sec}",
            };
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            state.bar = bar
                .with_style(style.progress_chars("=> "))
                .with_message(label.to_owned());
        } else if let Some(total) = total.filter(|total| *total > 50_000_000) {
            line_of_stderr(format!("{label} ({})", size(total)));
        }
    }

    fn advance(&self, done: u64) {
        let mut state = self.state.borrow_mut();
        state.bar.set_position(done);
        // A log that nobody sees move wants a line all the same, or a slow download looks dead.
        if !self.quiet && !self.terminal && state.said.elapsed() > Duration::from_secs(10) {
            state.said = Instant::now();
            let rate = done as f64 / state.began.elapsed().as_secs_f64();
            let of = state
                .total
                .map(|total| format!(" of {}", size(total)))
                .unwrap_or_default();
            line_of_stderr(format!(
                "{}: {}{of}, {}/s",
                state.label,
                size(done),
                size(rate as u64)
            ));
        }
    }

    fn end(&self) {
        let mut state = self.state.borrow_mut();
        state.bar.finish_and_clear();
        state.label.clear();
    }

    fn note(&self, line: &str) {
        let state = self.state.borrow();
        state.bar.suspend(|| line_of_stderr(line));
    }
}

/// Bytes for people: `98.4 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |bytes, expect| assert_eq!(size(bytes), expect);
        check(999, "999 B");
        check(1_500, "1.5 kB");
        check(98_362_432, "98.4 MB");
        check(1_117_320_768, "1.12 GB");
    }

    #[test]
    fn which_models() {
        let names = |args: Args| {
            chosen(&args).map(|all| {
                all.iter()
                    .map(|manifest| &*manifest.name)
                    .collect::<Vec<_>>()
            })
        };
        let args = |names: &[&str], all_tests| Args {
            names: names.iter().map(|&name| name.into()).collect(),
            all_tests,
        };
        assert_eq!(names(args(&[], false)).expect("names"), [manifest::DEFAULT]);
        assert_eq!(
            names(args(&["gemma-2-2b-it"], false)).expect("names"),
            ["gemma-2-2b-it"]
        );
        assert!(
            names(args(&[], true))
                .expect("names")
                .contains(&manifest::TEST)
        );
        assert!(
            names(args(&["nobody"], false))
                .expect_err("no such name")
                .is_usage()
        );
    }
}
