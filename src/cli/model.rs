//! The model of a command: found by its name, and read.

use super::Globals;
use super::devices;
use super::fetch::Bar;
use super::style::{Console, bytes};
use crate::run::{JudgeSettings, Loaded, Memory, ModelFile};
use crate::weights::fetch::{FetchOptions, Located, locate};
use crate::weights::manifest::{self, Kind};
use anyhow::{Context as _, Result};
use std::time::Instant;

/// Finds the model, fetching it where that is needed and allowed.
pub(super) fn find_model(name: &str, globals: &Globals, console: &Console) -> Result<Located> {
    if name == manifest::DEFAULT {
        let evaluators = manifest::all()
            .iter()
            .filter(|manifest| manifest.kind == Kind::Evaluator);
        let names: Vec<&str> = evaluators.map(|manifest| manifest.name.as_str()).collect();
        console.say(format!(
            "{name} is a small general model; evaluators made for the job: {} (--model NAME)",
            names.join(", ")
        ));
    }
    let bar = Bar::new(globals.quiet);
    let options = FetchOptions::from_environment(globals.offline, &bar)?;
    Ok(locate(name, &options)?)
}

/// Reads the weights, and says what that took and what the cache may take.
pub(super) fn load(
    model: ModelFile,
    settings: &JudgeSettings,
    memory: &Memory,
    console: &Console,
    threads: usize,
) -> Result<Loaded> {
    let began = Instant::now();
    let path = model.path().display().to_string();
    let there = devices::there(model.place(), memory);
    let loaded = model.load(settings, memory, None).with_context(|| path)?;
    let how = if loaded.mapped { "mapped" } else { "read" };
    let free = memory
        .free
        .map(|free| format!(" of {} free", bytes(free)))
        .unwrap_or_default();
    console.say(format!(
        "model {how} in {:.1} s: weights {}, KV cache up to {}{free} ({} tokens), {threads} threads, {}{there}",
        began.elapsed().as_secs_f64(),
        bytes(loaded.weight_bytes as u64),
        bytes(memory.cache),
        memory.tokens(),
        instruction_set(),
    ));
    Ok(loaded)
}

fn instruction_set() -> String {
    assize_kernels::isa().name().into()
}
