//! `--layout-cache`: whether packed weights are kept on disk for the next start, and the thread that writes them.
//!
//! A gibibyte of disk is the user's. `auto` spends it where it buys seconds at every start, which is for files of 200 MB and more, says so
//! once, and says how to have it back.

use super::fault::Fault;
use super::style::{Console, bytes};
use crate::run::ModelFile;
use crate::weights::fetch::{Located, home};
use crate::weights::layouts::{LayoutError, Place, Unwritten};
use anyhow::Result;
use clap::ValueEnum as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Name of the variable that stands for the option where it is not given.
const VARIABLE: &str = "ASSIZE_LAYOUT_CACHE";

/// From which size of a model file on `auto` keeps its packed weights.
const LARGE: u64 = 200_000_000;

/// `--layout-cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LayoutCache {
    /// Keep those of files of 200 MB and more.
    Auto,
    /// Keep them.
    On,
    /// Neither read nor write any.
    Off,
}

impl LayoutCache {
    /// What was asked for: by the option, else by the variable, else `auto`.
    ///
    /// # Errors
    /// A variable that says what can't be.
    pub(super) fn chosen(given: Option<LayoutCache>) -> Result<LayoutCache> {
        match (given, std::env::var_os(VARIABLE)) {
            (Some(given), _) => Ok(given),
            (None, Some(value)) if !value.is_empty() => {
                let value = value.to_string_lossy();
                LayoutCache::from_str(&value, true).map_err(|_| {
                    Fault::usage(format!("{VARIABLE}={value}"), "it may be auto, on or off").into()
                })
            }
            _ => Ok(LayoutCache::Auto),
        }
    }
}

/// Where the packed weights of a model are kept; `None` where they are not.
pub(super) fn place(choice: LayoutCache, located: &Located, model: &ModelFile) -> Option<Place> {
    let keep = match choice {
        LayoutCache::Auto => model.byte_len() >= LARGE,
        LayoutCache::On => true,
        LayoutCache::Off => false,
    };
    home().filter(|_| keep).map(|home| Place {
        home,
        sha256: located.sha256.clone(),
    })
}

/// Keeps packed weights, beside what else is done.
pub(super) struct Keeper {
    console: Console,
    state: State,
    stop: Arc<AtomicBool>,
}

enum State {
    Nothing,
    Waiting(Unwritten),
    Writing(JoinHandle<(Place, Result<Option<u64>, LayoutError>)>),
}

impl Keeper {
    /// Nothing is written yet, and nothing will be, or go on being, once `stop` is set.
    pub fn new(unwritten: Option<Unwritten>, stop: Arc<AtomicBool>, console: Console) -> Keeper {
        Keeper {
            console,
            state: unwritten.map_or(State::Nothing, State::Waiting),
            stop,
        }
    }

    /// Begins to write, if there is anything to be written. To be called when the first verdict is there: until then it would take the time of
    /// what somebody waits for.
    pub fn begin(&mut self) {
        let unwritten = match std::mem::replace(&mut self.state, State::Nothing) {
            State::Waiting(unwritten) => unwritten,
            other => {
                self.state = other;
                return;
            }
        };
        let stop = self.stop.clone();
        let thread = std::thread::Builder::new().name("layouts".into());
        let spawned = thread.spawn(move || {
            let written = unwritten.write(&stop);
            (unwritten.place, written)
        });
        match spawned {
            Ok(thread) => self.state = State::Writing(thread),
            Err(error) => warn(self.console, &error.to_string()),
        }
    }

    /// Sees the writing to its end and says what came of it.
    pub fn finish(mut self) {
        if !self.stop.load(Ordering::Relaxed) {
            self.begin();
        }
        let State::Writing(thread) = self.state else {
            return;
        };
        match thread.join() {
            Ok((place, Ok(Some(count)))) => self.console.say(format!(
                "packed weights kept for the next start: {} in {} (--layout-cache off keeps none; the file may be removed)",
                bytes(count),
                place.path().display(),
            )),
            Ok((_, Ok(None))) => {}
            Ok((_, Err(error))) => warn(self.console, &error.to_string()),
            Err(_) => warn(self.console, "the thread that writes them came to an end"),
        }
    }
}

fn warn(console: Console, reason: &str) {
    console.say(format!(
        "warning: packed weights are not kept for the next start: {reason}"
    ));
}
