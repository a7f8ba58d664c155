//! `assize review`: the items of a run that a human should see, as a file to be filled in and given to `assize measure`.

use super::Globals;
use super::fault::Fault;
use super::style::Console;
use super::verdicts;
use crate::report::review::{COLUMNS, Entry, FIELDS, Thresholds};
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

/// Arguments of `assize review`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  assize review runs/grounded-1a2b3c4d --out queue.csv
  assize review runs/grounded-1a2b3c4d --margin 0.5 --json > queue.jsonl
  assize measure runs/grounded-1a2b3c4d --labels queue.csv

An item is in the queue if it failed, if little probability lay on its labels, if its margin is small or its entropy high,
or if orders, judges of a panel or steps of a cascade did not agree. Fill in the column label and give the file back to
assize measure --labels; lines that are left empty do not count. A file that exists is never written over.

Exit codes: 0 written, even where nothing is to be reviewed; 2 bad usage or input.")]
pub struct Args {
    /// A run folder, or its verdicts.jsonl.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The rubric whose verdicts are meant, of a run under several.
    #[arg(long, value_name = "RUBRIC")]
    pub of: Option<String>,
    /// The file to write (.csv, .jsonl, .ndjson); without it the queue goes to stdout, as CSV or with --json as JSONL.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// A margin below this is small.
    #[arg(long, default_value_t = 0.2, value_name = "X")]
    pub margin: f64,
    /// An entropy above this share of its maximum is high.
    #[arg(long, default_value_t = 0.9, value_name = "X")]
    pub entropy: f64,
}

/// How a queue is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Csv,
    Jsonl,
}

/// Writes the queue.
///
/// # Errors
/// A run that can't be read, thresholds that are no shares, or a file that exists or can't be written.
pub fn run(args: &Args, globals: &Globals, console: &Console) -> Result<()> {
    for (name, share) in [("--margin", args.margin), ("--entropy", args.entropy)] {
        if !(0.0..=1.0).contains(&share) {
            return Err(Fault::usage(format!("{name} {share}"), "use a number from 0 to 1").into());
        }
    }
    let form = match &args.out {
        Some(path) => form_of(path)?,
        None if globals.json => Form::Jsonl,
        None => Form::Csv,
    };
    let thresholds = Thresholds {
        margin: args.margin,
        entropy: args.entropy,
    };
    let found = verdicts::read(&args.run, args.of.as_deref(), &FIELDS)?;
    if found.torn {
        let shown = found.path.display();
        console.say(format!("{shown}: its last line is torn and left out"));
    }
    let entries: Vec<Entry> = found
        .lines
        .iter()
        .filter_map(|line| Entry::of(&line.fields, &thresholds))
        .collect();
    match &args.out {
        None => write(stdout().lock(), &entries, form)?,
        Some(path) => {
            let file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(path);
            let file = file.map_err(|error| {
                let shown = path.display();
                let hint = match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        "it may hold labels: give another name, or remove it"
                    }
                    _ => "check that its folder is there and can be written to",
                };
                Fault::usage(format!("{shown}: {error}"), hint)
            })?;
            write(std::io::BufWriter::new(file), &entries, form)?;
        }
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in entries.iter().flat_map(|entry| &entry.reasons) {
        *counts.entry(reason.name()).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let (queued, all) = (entries.len(), found.lines.len());
    let why = if counts.is_empty() {
        String::new()
    } else {
        format!(": {}", counts.join(", "))
    };
    console.say(format!("{queued} of {all} items to review{why}"));
    Ok(())
}

fn form_of(path: &Path) -> Result<Form, Fault> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending.unwrap_or_default().to_ascii_lowercase().as_str() {
        "csv" => Ok(Form::Csv),
        "jsonl" | "ndjson" => Ok(Form::Jsonl),
        _ => Err(Fault::usage(
            format!("{}: can't tell its format from its name", path.display()),
            "name it .csv or .jsonl",
        )),
    }
}

fn write(mut out: impl Write, entries: &[Entry], form: Form) -> Result<()> {
    match form {
        Form::Jsonl => {
            for entry in entries {
                writeln!(out, "{}", entry.json())?;
            }
        }
        Form::Csv => {
            let mut rows = csv::Writer::from_writer(&mut out);
            rows.write_record(COLUMNS)?;
            for entry in entries {
                rows.write_record(entry.row())?;
            }
            rows.flush()?;
        }
    }
    out.flush()?;
    Ok(())
}
