//! The review queue: which items of a run a human should see, and why, as a file that comes back with labels.
//!
//! Reads lines of `verdicts.jsonl` as JSON, whatever format judged them: a field that a line does not have is no reason. Opens
//! no file.

use serde_json::{Map, Value, json};
use std::fmt;

/// From where on a verdict is worth a second look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// A margin below this.
    pub margin: f64,
    /// An entropy above this share of the most that so many labels can have, 0 to 1.
    pub entropy: f64,
}

/// Why a human should see an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was not judged; the kind of failure.
    Failure(String),
    /// Little probability lay on the labels.
    LowMass,
    /// Two labels were about as probable.
    SmallMargin,
    /// The probability was spread over the labels.
    HighEntropy,
    /// Orders, judges of a panel or steps of a cascade did not agree.
    Disagreement,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Failure(kind) => write!(f, "failure: {kind}"),
            other => f.write_str(other.name()),
        }
    }
}

impl Reason {
    /// Its name, without particulars.
    pub fn name(&self) -> &'static str {
        match self {
            Reason::Failure(_) => "failure",
            Reason::LowMass => "low_mass",
            Reason::SmallMargin => "small_margin",
            Reason::HighEntropy => "high_entropy",
            Reason::Disagreement => "disagreement",
        }
    }
}

/// The columns of the CSV file. The first three come back: people fill in `label`, and `note` if they like.
pub const COLUMNS: [&str; 13] = [
    "id",
    "label",
    "note",
    "reasons",
    "judge_label",
    "expected",
    "margin",
    "entropy",
    "mass",
    "distribution",
    "rationale",
    "evidence",
    "failure",
];

/// An item that a human should see.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub item: String,
    /// Why; never empty.
    pub reasons: Vec<Reason>,
    fields: Map<String, Value>,
}

impl Entry {
    /// The entry of a line of `verdicts.jsonl`; `None` where nothing asks for a second look.
    pub fn of(line: &Map<String, Value>, thresholds: &Thresholds) -> Option<Entry> {
        let item = line.get("item")?.as_str()?.to_string();
        let number = |name: &str| line.get(name).and_then(Value::as_f64);
        let mut reasons = Vec::new();
        if let Some(failure) = line.get("failure") {
            let kind = failure.get("kind").and_then(Value::as_str);
            reasons.push(Reason::Failure(kind.unwrap_or("unknown").to_string()));
        }
        if line.get("low_mass").and_then(Value::as_bool) == Some(true) {
            reasons.push(Reason::LowMass);
        }
        if number("margin").is_some_and(|margin| margin < thresholds.margin) {
            reasons.push(Reason::SmallMargin);
        }
        let labels = line.get("distribution").and_then(Value::as_object);
        let most = labels.map_or(0.0, |labels| (labels.len() as f64).ln());
        if most > 0.0
            && number("entropy").is_some_and(|entropy| entropy / most > thresholds.entropy)
        {
            reasons.push(Reason::HighEntropy);
        }
        if disagreement(line) {
            reasons.push(Reason::Disagreement);
        }
        (!reasons.is_empty()).then(|| Entry {
            item,
            reasons,
            fields: line.clone(),
        })
    }

    /// The row of the CSV file, in the order of [`COLUMNS`]. The item's name stands as it is, since labels are matched by it;
    /// text of judges and traces is kept from being read as a formula by a spreadsheet.
    pub fn row(&self) -> [String; 13] {
        let text = |name: &str| match self.fields.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => harmless(text),
            // Six decimals are enough for people; the JSONL file has all.
            Some(other) => match other.as_f64() {
                Some(number) => ((number * 1e6).round() / 1e6).to_string(),
                None => other.to_string(),
            },
        };
        let reasons: Vec<String> = self.reasons.iter().map(Reason::to_string).collect();
        let evidence = self.fields.get("evidence").and_then(Value::as_array);
        let quotes: Vec<&str> = evidence
            .into_iter()
            .flatten()
            .filter_map(|quote| quote.get("quote")?.as_str())
            .collect();
        let failure = self.fields.get("failure");
        let failure = failure.and_then(|failure| failure.get("reason")?.as_str());
        let shares = self.fields.get("distribution").and_then(Value::as_object);
        let shares: Vec<String> = shares
            .into_iter()
            .flatten()
            .map(|(label, share)| format!("{label}: {:.3}", share.as_f64().unwrap_or(f64::NAN)))
            .collect();
        [
            self.item.clone(),
            String::new(),
            String::new(),
            reasons.join("; "),
            text("label"),
            text("expected"),
            text("margin"),
            text("entropy"),
            text("mass"),
            harmless(&shares.join("; ")),
            text("rationale"),
            harmless(&quotes.join("\n")),
            harmless(failure.unwrap_or_default()),
        ]
    }

    /// The object of the JSONL file: what is in the row, whole.
    pub fn json(&self) -> Value {
        let field = |name: &str| self.fields.get(name).cloned().unwrap_or(Value::Null);
        let reasons: Vec<String> = self.reasons.iter().map(Reason::to_string).collect();
        json!({
            "id": self.item,
            "label": Value::Null,
            "note": Value::Null,
            "reasons": reasons,
            "judge_label": field("label"),
            "expected": field("expected"),
            "margin": field("margin"),
            "entropy": field("entropy"),
            "mass": field("mass"),
            "distribution": field("distribution"),
            "rationale": field("rationale"),
            "evidence": field("evidence"),
            "failure": field("failure"),
        })
    }
}

