//! `assize synth`: writes a model file of random weights, for measuring speed.

use super::Globals;
use super::fault::Fault;
use super::fetch::{Bar, size};
use super::style::Console;
use crate::synth::mix::Mix;
use crate::synth::plan::Plan;
use crate::synth::shape::{Family, Shape, preset};
use crate::synth::{SynthError, file};
use crate::weights::fetch::{FetchOptions, locate};
use crate::weights::progress::Progress as _;
use crate::weights::{FetchError, Metadata, Store, Value};
use anyhow::{Context as _, Result};
use serde_json::json;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `assize synth`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  assize synth llama2-13b --tokenizer vocabulary.gguf --out 13b.gguf
  assize synth qwen2.5-1.5b --quant Q8_0 --tokenizer qwen2.5-coder-1.5b-instruct --out q8.gguf
  assize synth tiny --layers 8 --hidden 512 --out small.gguf
  assize bench --speed --model 13b.gguf

Presets: llama2-13b, llama2-7b, mistral-7b, phi3.5-mini, qwen2.5-1.5b, qwen2.5-0.5b, tiny.
Quantizations: Q4_K_M, Q5_K_M, or one type for all matrices: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K,
Q5_K, Q6_K.

The file has the sizes, types and speed of a real model, and random weights. It is for measuring alone: its verdicts mean
nothing. Without --tokenizer it has no tokenizer, and serves `assize bench --speed` only.")]
pub struct Args {
    /// The sizes to start from.
    #[arg(value_name = "PRESET")]
    pub preset: String,
    /// The file to write.
    #[arg(long, short, value_name = "FILE")]
    pub out: PathBuf,
    /// A mix or a type; see below.
    #[arg(long, short = 't', default_value = "Q4_K_M", value_name = "TYPE")]
    pub quant: String,
    /// A model's name or GGUF file, whose tokenizer and chat template are copied.
    #[arg(long, value_name = "MODEL")]
    pub tokenizer: Option<String>,
    /// A file whose text becomes the chat template, instead of the tokenizer's own.
    #[arg(long, value_name = "FILE", requires = "tokenizer")]
    pub chat_template: Option<PathBuf>,
    /// Another family than the preset's: llama, qwen2, qwen3, phi3, gemma2, gemma3.
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Layers.
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Width of the residual stream.
    #[arg(long, value_name = "N")]
    pub hidden: Option<usize>,
    /// Width inside the MLP.
    #[arg(long, value_name = "N")]
    pub feed_forward: Option<usize>,
    /// Query heads.
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Key and value heads.
    #[arg(long, value_name = "N")]
    pub kv_heads: Option<usize>,
    /// Width of a head, where it is not the hidden width over the heads.
    #[arg(long, value_name = "N")]
    pub head_dim: Option<usize>,
    /// Longest sequence in tokens.
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
    /// Token ids. With a tokenizer, what it lacks of them is filled up with unused tokens.
    #[arg(long, value_name = "N")]
    pub vocabulary: Option<usize>,
    /// Seed of the weights: the same one gives the same file, on any number of threads.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Overwrite the file if it is there.
    #[arg(long)]
    pub force: bool,
}

/// Writes the file, and says on stdout where it lies.
///
/// # Errors
/// [`Fault`] for what no model can have, or for a disk that refuses.
pub fn run(args: &Args, globals: &Globals, console: &Console) -> Result<()> {
    let plan = plan(args, globals).map_err(fault)?;
    globals.prepare()?;
    let bar = Bar::new(globals.quiet);
    bar.begin(&args.out.display().to_string(), Some(plan.bytes()));
    let began = Instant::now();
    let written = file::write(&args.out, &plan, args.seed, args.force, &mut |done| {
        bar.advance(done);
    });
    bar.end();
    let bytes = written.map_err(|error| fault(error.into()))?;
    let seconds = began.elapsed().as_secs_f64();
    console.say(format!(
        "{} of random weights in {seconds:.1} s ({}/s); verdicts of such a model mean nothing",
        size(bytes),
        size((bytes as f64 / seconds.max(1e-9)) as u64),
    ));
    let mut out = stdout().lock();
    if globals.json {
        let object = json!({
            "file": args.out,
            "bytes": bytes,
            "parameters": plan.parameters(),
            "tensors": plan.parts.len(),
            "seconds": (seconds * 1000.0).round() / 1000.0,
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "{}", args.out.display())?;
    }
    Ok(())
}

/// What is to be written.
fn plan(args: &Args, globals: &Globals) -> Result<Plan> {
    let base = preset(&args.preset)?;
    let family = args.family.as_deref().map(Family::named).transpose()?;
    let shape = Shape {
        family: family.unwrap_or(base.family),
        layers: args.layers.unwrap_or(base.layers),
        hidden: args.hidden.unwrap_or(base.hidden),
        feed_forward: args.feed_forward.unwrap_or(base.feed_forward),
        heads: args.heads.unwrap_or(base.heads),
        kv_heads: args.kv_heads.unwrap_or(base.kv_heads),
        head_dim: args.head_dim.or(base.head_dim),
        context: args.context.unwrap_or(base.context),
        ..base
    };
    let mix = Mix::named(&args.quant)?;
    let tokenizer = args
        .tokenizer
        .as_deref()
        .map(|name| tokenizer(name, globals))
        .transpose()?;
    let mut plan = Plan::new(&shape, mix, tokenizer.as_ref(), args.vocabulary)?;
    if let Some(path) = &args.chat_template {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("{}: {error}", path.display());
            Fault::usage(message, "--chat-template takes a Jinja template")
        })?;
        let key = "tokenizer.chat_template";
        plan.metadata.insert(key, Value::String(text));
    }
    Ok(plan)
}

/// The metadata of a model that lies on this disk. Nothing is fetched, and no digest computed for a path.
fn tokenizer(name: &str, globals: &Globals) -> Result<Metadata> {
    let path = Path::new(name);
    let path = if path.is_file() {
        path.to_owned()
    } else {
        let bar = Bar::new(globals.quiet);
        let options = FetchOptions::from_environment(true, &bar)?;
        let located = locate(name, &options).map_err(|error| match error {
            FetchError::Offline { name, .. } => FetchError::Absent { name },
            other => other,
        })?;
        located.path().to_owned()
    };
    let store = Store::open(&path).with_context(|| format!("--tokenizer {name}"))?;
    Ok(store.metadata().clone())
}

/// What is wrong with sizes or names is bad usage; what the disk refuses is not.
fn fault(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<SynthError>() {
        None | Some(SynthError::Io { .. }) => error,
        Some(wrong) => {
            let whole = wrong.to_string();
            let (message, hint) = whole.split_once("\nhint: ").unwrap_or((&whole, ""));
            Fault::usage(message, hint).into()
        }
    }
}
