//! People's labels: a CSV or JSONL text with an id and a label a line.
//!
//! A line whose label is empty is not labelled yet, so a review file can be handed in half done. Other columns are left
//! alone. Numbers are compared as numbers: `5`, `5.0` and `05` are one label. Opens no file.

use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;

/// How labels are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object a line.
    Jsonl,
}

/// Names under which an item's name is looked for, in this order.
const IDS: [&str; 2] = ["id", "item"];

/// What is wrong with a labels file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelsError {
    /// The line, counted from 1.
    pub line: u64,
    /// What is wrong, in one sentence without a full stop.
    pub problem: String,
    /// What to do about it, in one sentence without a full stop.
    pub mend: String,
}

impl fmt::Display for LabelsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for LabelsError {}

fn fault(line: u64, problem: impl Into<String>, mend: &str) -> LabelsError {
    LabelsError {
        line,
        problem: problem.into(),
        mend: mend.into(),
    }
}

/// The labels of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Items and their labels, in the order of the file.
    pub given: Vec<(String, String)>,
    /// Items that have an empty label.
    pub unlabelled: Vec<String>,
    lines: HashMap<String, u64>,
}

impl Labels {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first line that is no label, or that labels an item a second time.
    pub fn parse(text: &str, form: Form) -> Result<Labels, LabelsError> {
        let text = text.trim_start_matches('\u{feff}');
        let mut labels = Labels::default();
        match form {
            Form::Csv => labels.read_csv(text)?,
            Form::Jsonl => labels.read_jsonl(text)?,
        }
        Ok(labels)
    }

    fn read_csv(&mut self, text: &str) -> Result<(), LabelsError> {
        // The csv crate ends a row at the carriage return and would count the line feed with the next one.
        let text = text.replace("\r\n", "\n");
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let unreadable = |error: csv::Error| {
            let line = error.position().map_or(1, csv::Position::line);
            let problem = match error.kind() {
                csv::ErrorKind::UnequalLengths {
                    expected_len, len, ..
                } => format!("{len} cells, but the header has {expected_len}"),
                _ => "it can't be read as CSV".to_string(),
            };
            fault(
                line,
                problem,
                "cells that hold commas, quotes or line ends must be quoted",
            )
        };
        let header = reader.headers().map_err(unreadable)?.clone();
        let column = |names: &[&str]| {
            let mut found = names
                .iter()
                .filter_map(|name| header.iter().position(|cell| cell == *name));
            found.next()
        };
        let mend = "the first line names the columns: id,label";
        let id = column(&IDS).ok_or_else(|| fault(1, "no column \"id\"", mend))?;
        let label = column(&["label"]).ok_or_else(|| fault(1, "no column \"label\"", mend))?;
        // A row's place is told as of the blank lines before it.
        let (mut counted, mut lines) = (0, 1);
        for record in reader.records() {
            let record = record.map_err(unreadable)?;
            let place = record.position().map_or(0, csv::Position::byte);
            let rest = text
                .get(usize::try_from(place).unwrap_or(usize::MAX)..)
                .unwrap_or_default();
            let start = text.len() - rest.trim_start_matches('\n').len();
            lines += text.as_bytes()[counted..start]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
            counted = start;
            let line = lines as u64;
            let cell = |at| record.get(at).unwrap_or_default();
            self.add(line, cell(id), cell(label))?;
        }
        Ok(())
    }

    fn read_jsonl(&mut self, text: &str) -> Result<(), LabelsError> {
        for (line, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() {
                continue;
            }
            let example = "each line is an object such as {\"id\": \"a\", \"label\": \"pass\"}";
            let Ok(Value::Object(object)) = serde_json::from_str(text) else {
                return Err(fault(line, "not a JSON object", example));
            };
            let id = IDS
                .iter()
                .find_map(|name| object.get(*name))
                .ok_or_else(|| fault(line, "no field \"id\"", example))?;
            let id = scalar(id)
                .ok_or_else(|| fault(line, "its \"id\" is no text and no number", example))?;
            let label = label_of(&object).ok_or_else(|| {
                fault(line, "its \"label\" is no text, number or boolean", example)
            })?;
            self.add(line, &id, &label)?;
        }
        Ok(())
    }

