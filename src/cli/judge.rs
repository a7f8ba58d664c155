//! `assize judge`: files of traces and a rubric go in, verdicts come out.

use super::Globals;
use super::devices;
use super::engine::EngineArguments;
use super::fault::{Fault, INTERRUPTED, SOME_FAILED};
use super::interrupt;
use super::jury::{Further, JuryArguments, Kin};
use super::layouts::{self, Keeper, LayoutCache};
use super::meter::Meter;
use super::model::{find_model, load};
use super::profile;
use super::rubrics::{self, OrderArgument};
use super::shots::ShotsArguments;
use super::style::Console;
use crate::journal::{
    Journal, ModelDescription, RunDescription, SettingsDescription, VerdictCache,
};
use crate::judge::rules::FormatName;
use crate::judge::{Manner, Mode, Rubric};
use crate::report::{Findings, table};
use crate::run::feed::{Fed, feed};
use crate::run::keep::Keep;
use crate::run::profile::{Profile, Profiling};
use crate::run::replicas::Answering;
use crate::run::{ModelFile, Pipeline};
use crate::trace::{self, FieldMap, TraceFormat};
use crate::weights;
use crate::weights::manifest;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `assize judge`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  assize judge examples/support.jsonl --rubric examples/grounded.toml
  assize judge runs.csv more.jsonl --rubric helpful.toml --model prometheus-7b-v2.0
  assize judge logs.jsonl --rubric grounded.toml --map answer=response.text --map context=docs
  cat logs.jsonl | assize judge - --rubric grounded.toml --mode score-only --json

Running the same command again goes on where it was interrupted. What the run folder holds:
run.json (what was run) and verdicts.jsonl (a line an item).")]
pub struct Args {
    /// Files of traces (.jsonl, .ndjson, .csv), or - for JSONL on the standard input.
    #[arg(required = true, value_name = "TRACES")]
    pub traces: Vec<PathBuf>,
    /// The rubric, a TOML file; given several times, each item is judged under each.
    #[arg(long = "rubric", short, required = true, value_name = "FILE")]
    pub rubrics: Vec<PathBuf>,
    /// What stands first in a prompt, and so is computed once: the rubric for all items, or the item for all rubrics; by default
    /// whichever takes fewer tokens.
    #[arg(long, value_enum, default_value_t = OrderArgument::Auto, value_name = "ORDER")]
    pub prompt_order: OrderArgument,
    /// A name that `assize models` lists, or a path to a GGUF file.
    #[arg(long, short, default_value = manifest::DEFAULT, value_name = "MODEL")]
    pub model: String,
    /// Whether the judge writes a rationale and quotes before its label.
    #[arg(long, value_enum, default_value_t = ModeArgument::Rationale)]
    pub mode: ModeArgument,
    /// The run folder; by default `runs/RUBRIC-DIGEST`, named by the rubric and by what is run.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Judge the first N lines only.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Seed, for rubrics with a temperature.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Where a field of the item is found, such as answer=response.text.
    #[arg(long = "map", value_name = "FIELD=KEY")]
    pub maps: Vec<String>,
    /// Stop at the first bad line.
    #[arg(long)]
    pub strict: bool,
    /// How the traces are written, where their names do not tell.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<FormatArgument>,
    /// Keep what the prompts of a rubric begin with for the next run, in this folder, or with `auto` beside the models. No text of a trace is in it.
    #[arg(long, value_name = "auto|DIR", conflicts_with = "no_prefix_cache")]
    pub keep_prefix: Option<PathBuf>,
    /// Take verdicts from this folder where another run has kept one of the same item, rubric, model and settings, and keep new
    /// ones there. Verdicts hold text: quotes of the answers and what the judge wrote.
    #[arg(long, value_name = "DIR")]
    pub verdict_cache: Option<PathBuf>,
    /// The form in which the model is asked: json, or one that evaluators were trained on (prometheus-v1, prometheus-v2, flow-judge,
    /// glider, selene); by default the model's own.
    #[arg(long, value_name = "FORM")]
    pub contract: Option<String>,
    /// Examples out of a labelled file.
    #[command(flatten)]
    pub shots: ShotsArguments,
    /// Who judges besides.
    #[command(flatten)]
    pub jury: JuryArguments,
    /// How the engine runs.
    #[command(flatten)]
    pub engine: EngineArguments,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeArgument {
    /// A rationale and quotes come first, and the label is conditional on them.
    Rationale,
    /// The label's distribution right after the prompt: nothing is decoded.
    ScoreOnly,
}

/// `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FormatArgument {
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
}

