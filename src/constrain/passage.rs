//! Free text up to its mark, token by token.
//!
//! A text is over with the first occurrence of its mark, whatever is written in it. That needs no grammar: nearly every
//! token of a vocabulary can neither complete the mark nor hold it, so it may come wherever there is room for its
//! characters. The few that can are tried one by one. [`Texts`] says how many characters each token adds, once a
//! vocabulary; [`Marks`] says which tokens have to be tried, once a mark; [`Passage`] walks one text. Knows no shape.

use super::{ConstrainError, Mask, Vocabulary};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What each token adds to a text.
pub(super) struct Texts {
    /// Characters that a token adds behind a whole character, one that it only begins included; 0 where it can't stand
    /// there.
    characters: Vec<u16>,
    /// Tokens that begin inside a character.
    continuing: Vec<u32>,
}

impl Texts {
    /// Looks at every token of the vocabulary.
    pub(super) fn of(vocabulary: &Vocabulary) -> Self {
        let mut continuing = Vec::new();
        let characters = (0..vocabulary.size() as u32)
            .map(|token| {
                let bytes = vocabulary.bytes(token);
                if bytes.first().is_some_and(|byte| byte & 0xc0 == 0x80) {
                    continuing.push(token);
                }
                characters(bytes).unwrap_or(0)
            })
            .collect();
        Texts {
            characters,
            continuing,
        }
    }

    /// The tokens that add at most so many characters behind a whole one.
    fn within(&self, room: usize) -> Vec<u32> {
        let room = room.min(usize::from(u16::MAX)) as u16;
        self.characters
            .chunks(32)
            .map(|chunk| {
                let bits = chunk.iter().enumerate();
                bits.fold(0, |word, (bit, &characters)| {
                    // 0 wraps around to more than any room.
                    word | u32::from(characters.wrapping_sub(1) < room) << bit
                })
            })
            .collect()
    }
}

/// Characters of a token that begins with a whole one: the last one may be begun only. `None` for text that can't be.
fn characters(bytes: &[u8]) -> Option<u16> {
    let (whole, begun) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, 0),
        Err(error) if error.error_len().is_none() => {
            let whole = std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?;
            (whole, 1)
        }
        Err(_) => return None,
    };
    if whole.contains(is_none) {
        return None;
    }
    u16::try_from(whole.chars().count() + begun).ok()
}

/// Control characters but for line ends and tabs: they are no text.
fn is_none(character: char) -> bool {
    character.is_ascii_control() && character != '\n' && character != '\t'
}

/// What ends a text, and what can't stand in it.
pub(super) struct Marks {
    mark: Vec<u8>,
    never: Vec<Vec<u8>>,
    /// Beginnings of the marks, with the tokens that complete one behind it. Behind any other text they are like all
    /// others. Where the beginning is empty, the token holds a whole mark.
    touching: Vec<(Vec<u8>, Vec<u32>)>,
}

impl Marks {
    /// Finds the tokens that can complete one of the marks.
    pub(super) fn of(vocabulary: &Vocabulary, mark: &str, never: &[String]) -> Self {
        let mark = mark.as_bytes().to_vec();
        let never: Vec<Vec<u8>> = never.iter().map(|text| text.as_bytes().to_vec()).collect();
        let mut touching: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
        for mark in never.iter().chain([&mark]) {
            for token in 0..vocabulary.size() as u32 {
                let bytes = vocabulary.bytes(token);
                if bytes.windows(mark.len()).any(|window| window == mark) {
                    touching.entry(&[]).or_default().push(token);
                }
                for end in 1..=bytes.len().min(mark.len()) {
                    if let Some(before) = mark.strip_suffix(&bytes[..end]) {
                        touching.entry(before).or_default().push(token);
                    }
                }
            }
        }
        let touching = touching
            .into_iter()
            .map(|(before, tokens)| (before.to_vec(), tokens))
            .collect();
        Marks {
            mark,
            never,
            touching,
        }
    }
}

/// What is the same for all walks of one text.
pub(super) struct Plan {
    pub(super) vocabulary: Arc<Vocabulary>,
    pub(super) texts: Arc<Texts>,
    pub(super) marks: Arc<Marks>,
    /// Most characters of the text.
    pub(super) longest: usize,
    /// The beginning of the literal behind the text, up to and with the mark.
    pub(super) end: String,
    /// The rest of that literal.
    pub(super) rest: String,
}

/// One text under way.
pub(super) struct Passage {
    plan: Plan,
    at: Place,
}

