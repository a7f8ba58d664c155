//! The front end: what turns an ask into tokens and tokens into text.
//!
//! The engine works through this trait, so that its tests bring a vocabulary and grammars of their own. Knows no logits
//! and no pages.

use crate::ask::{Failure, Labels, Prompt, Shape};
use crate::constrain::{Compiler, ConstrainError, Constraint};
use crate::engine::readout::LabelPaths;
use crate::tokenizer::{ChatTemplate, Tokenizer, TokenizerError};
use std::sync::Arc;

/// Tokenizer, chat template and constraints of one model.
pub trait Frontend: Send + Sync {
    /// The tokens of a prompt, up to and with the opening of the answer.
    ///
    /// # Errors
    /// [`Failure::Input`] where the template or the tokenizer refuses it.
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, Failure>;
    /// The bytes that a token adds to the text; none for control tokens.
    fn bytes(&self, token: u32) -> &[u8];
    /// Whether the token ends an answer.
    fn is_stop(&self, token: u32) -> bool;
    /// A constraint for a new output.
    ///
    /// # Errors
    /// [`Failure::Grammar`] where the shape can't be compiled.
    fn constrain(&self, shape: &Shape) -> Result<Box<dyn Constraint>, Failure>;
    /// The token paths to labels that may stand behind `opening` and that `closing` follows.
    ///
    /// # Errors
    /// [`Failure::Grammar`] where the labels can't be told apart or spelled.
    fn label_paths(
        &self,
        labels: &Labels,
        opening: &str,
        closing: &str,
    ) -> Result<Arc<dyn LabelPaths>, Failure>;
}

/// Several engines may share one.
impl<F: Frontend> Frontend for Arc<F> {
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, Failure> {
        (**self).encode(prompt)
    }

    fn bytes(&self, token: u32) -> &[u8] {
        (**self).bytes(token)
    }

    fn is_stop(&self, token: u32) -> bool {
        (**self).is_stop(token)
    }

    fn constrain(&self, shape: &Shape) -> Result<Box<dyn Constraint>, Failure> {
        (**self).constrain(shape)
    }

    fn label_paths(
        &self,
        labels: &Labels,
        opening: &str,
        closing: &str,
    ) -> Result<Arc<dyn LabelPaths>, Failure> {
        (**self).label_paths(labels, opening, closing)
    }
}

/// The front end of a model file.
pub struct ModelFrontend {
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    compiler: Compiler,
}

impl ModelFrontend {
    /// Makes the front end. Without a template only raw prompts can be encoded. Shapes that need a grammar take the time of
    /// [`ModelFrontend::prepare`] once.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where the vocabulary can't serve constraints.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        template: Option<ChatTemplate>,
    ) -> Result<Self, ConstrainError> {
        let compiler = Compiler::new(&tokenizer)?;
        Ok(ModelFrontend {
            tokenizer,
            template,
            compiler,
        })
    }

    /// Makes now what the first grammar would wait for: about 0.3 s for 152,000 tokens.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where the vocabulary can't serve grammars.
    pub fn prepare(&self) -> Result<(), ConstrainError> {
        self.compiler.prepare()
    }
}

impl Frontend for ModelFrontend {
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, Failure> {
        match prompt {
            Prompt::Raw(text) => self.tokenizer.encode_raw(text).map_err(input),
            Prompt::Chat(messages) => {
                let template = self
                    .template
                    .as_ref()
                    .ok_or(TokenizerError::NoTemplate)
                    .map_err(input)?;
                template.encode(messages, &self.tokenizer).map_err(input)
            }
        }
    }

    fn bytes(&self, token: u32) -> &[u8] {
        self.tokenizer.bytes(token)
    }

    fn is_stop(&self, token: u32) -> bool {
        self.tokenizer.stops().binary_search(&token).is_ok()
    }

    fn constrain(&self, shape: &Shape) -> Result<Box<dyn Constraint>, Failure> {
        self.compiler.compile(shape).map_err(grammar)
    }

    fn label_paths(
        &self,
        labels: &Labels,
        opening: &str,
        closing: &str,
    ) -> Result<Arc<dyn LabelPaths>, Failure> {
        let trie = self.compiler.label_trie(labels, opening, closing);
        Ok(trie.map_err(grammar)?)
    }
}

fn input(error: TokenizerError) -> Failure {
    Failure::Input(error.to_string())
}

fn grammar(error: ConstrainError) -> Failure {
    Failure::Grammar(error.to_string())
}
