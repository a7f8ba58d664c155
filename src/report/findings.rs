//! What a run found under all its rubrics: a summary of each, and one score over them where they declare weights.

use super::summary::Summary;
use crate::journal::{Row, RowOutcome};
use crate::judge::Rubric;
use crate::judge::rubric::Scale;
use crate::judge::rules::FormatName;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

/// What a run found.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Id and summary of each rubric; lines that are no items are counted with the first.
    pub rubrics: Vec<(String, Summary)>,
    /// The score over all rubrics, where they have weights.
    pub composite: Option<Composite>,
    /// How the column of expected scores is called.
    column: &'static str,
}

/// A weighted score over several rubrics: each expected score is put between 0 at its least value and 1 at its greatest, and the
/// mean is taken by weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Composite {
    /// Items that have a score under every rubric, and it, in the order of the run.
    pub items: Vec<(String, f64)>,
    /// Items that lack one.
    pub incomplete: usize,
}

impl Findings {
    /// Counts.
    pub fn new<'a>(rubrics: &[&Rubric], rows: impl Iterator<Item = &'a Row>) -> Findings {
        let rows: Vec<&Row> = rows.collect();
        let of = |index: usize, rubric: &Rubric| {
            let mine = |row: &&&Row| match &row.rubric {
                Some(id) => *id == rubric.id,
                None => index == 0,
            };
            Summary::new(rubric, rows.iter().filter(mine).copied())
        };
        let summaries = rubrics.iter().enumerate();
        Findings {
            rubrics: summaries
                .map(|(index, rubric)| (rubric.id.clone(), of(index, rubric)))
                .collect(),
            composite: Composite::of(rubrics, &rows),
            column: match rubrics {
                [one] if one.format == FormatName::Claims => "supported",
                [one] if one.format == FormatName::Pairwise => "p(A)",
                [one] if one.scale == Scale::Binary => "p(pass)",
                _ => "expected",
            },
        }
    }

    /// Verdicts that there are not.
    pub fn failed(&self) -> usize {
        self.rubrics
            .iter()
            .map(|(_, summary)| summary.failed())
            .sum()
    }

    /// How the column of expected scores is called.
    pub fn expected_column(&self) -> &'static str {
        self.column
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (id, summary) in &self.rubrics {
            if self.rubrics.len() > 1 {
                let _ = write!(text, "{id}: ");
            }
            text.push_str(&summary.text());
        }
        if let Some(composite) = &self.composite {
            match composite.mean() {
                Some(mean) => {
                    let _ = writeln!(
                        text,
                        "over all rubrics, by their weights: {mean:.3} (n = {}, {} incomplete)",
                        composite.items.len(),
                        composite.incomplete
                    );
                }
                None => text.push_str("no item has a score under every rubric\n"),
            }
        }
        text
    }

    /// For programs: the summary of the one rubric, or one of each by id.
    pub fn json(&self) -> Map<String, Value> {
        if let [(_, summary)] = &self.rubrics[..] {
            return summary.json();
        }
        let sum = |of: fn(&Summary) -> usize| {
            self.rubrics
                .iter()
                .map(|(_, summary)| of(summary))
                .sum::<usize>()
        };
        let mut object = Map::new();
        object.insert("judged".into(), json!(sum(|summary| summary.judged)));
        object.insert("failed".into(), json!(self.failed()));
        let rubrics = self.rubrics.iter();
        let rubrics: Map<String, Value> = rubrics
            .map(|(id, summary)| (id.clone(), Value::Object(summary.json())))
            .collect();
        object.insert("rubrics".into(), Value::Object(rubrics));
        if let Some(composite) = &self.composite {
            let items: Map<String, Value> = composite
                .items
                .iter()
                .map(|(item, score)| (item.clone(), json!(score)))
                .collect();
            object.insert(
                "composite".into(),
                json!({ "mean": composite.mean(), "incomplete": composite.incomplete, "items": items }),
            );
        }
        object
    }
}

impl Composite {
    fn of(rubrics: &[&Rubric], rows: &[&Row]) -> Option<Composite> {
        if rubrics.len() < 2 {
            return None;
        }
        // Scores of unlike scales are brought together only by weights that somebody has declared.
        let parts: Option<Vec<(&str, f64, f64, f64)>> = rubrics
            .iter()
            .map(|rubric| {
                let values = rubric.values()?;
                let least = values.iter().copied().reduce(f64::min)?;
                let most = values.iter().copied().reduce(f64::max)?;
                (most > least).then_some((rubric.id.as_str(), rubric.weight?, least, most))
            })
            .collect();
        let parts = parts?;
        let total: f64 = parts.iter().map(|(_, weight, ..)| weight).sum();
        let mut scores: HashMap<(&str, &str), f64> = HashMap::new();
        let mut names: Vec<&str> = Vec::new();
        let mut known: HashSet<&str> = HashSet::new();
        for row in rows {
            let Some(rubric) = row.rubric.as_deref() else {
                continue;
            };
            if known.insert(row.item.as_str()) {
                names.push(&row.item);
            }
            if let RowOutcome::Judged {
                expected: Some(expected),
                ..
            } = &row.outcome
            {
                scores.insert((&row.item, rubric), *expected);
            }
        }
        let mut composite = Composite {
            items: Vec::new(),
            incomplete: 0,
        };
        for name in names {
            let score: Option<f64> = parts
                .iter()
                .map(|(id, weight, least, most)| {
                    let score = scores.get(&(name, *id))?;
                    Some(weight * (score - least) / (most - least))
                })
                .sum();
            match score {
                Some(score) => composite.items.push((name.to_string(), score / total)),
                None => composite.incomplete += 1,
            }
        }
        Some(composite)
    }

    /// The mean over the items that have a score.
    pub fn mean(&self) -> Option<f64> {
        let count = self.items.len();
        let sum: f64 = self.items.iter().map(|(_, score)| score).sum();
        (count > 0).then(|| sum / count as f64)
    }
}