/// The fields of a line that entries are made of.
pub const FIELDS: [&str; 14] = [
    "item",
    "failure",
    "label",
    "expected",
    "distribution",
    "mass",
    "low_mass",
    "entropy",
    "margin",
    "rationale",
    "evidence",
    "pairwise",
    "panel",
    "cascade",
];

/// Whether the opinions behind a verdict differ: a winner that turned with the order, a panel that asks for a human, two
/// judges of a cascade with two labels.
fn disagreement(line: &Map<String, Value>) -> bool {
    let said = |detail: &str, name: &str| line.get(detail).and_then(|detail| detail.get(name));
    let truth = |detail, name| said(detail, name).and_then(Value::as_bool) == Some(true);
    let label = |name| said("cascade", name).and_then(Value::as_str);
    let two = label("first").zip(label("second"));
    truth("pairwise", "flipped")
        || truth("panel", "review")
        || two.is_some_and(|(first, second)| first != second)
}

/// Text that a spreadsheet takes for text: an apostrophe goes before what would begin a formula.
fn harmless(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(line: Value) -> Vec<String> {
        let thresholds = Thresholds {
            margin: 0.2,
            entropy: 0.9,
        };
        let entry = Entry::of(line.as_object().unwrap(), &thresholds);
        let reasons = entry.map(|entry| entry.reasons);
        reasons.iter().flatten().map(Reason::to_string).collect()
    }

    #[test]
    fn every_reason_has_its_field() {
        let two = json!({"pass": 0.5, "fail": 0.5});
        assert!(reasons(json!({"item": "a", "margin": 0.2, "low_mass": false})).is_empty());
        assert_eq!(
            reasons(json!({"item": "a", "low_mass": true})),
            ["low_mass"]
        );
        assert_eq!(
            reasons(json!({"item": "a", "margin": 0.19})),
            ["small_margin"]
        );
        let entropy =
            |entropy: f64| reasons(json!({"item": "a", "distribution": two, "entropy": entropy}));
        assert_eq!(entropy(0.63), ["high_entropy"]);
        assert!(entropy(0.62).is_empty());
        assert!(
            reasons(json!({"item": "a", "distribution": {"x": 1.0}, "entropy": 0.0})).is_empty()
        );
        assert_eq!(
            reasons(json!({"item": "a", "failure": {"kind": "length", "reason": "r"}})),
            ["failure: length"]
        );
        assert_eq!(
            reasons(json!({"item": "a", "pairwise": {"flipped": true}})),
            ["disagreement"]
        );
        assert!(reasons(json!({"item": "a", "pairwise": {"flipped": null}})).is_empty());
        assert_eq!(
            reasons(json!({"item": "a", "panel": {"review": true}})),
            ["disagreement"]
        );
        let cascade = |second: Value| {
            reasons(json!({"item": "a", "cascade": {"first": "x", "second": second}}))
        };
        assert_eq!(cascade(json!("y")), ["disagreement"]);
        assert!(cascade(json!("x")).is_empty() && cascade(Value::Null).is_empty());
    }

    #[test]
    fn rows_have_no_formula_but_keep_names() {
        let line = json!({"item": "=1", "label": "pass", "rationale": "=cmd()", "low_mass": true,
            "evidence": [{"quote": "-x"}, {"quote": "y"}], "distribution": {"pass": 0.75}});
        let thresholds = Thresholds {
            margin: 0.0,
            entropy: 1.0,
        };
        let row = Entry::of(line.as_object().unwrap(), &thresholds)
            .unwrap()
            .row();
        let cell = |name: &str| &row[COLUMNS.iter().position(|column| *column == name).unwrap()];
        assert_eq!(cell("id"), "=1");
        assert_eq!(cell("rationale"), "'=cmd()");
        assert_eq!(cell("evidence"), "'-x\ny");
        assert_eq!(cell("distribution"), "pass: 0.750");
        assert_eq!(
            (cell("label").as_str(), cell("judge_label").as_str()),
            ("", "pass")
        );
    }
}
