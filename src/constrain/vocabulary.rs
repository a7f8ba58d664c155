//! The vocabulary as constraints see it: the bytes of every token, and which tokens are none of the text's business.
//!
//! Built from a tokenizer, or from plain tables in tests. Knows no grammar and no label.

use super::{ConstrainError, Mask};
use crate::tokenizer::{Position, Specials, Tokenizer};
use std::sync::Arc;
use toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

/// Turns text that stands behind other text into token ids, every character being data.
pub type Encode = Arc<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

/// Longest token that a grammar may choose, in bytes. Vocabularies hold runs of up to 1,024 blanks; the trie's own
/// limit lies there too.
const LONGEST_TOKEN: usize = 512;

/// Most nodes that the token trie can hold. The largest vocabularies in use (262,144 tokens) need under 1 million.
const MOST_NODES: usize = (1 << 22) - 1;

/// The bytes of every token, sorted for look-up.
pub struct Vocabulary {
    bytes: Vec<Vec<u8>>,
    stops: Vec<u32>,
    /// How the tokens that end an answer are written, for those that are.
    endings: Vec<String>,
    encode: Encode,
    /// Tokens with bytes, ascending by bytes and then by id.
    sorted: Vec<u32>,
}

impl Vocabulary {
    /// Builds a vocabulary from tables: the bytes that each token adds to the text, whether it is a control token, the
    /// tokens that end an answer, and the tokenizer itself. Control tokens take part in no text, whatever their bytes.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where the tables don't fit each other, or no token ends an answer.
    pub fn new(
        bytes: Vec<Vec<u8>>,
        control: &[bool],
        stops: Vec<u32>,
        encode: Encode,
    ) -> Result<Self, ConstrainError> {
        if bytes.len() != control.len() {
            return Err(ConstrainError::Compile(format!(
                "the vocabulary has {} tokens, but {} marks of control tokens",
                bytes.len(),
                control.len()
            )));
        }
        if let Some(stop) = stops.iter().find(|&&stop| stop as usize >= bytes.len()) {
            return Err(ConstrainError::Compile(format!(
                "the stop token {stop} is not in the vocabulary"
            )));
        }
        if stops.is_empty() {
            return Err(ConstrainError::Compile(
                "the vocabulary has no token that ends an answer".to_owned(),
            ));
        }
        let mut bytes = bytes;
        let endings = stops
            .iter()
            .filter_map(|&stop| std::str::from_utf8(&bytes[stop as usize]).ok())
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect();
        for (token, text) in bytes.iter_mut().enumerate() {
            // The byte 255 is part of no UTF-8 text, and the trie takes it for the mark of a special token.
            let marked = text.contains(&TokTrie::SPECIAL_TOKEN_MARKER);
            if control[token]
                || marked
                || text.len() > LONGEST_TOKEN
                || stops.contains(&(token as u32))
            {
                text.clear();
            }
        }
        let mut sorted: Vec<u32> = (0..bytes.len() as u32)
            .filter(|&token| !bytes[token as usize].is_empty())
            .collect();
        sorted.sort_by(|&a, &b| bytes[a as usize].cmp(&bytes[b as usize]).then(a.cmp(&b)));
        Ok(Vocabulary {
            bytes,
            stops,
            endings,
            encode,
            sorted,
        })
    }

    /// Builds the vocabulary of a tokenizer.
    ///
    /// # Errors
    /// As [`Vocabulary::new`].
    pub fn from_tokenizer(tokenizer: &Arc<Tokenizer>) -> Result<Self, ConstrainError> {
        let size = tokenizer.vocabulary() as u32;
        let bytes = (0..size)
            .map(|token| tokenizer.bytes(token).to_vec())
            .collect();
        let control: Vec<bool> = (0..size).map(|token| tokenizer.is_control(token)).collect();
        let encoder = Arc::clone(tokenizer);
        let encode =
            Arc::new(move |text: &str| encoder.encode_at(text, Specials::Plain, Position::Inside));
        let stops = tokenizer.stops().to_vec();
        let mut vocabulary = Vocabulary::new(bytes, &control, stops, encode)?;
        let pieces = tokenizer.stops().iter().map(|&stop| tokenizer.piece(stop));
        vocabulary.endings = pieces
            .filter(|piece| !piece.is_empty())
            .map(str::to_owned)
            .collect();
        Ok(vocabulary)
    }

