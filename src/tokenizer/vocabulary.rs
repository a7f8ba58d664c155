//! The vocabulary: what each token id is called, what kind it is, and which bytes it adds to the text.
//!
//! It knows the two ways in which a piece spells bytes (the byte-level alphabet and the blank mark `▁`), but not how
//! text is cut into pieces, nor which file the pieces came from.

use super::TokenizerError;
use super::alphabet;
use sha2::{Digest, Sha256};

/// The blank as sentencepiece writes it.
pub(super) const BLANK_MARK: char = '\u{2581}';

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Made by merging.
    Normal,
    /// Stands for text that cannot be spelled; never text itself.
    Unknown,
    /// Steers the model; never text.
    Control,
    /// Found in the text as a whole, before any merging.
    UserDefined,
    /// Never trained.
    Unused,
    /// One byte, written `<0x0A>`.
    Byte,
}

/// How the pieces spell bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Every character stands for one byte, as GPT-2 has it.
    ByteLevel,
    /// Characters stand for themselves, and `▁` for a blank.
    BlankMark,
}

/// Pieces, kinds and bytes by token id.
pub(super) struct Vocabulary {
    pieces: Vec<String>,
    kinds: Vec<Kind>,
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where the bytes of each token end in `bytes`.
    ends: Vec<usize>,
}

impl Vocabulary {
    /// Builds the table. `pieces` and `kinds` have the same length.
    pub(super) fn new(
        pieces: Vec<String>,
        mut kinds: Vec<Kind>,
        spelling: Spelling,
    ) -> Result<Self, TokenizerError> {
        if pieces.is_empty() {
            return Err(TokenizerError::Refused("the vocabulary is empty".into()));
        }
        if pieces.len() != kinds.len() {
            return Err(TokenizerError::Refused(format!(
                "the vocabulary has {} pieces but {} token types",
                pieces.len(),
                kinds.len()
            )));
        }
        if u32::try_from(pieces.len()).is_err() {
            return Err(TokenizerError::Refused(
                "the vocabulary has more than 2^32 pieces".into(),
            ));
        }
        settle_kinds(&pieces, &mut kinds);
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(pieces.len());
        for (piece, kind) in pieces.iter().zip(&kinds) {
            match kind {
                Kind::Control | Kind::Unknown | Kind::Unused => {}
                Kind::Byte => bytes.push(byte_of(piece).ok_or_else(|| {
                    TokenizerError::Refused(format!("the byte token {piece:?} names no byte"))
                })?),
                Kind::UserDefined | Kind::Normal if spelling == Spelling::BlankMark => {
                    for character in piece.chars() {
                        let character = if character == BLANK_MARK {
                            ' '
                        } else {
                            character
                        };
                        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                }
                // Added tokens of a byte-level vocabulary are stored as the text that they are.
                Kind::UserDefined => bytes.extend_from_slice(piece.as_bytes()),
                Kind::Normal => {
                    for character in piece.chars() {
                        match alphabet::byte(character) {
                            Some(byte) => bytes.push(byte),
                            None => bytes
                                .extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                        }
                    }
                }
            }
            ends.push(bytes.len());
        }
        Ok(Vocabulary {
            pieces,
            kinds,
            bytes,
            ends,
        })
    }

    /// Number of token ids.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The piece as stored; empty for an id that does not exist.
    pub(super) fn piece(&self, token: u32) -> &str {
        self.pieces.get(token as usize).map_or("", String::as_str)
    }

    /// The token's kind; an id that does not exist counts as unused.
    pub(super) fn kind(&self, token: u32) -> Kind {
        self.kinds
            .get(token as usize)
            .copied()
            .unwrap_or(Kind::Unused)
    }

    /// The bytes that the token adds to the text.
    pub(super) fn bytes(&self, token: u32) -> &[u8] {
        let token = token as usize;
        let Some(&end) = self.ends.get(token) else {
            return &[];
        };
        let start = if token == 0 { 0 } else { self.ends[token - 1] };
        &self.bytes[start..end]
    }

    /// All tokens: id, piece, kind.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, Kind)> {
        (0u32..)
            .zip(&self.pieces)
            .zip(&self.kinds)
            .map(|((id, piece), kind)| (id, piece.as_str(), *kind))
    }

    /// The first token with this piece for which `wanted` holds.
    pub(super) fn find(&self, piece: &str, wanted: impl Fn(Kind) -> bool) -> Option<u32> {
        self.iter()
            .find(|(_, other, kind)| *other == piece && wanted(*kind))
            .map(|(id, _, _)| id)
    }

