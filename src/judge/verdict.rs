//! A verdict: what was decided about one item, with its evidence, and the single opinions that verdicts are made of.

use super::details::Details;
use crate::ask::{Answer, TokenCounts};
use serde::{Deserialize, Serialize};

/// A verbatim passage of the judged answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// The passage.
    pub quote: String,
    /// Where it begins in the answer, in UTF-8 bytes.
    pub start: usize,
    /// Where it ends, exclusive: `answer[start..end]` is the passage.
    pub end: usize,
}

impl Quote {
    /// Finds `quote` in `answer`: whole words before parts of words, then what begins at or after `from` before what
    /// comes earlier, then the first.
    pub fn find(answer: &str, quote: &str, from: usize) -> Option<Quote> {
        let touches = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        let whole = |at: usize| {
            let (before, rest) = answer.split_at(at);
            let joined_before =
                touches(before.chars().next_back()) && touches(quote.chars().next());
            let joined_after =
                touches(quote.chars().next_back()) && touches(rest[quote.len()..].chars().next());
            !joined_before && !joined_after
        };
        // Occurrences may overlap, so each search goes on one character after the last find.
        let mut occurrences = Vec::new();
        let mut after = 0;
        while let Some(at) = answer.get(after..).and_then(|rest| rest.find(quote)) {
            let at = after + at;
            occurrences.push(at);
            let Some(letter) = answer[at..].chars().next() else {
                break;
            };
            after = at + letter.len_utf8();
        }
        let start = occurrences
            .into_iter()
            .min_by_key(|at| (!whole(*at), *at < from, *at))?;
        Some(Quote {
            quote: quote.to_string(),
            start,
            end: start + quote.len(),
        })
    }
}

/// What the judge's own probabilities say at a label position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Each label and its probability, renormalised over the labels, in the rubric's order.
    #[serde(with = "as_map")]
    pub distribution: Vec<(String, f64)>,
    /// The full-softmax probability that lay on any label.
    pub mass: f64,
    /// Whether the mass is below the rubric's threshold.
    pub low_mass: bool,
    /// Entropy of the distribution in nats.
    pub entropy: f64,
    /// How far the most probable label is ahead of the second.
    pub margin: f64,
}

impl Reading {
    /// The probability of a label; 0 where it is none.
    pub fn probability(&self, label: &str) -> f64 {
        let found = self.distribution.iter().find(|(name, _)| name == label);
        found.map_or(0.0, |(_, probability)| *probability)
    }
}

/// One answer of the judge: a label with the reading behind it, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opinion {
    /// The most probable label.
    pub label: String,
    /// Σ s·p(s) over the labels' values; `None` where labels have none.
    pub expected: Option<f64>,
    /// What the label rests on.
    #[serde(flatten)]
    pub reading: Reading,
    /// Why, in the judge's words; `None` where none was asked for.
    pub rationale: Option<String>,
    /// Passages of the judged text that the judge rests on.
    #[serde(default)]
    pub evidence: Vec<Quote>,
    /// The judge's whole output.
    pub raw: String,
}

/// What was decided about one item.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The label.
    pub label: String,
    /// Its expected value: Σ s·p(s) for levels, the probability of `pass` or of `A`, a fraction of claims; `None` where labels have no values.
    pub expected: Option<f64>,
    /// What the label was read from; `None` where no single reading stands behind it.
    pub reading: Option<Reading>,
    /// Why, in the judge's words; `None` where none was asked for.
    pub rationale: Option<String>,
    /// Passages of the answer that the judge rests on.
    pub evidence: Vec<Quote>,
    /// The judge's whole output, where there was one.
    pub raw: Option<String>,
    /// What the verdict was made of, where it is more than one opinion.
    pub details: Option<Details>,
    /// Where the tokens came from, over all asks of this item.
    pub tokens: TokenCounts,
    /// Wall time over all asks of this item, in milliseconds.
    pub milliseconds: f64,
}

/// What all asks of an item took together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Where the tokens came from.
    pub tokens: TokenCounts,
    /// Wall time in milliseconds.
    pub milliseconds: f64,
}

impl Cost {
    /// Adds what one answer, or one verdict, took.
    pub fn add(&mut self, tokens: &TokenCounts, milliseconds: f64) {
        self.tokens.prompt += tokens.prompt;
        self.tokens.cached += tokens.cached;
        self.tokens.forced += tokens.forced;
        self.tokens.generated += tokens.generated;
        self.milliseconds += milliseconds;
    }

    /// What these answers took.
    pub fn of<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> Cost {
        let mut cost = Cost::default();
        answers
            .into_iter()
            .for_each(|answer| cost.add(&answer.tokens, answer.milliseconds));
        cost
    }
}

impl Verdict {
    /// The verdict that one opinion makes.
    pub fn of(opinion: Opinion, cost: Cost) -> Verdict {
        Verdict {
            label: opinion.label,
            expected: opinion.expected,
            reading: Some(opinion.reading),
            rationale: opinion.rationale,
            evidence: opinion.evidence,
            raw: Some(opinion.raw),
            details: None,
            tokens: cost.tokens,
            milliseconds: cost.milliseconds,
        }
    }

    /// A verdict that rests on its details.
    pub fn made(label: &str, expected: Option<f64>, details: Details, cost: Cost) -> Verdict {
        Verdict {
            label: label.to_string(),
            expected,
            reading: None,
            rationale: None,
            evidence: Vec::new(),
            raw: None,
            details: Some(details),
            tokens: cost.tokens,
            milliseconds: cost.milliseconds,
        }
    }
}

/// A list of names and numbers as one JSON object, in its order.
mod as_map {
    use serde::de::{Deserializer, MapAccess, Visitor};
    use serde::ser::{SerializeMap as _, Serializer};
    use std::fmt;

    pub fn serialize<S: Serializer>(pairs: &[(String, f64)], to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(pairs.len()))?;
        for (name, value) in pairs {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<(String, f64)>, D::Error> {
        struct Pairs;
        impl<'a> Visitor<'a> for Pairs {
            type Value = Vec<(String, f64)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers")
            }

            fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        from.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::Quote;

    #[test]
    fn quotes_are_found_by_bytes() {
        let check = |answer: &str, quote: &str, from: usize, want: Option<(usize, usize)>| {
            let found = Quote::find(answer, quote, from);
            assert_eq!(
                found.as_ref().map(|found| (found.start, found.end)),
                want,
                "{answer} {quote}"
            );
            if let Some(found) = found {
                assert_eq!(&answer[found.start..found.end], quote);
            }
        };
        check("a b a", "a", 0, Some((0, 1)));
        check("a b a", "a", 1, Some((4, 5)));
        check("a b", "a", 1, Some((0, 1)));
        check("“é” 日本", "日本", 0, Some((9, 15)));
        check("é", "é", 1, Some((0, 2)));
        check("abc", "d", 0, None);
    }
}
