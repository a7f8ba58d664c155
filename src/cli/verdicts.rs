//! Reads what a run left: its folder, or a `verdicts.jsonl` by itself, for the commands that look back at a run.

use super::fault::Fault;
use crate::journal::Row;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

/// Longest line that is read, in bytes.
const MAX_LINE: u64 = 64 << 20;

/// A verdict or failure, with those fields of its line that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it says, checked.
    pub row: Row,
    /// The fields.
    pub fields: Map<String, Value>,
}

/// What a file of verdicts holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    /// The file.
    pub path: PathBuf,
    /// One line an item, in the order of the file; of several lines of one key the last counts.
    pub lines: Vec<Line>,
    /// Whether a last line without its line end was left out: it was being written when its run was killed.
    pub torn: bool,
}

/// Reads the verdicts of a run folder, or of a `verdicts.jsonl`, and keeps the named fields of each line; of a run under several
/// rubrics, those of the one that is named.
///
/// # Errors
/// A file that can't be read, a line that is no verdict, an item that was judged under two keys, or a rubric that is not there.
pub fn read(path: &Path, rubric: Option<&str>, fields: &[&str]) -> Result<Verdicts, Fault> {
    let path = if path.is_dir() {
        path.join("verdicts.jsonl")
    } else {
        path.to_path_buf()
    };
    let shown = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let hint = "give a run folder, or the path of its verdicts.jsonl";
        Fault::usage(format!("{shown}: {error}"), hint)
    };
    let file = File::open(&path).map_err(unreadable)?;
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut found = Verdicts {
        path: path.clone(),
        ..Verdicts::default()
    };
    let mut by_key: HashMap<String, usize> = HashMap::new();
    let mut by_item: HashMap<String, String> = HashMap::new();
    let mut rubrics: Vec<String> = Vec::new();
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let mut bounded = (&mut reader).take(MAX_LINE);
        let length = bounded.read_until(b'\n', &mut bytes).map_err(unreadable)? as u64;
        if length == 0 {
            break;
        }
        let corrupt = |reason: &str| {
            Fault::usage(
                format!("line {number} of {shown} is not a verdict: {reason}"),
                "give a file that assize judge wrote, or remove the line",
            )
        };
        if bytes.last() != Some(&b'\n') {
            if length == MAX_LINE {
                return Err(corrupt("it is too long"));
            }
            found.torn = true;
            break;
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| corrupt("not UTF-8"))?;
        let row = Row::parse(text).map_err(corrupt)?;
        if let Some(own) = &row.rubric
            && !rubrics.contains(own)
        {
            rubrics.push(own.clone());
        }
        if rubric.is_some() && row.rubric.is_some() && row.rubric.as_deref() != rubric {
            continue;
        }
        let kept = match serde_json::from_str(text) {
            Ok(Value::Object(object)) => object
                .into_iter()
                .filter(|(name, _)| fields.contains(&name.as_str()))
                .collect(),
            _ => Map::new(),
        };
        let before = by_item.insert(row.item.clone(), row.key.clone());
        if before.is_some_and(|key| key != row.key) {
            return Err(Fault::usage(
                format!(
                    "line {number} of {shown}: a second verdict of item {:?}",
                    row.item
                ),
                match &rubrics[..] {
                    [] | [_] => {
                        "verdicts are matched by item: give one run of one rubric at a time".into()
                    }
                    several => {
                        let known = named(several);
                        format!("verdicts are matched by item: name one rubric with --of ({known})")
                    }
                },
            ));
        }
        let line = Line { row, fields: kept };
        match by_key.get(&line.row.key) {
            Some(at) => found.lines[*at] = line,
            None => {
                by_key.insert(line.row.key.clone(), found.lines.len());
                found.lines.push(line);
            }
        }
    }
    if let Some(rubric) = rubric.filter(|rubric| !rubrics.iter().any(|own| own == rubric)) {
        return Err(Fault::usage(
            format!("{shown}: no verdict is of rubric \"{rubric}\""),
            format!("its rubrics are {}", named(&rubrics)),
        ));
    }
    Ok(found)
}

/// Up to eight names for one line of text, without anything that a terminal would act on.
pub fn named(names: &[String]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(8)
        .map(|name| crate::report::table::plain(name))
        .collect();
    let mut text = shown.join(", ");
    if names.len() > shown.len() {
        text.push_str(&format!(" and {} more", names.len() - shown.len()));
    }
    text
}