/// Judges. Returns the exit code.
///
/// # Errors
/// Whatever kept the run from its end; what was settled is in the run folder.
pub fn run(args: &Args, globals: &Globals, console: &Console) -> Result<u8> {
    let mut rubrics = rubrics::read(&args.rubrics)?;
    args.shots.fill(
        &mut rubrics,
        args.mode == ModeArgument::Rationale,
        args.seed,
        console,
    )?;
    args.jury.check(&rubrics)?;
    let map = FieldMap::parse(&args.maps).map_err(|error| {
        Fault::usage(
            format!("--map: {error}"),
            "for example --map answer=response.text",
        )
    })?;
    let format = args.format.map(|format| match format {
        FormatArgument::Jsonl => TraceFormat::Jsonl,
        FormatArgument::Csv => TraceFormat::Csv,
    });
    let traces = trace::open(&args.traces, format, map.clone()).map_err(|error| {
        Fault::usage(
            error.to_string(),
            "give paths of .jsonl or .csv files, or --format",
        )
    })?;
    let limit = args.limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    let total = trace::count(&args.traces, format).map(|count| count.min(limit));
    if total == Some(0) {
        return Err(no_item().into());
    }
    let place = devices::place(&args.engine, console)?;
    let threads = globals.prepare()?;
    let layout_cache = LayoutCache::chosen(args.engine.layout_cache)?;

    let located = find_model(&args.model, globals, console)?;
    let model = ModelFile::open(located.path(), located.template())
        .with_context(|| located.path().display().to_string())?
        .compute_on(place);
    let Some(template_digest) = model.template_digest().map(String::from) else {
        let message = format!("{} has no chat template", located.path().display());
        return Err(Fault::usage(
            message,
            "use an instruct model: a base model can't be asked to judge",
        )
        .into());
    };
    let mut judges = vec![args.model.clone(), file_name(located.path())];
    judges.extend(args.jury.also.iter().chain(&args.jury.cascade).cloned());
    let mode = match args.mode {
        ModeArgument::Rationale => Mode::Rationale,
        ModeArgument::ScoreOnly => Mode::ScoreOnly,
    };
    let mut manner = Manner {
        mode,
        contract: rubrics::contract(
            args.contract.as_deref(),
            &args.model,
            &located,
            &rubrics,
            console,
        )?,
        seed: args.seed,
        ..Manner::default()
    };
    manner.order = rubrics::prompt_order(
        args.prompt_order,
        manner,
        &args.traces,
        &rubrics,
        format,
        &map,
        console,
    )?;
    let further = args.jury.find(
        args.contract.as_deref(),
        &rubrics,
        model.place(),
        globals,
        console,
    )?;
    let jury = args.jury.seat(&args.model, rubrics, manner, &further)?;
    let formats = jury.formats;
    let grammars = mode == Mode::Rationale
        || formats
            .iter()
            .any(|format| format.rubric().format == FormatName::Claims);
    let settings = args.engine.settings(grammars);
    let memory = model.plan(&settings)?;
    let (device, kv_type) = devices::described(model.place(), &settings, &memory);
    let description = RunDescription {
        assize: env!("CARGO_PKG_VERSION").into(),
        model: ModelDescription {
            name: args.model.clone(),
            files: located.files.iter().map(|path| file_name(path)).collect(),
            sha256: vec![located.sha256.clone()],
        },
        tokenizer_digest: model.tokenizer_digest().into(),
        template_digest,
        further: further
            .iter()
            .map(Further::describe)
            .collect::<Result<_>>()?,
        rubrics: formats
            .iter()
            .map(|format| rubrics::describe(format.as_ref()))
            .collect(),
        seed: args.seed,
        device,
        instruction_set: devices::about(model.place()),
        threads,
        settings: SettingsDescription {
            mode: mode.name().into(),
            ensemble: jury.ensemble,
            exact: args.engine.exact,
            kv_type,
            context: args.engine.context.map(|tokens| tokens as usize),
            traces: args
                .traces
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            map: args.maps.clone(),
            limit: args.limit.map(|_| limit),
            max_batch: args.engine.max_batch as usize,
            prefill_chunk: args.engine.prefill_chunk as usize,
            prefix_cache: !args.engine.no_prefix_cache,
            cache_bytes: memory.cache,
        },
    };
    let folder = args
        .out
        .clone()
        .unwrap_or_else(|| rubrics::default_folder(&description));
    let (mut journal, opened) = Journal::open(&folder, &description)?;
    if opened.torn > 0 {
        let (shown, torn) = (folder.display(), opened.torn);
        console.say(format!(
            "{shown}: dropped a line that was torn ({torn} bytes)"
        ));
    }
    if opened.settled > 0 {
        let (shown, settled) = (folder.display(), opened.settled);
        console.say(format!("{shown}: {settled} items are settled already"));
    }
    let kept = layouts::place(layout_cache, &located, &model);
    let model = model.keep_packed(kept);
    let loaded = load(model, &settings, &memory, console, threads)?;
    let hint = format!(
        "to go on, run: {}",
        interrupt::resume_command(&args.traces, &folder)
    );
    let interrupted = interrupt::watch(
        *console,
        format!("what was settled is kept, the rest is not judged\n\nhint: {hint}"),
    )?;
    let total = total.map(|total| total * formats.len());
    let mut meter = Meter::new(total, globals.quiet);
    let mut engine = Answering::new(loaded.engine, loaded.others, &settings);
    let mut others = further
        .into_iter()
        .map(|further| further.load(&settings, layout_cache, console, threads))
        .collect::<Result<Vec<_>>>()?;
    let mut keeper = Keeper::new(loaded.unwritten, interrupted.clone(), *console);
    let kept = args
        .keep_prefix
        .as_deref()
        .map(keeping_folder)
        .transpose()?;
    let mut keep = kept.map(|folder| Keep::new(folder, &description));
    let kept = match (&mut keep, engine.alone()) {
        (Some(keep), Some(engine)) => Some(keep.load(engine)),
        _ => None,
    };
    match kept {
        None | Some(Ok(None)) => (),
        Some(Ok(Some(tokens))) => {
            console.say(format!("{tokens} tokens of an earlier run's prefix"))
        }
        Some(Err(refused)) => tracing::debug!("the kept prefix is not used: {refused}"),
    }
    let edition = format!(
        "{}-{}-{}",
        description.assize,
        assize_kernels::ARITHMETIC,
        description.device
    );
    let cache = args.verdict_cache.as_deref();
    let cache = cache
        .map(|folder| VerdictCache::open(folder, &edition))
        .transpose()?;
    let pipeline = Pipeline {
        answerers: std::iter::once(&mut engine)
            .chain(&mut others)
            .map(Answering::answerer)
            .collect(),
        formats: formats.clone(),
        description: &description,
        journal: &mut journal,
        cache: cache.as_ref(),
        window: 4 * args.engine.max_batch as usize,
        strict: args.strict,
        interrupt: &interrupted,
        grace: Duration::from_millis(1000),
    };
    let mut kin = Kin::new(judges.iter().map(String::as_str), *console);
    let items = traces.take(limit).inspect(move |item| kin.see(item));
    let whole = |path: &PathBuf| path.as_os_str() != "-" && path.is_file();
    let items: Box<dyn Iterator<Item = Fed>> = match args.traces.iter().all(whole) {
        true => Box::new(items.map(Fed::Item)),
        false => Box::new(feed(items)),
    };
    let profiling = args.engine.profile.then(Profiling::begin);
    let run = pipeline.run(items, &mut |run| {
        if run.judged + run.failed > 0 {
            keeper.begin();
        }
        meter.show(run);
    })?;
    let profile = profiling.map(Profiling::end);
    console.say(meter.finish(&run));
    if let Some(keep) = keep.filter(|_| !run.interrupted)
        && let Some(engine) = engine.alone()
        && let Err(error) = keep.save(engine)
    {
        console.say(format!("warning: the prefix is not kept: {error}"));
    }

    let judged: Vec<&Rubric> = formats.iter().map(|format| format.rubric()).collect();
    let findings = report(
        &judged,
        &journal,
        &run.keys,
        globals.json,
        run.interrupted,
        profile.as_ref(),
    )?;
    if let Some(profile) = &profile {
        profile::say(profile, console);
    }
    console.say(format!(
        "verdicts: {}",
        folder.join("verdicts.jsonl").display()
    ));
    keeper.finish();
    if run.interrupted {
        console.say(format!(
            "interrupted: {} settled, the rest is not judged",
            run.settled()
        ));
        console.say(format!("\nhint: {hint}"));
        return Ok(INTERRUPTED);
    }
    if run.keys.is_empty() {
        return Err(no_item().into());
    }
    Ok(if findings.failed() > 0 {
        SOME_FAILED
    } else {
        0
    })
}

