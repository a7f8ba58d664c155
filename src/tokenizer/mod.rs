//! Tokenizer and chat template: text to token ids and back, and messages to a prompt.
//!
//! A [`Tokenizer`] is built from GGUF metadata or from a `tokenizer.json`; both end in the same parts: a table of
//! pieces, the markers that are found as a whole, and a merge by score or by rank. Encoding is linear or n·log n in the
//! text, whatever the text is. Some vocabularies have no tokens for a few rare characters; prompts with one are refused.
//! This folder knows nothing of models, sequences or grammars.

use crate::weights::Metadata;
use sha2::{Digest, Sha256};

mod alphabet;
mod vocabulary;

mod markers;
mod rank_merge;
mod score_merge;
mod split;

mod from_gguf;
mod json;

mod builtin;
mod chat;
mod jinja;
mod pieces;

pub use chat::ChatTemplate;

use markers::{Markers, Span};
use rank_merge::RankMerge;
use score_merge::ScoreMerge;
use vocabulary::{BLANK_MARK, END_PIECES, Kind, Vocabulary};

/// Whether control-token text in the input becomes control tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// Text such as `<|im_end|>` becomes that control token: only for text of the template itself.
    Parse,
    /// Every character is data.
    Plain,
}

/// Where a piece of text stands in the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At the very start, or right behind a control token: vocabularies with a dummy blank put it here.
    Start,
    /// Behind other text: the blanks are the text's own.
    Inside,
}

/// A stretch of a prompt that is encoded on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The text.
    pub text: &'a str,
    /// Whether control-token text in it counts.
    pub specials: Specials,
}

/// Why a tokenizer or a template was refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A value of the file is absent or can't be used.
    #[error("{0}")]
    Refused(String),
    /// `tokenizer.ggml.model`, or the model of a `tokenizer.json`, is of a kind that is not supported.
    #[error(
        "the tokenizer model {0:?} is not supported; llama (SPM) and gpt2 (byte-level BPE) are"
    )]
    Model(String),
    /// The way in which text is cut into words is not known, so every guess would be silently wrong.
    #[error("the pre-tokenizer {0:?} is not known")]
    PreTokenizer(String),
    /// Text that the vocabulary has no tokens for.
    #[error("the vocabulary has no tokens for the character {0:?}")]
    Unspellable(char),
    /// A `tokenizer.json` that is no JSON, or lacks a field.
    #[error("the tokenizer.json can't be read: {0}")]
    Json(String),
    /// The template is no valid Jinja.
    #[error("the chat template can't be read: {0}")]
    TemplateSyntax(String),
    /// The template failed, or refused the messages.
    #[error("the chat template can't be rendered: {0}")]
    TemplateRender(String),
    /// The template left out, doubled, changed or reordered what was to be said.
    #[error("the chat template does not keep the messages: {0}")]
    TemplateContent(String),
    /// The model brings no template, and its vocabulary proves none.
    #[error(
        "the model has no chat template, and its vocabulary does not tell which one it was trained with"
    )]
    NoTemplate,
}

/// Text to token ids and back.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    markers: Markers,
    merge: Merge,
    /// Whether a blank goes before the text at [`Position::Start`].
    dummy_blank: bool,
    /// The begin-of-sequence token, whether or not prompts start with it.
    bos: Option<u32>,
    adds_bos: bool,
    eos: Option<u32>,
    stops: Vec<u32>,
    digest: String,
}

/// How the text between markers becomes tokens.
enum Merge {
    /// SPM: `▁` for blanks, joined by score.
    Score(ScoreMerge),
    /// Byte-level BPE.
    ByteLevel(RankMerge),
    /// `▁` for blanks, joined by rank.
    BlankMark(RankMerge),
}

/// What [`Tokenizer::assemble`] puts together.
struct Parts {
    vocabulary: Vocabulary,
    merge: Merge,
    dummy_blank: bool,
    bos: Option<u32>,
    adds_bos: bool,
    eos: Option<u32>,
    /// Tokens that the file names as ends besides EOS.
    ends: Vec<u32>,
    /// Control tokens that take the blanks after them along.
    absorbs: Vec<u32>,
    /// What else decides about tokens: merges, scores, patterns.
    fingerprint: Sha256,
}