    /// Number of token ids.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that a token adds to the text: empty for control, stop and unknown tokens.
    pub fn bytes(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], Vec::as_slice)
    }

    /// The tokens that end an answer.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// How the tokens that end an answer are written, such as `<|im_end|>`.
    pub fn endings(&self) -> &[String] {
        &self.endings
    }

    /// The tokens whose bytes are exactly `bytes`, ascending by id. Several tokens may add the same bytes.
    pub fn exactly(&self, bytes: &[u8]) -> &[u32] {
        let first = self
            .sorted
            .partition_point(|&token| self.bytes(token) < bytes);
        let rest = &self.sorted[first..];
        &rest[..rest.partition_point(|&token| self.bytes(token) == bytes)]
    }

    /// The tokens that spell `text` in the middle of an output: what the tokenizer makes of it. Text that the tokenizer
    /// would change, and bytes that are no text, are spelled by the longest tokens that fit; bytes that no token adds
    /// are left out.
    pub fn spell(&self, text: &[u8]) -> Vec<u32> {
        let mut tokens = Vec::new();
        for chunk in text.utf8_chunks() {
            if !chunk.valid().is_empty() {
                tokens.extend(self.spell_text(chunk.valid()));
            }
            tokens.extend(self.spell_greedily(chunk.invalid()));
        }
        tokens
    }

    /// The bytes that `tokens` spell.
    pub fn spelled(&self, tokens: &[u32]) -> Vec<u8> {
        tokens
            .iter()
            .flat_map(|&token| self.bytes(token))
            .copied()
            .collect()
    }

    /// Every token that adds text, and the stop tokens.
    pub(super) fn free_mask(&self) -> Mask {
        let mut words = vec![0u32; self.size().div_ceil(32)];
        for &token in self.sorted.iter().chain(&self.stops) {
            words[token as usize / 32] |= 1 << (token % 32);
        }
        Mask { words }
    }

    fn spell_text(&self, text: &str) -> Vec<u32> {
        let tokens = (self.encode)(text);
        if self.spelled(&tokens) == text.as_bytes() {
            return tokens;
        }
        self.spell_greedily(text.as_bytes())
    }

    fn spell_greedily(&self, mut bytes: &[u8]) -> Vec<u32> {
        let mut tokens = Vec::new();
        while !bytes.is_empty() {
            let longest = (1..=bytes.len().min(LONGEST_TOKEN))
                .rev()
                .find(|&end| !self.exactly(&bytes[..end]).is_empty());
            if let Some(end) = longest {
                tokens.push(self.exactly(&bytes[..end])[0]);
            }
            bytes = &bytes[longest.unwrap_or(1)..];
        }
        tokens
    }

    /// Nodes of the trie of all tokens, duplicates included.
    fn nodes(&self) -> usize {
        let mut nodes = 1;
        let mut last: &[u8] = &[];
        for &token in &self.sorted {
            let bytes = self.bytes(token);
            let shared = last.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            nodes += (bytes.len() - shared).max(1);
            last = bytes;
        }
        nodes
    }
}

/// What llguidance asks of a tokenizer.
pub(super) struct Environment {
    vocabulary: Arc<Vocabulary>,
    trie: TokTrie,
}

impl Environment {
    /// Refuses a vocabulary that the trie can't hold.
    pub(super) fn check(vocabulary: &Vocabulary) -> Result<(), ConstrainError> {
        // The trie counts tokens in 24 bits and nodes in 22, and panics beyond.
        if vocabulary.size() >= 1 << 24 || vocabulary.nodes() > MOST_NODES {
            return Err(ConstrainError::Compile(format!(
                "a vocabulary of {} tokens is too large for constraints",
                vocabulary.size()
            )));
        }
        Ok(())
    }

    /// Builds the trie of all tokens that may stand in a grammar, of a vocabulary that was checked.
    pub(super) fn new(vocabulary: &Arc<Vocabulary>) -> Self {
        let info = TokRxInfo::new(vocabulary.size() as u32, vocabulary.stops()[0]);
        let trie = TokTrie::from(&info, &vocabulary.bytes).with_eos_tokens(vocabulary.stops());
        Environment {
            vocabulary: Arc::clone(vocabulary),
            trie,
        }
    }
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<u32> {
        self.vocabulary.spell(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary whose tokenizer puts a blank before every text.
    fn blanked() -> Vocabulary {
        let bytes = (0..=255u8)
            .map(|byte| vec![byte])
            .chain([Vec::new(), b"ab".to_vec()])
            .collect();
        let encode = Arc::new(|text: &str| format!(" {text}").bytes().map(u32::from).collect());
        Vocabulary::new(bytes, &[false; 258], vec![256], encode).expect("the tables fit")
    }

    #[test]
    fn spelling_adds_up_to_the_text_whatever_the_tokenizer_does() {
        let vocabulary = blanked();
        for text in ["a", " a", "", "\u{e4}\n", "\"},"] {
            let tokens = vocabulary.spell(text.as_bytes());
            assert_eq!(vocabulary.spelled(&tokens), text.as_bytes(), "{text:?}");
        }
        // Half a character, which no tokenizer takes.
        assert_eq!(vocabulary.spell(b"ab\xc3"), [257, 195]);
    }

    #[test]
    fn several_tokens_may_add_the_same_bytes() {
        let bytes = vec![b"5".to_vec(), b"x".to_vec(), b"5".to_vec(), Vec::new()];
        let vocabulary =
            Vocabulary::new(bytes, &[false; 4], vec![3], Arc::new(|_: &str| Vec::new()))
                .expect("fits");
        assert_eq!(vocabulary.exactly(b"5"), [0, 2]);
        assert!(vocabulary.exactly(b"").is_empty());
        assert!(vocabulary.exactly(b"55").is_empty());
        assert_eq!(vocabulary.free_mask().words, [0b1111]);
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let encode: Encode = Arc::new(|_: &str| Vec::new());
        for (tokens, marks, stops) in [(2, 1, vec![0]), (2, 2, vec![]), (2, 2, vec![2])] {
            let made = Vocabulary::new(
                vec![b"a".to_vec(); tokens],
                &vec![false; marks],
                stops,
                Arc::clone(&encode),
            );
            assert!(matches!(made, Err(ConstrainError::Compile(_))));
        }
    }
}
