//! The constraints themselves: each walks one output of one shape.
//!
//! Knows how to ask llguidance, and nothing of how a grammar came about.

use super::passage::Passage;
use super::{ConstrainError, Constraint, Mask, Next, Vocabulary};
use crate::ask::Labels;
use llguidance::Matcher;
use std::collections::VecDeque;
use std::sync::Arc;

/// What follows the text that is walked.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// Nothing.
    Done,
    /// Labels, and the text around them.
    Labels {
        labels: Labels,
        opening: String,
        closing: String,
    },
}

impl End {
    fn next(&self) -> Next {
        match self {
            End::Done => Next::Done,
            End::Labels {
                labels,
                opening,
                closing,
            } => Next::Labels {
                labels: labels.clone(),
                opening: opening.clone(),
                closing: closing.clone(),
            },
        }
    }
}

/// Free text up to a stop token.
pub(super) struct Free {
    pub(super) mask: Mask,
    pub(super) stops: Arc<[u32]>,
    pub(super) stopped: bool,
}

impl Constraint for Free {
    fn next(&mut self) -> Result<Next, ConstrainError> {
        Ok(if self.stopped {
            Next::Done
        } else {
            Next::Choose(self.mask.clone())
        })
    }

    fn advance(&mut self, tokens: &[u32]) -> Result<(), ConstrainError> {
        for token in tokens {
            if self.stopped {
                return Err(ConstrainError::Decode(format!(
                    "token {token} came after the end"
                )));
            }
            self.stopped = self.stops.contains(token);
        }
        Ok(())
    }
}

/// Literal text, and what follows it.
pub(super) struct Literal {
    /// The tokens that are still to come.
    pub(super) tokens: Vec<u32>,
    pub(super) end: End,
}

impl Constraint for Literal {
    fn next(&mut self) -> Result<Next, ConstrainError> {
        Ok(if self.tokens.is_empty() {
            self.end.next()
        } else {
            Next::Forced(self.tokens.clone())
        })
    }