/// How far a text has come.
#[derive(Clone, Default)]
struct Place {
    /// Whole characters so far, a mark that is begun included.
    characters: usize,
    /// The bytes of a character that is begun.
    begun: Vec<u8>,
    /// The last bytes, as many as the longest mark has.
    tail: Vec<u8>,
}

/// Where a token leads.
enum Stride {
    /// The text goes on.
    On(Place),
    /// The text is over; so many bytes of the rest came with the token.
    Over(usize),
}

impl Passage {
    /// A text at its start.
    pub(super) fn new(plan: Plan) -> Self {
        Passage {
            plan,
            at: Place::default(),
        }
    }

    /// What must come now that there is no room for more text: what lacks of the mark, and the rest behind it.
    pub(super) fn forced(&self) -> Option<String> {
        if self.at.characters < self.plan.longest {
            return None;
        }
        let end = &self.plan.end;
        // The text has at least one character, which may not be taken for one of the mark's.
        let spare = self.at.characters - 1;
        let begun = end
            .char_indices()
            .map(|(at, _)| at)
            .filter(|&at| end[..at].chars().count() <= spare)
            .rfind(|&at| self.at.tail.ends_with(&end.as_bytes()[..at]))
            .unwrap_or(0);
        Some(format!("{}{}", &end[begun..], self.plan.rest))
    }

    /// The tokens that may come.
    pub(super) fn mask(&self) -> Mask {
        let plan = &self.plan;
        let mut words;
        let mut tried = Vec::new();
        if self.at.begun.is_empty() {
            words = plan
                .texts
                .within(plan.longest.saturating_sub(self.at.characters));
            let touched = plan.marks.touching.iter();
            let touched = touched.filter(|(before, _)| self.at.tail.ends_with(before));
            tried.extend(touched.flat_map(|(_, tokens)| tokens));
        } else {
            words = vec![0; plan.vocabulary.size().div_ceil(32)];
            tried.extend(&plan.texts.continuing);
        }
        for token in tried {
            let bit = 1u32 << (token % 32);
            if let Some(word) = words.get_mut(token as usize / 32) {
                match self.stride(plan.vocabulary.bytes(token)) {
                    Some(_) => *word |= bit,
                    None => *word &= !bit,
                }
            }
        }
        Mask { words }
    }

    /// Takes a token, and answers what is left of the rest where the text is over with it.
    ///
    /// # Errors
    /// [`ConstrainError::Decode`] for a token that may not come.
    pub(super) fn advance(&mut self, token: u32) -> Result<Option<String>, ConstrainError> {
        match self.stride(self.plan.vocabulary.bytes(token)) {
            Some(Stride::On(place)) => {
                self.at = place;
                Ok(None)
            }
            Some(Stride::Over(came)) => Ok(self.plan.rest.get(came..).map(str::to_owned)),
            None => Err(ConstrainError::Decode(format!(
                "token {token} can't come in the text before {:?}",
                self.plan.end
            ))),
        }
    }

    fn stride(&self, bytes: &[u8]) -> Option<Stride> {
        if bytes.is_empty() {
            return None;
        }
        let plan = &self.plan;
        let mut place = self.at.clone();
        for (index, &byte) in bytes.iter().enumerate() {
            place.begun.push(byte);
            match std::str::from_utf8(&place.begun) {
                Ok(character) if character.contains(is_none) => return None,
                Ok(_) => {
                    place.begun.clear();
                    place.characters += 1;
                }
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return None,
            }
            place.tail.push(byte);
            if place.tail.ends_with(&plan.marks.mark) {
                let text = place.characters.checked_sub(plan.end.chars().count())?;
                let whole = place.tail.ends_with(plan.end.as_bytes());
                let behind = &bytes[index + 1..];
                let over = whole
                    && (1..=plan.longest).contains(&text)
                    && plan.rest.as_bytes().starts_with(behind)
                    && plan.rest.is_char_boundary(behind.len());
                return over.then_some(Stride::Over(behind.len()));
            }
            if plan
                .marks
                .never
                .iter()
                .any(|never| place.tail.ends_with(never))
            {
                return None;
            }
        }
        if place.characters + usize::from(!place.begun.is_empty()) > plan.longest {
            return None;
        }
        let marks = plan.marks.never.iter().map(Vec::len);
        let kept = marks.max().unwrap_or(0).max(plan.end.len());
        let surplus = place.tail.len().saturating_sub(kept);
        place.tail.drain(..surplus);
        Some(Stride::On(place))
    }
}
