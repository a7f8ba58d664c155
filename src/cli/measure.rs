//! `assize measure`: how far the verdicts of a run agree with labels that people gave.

use super::Globals;
use super::fault::{Fault, SOME_FAILED};
use super::style::Console;
use super::verdicts::{self, named};
use crate::journal::RowOutcome;
use crate::measure::labels::{Form, canonical};
use crate::measure::{
    Confusion, Correlation, Findings, Labels, MeasureError, Proportion, Resampling, Said,
};
use crate::report::table::plain;
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _, stdout};
use std::path::{Path, PathBuf};

/// Longest file of labels, in bytes.
const MAX_LABELS: u64 = 256 << 20;

/// Arguments of `assize measure`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  assize measure runs/grounded-1a2b3c4d --labels labels.csv
  assize measure runs/grounded-1a2b3c4d/verdicts.jsonl --labels labels.jsonl --positive fail
  assize measure runs/helpful-5e6f7a8b --labels reviewed.csv --json | jq .kappa

The labels file has a line an item: id,label in CSV (with that header), or {\"id\": …, \"label\": …} in JSONL. Lines with an
empty label are not labelled yet. Items are matched by name. An item without a label, a verdict or success is named and
never scored. Intervals hold 95 %: Wilson's for shares, percentiles of a seeded bootstrap for correlations.

Exit codes: 0 every labelled item has a verdict, 3 some have none, 2 bad usage or input.")]
pub struct Args {
    /// A run folder, or its verdicts.jsonl.
    #[arg(value_name = "VERDICTS")]
    pub verdicts: PathBuf,
    /// The rubric whose verdicts are meant, of a run under several.
    #[arg(long, value_name = "RUBRIC")]
    pub of: Option<String>,
    /// People's labels (.csv, .jsonl, .ndjson).
    #[arg(long, short, value_name = "FILE")]
    pub labels: PathBuf,
    /// The label that counts as positive for the hit rates, against all others; pass, where there are two labels.
    #[arg(long, value_name = "LABEL")]
    pub positive: Option<String>,
    /// Resamples for the intervals of correlations.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=100_000))]
    pub draws: u64,
    /// Seed of the resamples.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
}

/// Measures, and prints text or one object. Returns the exit code.
///
/// # Errors
/// Files that can't be read, labels and verdicts without an item in common, or stdout that can't be written.
pub fn run(args: &Args, globals: &Globals, console: &Console) -> Result<u8> {
    let labels = read_labels(&args.labels)?;
    let found = verdicts::read(&args.verdicts, args.of.as_deref(), &["distribution"])?;
    if found.torn {
        let shown = found.path.display();
        console.say(format!("{shown}: its last line is torn and left out"));
    }
    let mut known: Vec<String> = Vec::new();
    for line in &found.lines {
        let distribution = line.fields.get("distribution").and_then(Value::as_object);
        for label in distribution.into_iter().flat_map(Map::keys) {
            if !known.contains(label) && known.len() < 1000 {
                known.push(label.clone());
            }
        }
    }
    let said: Vec<Said> = found
        .lines
        .iter()
        .map(|line| Said {
            item: line.row.item.clone(),
            verdict: match &line.row.outcome {
                RowOutcome::Judged {
                    label, expected, ..
                } => Some((label.clone(), *expected)),
                RowOutcome::Failed { .. } => None,
            },
        })
        .collect();
    let resampling = Resampling {
        draws: usize::try_from(args.draws).unwrap_or(usize::MAX),
        seed: args.seed,
    };
    let positive = args.positive.as_deref();
    let findings = Findings::new(&labels, &said, &known, positive, resampling);
    if findings.n == 0 {
        return Err(nothing_in_common(&labels, &said, &findings).into());
    }
    if let (Some(positive), Some(table)) = (positive, &findings.confusion)
        && !table.labels().contains(&canonical(positive))
    {
        let known = plain(&table.labels().join(", "));
        return Err(Fault::usage(
            format!("--positive {positive}: no label or verdict says that"),
            format!("the labels are {known}"),
        )
        .into());
    }
    let mut out = stdout().lock();
    if globals.json {
        writeln!(out, "{}", object(&findings, &labels, resampling))?;
    } else {
        out.write_all(text(&findings).as_bytes())?;
    }
    if !findings.foreign.is_empty() {
        console.say(format!(
            "warning: people gave labels that the judge can't give: {}",
            named(&findings.foreign)
        ));
    }
    Ok(if findings.complete() { 0 } else { SOME_FAILED })
}

fn nothing_in_common(labels: &Labels, said: &[Said], findings: &Findings) -> Fault {
    let example = |name: Option<&String>| {
        name.map_or_else(|| "none".into(), |name| format!("\"{}\"", plain(name)))
    };
    if labels.given.is_empty() {
        let hint = "fill in its column label, for one line at least";
        return Fault::usage("the labels file labels no item", hint);
    }
    if !findings.failed.is_empty() {
        let message = "every labelled item failed to be judged";
        return Fault::usage(message, "look at the failures in verdicts.jsonl");
    }
    Fault::usage(
        "no labelled item has a verdict",
        format!(
            "items are matched by name: the labels have {}, the verdicts {}",
            example(labels.given.first().map(|(item, _)| item)),
            example(said.first().map(|said| &said.item))
        ),
    )
}

fn read_labels(path: &Path) -> Result<Labels, Fault> {
    let shown = path.display();
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default();
    let form = match ending.to_ascii_lowercase().as_str() {
        "csv" => Form::Csv,
        "jsonl" | "ndjson" => Form::Jsonl,
        _ => {
            let message = format!("{shown}: can't tell its format from its name");
            return Err(Fault::usage(message, "name it .csv or .jsonl"));
        }
    };
    let unreadable = |error: std::io::Error| {
        Fault::usage(
            format!("{shown}: {error}"),
            "--labels takes a CSV or JSONL file in UTF-8",
        )
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    let length = file
        .take(MAX_LABELS + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if length as u64 > MAX_LABELS {
        let message = format!("{shown}: longer than {} MiB", MAX_LABELS >> 20);
        return Err(Fault::usage(
            message,
            "leave the columns but id and label out",
        ));
    }
    Labels::parse(&text, form).map_err(|error| {
        Fault::usage(
            format!("{shown}:{}: {}", error.line, error.problem),
            error.mend,
        )
    })
}

fn text(findings: &Findings) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    let share = |share: &Proportion| {
        let Proportion {
            hits,
            of,
            low,
            high,
        } = share;
        format!(
            "{:.3}  [{low:.3}, {high:.3}]  {hits} of {of}",
            share.value()
        )
    };
    let maybe = |found: &Option<Proportion>, none: &str| {
        found
            .as_ref()
            .map_or_else(|| format!("not defined: {none}"), share)
    };
    line(
        "items",
        format!("{} with a label and a verdict", findings.n),
    );
    match &findings.confusion {
        Some(table) => {
            if let Some(accuracy) = table.accuracy() {
                line("accuracy", share(&accuracy));
            }
            if let Some((label, baseline)) = table.majority() {
                line(
                    "baseline",
                    format!("{}  always {}", share(&baseline), plain(label)),
                );
            }
            let constant = || "not defined: both gave one label throughout".to_string();
            line(
                "kappa",
                table
                    .kappa()
                    .map_or_else(constant, |kappa| format!("{kappa:.3}")),
            );
        }
        None => line(
            "accuracy",
            "not defined: labels lie between the levels".into(),
        ),
    }
    if let Some(rates) = &findings.rates {
        let none = "no item has such a label";
        line(
            "TPR",
            format!(
                "{}  labelled {}",
                maybe(&rates.true_positive, none),
                plain(&rates.positive)
            ),
        );
        line(
            "TNR",
            format!("{}  labelled otherwise", maybe(&rates.true_negative, none)),
        );
    }
    for (kind, found) in findings.correlations.iter().flatten() {
        line(kind.name(), correlation(found));
    }
    let left_out = [
        ("failed", &findings.failed),
        ("no verdict", &findings.without_verdict),
        ("no label", &findings.without_label),
    ];
    for (name, items) in left_out {
        if !items.is_empty() {
            line(name, format!("{}: {}", items.len(), named(items)));
        }
    }
    if let Some(table) = &findings.confusion {
        text.push_str(&cross_table(table));
    }
    text
}

fn correlation(found: &Result<Correlation, MeasureError>) -> String {
    match found {
        Err(error) => format!("not defined: {error}"),
        Ok(Correlation { value, interval, n }) => {
            let bounds = interval.map_or_else(
                || "[no interval: too many resamples do not vary]".into(),
                |(low, high)| format!("[{low:.3}, {high:.3}]"),
            );
            format!("{value:.3}  {bounds}  n = {n}")
        }
    }
}

/// Rows are people's labels, columns the judge's.
fn cross_table(table: &Confusion) -> String {
    // A wider table is no longer read on a terminal; --json has it all.
    if table.labels().len() > 12 {
        return String::new();
    }
    let labels: Vec<String> = table.labels().iter().map(|label| plain(label)).collect();
    let width = labels
        .iter()
        .map(|label| label.chars().count())
        .chain([6])
        .max()
        .unwrap_or(6);
    let mut text = String::from("\nlabels down, verdicts across\n");
    let mut row = |head: &str, cells: Vec<String>| {
        let cells: String = cells
            .iter()
            .map(|cell| format!("  {cell:>width$}"))
            .collect();
        let _ = writeln!(text, "{head:<width$}{cells}");
    };
    row("", labels.clone());
    for (human, shown) in table.labels().iter().zip(&labels) {
        let counts = table.labels().iter();
        let counts = counts.map(|judge| table.count(human, judge).to_string());
        row(shown, counts.collect());
    }
    text
}

fn object(findings: &Findings, labels: &Labels, resampling: Resampling) -> Value {
    let share = |share: &Proportion| {
        let Proportion {
            hits,
            of,
            low,
            high,
        } = share;
        json!({ "value": share.value(), "low": low, "high": high, "hits": hits, "of": of })
    };
    let table = findings.confusion.as_ref();
    let majority = table.and_then(Confusion::majority);
    let rates = findings.rates.as_ref();
    let cells = table.map(|table| {
        let labels = table.labels();
        let cell = |human: &String, judge: &String| json!({ "label": human, "verdict": judge, "count": table.count(human, judge) });
        let cells = labels
            .iter()
            .flat_map(|human| labels.iter().map(move |judge| (human, judge)))
            .filter(|(human, judge)| table.count(human, judge) > 0);
        cells.map(|(human, judge)| cell(human, judge)).collect::<Vec<_>>()
    });
    let correlations = findings.correlations.as_ref().map(|found| {
        let one = |found: &Result<Correlation, MeasureError>| match found {
            Ok(found) => json!({
                "value": found.value,
                "low": found.interval.map(|(low, _)| low),
                "high": found.interval.map(|(_, high)| high),
                "n": found.n,
            }),
            Err(error) => json!({ "not_defined": error.to_string() }),
        };
        let found = found
            .iter()
            .map(|(kind, found)| (kind.name().to_string(), one(found)));
        found.collect::<Map<String, Value>>()
    });
    json!({
        "n": findings.n,
        "accuracy": table.and_then(Confusion::accuracy).as_ref().map(share),
        "baseline": majority.as_ref().map(|(label, baseline)| json!({ "label": label, "accuracy": share(baseline) })),
        "kappa": table.and_then(Confusion::kappa),
        "positive": rates.map(|rates| &rates.positive),
        "tpr": rates.and_then(|rates| rates.true_positive.as_ref()).map(share),
        "tnr": rates.and_then(|rates| rates.true_negative.as_ref()).map(share),
        "correlations": correlations,
        "draws": resampling.draws,
        "seed": resampling.seed,
        "labels": table.map(Confusion::labels),
        "confusion": cells,
        "foreign_labels": findings.foreign,
        "failed": findings.failed,
        "without_verdict": findings.without_verdict,
        "without_label": findings.without_label,
        "unlabelled": labels.unlabelled,
    })
}
