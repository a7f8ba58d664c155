//! Tokenizer and chat template.

use crate::ask::Message;
use crate::weights::Metadata;

/// Whether control-token text in the input becomes control tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// Text such as `<|im_end|>` becomes that control token: only for text of the template itself.
    Parse,
    /// Every character is data.
    Plain,
}

/// Why a tokenizer or a template was refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// Placeholder.
    #[error("{0}")]
    Refused(String),
}

/// Text to token ids and back.
pub struct Tokenizer {
    _private: (),
}

impl Tokenizer {
    /// Builds the tokenizer that GGUF metadata describes.
    pub fn from_metadata(_metadata: &Metadata) -> Result<Self, TokenizerError> {
        todo!()
    }
    /// Builds the tokenizer of a Hugging Face `tokenizer.json`.
    pub fn from_json(_json: &[u8]) -> Result<Self, TokenizerError> {
        todo!()
    }
    /// Number of token ids.
    pub fn vocabulary(&self) -> usize {
        todo!()
    }
    /// Token ids of `text`; neither BOS nor EOS is added.
    pub fn encode(&self, _text: &str, _specials: Specials) -> Vec<u32> {
        todo!()
    }
    /// The bytes that a token adds to the text; empty for control and unused tokens.
    pub fn bytes(&self, _token: u32) -> &[u8] {
        todo!()
    }
    /// Whether the token is a control token.
    pub fn is_control(&self, _token: u32) -> bool {
        todo!()
    }
    /// The text of a control token such as `<|im_end|>`, or the piece as stored.
    pub fn piece(&self, _token: u32) -> &str {
        todo!()
    }
    /// The begin-of-sequence token that a prompt starts with, where the model wants one.
    pub fn bos(&self) -> Option<u32> {
        todo!()
    }
    /// Tokens that end an answer (EOS, end of turn), ascending; never empty.
    pub fn stops(&self) -> &[u32] {
        todo!()
    }
    /// The text of the tokens, control tokens left out, invalid UTF-8 replaced.
    pub fn decode(&self, _tokens: &[u32]) -> String {
        todo!()
    }
    /// sha256 of the vocabulary, merges and settings, in hex.
    pub fn digest(&self) -> &str {
        todo!()
    }
}

/// A chat template.
pub struct ChatTemplate {
    _private: (),
}

impl ChatTemplate {
    /// The template in GGUF metadata (`tokenizer.chat_template`), if there is one.
    pub fn from_metadata(_metadata: &Metadata) -> Result<Option<Self>, TokenizerError> {
        todo!()
    }
    /// A template given as Jinja source.
    pub fn from_source(_source: &str) -> Result<Self, TokenizerError> {
        todo!()
    }
    /// Renders the messages, opens the assistant's turn, and encodes: BOS exactly once, material always plain.
    pub fn encode(
        &self,
        _messages: &[Message],
        _tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, TokenizerError> {
        todo!()
    }
    /// sha256 of the template's source, in hex.
    pub fn digest(&self) -> &str {
        todo!()
    }
}
