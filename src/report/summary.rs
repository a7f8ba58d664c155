//! What a run found, in a few numbers.

use super::table::plain;
use super::tally::Tally;
use crate::journal::{Facts, Row, RowOutcome};
use crate::judge::Rubric;
use crate::judge::rubric::Scale;
use crate::judge::rules::{FormatName, TrajectoryTask};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Most items that are named in one line of text.
const NAMED: usize = 8;

/// Counts over the items of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Items with a verdict.
    pub judged: usize,
    /// How often each label was given, in the rubric's order.
    pub labels: Vec<(String, usize)>,
    /// Mean of the expected scores over the judged items that have one; `None` where none has.
    pub mean_expected: Option<f64>,
    /// Items that a check settled, without a model.
    pub checked: usize,
    /// Of pairs, claims, panels and cascades.
    pub tally: Tally,
    /// Items whose label mass was below the threshold.
    pub low_mass: Vec<String>,
    /// Items that failed, by kind: name and reason.
    pub failures: BTreeMap<&'static str, Vec<(String, String)>>,
    /// What an expected score is.
    expected: &'static str,
}

impl Summary {
    /// Counts.
    pub fn new<'a>(rubric: &Rubric, rows: impl Iterator<Item = &'a Row>) -> Summary {
        let mut summary = Summary {
            judged: 0,
            labels: match rubric.format {
                // Its label is the number of an answer, or the name of an agent.
                FormatName::Ranking => Vec::new(),
                FormatName::Trajectory if rubric.trajectory.task == TrajectoryTask::Attribution => {
                    Vec::new()
                }
                _ => rubric
                    .labels()
                    .into_iter()
                    .map(|label| (label, 0))
                    .collect(),
            },
            mean_expected: None,
            low_mass: Vec::new(),
            failures: BTreeMap::new(),
            checked: 0,
            tally: Tally::new(rubric.pairwise.band),
            expected: expected_name(rubric),
        };
        let (mut total, mut valued) = (0.0, 0usize);
        for row in rows {
            match &row.outcome {
                RowOutcome::Judged {
                    label,
                    expected,
                    low_mass,
                    facts,
                    ..
                } => {
                    summary.judged += 1;
                    if let Some(expected) = expected {
                        total += expected;
                        valued += 1;
                    }
                    match facts {
                        Some(Facts::Checked) => summary.checked += 1,
                        Some(facts) => summary.tally.add(facts),
                        None => (),
                    }
                    if let Some((_, count)) =
                        summary.labels.iter_mut().find(|(name, _)| name == label)
                    {
                        *count += 1;
                    }
                    if *low_mass {
                        summary.low_mass.push(row.item.clone());
                    }
                }
                RowOutcome::Failed { kind, reason } => {
                    let failed = summary.failures.entry(kind.name()).or_default();
                    failed.push((row.item.clone(), reason.clone()));
                }
            }
        }
        summary.mean_expected = (valued > 0).then(|| total / valued as f64);
        summary
    }

    /// Items that failed.
    pub fn failed(&self) -> usize {
        self.failures.values().map(Vec::len).sum()
    }

    /// For people: a few lines.
    pub fn text(&self) -> String {
        let mut text = format!("{} judged, {} failed\n", self.judged, self.failed());
        if self.judged > 0 && !self.labels.is_empty() {
            let labels: Vec<String> = self
                .labels
                .iter()
                .map(|(label, count)| format!("{label}: {count}"))
                .collect();
            let _ = writeln!(text, "  labels     {}", labels.join(", "));
        }
        if let Some(mean) = self.mean_expected {
            let what = self.expected;
            let _ = writeln!(text, "  mean       {mean:.3} {what} (n = {})", self.judged);
        }
        if self.checked > 0 {
            let _ = writeln!(
                text,
                "  checks     settled {} without a model",
                self.checked
            );
        }
        text.push_str(&self.tally.text());
        if !self.low_mass.is_empty() {
            let names = named(self.low_mass.iter().map(|name| plain(name)));
            let _ = writeln!(text, "  low mass   {}: {names}", self.low_mass.len());
        }
        for (kind, failed) in &self.failures {
            let _ = writeln!(text, "  {kind}: {}", failed.len());
            for (item, reason) in failed.iter().take(NAMED) {
                let _ = writeln!(text, "    {}: {}", plain(item), plain(reason));
            }
            if failed.len() > NAMED {
                let _ = writeln!(text, "    and {} more", failed.len() - NAMED);
            }
        }
        text
    }

    /// For programs: one object.
    pub fn json(&self) -> Map<String, Value> {
        let labels: Map<String, Value> = self
            .labels
            .iter()
            .map(|(label, count)| (label.clone(), Value::from(*count)))
            .collect();
        let failures: Map<String, Value> = self
            .failures
            .iter()
            .map(|(kind, failed)| {
                let items: Vec<&str> = failed.iter().map(|(item, _)| item.as_str()).collect();
                (kind.to_string(), json!(items))
            })
            .collect();
        let fields = [
            ("judged", json!(self.judged)),
            ("failed", json!(self.failed())),
            ("labels", Value::Object(labels)),
            ("mean_expected", json!(self.mean_expected)),
            ("low_mass", json!(self.low_mass)),
            ("failures", Value::Object(failures)),
        ];
        let mut object: Map<String, Value> = fields
            .into_iter()
            .map(|(name, value)| (name.to_string(), value))
            .collect();
        if self.checked > 0 {
            object.insert("checked".into(), json!(self.checked));
        }
        object.extend(self.tally.json());
        object
    }
}

/// What an expected score is under a rubric.
fn expected_name(rubric: &Rubric) -> &'static str {
    match (rubric.format, rubric.scale) {
        (FormatName::Pairwise, _) => "probability of A",
        (FormatName::Ranking, _) => "probability of the strongest",
        (FormatName::Claims, _) => "share of supported claims",
        (_, Scale::Binary) => "probability of pass",
        (_, Scale::Integer) => "expected score",
        (_, Scale::Named) => "expected value",
    }
}

fn named(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let mut text = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}
