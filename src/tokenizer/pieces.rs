//! Pieces of a prompt: placeholders that stand for what is said while a template is rendered, and what goes in their place.
//!
//! This file knows no template and no tokens.

use super::{Specials, TokenizerError};
use crate::ask::Part;
use std::borrow::Cow;

/// Most parts in one prompt: as many as the digits of a placeholder can number.
const MOST_PARTS: usize = 1_000_000;

/// A stretch of the prompt, with its text.
pub(super) struct Piece<'a> {
    /// The text.
    pub(super) text: Cow<'a, str>,
    /// Whether control-token text in it counts.
    pub(super) specials: Specials,
}

/// Texts that stand for the parts while the template is rendered: letters and digits, so that no template changes them.
pub(super) struct Placeholders {
    stem: String,
}

impl Placeholders {
    /// Placeholders that are in no part and not in the template.
    pub(super) fn absent_from(parts: &[&Part], source: &str) -> Result<Self, TokenizerError> {
        if parts.len() > MOST_PARTS {
            return Err(TokenizerError::TemplateContent(format!(
                "{} parts are too many",
                parts.len()
            )));
        }
        let stems = (0u64..).map(|attempt| format!("Placeholder{attempt:04}Part"));
        let absent = |stem: &String| {
            !source.contains(stem) && !parts.iter().any(|part| part.text().contains(stem))
        };
        // The texts are finite, so that some stem is absent from them; the default is never reached.
        let stem = stems.into_iter().find(absent).unwrap_or_default();
        Ok(Placeholders { stem })
    }

    /// The text that stands for part `number`.
    pub(super) fn text(&self, number: usize) -> String {
        format!("{}{number:06}End", self.stem)
    }

    /// Cuts what the template wrote at its placeholders, and puts the parts there.
    pub(super) fn replace<'a>(
        &self,
        rendered: &str,
        parts: &[&'a Part],
    ) -> Result<Vec<Piece<'a>>, TokenizerError> {
        let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
        let mut rest = rendered;
        for (number, part) in parts.iter().enumerate() {
            let (before, after) = self.cut(rest, number)?;
            pieces.push(Piece {
                text: Cow::Owned(before.to_owned()),
                specials: Specials::Parse,
            });
            pieces.push(Piece {
                text: Cow::Borrowed(part.text()),
                specials: Specials::Plain,
            });
            rest = after;
        }
        if self.next(rest).is_some() {
            return Err(TokenizerError::TemplateContent(
                "a part is written twice".into(),
            ));
        }
        pieces.push(Piece {
            text: Cow::Owned(rest.to_owned()),
            specials: Specials::Parse,
        });
        Ok(pieces)
    }

    /// The first placeholder in the text: its number and where it begins.
    fn next(&self, text: &str) -> Option<(Option<usize>, usize)> {
        let at = text.find(&self.stem)?;
        let digits = text[at + self.stem.len()..].get(..6);
        Some((digits.and_then(|digits| digits.parse().ok()), at))
    }

    /// What is before and after placeholder `number`, which must be the next one.
    fn cut<'a>(&self, text: &'a str, number: usize) -> Result<(&'a str, &'a str), TokenizerError> {
        let wrong = |reason: String| Err(TokenizerError::TemplateContent(reason));
        match self.next(text) {
            None => wrong(format!("part {} is left out", number + 1)),
            Some((Some(found), at)) if found == number => {
                match text[at..].strip_prefix(&self.text(number)) {
                    Some(after) => Ok((&text[..at], after)),
                    None => wrong(format!("part {} is changed", number + 1)),
                }
            }
            Some((Some(found), _)) => wrong(format!(
                "part {} stands where part {} belongs",
                found.saturating_add(1),
                number + 1
            )),
            Some((None, _)) => wrong(format!("part {} is changed", number + 1)),
        }
    }
}

/// Moves a blank that ends one piece to the text that goes on after it: words carry the blank before them in nearly every
/// vocabulary, and a lone blank before a word is something that models rarely saw.
pub(super) fn move_blanks(pieces: &mut [Piece]) {
    for index in 1..pieces.len() {
        let (before, after) = pieces.split_at_mut(index);
        let (Some(before), Some(after)) = (before.last_mut(), after.first_mut()) else {
            continue;
        };
        let goes_on = after
            .text
            .chars()
            .next()
            .is_some_and(|first| !first.is_whitespace());
        if after.specials == Specials::Plain && goes_on && before.text.ends_with(' ') {
            before.text.to_mut().pop();
            after.text = Cow::Owned(format!(" {}", after.text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_before_a_part_goes_to_its_first_word() {
        let mut pieces = vec![
            Piece {
                text: "[INST] ".into(),
                specials: Specials::Parse,
            },
            Piece {
                text: "a ".into(),
                specials: Specials::Plain,
            },
            Piece {
                text: " b".into(),
                specials: Specials::Plain,
            },
            Piece {
                text: "".into(),
                specials: Specials::Plain,
            },
        ];
        move_blanks(&mut pieces);
        assert_eq!(
            pieces
                .iter()
                .map(|piece| piece.text.as_ref())
                .collect::<Vec<_>>(),
            ["[INST]", " a ", " b", ""]
        );
    }
}
