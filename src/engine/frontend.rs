//! The front end: what turns an ask into tokens and tokens into text.
//!
//! The engine works through this trait, so that its tests bring a vocabulary and grammars of their own. Knows no logits
//! and no pages.

use crate::ask::{Failure, Labels, Prompt, Shape};
use crate::constrain::Constraint;
use crate::engine::readout::LabelPaths;
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
    /// The token paths to labels that `closing` follows.
    ///
    /// # Errors
    /// [`Failure::Grammar`] where the labels can't be told apart or spelled.
    fn label_paths(&self, labels: &Labels, closing: &str) -> Result<Arc<dyn LabelPaths>, Failure>;
}
