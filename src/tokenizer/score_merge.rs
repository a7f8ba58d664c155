//! Merging by score, as sentencepiece does it for vocabularies of the `llama` kind.
//!
//! The text is cut into characters; the neighbouring pair whose joined piece has the highest score is joined first, the
//! leftmost one on ties, until no pair makes a piece. Characters without a piece become byte tokens. Control, unknown and
//! byte tokens are never made by joining; unused pieces may be passed through, but are taken apart again at the end.
//! The queue makes it n·log n, whatever the text. This file knows no markers and no blanks: its text already has `▁`.

use super::TokenizerError;
use super::vocabulary::{Kind, Vocabulary, byte_of};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// The pieces that merging may make, with their scores.
pub(super) struct ScoreMerge {
    pieces: HashMap<Box<str>, Entry>,
    bytes: [u32; 256],
}

#[derive(Clone, Copy)]
struct Entry {
    token: u32,
    score: f32,
    unused: bool,
}

/// A run of characters that is one piece so far; empty once it was joined to the one before it.
struct Symbol {
    start: usize,
    end: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// A pair that could be joined.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both together; another number later means that one of them has changed.
    length: usize,
}

impl ScoreMerge {
    /// Builds the table; `scores` has one score a token. A vocabulary that can't spell every byte is refused.
    pub(super) fn new(vocabulary: &Vocabulary, scores: &[f32]) -> Result<Self, TokenizerError> {
        if scores.len() != vocabulary.len() {
            return Err(TokenizerError::Refused(format!(
                "the vocabulary has {} pieces but {} scores",
                vocabulary.len(),
                scores.len()
            )));
        }
        let mut pieces = HashMap::with_capacity(vocabulary.len());
        let mut bytes = [None; 256];
        for ((token, piece, kind), &score) in vocabulary.iter().zip(scores) {
            match kind {
                Kind::Control | Kind::Unknown => {}
                Kind::Byte => {
                    if let Some(byte) = byte_of(piece) {
                        bytes[usize::from(byte)].get_or_insert(token);
                    }
                }
                Kind::Normal | Kind::UserDefined | Kind::Unused => {
                    // Adding zero makes a negative zero a positive one, so that the two tie.
                    let entry = Entry {
                        token,
                        score: score + 0.0,
                        unused: kind == Kind::Unused,
                    };
                    pieces.entry(piece.into()).or_insert(entry);
                }
            }
        }
        let mut table = [0; 256];
        for (byte, (slot, token)) in table.iter_mut().zip(bytes).enumerate() {
            *slot = token.ok_or_else(|| {
                TokenizerError::Refused(format!(
                    "the vocabulary has no token for byte 0x{byte:02X}: some text would be lost"
                ))
            })?;
        }
        Ok(ScoreMerge {
            pieces,
            bytes: table,
        })
    }

