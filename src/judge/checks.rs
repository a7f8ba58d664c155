//! Deterministic checks: what can be told of an answer without a model, and settles an item before one is asked.
//!
//! A check sees the answer's text and the number of passages of its context, nothing else. Its reasons speak of the
//! check and of counts, and hold no text of the trace. Where checks are declared is the rubric's business.

use regex::{Regex, RegexBuilder};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// Most memory that a compiled pattern may take, in bytes.
const PATTERN_BYTES: usize = 1 << 20;
/// Longest pattern or phrase, in bytes.
const LONGEST_TEXT: usize = 4096;
/// Most phrases or keys of one check.
const MOST_TEXTS: usize = 1000;

/// Numbers in brackets: `[2]`, `[1, 3]`. More digits than these are no passage's number.
static CITATION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[\s*([0-9]{1,9}(?:\s*,\s*[0-9]{1,9})*)\s*\]").ok());

/// In what a length is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Unicode characters.
    Characters,
    /// Runs of what is no white space.
    Words,
}

impl Unit {
    /// Its name in rubrics and reasons.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Characters => "characters",
            Unit::Words => "words",
        }
    }
}

/// What is checked, as declared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// The answer's length lies between two bounds, themselves included.
    Length {
        /// In what it is counted.
        unit: Unit,
        /// The least.
        min: Option<usize>,
        /// The most.
        max: Option<usize>,
    },
    /// A pattern is found in the answer; `^…$` around it asks for the whole.
    Matches(String),
    /// A pattern is not found in the answer.
    MatchesNot(String),
    /// The answer is one JSON value and nothing else, white space apart; with required keys, it is an object that has them.
    Json {
        /// Keys of the outermost object.
        required: Vec<String>,
    },
    /// None of the phrases stands in the answer as whole words. Case does not matter, nor does how words are spaced.
    Banned(Vec<String>),
    /// A passage of the context is cited, as `[n]` with n from 1 to the number of passages.
    Cites {
        /// Whether every number in brackets must be a passage's.
        only: bool,
    },
}

impl CheckKind {
    /// The kind's name, as rubrics declare it.
    pub fn name(&self) -> &'static str {
        match self {
            CheckKind::Length { .. } => "length",
            CheckKind::Matches(_) => "match",
            CheckKind::MatchesNot(_) => "match_not",
            CheckKind::Json { .. } => "json",
            CheckKind::Banned(_) => "banned",
            CheckKind::Cites { .. } => "cites",
        }
    }
}

/// A check that can't be made as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckError {
    /// What is wrong, in one sentence without a full stop.
    pub problem: String,
    /// What to do about it, in one sentence without a full stop.
    pub mend: String,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for CheckError {}

fn refused<T>(problem: impl Into<String>, mend: &str) -> Result<T, CheckError> {
    Err(CheckError {
        problem: problem.into(),
        mend: mend.into(),
    })
}

/// An answer that does not pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// The check's name.
    pub check: String,
    /// Why, in one sentence without a full stop.
    pub reason: String,
}

/// A check, ready to run.
#[derive(Clone, Debug)]
pub struct Check {
    name: String,
    kind: CheckKind,
    /// The pattern, or one a phrase.
    patterns: Vec<Regex>,
}

/// Two checks are the same where they are declared the same.
impl PartialEq for Check {
    fn eq(&self, other: &Check) -> bool {
        self.name == other.name && self.kind == other.kind
    }
}

impl Eq for Check {}