    /// Feeds pieces and kinds to a digest, each with its length, so that no two vocabularies read alike.
    pub(super) fn feed(&self, digest: &mut Sha256) {
        for (_, piece, kind) in self.iter() {
            digest.update((piece.len() as u64).to_le_bytes());
            digest.update(piece.as_bytes());
            digest.update([kind as u8]);
        }
    }
}

/// Pieces with which chat models end a turn or an answer.
pub(super) const END_PIECES: [&str; 13] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|EOT|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "</s>",
];

/// Markers of turns, tools and other modalities that some converters type as text: they steer the model all the same.
const STEERING_PIECES: [&str; 19] = [
    "<start_of_turn>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
];

/// Mends two habits of converters: markup that steers the model is not always typed as control, and padding of the
/// embedding table is sometimes typed as user-defined text.
fn settle_kinds(pieces: &[String], kinds: &mut [Kind]) {
    let start_is_control = pieces
        .iter()
        .zip(kinds.iter())
        .any(|(piece, kind)| piece == "<s>" && *kind == Kind::Control);
    for (id, (piece, kind)) in pieces.iter().zip(kinds).enumerate() {
        if *kind != Kind::UserDefined {
            continue;
        }
        let fenced = |open: &str, close: &str| {
            piece.len() > 4 && piece.starts_with(open) && piece.ends_with(close)
        };
        // `</s>` also is a tag of HTML, and some vocabularies have it as one.
        let ends = END_PIECES.contains(&piece.as_str()) && (piece != "</s>" || start_is_control);
        let steers = STEERING_PIECES.contains(&piece.as_str());
        if ends || steers || fenced("<|", "|>") || fenced("<｜", "｜>") {
            *kind = Kind::Control;
        } else if *piece == format!("[PAD{id}]") {
            *kind = Kind::Unused;
        }
    }
}

/// The byte that `<0x0A>` stands for.
pub(super) fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(entries: &[(&str, Kind)], spelling: Spelling) -> Vocabulary {
        let pieces = entries.iter().map(|(piece, _)| piece.to_string()).collect();
        let kinds = entries.iter().map(|(_, kind)| *kind).collect();
        Vocabulary::new(pieces, kinds, spelling).expect("a good vocabulary")
    }

    #[test]
    fn bytes_follow_the_spelling() {
        let marked = [
            ("▁a", Kind::Normal),
            ("<0xE2>", Kind::Byte),
            ("<s>", Kind::Control),
            ("  ", Kind::UserDefined),
        ];
        let table = vocabulary(&marked, Spelling::BlankMark);
        assert_eq!(table.bytes(0), b" a");
        assert_eq!(table.bytes(1), [0xE2]);
        assert_eq!(table.bytes(2), b"");
        assert_eq!(table.bytes(3), b"  ");
        assert_eq!(
            table.bytes(4),
            b"",
            "an id that does not exist adds nothing"
        );
        let bytes = [
            ("Ġa", Kind::Normal),
            ("Ã", Kind::Normal),
            ("õ", Kind::UserDefined),
        ];
        let table = vocabulary(&bytes, Spelling::ByteLevel);
        assert_eq!(table.bytes(0), b" a");
        assert_eq!(table.bytes(1), [0xC3]);
        assert_eq!(table.bytes(2), "õ".as_bytes());
    }

    #[test]
    fn kinds_are_mended() {
        let entries = [
            ("<|User|>", Kind::UserDefined),
            ("[PAD1]", Kind::UserDefined),
            ("[PAD1]", Kind::UserDefined),
            ("</s>", Kind::UserDefined),
            ("<tool_call>", Kind::UserDefined),
            ("<start_of_image>", Kind::UserDefined),
        ];
        let table = vocabulary(&entries, Spelling::ByteLevel);
        let kinds: Vec<Kind> = table.iter().map(|(_, _, kind)| kind).collect();
        let expected = [
            Kind::Control,
            Kind::Unused,
            Kind::UserDefined,
            Kind::UserDefined,
            Kind::Control,
            Kind::Control,
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn bad_tables_are_refused() {
        assert!(Vocabulary::new(Vec::new(), Vec::new(), Spelling::ByteLevel).is_err());
        assert!(Vocabulary::new(vec!["a".into()], Vec::new(), Spelling::ByteLevel).is_err());
        assert!(
            Vocabulary::new(vec!["<0xZZ>".into()], vec![Kind::Byte], Spelling::BlankMark).is_err()
        );
    }
}
