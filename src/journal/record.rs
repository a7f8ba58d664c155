//! One line of `verdicts.jsonl`: a verdict, or a failure, of one item.
//!
//! The fields and their order are part of the product's contract. Of two runs of the same thing, `milliseconds` and
//! `tokens.cached` may differ (they tell how long it took and what happened to be in the cache); nothing else may.

use super::facts::Facts;
use crate::ask::Failure;
use crate::judge::{Details, Unjudged, Verdict};
use serde_json::{Map, Value, json};

/// Why an item has no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// The line or the item could not be read or posed.
    Input,
    /// The item lacks a field that the rubric judges, or judges by.
    MissingField,
    /// The answer has no claim that could be checked.
    NoClaims,
    /// The steps of an agent can't be read.
    Trajectory,
    /// There are too few answers to rank, or too many.
    Candidates,
    /// The evaluator's own form can't hold the item.
    Contract,
    /// The judge was shown the item, with its label, as an example.
    Shown,
    /// The judges of a panel could not be brought together.
    Panel,
    /// The prompt does not fit.
    ContextOverflow,
    /// The output and its grammar disagreed.
    Grammar,
    /// A logit was not finite.
    NonFiniteLogits,
    /// The output was not complete in time.
    Length,
    /// A fault of ours.
    Engine,
}

impl FailureKind {
    const ALL: [FailureKind; 13] = [
        FailureKind::Input,
        FailureKind::MissingField,
        FailureKind::NoClaims,
        FailureKind::Trajectory,
        FailureKind::Candidates,
        FailureKind::Contract,
        FailureKind::Shown,
        FailureKind::Panel,
        FailureKind::ContextOverflow,
        FailureKind::Grammar,
        FailureKind::NonFiniteLogits,
        FailureKind::Length,
        FailureKind::Engine,
    ];

    /// Its name in `verdicts.jsonl`.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Input => "input",
            FailureKind::MissingField => "missing_field",
            FailureKind::NoClaims => "no_claims",
            FailureKind::Trajectory => "trajectory",
            FailureKind::Candidates => "candidates",
            FailureKind::Contract => "contract",
            FailureKind::Shown => "shown",
            FailureKind::Panel => "panel",
            FailureKind::ContextOverflow => "context_overflow",
            FailureKind::Grammar => "grammar",
            FailureKind::NonFiniteLogits => "non_finite_logits",
            FailureKind::Length => "length",
            FailureKind::Engine => "engine",
        }
    }

    /// The kind of what kept an item from a verdict; `None` for an interruption, which settles nothing.
    pub fn of(unjudged: &Unjudged) -> Option<FailureKind> {
        match unjudged {
            Unjudged::Asked(failure) => FailureKind::asked(failure),
            Unjudged::Missing { .. } => Some(FailureKind::MissingField),
            Unjudged::NoClaims => Some(FailureKind::NoClaims),
            Unjudged::Trajectory { .. } => Some(FailureKind::Trajectory),
            Unjudged::Candidates { .. } => Some(FailureKind::Candidates),
            Unjudged::Contract { .. } => Some(FailureKind::Contract),
            Unjudged::Shown => Some(FailureKind::Shown),
            Unjudged::Panel(_) => Some(FailureKind::Panel),
        }
    }

    fn asked(failure: &Failure) -> Option<FailureKind> {
        match failure {
            Failure::Input(_) => Some(FailureKind::Input),
            Failure::ContextOverflow { .. } => Some(FailureKind::ContextOverflow),
            Failure::Grammar(_) => Some(FailureKind::Grammar),
            Failure::NonFiniteLogits => Some(FailureKind::NonFiniteLogits),
            Failure::Length { .. } => Some(FailureKind::Length),
            Failure::Engine(_) => Some(FailureKind::Engine),
            Failure::Interrupted => None,
        }
    }
}

/// What became of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was judged.
    Verdict(Box<Verdict>),
    /// It was not.
    Failure {
        /// The kind.
        kind: FailureKind,
        /// Why, in words.
        reason: String,
    },
}

/// A line of `verdicts.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The item's name.
    pub item: String,
    /// Id of the rubric; `None` for a line that is no item, which no rubric judges.
    pub rubric: Option<String>,
    /// sha256 in hex over the item and all that judged it.
    pub key: String,
    /// What became of it.
    pub outcome: Outcome,
}

impl Record {
    /// The line, with its line end.
    pub fn line(&self) -> String {
        let mut object = Map::new();
        object.insert("item".into(), Value::from(self.item.as_str()));
        object.insert("rubric".into(), Value::from(self.rubric.clone()));
        object.insert("key".into(), Value::from(self.key.as_str()));
        match &self.outcome {
            Outcome::Failure { kind, reason } => {
                object.insert(
                    "failure".into(),
                    json!({ "kind": kind.name(), "reason": reason }),
                );
            }
            Outcome::Verdict(verdict) => object.extend(fields(verdict)),
        }
        let mut line = Value::Object(object).to_string();
        line.push('\n');
        line
    }