impl Check {
    /// Makes a check.
    ///
    /// # Errors
    /// An empty name, bounds that nothing or everything meets, a pattern that is none or too large, or an empty list.
    pub fn new(name: &str, kind: CheckKind) -> Result<Check, CheckError> {
        if name.trim().is_empty() || name.chars().any(char::is_control) {
            return refused(
                "a check without a name",
                "give it a name of one line, by which verdicts call it",
            );
        }
        let patterns = match &kind {
            CheckKind::Length { min, max, .. } => {
                bounds(*min, *max)?;
                Vec::new()
            }
            CheckKind::Matches(pattern) | CheckKind::MatchesNot(pattern) => {
                vec![compile(pattern, false)?]
            }
            CheckKind::Json { required } => {
                if required.len() > MOST_TEXTS {
                    return refused(
                        format!("{} required keys", required.len()),
                        "require 1000 keys at most",
                    );
                }
                Vec::new()
            }
            CheckKind::Banned(phrases) => phrases_of(phrases)?,
            CheckKind::Cites { .. } => Vec::new(),
        };
        Ok(Check {
            name: name.trim().to_string(),
            kind,
            patterns,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it checks.
    pub fn kind(&self) -> &CheckKind {
        &self.kind
    }

    /// Why the answer does not pass; `None` where it does. `passages` is how many passages the item's context has.
    pub fn run(&self, answer: &str, passages: usize) -> Option<Broken> {
        let reason = match &self.kind {
            CheckKind::Length { unit, min, max } => length(answer, *unit, *min, *max),
            CheckKind::Matches(pattern) => (!self.found(answer))
                .then(|| format!("the answer does not match the pattern {pattern}")),
            CheckKind::MatchesNot(pattern) => self
                .found(answer)
                .then(|| format!("the answer matches the pattern {pattern}")),
            CheckKind::Json { required } => json(answer, required),
            CheckKind::Banned(phrases) => {
                let mut both = phrases.iter().zip(&self.patterns);
                let found = both.find(|(phrase, pattern)| stands_in(answer, phrase, pattern));
                found.map(|(phrase, _)| format!("the answer holds the banned phrase \"{phrase}\""))
            }
            CheckKind::Cites { only } => cites(answer, passages, *only),
        };
        reason.map(|reason| Broken {
            check: self.name.clone(),
            reason,
        })
    }

    fn found(&self, answer: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_match(answer))
    }
}

/// The first check that the answer breaks, in the order of declaration.
pub fn first_broken(checks: &[Check], answer: &str, passages: usize) -> Option<Broken> {
    checks.iter().find_map(|check| check.run(answer, passages))
}

fn bounds(min: Option<usize>, max: Option<usize>) -> Result<(), CheckError> {
    match (min, max) {
        (None, None) => refused("a length without a bound", "give min, max or both"),
        (Some(min), Some(max)) if min > max => refused(
            format!("a length of at least {min} and at most {max}"),
            "put min below max",
        ),
        (Some(0), None) => refused(
            "a length of at least 0, which every answer has",
            "leave the check out, or give max",
        ),
        _ => Ok(()),
    }
}

fn compile(pattern: &str, any_case: bool) -> Result<Regex, CheckError> {
    if pattern.is_empty() || pattern.len() > LONGEST_TEXT {
        return refused(
            format!("a pattern of {} bytes", pattern.len()),
            "give a pattern of 1 to 4096 bytes",
        );
    }
    let built = RegexBuilder::new(pattern)
        .size_limit(PATTERN_BYTES)
        .case_insensitive(any_case)
        .build();
    match built {
        Ok(pattern) => Ok(pattern),
        Err(regex::Error::CompiledTooBig(limit)) => refused(
            format!("a pattern that takes over {limit} bytes"),
            "count less in it: {1000} copies what it repeats a thousand times",
        ),
        Err(error) => {
            // The crate draws the pattern with a mark below; its last line says why.
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim();
            let why = why.strip_prefix("error: ").unwrap_or(why);
            refused(
                format!("it is no pattern: {why}"),
                "put it right; look-around and back references are not known",
            )
        }
    }
}

fn phrases_of(phrases: &[String]) -> Result<Vec<Regex>, CheckError> {
    if phrases.is_empty() || phrases.len() > MOST_TEXTS {
        return refused(
            format!("{} banned phrases", phrases.len()),
            "list 1 to 1000 phrases",
        );
    }
    let pattern = |phrase: &String| {
        let words: Vec<String> = phrase.split_whitespace().map(regex::escape).collect();
        if words.is_empty() {
            return refused("a banned phrase that is empty", "write it, or leave it out");
        }
        compile(&words.join(r"\s+"), true)
    };
    phrases.iter().map(pattern).collect()
}

/// Whether a phrase stands somewhere as whole words: where it begins or ends with part of a word, no other part may touch it.
fn stands_in(answer: &str, phrase: &str, pattern: &Regex) -> bool {
    let part = |letter: Option<char>| letter.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let phrase = phrase.trim();
    let (opens, closes) = (
        part(phrase.chars().next()),
        part(phrase.chars().next_back()),
    );
    let mut from = 0;
    while let Some(found) = pattern.find_at(answer, from) {
        let before = answer[..found.start()].chars().next_back();
        let after = answer[found.end()..].chars().next();
        if !(opens && part(before) || closes && part(after)) {
            return true;
        }
        // Finds may overlap, so the search goes on one character further.
        from = found.start()
            + answer[found.start()..]
                .chars()
                .next()
                .map_or(1, char::len_utf8);
    }
    false
}

fn length(answer: &str, unit: Unit, min: Option<usize>, max: Option<usize>) -> Option<String> {
    let count = match unit {
        Unit::Characters => answer.chars().count(),
        Unit::Words => answer.split_whitespace().count(),
    };
    let unit = unit.name();
    if let Some(min) = min.filter(|min| count < *min) {
        return Some(format!(
            "the answer has {count} {unit}, and {min} are the least"
        ));
    }
    let max = max.filter(|max| count > *max)?;
    Some(format!(
        "the answer has {count} {unit}, and {max} are the most"
    ))
}

fn json(answer: &str, required: &[String]) -> Option<String> {
    if required.is_empty() {
        let valid = serde_json::from_str::<IgnoredAny>(answer).is_ok();
        return (!valid).then(|| "the answer is not valid JSON".to_string());
    }
    match serde_json::from_str::<HashMap<String, IgnoredAny>>(answer) {
        Ok(object) => {
            let missing = required.iter().find(|key| !object.contains_key(*key))?;
            Some(format!("the answer's JSON has no key \"{missing}\""))
        }
        Err(error) if error.is_data() => Some("the answer's JSON is no object".to_string()),
        Err(_) => Some("the answer is not valid JSON".to_string()),
    }
}

fn cites(answer: &str, passages: usize, only: bool) -> Option<String> {
    let (mut known, mut unknown) = (0usize, 0usize);
    let groups = CITATION
        .iter()
        .flat_map(|citation| citation.captures_iter(answer));
    for number in groups.flat_map(|group| {
        let list = group.get(1).map_or("", |list| list.as_str());
        list.split(',').map(str::trim)
    }) {
        match number.parse::<usize>() {
            Ok(number) if (1..=passages).contains(&number) => known += 1,
            _ => unknown += 1,
        }
    }
    if only && unknown > 0 {
        return Some(format!(
            "the answer cites {unknown} passages that are not among the context's {passages}"
        ));
    }
    (known == 0).then(|| format!("the answer cites none of the context's {passages} passages"))
}
