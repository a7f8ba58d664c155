//! Markers: tokens that are found in the text as a whole, before any merging.
//!
//! The search is leftmost-longest and linear. It knows which tokens are text (user-defined ones) and which steer the
//! model, and never reports one of the latter unless asked to.

use super::vocabulary::{Kind, Vocabulary};
use super::{Specials, TokenizerError};
use aho_corasick::{AhoCorasick, MatchKind};

/// A stretch of text between markers, or a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span<'a> {
    /// Text to be merged.
    Text(&'a str),
    /// A marker's token.
    Marker(u32),
}

/// The searchers over the markers of one vocabulary.
pub(super) struct Markers {
    /// User-defined tokens alone.
    plain: Option<Searcher>,
    /// User-defined, control and unknown tokens.
    parse: Option<Searcher>,
    /// Whether blanks that follow a control token belong to it, by token id; empty where none does so.
    absorbs: Vec<bool>,
}

struct Searcher {
    automaton: AhoCorasick,
    tokens: Vec<u32>,
}

impl Markers {
    /// Builds the searchers. `absorbs` says which control tokens take the blanks after them along.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        absorbs: impl Fn(u32) -> bool,
    ) -> Result<Self, TokenizerError> {
        let absorbs: Vec<bool> = vocabulary
            .iter()
            .map(|(id, _, kind)| kind == Kind::Control && absorbs(id))
            .collect();
        Ok(Markers {
            plain: Searcher::new(vocabulary, |kind| kind == Kind::UserDefined)?,
            parse: Searcher::new(vocabulary, |kind| {
                matches!(kind, Kind::UserDefined | Kind::Control | Kind::Unknown)
            })?,
            absorbs: if absorbs.contains(&true) {
                absorbs
            } else {
                Vec::new()
            },
        })
    }

    /// Cuts the text at its markers and hands on the spans in order; empty text is left out.
    pub(super) fn split<'a>(
        &self,
        text: &'a str,
        specials: Specials,
        mut take: impl FnMut(Span<'a>),
    ) {
        let searcher = match specials {
            Specials::Plain => &self.plain,
            Specials::Parse => &self.parse,
        };
        let mut at = 0;
        if let Some(searcher) = searcher {
            for found in searcher.automaton.find_iter(text) {
                let token = searcher.tokens[found.pattern().as_usize()];
                if found.start() < at {
                    continue; // one of the blanks that the marker before took along
                }
                if found.start() > at {
                    take(Span::Text(&text[at..found.start()]));
                }
                take(Span::Marker(token));
                at = found.end();
                if self.absorbs.get(token as usize).copied().unwrap_or(false) {
                    let rest = &text[at..];
                    at += rest.len()
                        - rest
                            .trim_start_matches(|character: char| character.is_ascii_whitespace())
                            .len();
                }
            }
        }
        if at < text.len() {
            take(Span::Text(&text[at..]));
        }
    }
}

impl Searcher {
    fn new(
        vocabulary: &Vocabulary,
        wanted: impl Fn(Kind) -> bool,
    ) -> Result<Option<Self>, TokenizerError> {
        let markers = vocabulary
            .iter()
            .filter(|(_, piece, kind)| !piece.is_empty() && wanted(*kind));
        let (tokens, pieces): (Vec<u32>, Vec<&str>) =
            markers.map(|(id, piece, _)| (id, piece)).unzip();
        if tokens.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(pieces)
            .map_err(|error| {
                TokenizerError::Refused(format!("the special tokens are too many: {error}"))
            })?;
        Ok(Some(Searcher { automaton, tokens }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::Spelling;
    use super::*;

    fn check(text: &str, specials: Specials, expected: &[Span]) {
        let entries = [
            ("<s>", Kind::Control),
            ("\n", Kind::UserDefined),
            ("\n\n", Kind::UserDefined),
            ("<|end|>", Kind::Control),
            ("a", Kind::Normal),
        ];
        let pieces = entries.iter().map(|(piece, _)| piece.to_string()).collect();
        let kinds = entries.iter().map(|(_, kind)| *kind).collect();
        let vocabulary =
            Vocabulary::new(pieces, kinds, Spelling::BlankMark).expect("a good vocabulary");
        let markers = Markers::new(&vocabulary, |id| id == 3).expect("few markers");
        let mut spans = Vec::new();
        markers.split(text, specials, |span| spans.push(span));
        assert_eq!(spans, expected, "{text:?}");
    }

    #[test]
    fn markers_are_leftmost_and_longest() {
        use Span::{Marker, Text};
        check("", Specials::Parse, &[]);
        check(
            "a\n\n\na",
            Specials::Plain,
            &[Text("a"), Marker(2), Marker(1), Text("a")],
        );
        check("<s>a", Specials::Plain, &[Text("<s>a")]);
        check("<s>a", Specials::Parse, &[Marker(0), Text("a")]);
        check("<s> a", Specials::Parse, &[Marker(0), Text(" a")]);
        check(
            "<|end|> \n a<|end|> ",
            Specials::Parse,
            &[Marker(3), Text("a"), Marker(3)],
        );
        check("<|end|>  a", Specials::Parse, &[Marker(3), Text("a")]);
    }
}