    /// What a report needs of it.
    pub fn row(&self) -> Row {
        let outcome = match &self.outcome {
            Outcome::Failure { kind, reason } => RowOutcome::Failed {
                kind: *kind,
                reason: reason.clone(),
            },
            Outcome::Verdict(verdict) => RowOutcome::Judged {
                label: verdict.label.clone(),
                expected: verdict.expected,
                mass: verdict.reading.as_ref().map(|reading| reading.mass),
                low_mass: (verdict.reading.as_ref()).is_some_and(|reading| reading.low_mass),
                margin: verdict.reading.as_ref().map(|reading| reading.margin),
                rationale: (verdict.rationale.clone())
                    .or_else(|| verdict.details.as_ref().and_then(Details::note)),
                facts: verdict.details.as_ref().and_then(Facts::of),
            },
        };
        Row {
            item: self.item.clone(),
            rubric: self.rubric.clone(),
            key: self.key.clone(),
            outcome,
        }
    }
}

/// The fields of a verdict, in their order.
fn fields(verdict: &Verdict) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.into(), value);
    put("label", Value::from(verdict.label.as_str()));
    put("expected", Value::from(verdict.expected));
    if let Some(reading) = &verdict.reading {
        let probabilities = reading.distribution.iter();
        let distribution: Map<String, Value> = probabilities
            .map(|(label, probability)| (label.clone(), Value::from(*probability)))
            .collect();
        put("distribution", Value::Object(distribution));
        put("mass", Value::from(reading.mass));
        put("low_mass", Value::from(reading.low_mass));
        put("entropy", Value::from(reading.entropy));
        put("margin", Value::from(reading.margin));
    }
    put("rationale", Value::from(verdict.rationale.clone()));
    let evidence = verdict.evidence.iter();
    let evidence: Vec<Value> = evidence
        .map(|quote| json!({ "quote": quote.quote, "start": quote.start, "end": quote.end }))
        .collect();
    put("evidence", Value::from(evidence));
    if let Some(raw) = &verdict.raw {
        put("raw", Value::from(raw.as_str()));
    }
    // Names, numbers and texts can't fail to be written.
    if let Some(Ok(Value::Object(details))) = verdict.details.as_ref().map(serde_json::to_value) {
        details.into_iter().for_each(|(name, value)| {
            put(&name, value);
        });
    }
    let tokens = &verdict.tokens;
    put(
        "tokens",
        json!({
            "prompt": tokens.prompt,
            "cached": tokens.cached,
            "forced": tokens.forced,
            "generated": tokens.generated,
        }),
    );
    let milliseconds = (verdict.milliseconds * 1000.0).round() / 1000.0;
    put("milliseconds", Value::from(milliseconds));
    object
}

/// What a report needs of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The item's name.
    pub item: String,
    /// Id of the rubric; `None` for a line that is no item.
    pub rubric: Option<String>,
    /// The record's key.
    pub key: String,
    /// What became of the item.
    pub outcome: RowOutcome,
}

/// What became of an item, in short.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOutcome {
    /// It was judged.
    Judged {
        /// The label.
        label: String,
        /// The expected score, where labels have values.
        expected: Option<f64>,
        /// The label mass, where one reading stands behind the label.
        mass: Option<f64>,
        /// Whether the mass is below the rubric's threshold.
        low_mass: bool,
        /// The margin, where one reading stands behind the label.
        margin: Option<f64>,
        /// The rationale, or what else says why.
        rationale: Option<String>,
        /// What reports count, where the verdict is more than one opinion.
        facts: Option<Facts>,
    },
    /// It was not.
    Failed {
        /// The kind.
        kind: FailureKind,
        /// Why.
        reason: String,
    },
}

impl Row {
    /// Whether the item need not be tried again. A fault of ours may be gone when a run is resumed, a prompt that did not
    /// fit may have been short of memory, and to look again at what can't be posed costs nothing; every other failure would only
    /// repeat.
    pub fn settled(&self) -> bool {
        !matches!(
            self.outcome,
            RowOutcome::Failed {
                kind: FailureKind::Engine
                    | FailureKind::ContextOverflow
                    | FailureKind::Input
                    | FailureKind::MissingField
                    | FailureKind::Trajectory
                    | FailureKind::Candidates
                    | FailureKind::Contract
                    | FailureKind::Shown,
                ..
            }
        )
    }

