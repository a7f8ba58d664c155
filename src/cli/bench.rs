//! `assize bench`: measures the engine on a workload whose rows bring their own prompts and shapes; with `--against`, in turns
//! with another server; with `--speed`, the model alone; with `--parity`, a device against the processor.
//!
//! The first round starts cold; later ones find the prefix cache as the round before left it.

use super::Globals;
use super::devices;
use super::engine::EngineArguments;
use super::fault::{Fault, SOME_FAILED};
use super::layouts::{self, Keeper, LayoutCache};
use super::model::{find_model, load};
use super::parity::{self, ParityArguments};
use super::profile;
use super::speed::{self, SpeedArguments};
use super::style::{Console, bytes};
use super::versus::{self, AgainstArguments};
use crate::ask::{Answerer, Ask, Progress};
use crate::judge::digest::Digest;
use crate::run::ModelFile;
use crate::run::profile::Profiling;
use crate::run::replicas::Answering;
use crate::run::settings::peak_memory;
use crate::run::workload::{self, WorkloadMode};
use crate::weights::manifest;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Arguments of `assize bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  assize bench --workload rows.jsonl --mode json
  assize bench --workload rows.jsonl --mode score --rounds 5 --json
  assize bench --workload rows.jsonl --mode json --against http://127.0.0.1:8080 --slots 8 --repeat 5
  assize bench --speed --model model.gguf --prompt 512 --batch 1,8,16
  assize bench --parity --device cuda --model model.gguf --workload rows.jsonl

A row is a JSON object with `prompt` and `json_schema` (mode json), or `score_prompt` and `score_grammar` (mode score).
Template and rubric are bypassed. --against speaks to this machine alone: 127.0.0.0/8, [::1] and localhost.")]
pub struct Args {
    /// A JSONL file of rows.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["speed", "parity"])]
    pub workload: Option<PathBuf>,
    /// Which half of a row is run.
    #[arg(long, value_enum, required_unless_present_any = ["speed", "parity"])]
    pub mode: Option<ModeArgument>,
    /// How often all rows are run.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// A name that `assize models` lists, or a path to a GGUF file.
    #[arg(long, short, default_value = manifest::DEFAULT, value_name = "MODEL")]
    pub model: String,
    /// Run the first N rows only.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// With --against, turns of each side; with --speed, runs of each test.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Another server.
    #[command(flatten)]
    pub against: AgainstArguments,
    /// The model alone.
    #[command(flatten)]
    pub speed: SpeedArguments,
    /// A device against the processor.
    #[command(flatten)]
    pub parity: ParityArguments,
    /// How the engine runs.
    #[command(flatten)]
    pub engine: EngineArguments,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeArgument {
    /// Generate JSON under the row's schema.
    Json,
    /// Read out the row's labels; nothing is generated.
    Score,
}

/// What one round measured.
pub(super) struct Round {
    seconds: f64,
    verdicts: usize,
    pub(super) failures: Vec<String>,
    progress: Progress,
    outputs: String,
}

/// An engine that is ready for a workload.
pub(super) struct Ready {
    pub(super) engine: Box<dyn Answerer>,
    pub(super) asks: Vec<Ask>,
    pub(super) mode: &'static str,
    pub(super) threads: usize,
}

/// Runs the rounds. Returns the exit code.
///
/// # Errors
/// Whatever kept a round from its end.
pub fn run(args: &Args, globals: &Globals, console: &Console) -> Result<u8> {
    if args.speed.speed {
        return speed::run(args, globals, console).map(|()| 0);
    }
    if args.parity.parity {
        return parity::run(args, globals, console);
    }
    if args.against.against.is_some() {
        return versus::run(args, globals, console);
    }
    let Ready {
        mut engine,
        asks,
        mode,
        threads,
    } = ready(args, globals, console)?;
    let mut rounds = Vec::new();
    let mut failed = 0;
    let profiling = args.engine.profile.then(Profiling::begin);
    for number in 1..=args.rounds {
        let round = measure(&mut *engine, &asks)?;
        failed += tell(&round.failures, console);
        let figures = figures(&round);
        let mut out = stdout().lock();
        if globals.json {
            let mut object = json!({ "round": number });
            merge(&mut object, figures.clone());
            writeln!(out, "{object}")?;
        } else {
            writeln!(out, "round {number}: {}", line(&figures))?;
        }
        out.flush()?;
        rounds.push(figures);
    }
    let profile = profiling.map(Profiling::end);
    let medians = medians(&rounds);
    let mut out = stdout().lock();
    if globals.json {
        let mut object = json!({
            "rounds": rounds.len(),
            "model": args.model,
            "mode": mode,
            "rows": asks.len(),
            "threads": threads,
        });
        merge(&mut object, medians);
        if let Some(profile) = &profile {
            object["profile"] = profile::object(profile);
        }
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "median:  {}", line(&medians))?;
    }
    out.flush()?;
    if let Some(profile) = &profile {
        profile::say(profile, console);
    }
    Ok(if failed > 0 { SOME_FAILED } else { 0 })
}

/// Says which rows failed, and returns how many they are.
pub(super) fn tell(failures: &[String], console: &Console) -> usize {
    for failure in failures {
        console.say(format!("failed: {failure}"));
    }
    failures.len()
}

/// Reads the workload, and sets up the engine.
pub(super) fn ready(args: &Args, globals: &Globals, console: &Console) -> Result<Ready> {
    // The parser asks for both where they are needed.
    let (Some(path), Some(mode)) = (&args.workload, args.mode) else {
        return Err(Fault::usage("no workload", "give --workload and --mode").into());
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Fault::usage(format!("{shown}: {error}"), "--workload takes a JSONL file")
    })?;
    let (mode, name) = match mode {
        ModeArgument::Json => (WorkloadMode::Json, "json"),
        ModeArgument::Score => (WorkloadMode::Score, "score"),
    };
    let mut asks = workload::asks(&text, mode).map_err(|error| {
        Fault::usage(
            format!("{shown}:{}: {}", error.line, error.reason),
            "see assize bench --help",
        )
    })?;
    asks.truncate(args.limit.unwrap_or(usize::MAX));
    if asks.is_empty() {
        return Err(
            Fault::usage(format!("{shown} holds no row"), "see assize bench --help").into(),
        );
    }
    let place = devices::place(&args.engine, console)?;
    let threads = globals.prepare()?;
    let layout_cache = LayoutCache::chosen(args.engine.layout_cache)?;
    let located = find_model(&args.model, globals, console)?;
    let model = ModelFile::open(located.path(), located.template())
        .with_context(|| located.path().display().to_string())?
        .compute_on(place);
    let settings = args.engine.settings(name == "json");
    let memory = model.plan(&settings)?;
    let kept = layouts::place(layout_cache, &located, &model);
    let model = model.keep_packed(kept);
    let loaded = load(model, &settings, &memory, console, threads)?;
    // Written before anything is measured.
    Keeper::new(loaded.unwritten, Arc::default(), *console).finish();
    Ok(Ready {
        engine: Answering::new(loaded.engine, loaded.others, &settings).boxed(),
        asks,
        mode: name,
        threads,
    })
}

/// All rows once, from the first submission to the last answer.
pub(super) fn measure(engine: &mut dyn Answerer, asks: &[Ask]) -> Result<Round> {
    let before = engine.progress();
    let began = Instant::now();
    for (ticket, ask) in (0..).zip(asks) {
        engine.submit(ticket, ask.clone());
    }
    let mut settled = BTreeMap::new();
    while settled.len() < asks.len() {
        let answers = engine.step();
        let progress = engine.progress();
        if answers.is_empty() && progress.waiting + progress.running == 0 {
            anyhow::bail!("the engine lost {} rows", asks.len() - settled.len());
        }
        settled.extend(answers);
    }
    let seconds = began.elapsed().as_secs_f64();
    let after = engine.progress();
    let mut failures = Vec::new();
    let mut outputs = Digest::new("assize bench");
    for (ticket, result) in &settled {
        match result {
            Ok(answer) => {
                outputs = outputs.field(&answer.text);
                for mass in answer
                    .readout
                    .iter()
                    .flat_map(|readout| &readout.log_masses)
                {
                    outputs = outputs.field(mass.to_le_bytes());
                }
            }
            Err(failure) => failures.push(format!("row {}: {failure}", ticket + 1)),
        }
    }
    Ok(Round {
        seconds,
        verdicts: settled.len() - failures.len(),
        failures,
        progress: Progress {
            waiting: 0,
            running: 0,
            prompt_tokens: after.prompt_tokens - before.prompt_tokens,
            cached_tokens: after.cached_tokens - before.cached_tokens,
            forced_tokens: after.forced_tokens - before.forced_tokens,
            generated_tokens: after.generated_tokens - before.generated_tokens,
        },
        outputs: outputs.hex(),
    })
}

/// The round's figures. `prompt_tokens` counts computed ones; `outputs_sha256` is equal where all outputs and readouts are.
pub(super) fn figures(round: &Round) -> Value {
    let progress = &round.progress;
    let prompts = progress.prompt_tokens + progress.cached_tokens;
    let rate = |count: u64| rounded(count as f64 / round.seconds);
    json!({
        "seconds": rounded(round.seconds),
        "verdicts": round.verdicts,
        "failed": round.failures.len(),
        "verdicts_per_minute": rounded(round.verdicts as f64 / round.seconds * 60.0),
        "prompt_tokens": progress.prompt_tokens,
        "prompt_tokens_per_second": rate(progress.prompt_tokens),
        "cached_tokens": progress.cached_tokens,
        "prefix_hits": rounded(progress.cached_tokens as f64 / prompts.max(1) as f64),
        "forced_tokens": progress.forced_tokens,
        "generated_tokens": progress.generated_tokens,
        "generated_tokens_per_second": rate(progress.generated_tokens),
        "peak_memory_bytes": peak_memory(),
        "outputs_sha256": round.outputs,
    })
}

/// The median of every number, and a text where it is the same in every round.
pub(super) fn medians(rounds: &[Value]) -> Value {
    let Some(Value::Object(first)) = rounds.first() else {
        return Value::Null;
    };
    let mut object = serde_json::Map::new();
    for (name, value) in first {
        let all = || rounds.iter().filter_map(|round| round.get(name));
        let mut numbers: Vec<f64> = all().filter_map(Value::as_f64).collect();
        if numbers.len() == rounds.len() {
            numbers.sort_by(f64::total_cmp);
            let middle = numbers.len() / 2;
            let low = numbers[(numbers.len() - 1) / 2];
            let median = rounded((low + numbers[middle]) / 2.0);
            object.insert(
                name.clone(),
                if median.fract() == 0.0 {
                    json!(median as u64)
                } else {
                    json!(median)
                },
            );
        } else if all().all(|other| other == value) {
            object.insert(name.clone(), value.clone());
        } else {
            object.insert(name.clone(), Value::Null);
        }
    }
    Value::Object(object)
}

pub(super) fn line(figures: &Value) -> String {
    let number = |name: &str| figures[name].as_f64().unwrap_or(0.0);
    format!(
        "{:.1} verdicts/min  {:.1} s  prompt {:.0} tokens/s  generated {:.1} tokens/s  prefix hits {:.0} %  forced {:.0}  \
         failed {:.0}  peak memory {}",
        number("verdicts_per_minute"),
        number("seconds"),
        number("prompt_tokens_per_second"),
        number("generated_tokens_per_second"),
        100.0 * number("prefix_hits"),
        number("forced_tokens"),
        number("failed"),
        bytes(number("peak_memory_bytes") as u64),
    )
}

pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

pub(super) fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_rounds() {
        let rounds = [
            json!({"verdicts_per_minute": 10.5, "forced_tokens": 3, "outputs_sha256": "a"}),
            json!({"verdicts_per_minute": 30.5, "forced_tokens": 3, "outputs_sha256": "a"}),
            json!({"verdicts_per_minute": 20.5, "forced_tokens": 5, "outputs_sha256": "a"}),
        ];
        assert_eq!(
            medians(&rounds),
            json!({"verdicts_per_minute": 20.5, "forced_tokens": 3, "outputs_sha256": "a"})
        );
        assert_eq!(medians(&rounds[..2])["verdicts_per_minute"], json!(20.5));
        assert_eq!(
            medians(&[json!({"a": "x"}), json!({"a": "y"})]),
            json!({"a": null})
        );
    }
}
