//! Benchmark workloads: rows that carry their own prompt, schema and labels, run as they are.
//!
//! Rubric and chat template are bypassed; nothing here judges. Knows no terminal.

use crate::ask::{Ask, Decoding, Labels, Prompt, Shape};
use serde::Deserialize;
use serde_json::Value;

/// Which half of a row is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadMode {
    /// `prompt` under `json_schema`.
    Json,
    /// `score_prompt` read out over the labels of `score_grammar`.
    Score,
}

#[derive(Deserialize)]
struct Row {
    prompt: Option<String>,
    json_schema: Option<Value>,
    score_prompt: Option<String>,
    score_grammar: Option<String>,
    #[serde(default)]
    temperature: f32,
    max_tokens: Option<usize>,
}

/// Why a workload was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct WorkloadError {
    /// The line, counted from 1.
    pub line: usize,
    /// Why.
    pub reason: String,
}

/// Reads a workload: one ask a line.
pub fn asks(text: &str, mode: WorkloadMode) -> Result<Vec<Ask>, WorkloadError> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            ask(line, mode).map_err(|reason| WorkloadError {
                line: index + 1,
                reason,
            })
        })
        .collect()
}

fn ask(line: &str, mode: WorkloadMode) -> Result<Ask, String> {
    let row: Row = serde_json::from_str(line).map_err(|error| format!("not a row: {error}"))?;
    let need =
        |field: Option<String>, name: &str| field.ok_or_else(|| format!("no field \"{name}\""));
    let (prompt, shape) = match mode {
        WorkloadMode::Json => {
            let schema = row.json_schema.ok_or("no field \"json_schema\"")?;
            let schema = match schema {
                Value::String(text) => text,
                other => other.to_string(),
            };
            (need(row.prompt, "prompt")?, Shape::Schema(schema))
        }
        WorkloadMode::Score => {
            let names = grammar_labels(&need(row.score_grammar, "score_grammar")?)?;
            (
                need(row.score_prompt, "score_prompt")?,
                Shape::Labels(Labels {
                    names,
                    quoted: false,
                }),
            )
        }
    };
    let decoding = Decoding {
        temperature: row.temperature,
        max_tokens: row.max_tokens.unwrap_or(512),
        ..Decoding::default()
    };
    Ok(Ask {
        prompt: Prompt::Raw(prompt),
        shape,
        decoding,
    })
}

/// The labels that a grammar of one rule spells: an alternation of literals and of classes of single characters.
///
/// # Errors
/// Names whatever else the grammar holds.
pub fn grammar_labels(grammar: &str) -> Result<Vec<String>, String> {
    let refuse = |what: &str| {
        Err(format!(
            "score_grammar: {what}; only `root ::= \"a\" | \"b\" | [1-5]` can be read"
        ))
    };
    let Some(mut rest) = grammar
        .trim()
        .strip_prefix("root")
        .and_then(|rest| rest.trim_start().strip_prefix("::="))
    else {
        return refuse("it does not begin with `root ::=`");
    };
    let mut labels: Vec<String> = Vec::new();
    loop {
        rest = rest.trim_start();
        let mut characters = rest.chars();
        let (read, tail) = match characters.next() {
            Some('"') => {
                literal(characters.as_str()).ok_or("score_grammar: a literal is not closed")?
            }
            Some('[') => class(characters.as_str())?,
            Some(other) => return refuse(&format!("`{other}` can't be read")),
            None => return refuse("an alternative is missing"),
        };
        for label in read {
            if label.is_empty() || labels.contains(&label) {
                return refuse("a label is empty or stands twice");
            }
            labels.push(label);
        }
        rest = tail.trim_start();
        match rest.chars().next() {
            None => return Ok(labels),
            Some('|') => rest = &rest[1..],
            Some(other) => return refuse(&format!("`{other}` after an alternative can't be read")),
        }
    }
}

fn literal(text: &str) -> Option<(Vec<String>, &str)> {
    let mut label = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '"' => return Some((vec![label], characters.as_str())),
            '\\' => label.push(match characters.next()? {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            other => label.push(other),
        }
    }
}

fn class(text: &str) -> Result<(Vec<String>, &str), String> {
    let (inside, tail) = text
        .split_once(']')
        .ok_or("score_grammar: a class is not closed")?;
    if inside.starts_with('^') || inside.contains('\\') {
        return Err("score_grammar: negated classes and escapes in classes can't be read".into());
    }
    let characters: Vec<char> = inside.chars().collect();
    let mut labels = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let (first, last) = match characters.get(at + 1..at + 3) {
            Some(['-', last]) => (characters[at], *last),
            _ => (characters[at], characters[at]),
        };
        at += if first == last { 1 } else { 3 };
        if last < first || u32::from(last) - u32::from(first) > 255 {
            return Err("score_grammar: a range of a class is empty or too wide".into());
        }
        labels.extend((first..=last).map(String::from));
    }
    Ok((labels, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammars() {
        let check = |grammar: &str, want: Option<&[&str]>| {
            let found = grammar_labels(grammar).ok();
            let want = want.map(|labels| {
                labels
                    .iter()
                    .map(|label| label.to_string())
                    .collect::<Vec<_>>()
            });
            assert_eq!(found, want, "{grammar}");
        };
        check("root ::= [1-5]", Some(&["1", "2", "3", "4", "5"]));
        check("root ::= \"pass\" | \"fail\"", Some(&["pass", "fail"]));
        check(
            "root ::= [1-3] | \"10\" | [AB]",
            Some(&["1", "2", "3", "10", "A", "B"]),
        );
        check("root ::= [13-4]", Some(&["1", "3", "4"]));
        check("root ::= [1-5]+", None);
        check("root ::= [1-5] x", None);
        check("root ::= score", None);
        check("root ::= [^1]", None);
        check("root ::= [1", None);
        check("root ::= \"a", None);
        check("root ::= \"a\" |", None);
        check("root ::= \"a\" | [a]", None);
        check("root ::= [5-1]", None);
        check("start ::= [1-5]", None);
        check("", None);
    }

    #[test]
    fn rows() {
        let row = r#"{"id":0,"prompt":"p","json_schema":{"type":"object"},"score_prompt":"s","score_grammar":"root ::= [12]"}"#;
        let json = asks(row, WorkloadMode::Json).unwrap();
        assert_eq!(json[0].prompt, Prompt::Raw("p".into()));
        assert_eq!(json[0].shape, Shape::Schema("{\"type\":\"object\"}".into()));
        let score = asks(row, WorkloadMode::Score).unwrap();
        assert_eq!(score[0].prompt, Prompt::Raw("s".into()));
        assert_eq!(
            score[0].shape,
            Shape::Labels(Labels {
                names: vec!["1".into(), "2".into()],
                quoted: false
            })
        );
        let error = asks("\n{\"prompt\":\"p\"}", WorkloadMode::Json).unwrap_err();
        assert_eq!(error.to_string(), "line 2: no field \"json_schema\"");
    }
}