    fn advance(&mut self, tokens: &[u32]) -> Result<(), ConstrainError> {
        if self.tokens.is_empty() {
            self.end = after(&self.end, tokens)?;
        } else if self.tokens.starts_with(tokens) {
            self.tokens.drain(..tokens.len());
        } else {
            return Err(ConstrainError::Decode(
                "other tokens came than were forced".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Literals and texts in turn, and what follows them.
pub(super) struct Written {
    pub(super) vocabulary: Arc<Vocabulary>,
    /// The stages that are still to come, the present one first.
    pub(super) stages: VecDeque<Stage>,
    pub(super) end: End,
}

/// A stage of [`Written`].
pub(super) enum Stage {
    /// These tokens.
    Forced(Vec<u32>),
    /// A text of the model's own.
    Passage(Passage),
}

impl Constraint for Written {
    fn next(&mut self) -> Result<Next, ConstrainError> {
        loop {
            let forced = match self.stages.front() {
                None => return Ok(self.end.next()),
                Some(Stage::Forced(tokens)) if tokens.is_empty() => {
                    self.stages.pop_front();
                    continue;
                }
                Some(Stage::Forced(tokens)) => return Ok(Next::Forced(tokens.clone())),
                Some(Stage::Passage(passage)) => match passage.forced() {
                    Some(forced) => forced,
                    None => {
                        let mask = passage.mask();
                        return match only(&mask) {
                            Allowed::None => {
                                Err(ConstrainError::Decode("no token can come next".to_owned()))
                            }
                            Allowed::One(token) => Ok(Next::Forced(vec![token])),
                            Allowed::Many => Ok(Next::Choose(mask)),
                        };
                    }
                },
            };
            self.force(&forced)?;
        }
    }

    fn advance(&mut self, tokens: &[u32]) -> Result<(), ConstrainError> {
        match self.stages.front_mut() {
            None => self.end = after(&self.end, tokens)?,
            Some(Stage::Forced(forced)) if forced.starts_with(tokens) => {
                forced.drain(..tokens.len());
            }
            Some(Stage::Forced(_)) => {
                return Err(ConstrainError::Decode(
                    "other tokens came than were forced".to_owned(),
                ));
            }
            Some(Stage::Passage(passage)) => {
                let Some((first, others)) = tokens.split_first() else {
                    return Ok(());
                };
                if let Some(left) = passage.advance(*first)? {
                    self.force(&left)?;
                }
                return self.advance(others);
            }
        }
        Ok(())
    }
}

impl Written {
    /// Puts a literal in the place of the present stage.
    fn force(&mut self, text: &str) -> Result<(), ConstrainError> {
        let tokens = self.vocabulary.spell(text.as_bytes());
        if self.vocabulary.spelled(&tokens) != text.as_bytes() {
            return Err(ConstrainError::Decode(format!(
                "the vocabulary has no tokens for the text {text:?}"
            )));
        }
        if let Some(stage) = self.stages.front_mut() {
            *stage = Stage::Forced(tokens);
        }
        Ok(())
    }
}

/// A grammar, and what follows it.
pub(super) struct Grammar {
    pub(super) matcher: Matcher,
    pub(super) size: usize,
    pub(super) stops: Arc<[u32]>,
    pub(super) end: End,
}

impl Constraint for Grammar {
    fn next(&mut self) -> Result<Next, ConstrainError> {
        if self.complete()? {
            return Ok(self.end.next());
        }
        let forced = self.matcher.compute_ff_tokens();
        self.complete()?;
        if !forced.is_empty() {
            return Ok(Next::Forced(forced));
        }
        let mut words = self
            .matcher
            .compute_mask()
            .map_err(|error| decode(&error.to_string()))?
            .as_slice()
            .to_vec();
        words.truncate(self.size.div_ceil(32));
        let mask = Mask { words };
        match only(&mask) {
            Allowed::None => Err(ConstrainError::Decode("no token can come next".to_owned())),
            Allowed::One(token) if self.stops.contains(&token) => Ok(self.end.next()),
            Allowed::One(token) => Ok(Next::Forced(vec![token])),
            Allowed::Many if self.may_only_stop(&mask) => Ok(self.end.next()),
            Allowed::Many => Ok(Next::Choose(mask)),
        }
    }

    fn advance(&mut self, tokens: &[u32]) -> Result<(), ConstrainError> {
        if self.complete()? {
            self.end = after(&self.end, tokens)?;
            return Ok(());
        }
        self.matcher
            .consume_tokens(tokens)
            .map_err(|error| decode(&error.to_string()))
    }
}

impl Grammar {
    /// Whether the grammar is at its end.
    fn complete(&self) -> Result<bool, ConstrainError> {
        match self.matcher.get_error() {
            Some(error) => Err(decode(&error)),
            None if self.matcher.is_stopped() && self.matcher.stop_reason().is_ok() => Ok(true),
            None if self.matcher.is_stopped() => {
                Err(decode(&self.matcher.stop_reason().to_string()))
            }
            None => Ok(false),
        }
    }

    fn may_only_stop(&self, mask: &Mask) -> bool {
        let allowed: u32 = mask.words.iter().map(|word| word.count_ones()).sum();
        allowed as usize == self.stops.iter().filter(|&&stop| mask.allows(stop)).count()
    }
}

/// What follows once `tokens` came at the end: labels and their closing text come in any tokens, and only once.
fn after(end: &End, tokens: &[u32]) -> Result<End, ConstrainError> {
    match end {
        End::Done if !tokens.is_empty() => Err(ConstrainError::Decode(
            "a token came after the end".to_owned(),
        )),
        End::Labels { .. } if tokens.is_empty() => Ok(end.clone()),
        _ => Ok(End::Done),
    }
}

/// How many tokens a mask allows.
enum Allowed {
    None,
    One(u32),
    Many,
}

fn only(mask: &Mask) -> Allowed {
    let mut found = None;
    for (index, &word) in mask
        .words
        .iter()
        .enumerate()
        .filter(|&(_, &word)| word != 0)
    {
        if found.is_some() || word.count_ones() > 1 {
            return Allowed::Many;
        }
        found = Some(index as u32 * 32 + word.trailing_zeros());
    }
    found.map_or(Allowed::None, Allowed::One)
}

/// The first line of an error of llguidance: what follows it is its own state.
fn decode(error: &str) -> ConstrainError {
    ConstrainError::Decode(reason(error))
}

/// The part of an error of llguidance that says what is wrong.
pub(super) fn reason(error: &str) -> String {
    let end = ["<non-verbose/>", "<state>", "<backtrace>"]
        .iter()
        .filter_map(|mark| error.find(mark))
        .min();
    error[..end.unwrap_or(error.len())].trim().to_owned()
}
