//! Merging by rank: byte-pair encoding over the byte-level alphabet or over characters with byte fallback.
//!
//! The merging itself is that of the `tokenizers` crate. This file checks the merges first, because the crate trusts
//! them, and knows which bytes the vocabulary can't spell: the crate would leave them out without a word. It knows no markers.

use super::TokenizerError;
use super::alphabet;
use super::split::Splitter;
use super::vocabulary::{Kind, Vocabulary, byte_of};
use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab};

/// Words remembered with their tokens, per thread.
const CACHED_WORDS: usize = 20_000;

/// Byte-pair merges over a vocabulary.
pub(super) struct RankMerge {
    model: BPE,
    /// How words are cut, and the alphabet in which they are then written; without it the text is merged as it is.
    byte_level: Option<(Splitter, [char; 256])>,
    /// The token of each byte alone; bytes that never occur in UTF-8 may have none.
    bytes: [Option<u32>; 256],
    /// Whether every byte of UTF-8 has a token.
    complete: bool,
}

impl RankMerge {
    /// Builds the model. With a splitter the vocabulary is byte-level, else it is one of characters with byte tokens.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        merges: Vec<(String, String)>,
        splitter: Option<Splitter>,
        ignore_merges: bool,
    ) -> Result<Self, TokenizerError> {
        let byte_level = splitter.is_some();
        let mut tokens = Vocab::with_capacity(vocabulary.len());
        // Normal pieces first: an added token of the same name must not hide the piece that merging makes.
        for wanted in [Kind::Normal, Kind::Byte, Kind::UserDefined] {
            for (token, piece, kind) in vocabulary.iter() {
                if kind == wanted && !piece.is_empty() {
                    tokens.entry(piece.to_owned()).or_insert(token);
                }
            }
        }
        check_merges(&merges, &tokens)?;
        let bytes = byte_tokens(vocabulary, &tokens, byte_level)?;
        let model = BPE::builder()
            .vocab_and_merges(tokens, merges)
            .byte_fallback(!byte_level)
            .ignore_merges(ignore_merges)
            .cache_capacity(CACHED_WORDS)
            .build()
            .map_err(|error| {
                TokenizerError::Refused(format!("the merges can't be used: {error}"))
            })?;
        let complete = (0u8..=255)
            .zip(&bytes)
            .all(|(byte, token)| token.is_some() || !alphabet::in_utf8(byte));
        let byte_level = splitter.map(|splitter| (splitter, alphabet::characters()));
        Ok(RankMerge {
            model,
            byte_level,
            bytes,
            complete,
        })
    }

    /// The first character that the vocabulary has no tokens for.
    pub(super) fn unspellable(&self, text: &str) -> Option<char> {
        if self.complete {
            return None;
        }
        let spelled = |byte: u8| self.bytes[usize::from(byte)].is_some();
        text.chars()
            .find(|character| !character.encode_utf8(&mut [0; 4]).bytes().all(spelled))
    }

    /// Appends the tokens of `text`. Bytes without a token are left out, see [`RankMerge::unspellable`].
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        match &self.byte_level {
            Some((splitter, characters)) => {
                let mut written = String::new();
                splitter.split(text, |word| {
                    written.clear();
                    written.extend(word.bytes().map(|byte| characters[usize::from(byte)]));
                    self.merge(&written, word, out);
                });
            }
            None => self.merge(text, text, out),
        }
    }

    /// Merges one word. The model has no reason to refuse one; should it ever, the bytes spell it.
    fn merge(&self, written: &str, word: &str, out: &mut Vec<u32>) {
        match self.model.tokenize(written) {
            Ok(tokens) => out.extend(tokens.into_iter().map(|token| token.id)),
            Err(_) => out.extend(
                word.bytes()
                    .filter_map(|byte| self.bytes[usize::from(byte)]),
            ),
        }
    }
}

/// Refuses merges of which a part or the whole is no piece.
fn check_merges(merges: &[(String, String)], tokens: &Vocab) -> Result<(), TokenizerError> {
    let mut joined = String::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        for piece in [left, right, &joined] {
            if !tokens.contains_key(piece) {
                return Err(TokenizerError::Refused(format!(
                    "merge {rank} ({left:?} {right:?}) needs the piece {piece:?}, which is not in the vocabulary"
                )));
            }
        }
    }
    Ok(())
}

/// The token of each byte. Byte-level vocabularies in use lack some bytes of rare characters; a vocabulary of characters
/// must have them all.
fn byte_tokens(
    vocabulary: &Vocabulary,
    tokens: &Vocab,
    byte_level: bool,
) -> Result<[Option<u32>; 256], TokenizerError> {
    let mut bytes = [None; 256];
    if byte_level {
        for (slot, character) in bytes.iter_mut().zip(alphabet::characters()) {
            *slot = tokens
                .get(character.encode_utf8(&mut [0; 4]) as &str)
                .copied();
        }
        return Ok(bytes);
    }
    for (token, piece, kind) in vocabulary.iter() {
        if let Some(byte) = byte_of(piece)
            && kind == Kind::Byte
        {
            bytes[usize::from(byte)].get_or_insert(token);
        }
    }
    match bytes.iter().position(Option::is_none) {
        Some(byte) => Err(TokenizerError::Refused(format!(
            "the vocabulary has no token for byte 0x{byte:02X}: some text would be lost"
        ))),
        None => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::Spelling;
    use super::*;

    fn byte_level(merges: &[(&str, &str)], extra: &[&str]) -> Result<RankMerge, TokenizerError> {
        let characters = alphabet::characters().map(String::from);
        let pieces: Vec<String> = characters
            .into_iter()
            .chain(extra.iter().map(|piece| piece.to_string()))
            .collect();
        let kinds = vec![Kind::Normal; pieces.len()];
        let vocabulary = Vocabulary::new(pieces, kinds, Spelling::ByteLevel)?;
        let merges = merges
            .iter()
            .map(|(left, right)| (left.to_string(), right.to_string()))
            .collect();
        RankMerge::new(
            &vocabulary,
            merges,
            Some(Splitter::new([super::super::split::BYTE_LEVEL])?),
            false,
        )
    }

    #[test]
    fn ranks_decide() {
        let merge = byte_level(&[("a", "b"), ("Ġ", "ab")], &["ab", "Ġab"]).expect("good merges");
        let mut tokens = Vec::new();
        merge.encode(" ab\0é", &mut tokens);
        assert_eq!(tokens, [257, 0, 0xC3, 0xA9]);
    }

    #[test]
    fn merges_out_of_the_vocabulary_are_refused() {
        assert!(byte_level(&[("a", "b")], &[]).is_err());
        assert!(byte_level(&[("zz", "b")], &["zzb"]).is_err());
    }
}