    /// Reads a line of `verdicts.jsonl`.
    ///
    /// # Errors
    /// What is wrong, without any text of the line.
    pub fn parse(line: &str) -> Result<Row, &'static str> {
        let Ok(Value::Object(object)) = serde_json::from_str::<Value>(line) else {
            return Err("not a JSON object");
        };
        let text = |name: &str| object.get(name).and_then(Value::as_str).map(String::from);
        let number = |name: &str| object.get(name).and_then(Value::as_f64);
        let item = text("item").ok_or("no \"item\"")?;
        let rubric = text("rubric");
        let key = text("key").ok_or("no \"key\"")?;
        if let Some(failure) = object.get("failure") {
            let name = failure
                .get("kind")
                .and_then(Value::as_str)
                .ok_or("a failure without \"kind\"")?;
            let kind = FailureKind::ALL
                .into_iter()
                .find(|kind| kind.name() == name);
            let kind = kind.ok_or("a failure of unknown kind")?;
            let reason = failure
                .get("reason")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string();
            return Ok(Row {
                item,
                rubric,
                key,
                outcome: RowOutcome::Failed { kind, reason },
            });
        }
        let details = details(&object)?;
        let outcome = RowOutcome::Judged {
            label: text("label").ok_or("no \"label\"")?,
            expected: number("expected"),
            mass: number("mass"),
            low_mass: (object.get("low_mass").and_then(Value::as_bool)).unwrap_or_default(),
            margin: number("margin"),
            rationale: text("rationale").or_else(|| details.as_ref().and_then(Details::note)),
            facts: details.as_ref().and_then(Facts::of),
        };
        Ok(Row {
            item,
            rubric,
            key,
            outcome,
        })
    }
}

/// The details of a line, if it has some.
fn details(object: &Map<String, Value>) -> Result<Option<Details>, &'static str> {
    let mut fields = object.iter();
    let found = fields.find(|(name, _)| Details::NAMES.contains(&name.as_str()));
    let Some((name, value)) = found else {
        return Ok(None);
    };
    let details = serde_json::from_value(json!({ name.as_str(): value }));
    details.map(Some).map_err(|_| "details that can't be read")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ask::TokenCounts;
    use crate::judge::{Quote, Reading};

    pub(crate) fn verdict() -> Verdict {
        Verdict {
            label: "pass".into(),
            expected: Some(0.9),
            reading: Some(Reading {
                distribution: vec![("pass".into(), 0.9), ("fail".into(), 0.1)],
                mass: 0.99,
                low_mass: false,
                entropy: 0.25,
                margin: 0.8,
            }),
            rationale: Some("a \"reason\"\n".into()),
            evidence: vec![Quote {
                quote: "日本".into(),
                start: 3,
                end: 9,
            }],
            raw: Some("{}".into()),
            details: None,
            tokens: TokenCounts {
                prompt: 5,
                cached: 4,
                forced: 3,
                generated: 2,
            },
            milliseconds: 1.23456,
        }
    }

    #[test]
    fn lines_are_as_specified() {
        let record = Record {
            item: "a".into(),
            rubric: Some("r".into()),
            key: "k".into(),
            outcome: Outcome::Verdict(Box::new(verdict())),
        };
        assert_eq!(
            record.line(),
            concat!(
                r#"{"item":"a","rubric":"r","key":"k","label":"pass","expected":0.9,"distribution":{"pass":0.9,"fail":0.1},"#,
                r#""mass":0.99,"low_mass":false,"entropy":0.25,"margin":0.8,"rationale":"a \"reason\"\n","#,
                r#""evidence":[{"quote":"日本","start":3,"end":9}],"raw":"{}","#,
                r#""tokens":{"prompt":5,"cached":4,"forced":3,"generated":2},"milliseconds":1.235}"#,
                "\n"
            )
        );
        let failure = Outcome::Failure {
            kind: FailureKind::ContextOverflow,
            reason: "3 and 2".into(),
        };
        let failure = Record {
            item: "a".into(),
            rubric: Some("r".into()),
            key: "k".into(),
            outcome: failure,
        };
        let line = r#"{"item":"a","rubric":"r","key":"k","failure":{"kind":"context_overflow","reason":"3 and 2"}}"#;
        assert_eq!(failure.line(), format!("{line}\n"));
        for record in [record, failure] {
            assert_eq!(Row::parse(&record.line()), Ok(record.row()));
        }
    }

    #[test]
    fn lines_that_are_no_record() {
        let check = |line: &str, want| assert_eq!(Row::parse(line), Err(want), "{line}");
        check("", "not a JSON object");
        check("{\"item\":\"a\"}", "no \"key\"");
        check("{\"item\":\"a\",\"key\":\"k\"}", "no \"label\"");
        check(
            "{\"item\":\"a\",\"key\":\"k\",\"failure\":{\"kind\":\"x\"}}",
            "a failure of unknown kind",
        );
    }
}