    /// Appends the tokens of `text`.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        for (start, character) in text.char_indices() {
            let index = symbols.len();
            symbols.push(Symbol {
                start,
                end: start + character.len_utf8(),
                previous: index.checked_sub(1),
                next: Some(index + 1),
            });
        }
        match symbols.last_mut() {
            Some(last) => last.next = None,
            None => return,
        }
        let mut queue = BinaryHeap::new();
        // Where unused pieces were joined from: bytes of the left part, by the piece's own text.
        let mut joints: HashMap<&str, usize> = HashMap::new();
        for right in 1..symbols.len() {
            self.offer(text, &symbols, right - 1, right, &mut queue, &mut joints);
        }
        while let Some(pair) = queue.pop() {
            let (left, right) = (&symbols[pair.left], &symbols[pair.right]);
            let emptied = left.start == left.end || right.start == right.end;
            if emptied || right.end - left.start != pair.length || left.next != Some(pair.right) {
                continue;
            }
            let (end, next) = (right.end, right.next);
            symbols[pair.right].start = end;
            symbols[pair.left].end = end;
            symbols[pair.left].next = next;
            if let Some(next) = next {
                symbols[next].previous = Some(pair.left);
                self.offer(text, &symbols, pair.left, next, &mut queue, &mut joints);
            }
            if let Some(previous) = symbols[pair.left].previous {
                self.offer(text, &symbols, previous, pair.left, &mut queue, &mut joints);
            }
        }
        let mut at = Some(0);
        while let Some(index) = at {
            let symbol = &symbols[index];
            self.emit(&text[symbol.start..symbol.end], &joints, out);
            at = symbol.next;
        }
    }

    /// Queues the pair if its joined text is a piece.
    fn offer<'a>(
        &self,
        text: &'a str,
        symbols: &[Symbol],
        left: usize,
        right: usize,
        queue: &mut BinaryHeap<Pair>,
        joints: &mut HashMap<&'a str, usize>,
    ) {
        let joined = &text[symbols[left].start..symbols[right].end];
        if let Some(entry) = self.pieces.get(joined) {
            queue.push(Pair {
                score: entry.score,
                left,
                right,
                length: joined.len(),
            });
            if entry.unused {
                joints.insert(joined, symbols[left].end - symbols[left].start);
            }
        }
    }

    /// Appends the token of a finished symbol, its parts where it is unused, or its bytes where it is no piece.
    fn emit(&self, symbol: &str, joints: &HashMap<&str, usize>, out: &mut Vec<u32>) {
        let mut rest = vec![symbol];
        while let Some(symbol) = rest.pop() {
            match (self.pieces.get(symbol), joints.get(symbol)) {
                (Some(entry), _) if !entry.unused => out.push(entry.token),
                (Some(_), Some(&left)) => {
                    rest.push(&symbol[left..]);
                    rest.push(&symbol[..left]);
                }
                _ => out.extend(symbol.bytes().map(|byte| self.bytes[usize::from(byte)])),
            }
        }
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::Spelling;
    use super::*;

    /// Merges with the given pieces (token 256 on) after 256 byte tokens.
    fn check(pieces: &[(&str, Kind, f32)], text: &str, expected: &[u32]) {
        let mut names: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
        let mut kinds = vec![Kind::Byte; 256];
        let mut scores = vec![0.0; 256];
        for (piece, kind, score) in pieces {
            names.push((*piece).to_owned());
            kinds.push(*kind);
            scores.push(*score);
        }
        let vocabulary =
            Vocabulary::new(names, kinds, Spelling::BlankMark).expect("a good vocabulary");
        let merge = ScoreMerge::new(&vocabulary, &scores).expect("all bytes are there");
        let mut tokens = Vec::new();
        merge.encode(text, &mut tokens);
        assert_eq!(tokens, expected, "{text:?}");
    }

    #[test]
    fn the_highest_score_is_joined_first_and_the_leftmost_on_ties() {
        use Kind::{Control, Normal, Unused};
        let pieces = [
            ("a", Normal, -9.0),
            ("b", Normal, -9.0),
            ("ab", Normal, -2.0),
            ("ba", Normal, -1.0),
        ];
        check(&pieces, "", &[]);
        check(&pieces, "aba", &[256, 259]);
        check(&pieces, "abab", &[256, 259, 257]);
        check(
            &[("a", Normal, 0.0), ("aa", Normal, -1.0)],
            "aaa",
            &[257, 256],
        );
        check(
            &[
                ("a", Normal, 0.0),
                ("aa", Normal, -1.0),
                ("aaa", Normal, 1.0),
            ],
            "aaaaa",
            &[258, 257],
        );
        check(
            &[
                ("<", Normal, 0.0),
                ("s>", Normal, 0.0),
                ("<s>", Control, 9.0),
            ],
            "<s>",
            &[256, 257],
        );
        check(&[("é", Normal, 0.0)], "éß\0", &[256, 0xC3, 0x9F, 0]);
        let pieces = [
            ("a", Normal, 0.0),
            ("ab", Unused, 1.0),
            ("abc", Normal, 2.0),
            ("b", Normal, 0.0),
        ];
        check(&pieces, "ab", &[256, 259]);
        check(&pieces, "abc", &[258]);
    }

    #[test]
    fn a_vocabulary_that_cannot_spell_every_byte_is_refused() {
        let vocabulary = Vocabulary::new(vec!["a".into()], vec![Kind::Normal], Spelling::BlankMark)
            .expect("a table");
        assert!(ScoreMerge::new(&vocabulary, &[0.0]).is_err());
        assert!(ScoreMerge::new(&vocabulary, &[]).is_err());
    }
}
