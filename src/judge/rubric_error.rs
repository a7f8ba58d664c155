//! What is wrong with a rubric: the line, the problem and the mend.

use std::fmt;

/// A fault of a rubric file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RubricError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong, in one sentence without a full stop.
    pub problem: String,
    /// What to do about it, in one sentence without a full stop.
    pub mend: String,
}

impl fmt::Display for RubricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for RubricError {}

impl RubricError {
    pub(super) fn new(
        line: usize,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) -> RubricError {
        RubricError {
            line,
            problem: problem.into(),
            mend: mend.into(),
        }
    }

    /// A word that is not among the known ones: names the nearest, or all of them.
    pub(super) fn unknown(line: usize, what: &str, word: &str, known: &[&str]) -> RubricError {
        let mend = match nearest(word, known) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("known here: {}", known.join(", ")),
        };
        RubricError::new(line, format!("unknown {what} \"{word}\""), mend)
    }
}

/// The known word that is few enough edits away to be meant.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    let ranked = known
        .iter()
        .map(|candidate| (edits(&word, candidate), *candidate));
    ranked
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, near)| near)
}

/// Levenshtein distance in characters.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_words() {
        let check = |word: &str, want: Option<&str>| {
            assert_eq!(nearest(word, &["criterion", "scale", "id"]), want)
        };
        check("criterium", Some("criterion"));
        check("Scale", Some("scale"));
        check("sale", Some("scale"));
        check("ids", Some("id"));
        check("temperature", None);
        check("", None);
    }
}