impl Tokenizer {
    /// Builds the tokenizer that GGUF metadata describes.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        from_gguf::build(metadata)
    }

    /// Builds the tokenizer of a Hugging Face `tokenizer.json`. Canonical composition (NFC) is left out on purpose:
    /// judged text stays the bytes that it was, as with the GGUF file of the same model.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        json::build(json)
    }

    /// Number of token ids.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary.len()
    }

    /// The first character of `text` that the vocabulary has no tokens for. Most vocabularies can spell everything;
    /// StarCoder's, for one, lacks four bytes with which rare characters begin.
    pub fn unspellable(&self, text: &str) -> Option<char> {
        match &self.merge {
            Merge::Score(_) => None,
            Merge::ByteLevel(merge) | Merge::BlankMark(merge) => merge.unspellable(text),
        }
    }

    /// Token ids of `text` as the start of a prompt; neither BOS nor EOS is added. Bytes that the vocabulary has no token
    /// for are left out: where text must not be lost, ask [`Tokenizer::unspellable`] first.
    pub fn encode(&self, text: &str, specials: Specials) -> Vec<u32> {
        self.encode_at(text, specials, Position::Start)
    }

    /// Token ids of `text` at a place of the prompt; neither BOS nor EOS is added.
    pub fn encode_at(&self, text: &str, specials: Specials, position: Position) -> Vec<u32> {
        let mut tokens = Vec::new();
        self.append(text, specials, position, &mut tokens);
        tokens
    }

    /// Token ids of a text that comes in segments. Each is encoded on its own, so that token boundaries fall on theirs,
    /// and knows whether text or a control token goes before it.
    ///
    /// # Errors
    /// [`TokenizerError::Unspellable`].
    pub fn encode_segments<'a>(
        &self,
        segments: impl IntoIterator<Item = Segment<'a>>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut tokens = Vec::new();
        for segment in segments {
            self.check_spelling(segment.text)?;
            let position = match tokens.last() {
                Some(&last) if !self.is_marker(last) => Position::Inside,
                _ => Position::Start,
            };
            self.append(segment.text, segment.specials, position, &mut tokens);
        }
        Ok(tokens)
    }

    /// Token ids of a whole prompt that carries its own control tokens: BOS is there exactly once where the model wants
    /// it, whether or not the text writes it. Judged text never comes this way.
    ///
    /// # Errors
    /// [`TokenizerError::Unspellable`].
    pub fn encode_raw(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.check_spelling(text)?;
        Ok(self.with_bos(self.encode(text, Specials::Parse)))
    }

    /// The bytes that a token adds to the text; empty for control, unknown and unused tokens.
    pub fn bytes(&self, token: u32) -> &[u8] {
        self.vocabulary.bytes(token)
    }

    /// Whether the token steers the model or stands for unknown text: it never is text.
    pub fn is_control(&self, token: u32) -> bool {
        matches!(self.vocabulary.kind(token), Kind::Control | Kind::Unknown)
    }

    /// The text of a control token such as `<|im_end|>`, or the piece as stored; empty for an id that does not exist.
    pub fn piece(&self, token: u32) -> &str {
        self.vocabulary.piece(token)
    }

    /// The control token with this piece.
    pub fn control(&self, piece: &str) -> Option<u32> {
        self.vocabulary.find(piece, |kind| kind == Kind::Control)
    }

    /// All tokens for which [`Tokenizer::is_control`] holds, ascending.
    pub fn control_tokens(&self) -> impl Iterator<Item = u32> {
        (0..self.vocabulary.len() as u32).filter(|&token| self.is_control(token))
    }

    /// The begin-of-sequence token that a prompt starts with, where the model wants one.
    pub fn bos(&self) -> Option<u32> {
        self.bos.filter(|_| self.adds_bos)
    }

    /// Tokens that end an answer (EOS, end of turn), ascending; never empty.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// The text of the tokens, control tokens left out, invalid UTF-8 replaced.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|&token| self.bytes(token))
            .copied()
            .collect();
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// sha256 of the vocabulary, merges and settings, in hex.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The pieces that templates call `bos_token` and `eos_token`; empty where the vocabulary has none.
    fn boundary_pieces(&self) -> [&str; 2] {
        [self.bos, self.eos].map(|token| token.map_or("", |token| self.piece(token)))
    }

    /// Puts BOS at the front exactly once: never doubled, and never missing where the model wants one.
    fn with_bos(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        let Some(bos) = self.bos else { return tokens };
        let written = tokens.iter().take_while(|&&token| token == bos).count();
        let wanted = if self.adds_bos { 1 } else { written.min(1) };
        match written.checked_sub(wanted) {
            Some(extra) => {
                tokens.drain(..extra);
            }
            None => tokens.insert(0, bos),
        }
        tokens
    }

    fn check_spelling(&self, text: &str) -> Result<(), TokenizerError> {
        self.unspellable(text).map_or(Ok(()), |character| {
            Err(TokenizerError::Unspellable(character))
        })
    }

    fn is_marker(&self, token: u32) -> bool {
        matches!(
            self.vocabulary.kind(token),
            Kind::Control | Kind::Unknown | Kind::UserDefined
        )
    }

    fn append(
        &self,
        text: &str,
        specials: Specials,
        mut position: Position,
        tokens: &mut Vec<u32>,
    ) {
        self.markers.split(text, specials, |span| match span {
            Span::Marker(token) => {
                tokens.push(token);
                position = Position::Start;
            }
            Span::Text(text) => {
                match &self.merge {
                    Merge::ByteLevel(merge) => merge.encode(text, tokens),
                    Merge::BlankMark(merge) => {
                        merge.encode(&self.mark_blanks(text, position), tokens)
                    }
                    Merge::Score(merge) => merge.encode(&self.mark_blanks(text, position), tokens),
                }
                position = Position::Inside;
            }
        });
    }

    fn mark_blanks(&self, text: &str, position: Position) -> String {
        let mut marked = String::with_capacity(text.len() + text.len() / 4 + 3);
        if self.dummy_blank && position == Position::Start {
            marked.push(BLANK_MARK);
        }
        marked.extend(text.chars().map(|character| {
            if character == ' ' {
                BLANK_MARK
            } else {
                character
            }
        }));
        marked
    }

    /// Checks what both kinds of file must fulfil, and builds what they share.
    fn assemble(parts: Parts) -> Result<Self, TokenizerError> {
        let Parts {
            vocabulary,
            merge,
            dummy_blank,
            bos,
            adds_bos,
            eos,
            ends,
            absorbs,
            mut fingerprint,
        } = parts;
        for (name, token) in [("BOS", bos), ("EOS", eos)] {
            if token.is_some_and(|token| token as usize >= vocabulary.len()) {
                return Err(TokenizerError::Refused(format!(
                    "the {name} token lies outside the vocabulary"
                )));
            }
        }
        if adds_bos && bos.is_none() {
            return Err(TokenizerError::Refused(
                "prompts shall start with BOS, but no BOS token is named".into(),
            ));
        }
        let known = vocabulary
            .iter()
            .filter(|(_, piece, kind)| *kind == Kind::Control && END_PIECES.contains(piece));
        let mut stops: Vec<u32> = known
            .map(|(token, _, _)| token)
            .chain(eos)
            .chain(ends)
            .collect();
        stops.retain(|&token| (token as usize) < vocabulary.len());
        stops.sort_unstable();
        stops.dedup();
        if stops.is_empty() {
            return Err(TokenizerError::Refused(
                "the vocabulary has no token that ends an answer".into(),
            ));
        }
        vocabulary.feed(&mut fingerprint);
        fingerprint.update([u8::from(dummy_blank), u8::from(adds_bos)]);
        for list in [&bos.into_iter().collect(), &stops, &absorbs] {
            fingerprint.update((list.len() as u64).to_le_bytes());
            list.iter()
                .for_each(|token| fingerprint.update(token.to_le_bytes()));
        }
        let markers = Markers::new(&vocabulary, |token| absorbs.contains(&token))?;
        let digest = hex(fingerprint);
        Ok(Tokenizer {
            vocabulary,
            markers,
            merge,
            dummy_blank,
            bos,
            adds_bos,
            eos,
            stops,
            digest,
        })
    }
}

fn hex(digest: Sha256) -> String {
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