/// Where prefixes are kept.
fn keeping_folder(given: &Path) -> Result<PathBuf> {
    if given.as_os_str() != "auto" {
        return Ok(given.to_path_buf());
    }
    let home = weights::fetch::home();
    let missing = || {
        Fault::usage(
            "there is no home folder to keep prefixes in",
            "give a folder: --keep-prefix DIR",
        )
    };
    Ok(home.ok_or_else(missing)?.join("prefixes"))
}

fn no_item() -> Fault {
    Fault::usage(
        "the traces hold no item",
        "each line is one item, such as {\"answer\": …}",
    )
}

/// Prints what the run found: a table, or the verdict lines and one summary object.
fn report(
    rubrics: &[&Rubric],
    journal: &Journal,
    keys: &[String],
    json: bool,
    interrupted: bool,
    profile: Option<&Profile>,
) -> Result<Findings> {
    let rows = || keys.iter().filter_map(|key| journal.row(key));
    let findings = Findings::new(rubrics, rows());
    let mut out = std::io::BufWriter::new(stdout().lock());
    if json {
        for key in keys {
            if let Some(line) = journal.line(key)? {
                out.write_all(line.as_bytes())?;
            }
        }
        let mut object = findings.json();
        object.insert("interrupted".into(), json!(interrupted));
        object.insert("run".into(), json!(journal.folder()));
        if let Some(profile) = profile {
            object.insert("profile".into(), profile::object(profile));
        }
        writeln!(out, "{}", json!({ "summary": Value::Object(object) }))?;
    } else {
        let width = std::env::var("COLUMNS")
            .ok()
            .and_then(|columns| columns.parse().ok())
            .unwrap_or(110);
        let expected = findings.expected_column();
        write!(
            out,
            "{}\n{}",
            table(rows(), expected, width),
            findings.text()
        )?;
    }
    out.flush()?;
    Ok(findings)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
