//! A verdict: what the judge decided about one item, with its evidence.

use crate::ask::TokenCounts;

/// A verbatim passage of the judged answer.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What the judge decided about one item.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The most probable label.
    pub label: String,
    /// Σ s·p(s) for integer levels, the probability of `pass` for a binary scale.
    pub expected: f64,
    /// Each label and its probability, renormalised over the labels, in the rubric's order.
    pub distribution: Vec<(String, f64)>,
    /// The full-softmax probability that lay on any label.
    pub mass: f64,
    /// Whether the mass is below the rubric's threshold.
    pub low_mass: bool,
    /// Entropy of the distribution in nats.
    pub entropy: f64,
    /// How far the most probable label is ahead of the second.
    pub margin: f64,
    /// Why, in the judge's words; `None` where the mode asks for none.
    pub rationale: Option<String>,
    /// Passages of the answer that the judge rests on.
    pub evidence: Vec<Quote>,
    /// The judge's whole output.
    pub raw: String,
    /// Where the tokens came from, over all asks of this item.
    pub tokens: TokenCounts,
    /// Wall time over all asks of this item, in milliseconds.
    pub milliseconds: f64,
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