    fn add(&mut self, line: u64, id: &str, label: &str) -> Result<(), LabelsError> {
        if id.is_empty() {
            let mend = "every line names its item, as the verdicts do";
            return Err(fault(line, "its id is empty", mend));
        }
        if let Some(first) = self.lines.insert(id.to_string(), line) {
            let problem = format!("its item was already named by line {first}");
            let mend = "keep one line an item: settle what two people said before it is measured";
            return Err(fault(line, problem, mend));
        }
        let label = label.trim();
        if label.is_empty() {
            self.unlabelled.push(id.to_string());
        } else {
            self.given.push((id.to_string(), canonical(label)));
        }
        Ok(())
    }
}

/// An absent label is an empty one, so that a line may be left for later.
fn label_of(object: &Map<String, Value>) -> Option<String> {
    match object.get("label") {
        None | Some(Value::Null) => Some(String::new()),
        Some(value) => scalar(value),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The one way in which a label is written: whole numbers without a sign of plus, leading zeros or a fraction.
pub fn canonical(label: &str) -> String {
    match number(label) {
        Some(value) if value.fract() == 0.0 && value.abs() < 1e15 => format!("{}", value as i64),
        _ => label.to_string(),
    }
}

/// The number that a label is, if it is one.
pub fn number(label: &str) -> Option<f64> {
    // `inf` and `nan` are words to people.
    let digits = label.bytes().any(|byte| byte.is_ascii_digit());
    let value: f64 = label.trim().parse().ok()?;
    (digits && value.is_finite()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(form: Form, text: &str, want: Result<&[(&str, &str)], (u64, &str)>) {
        let found = Labels::parse(text, form);
        match want {
            Ok(want) => {
                let found = found.unwrap().given;
                let found: Vec<(&str, &str)> = found
                    .iter()
                    .map(|(a, b)| (a.as_str(), b.as_str()))
                    .collect();
                assert_eq!(found, want, "{text}");
            }
            Err((line, problem)) => {
                let error = found.unwrap_err();
                assert_eq!(
                    (error.line, error.problem.as_str()),
                    (line, problem),
                    "{text}"
                );
                assert!(!error.mend.is_empty());
            }
        }
    }

    #[test]
    fn csv_labels() {
        let check = |text: &str, want| check(Form::Csv, text, want);
        check(
            "\u{feff}id,note,label\r\na,\"x, y\",pass\r\n b ,, fail \r\nc,,\r\n",
            Ok(&[("a", "pass"), ("b", "fail")]),
        );
        check(
            "label,item\n5.0,a\n05,b\n4.5,c\n-0,d\n",
            Ok(&[("a", "5"), ("b", "5"), ("c", "4.5"), ("d", "0")]),
        );
        check("name,label\na,x\n", Err((1, "no column \"id\"")));
        check("id,verdict\na,x\n", Err((1, "no column \"label\"")));
        check("", Err((1, "no column \"id\"")));
        check(
            "id,label\r\na,x\r\nb\r\n",
            Err((3, "1 cells, but the header has 2")),
        );
        check(
            "id,label\na,x\n\na,x\n",
            Err((4, "its item was already named by line 2")),
        );
        check("id,label\n,x\n", Err((2, "its id is empty")));
    }

    #[test]
    fn jsonl_labels() {
        let check = |text: &str, want| check(Form::Jsonl, text, want);
        check(
            "{\"id\":1,\"label\":5}\n\n{\"item\":\"b\",\"label\":true}\n{\"id\":\"c\",\"label\":null}\n{\"id\":\"d\"}\n",
            Ok(&[("1", "5"), ("b", "true")]),
        );
        check("[1]\n", Err((1, "not a JSON object")));
        check(
            "{\"id\":\"a\",\"label\":\"x\"}\n{\"label\":\"x\"}\n",
            Err((2, "no field \"id\"")),
        );
        check(
            "{\"id\":[],\"label\":\"x\"}",
            Err((1, "its \"id\" is no text and no number")),
        );
        check(
            "{\"id\":\"a\",\"label\":{}}",
            Err((1, "its \"label\" is no text, number or boolean")),
        );
    }

    #[test]
    fn words_are_no_numbers() {
        for word in ["inf", "NaN", "infinity", "pass", "", "1e999"] {
            assert_eq!(number(word), None, "{word}");
        }
        assert_eq!(number("1e2"), Some(100.0));
        assert_eq!(canonical("+3"), "3");
        assert_eq!(canonical("A"), "A");
    }
}
