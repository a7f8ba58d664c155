//! Constraints: what the output may be, token by token.
//!
//! A [`Constraint`] walks one output. The engine asks it what comes [`Constraint::next`], and tells it every token that
//! was appended. Knows no logits, no batch and no rubric; llguidance stays behind this trait.
//!
//! A [`Compiler`] is made once for a model and makes one constraint for each ask. At a label position the engine walks
//! the [`LabelTrie`] to find which tokens spell which label.

use crate::ask::Labels;

mod vocabulary;

mod compiler;

mod grammar;

mod rules;

mod segments;

mod passage;

mod quotes;

mod walker;

mod labels;

pub use compiler::Compiler;
pub use labels::{LabelTrie, NodeId, Step};
pub use vocabulary::{Encode, Vocabulary};

/// The tokens that may come next: one bit a vocabulary entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Bit `t % 32` of word `t / 32` is set where token `t` may come.
    pub words: Vec<u32>,
}

impl Mask {
    /// Whether `token` may come next.
    pub fn allows(&self, token: u32) -> bool {
        self.words
            .get(token as usize / 32)
            .is_some_and(|word| word >> (token % 32) & 1 == 1)
    }
}

/// What comes next in an output.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The model chooses one token under the mask. A stop token in the mask means that the output may end here.
    Choose(Mask),
    /// These tokens come, whatever the model thinks (never empty).
    Forced(Vec<u32>),
    /// The label position: the engine reads out the distribution, `opening` and the best label are appended as text,
    /// then `closing` follows as text, and the output is complete.
    Labels {
        /// The labels.
        labels: Labels,
        /// A blank that belongs before the label, and that the model may write in one token with it or leave out;
        /// empty where the label stands right behind the output so far.
        opening: String,
        /// Literal text after the bare label, closing quote included, e.g. `"}` or `}`; empty for `Shape::Labels`.
        closing: String,
    },
    /// The output is complete.
    Done,
}

/// Why an output could not be constrained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstrainError {
    /// The shape is not one that can be compiled; said before the first token.
    #[error("{0}")]
    Compile(String),
    /// The grammar refused a token or broke down while decoding.
    #[error("{0}")]
    Decode(String),
}

/// Walks one output.
pub trait Constraint: Send {
    /// What comes next, given all that was advanced so far.
    fn next(&mut self) -> Result<Next, ConstrainError>;
    /// Tells the constraint the tokens that were appended: the chosen one, or the forced ones.
    fn advance(&mut self, tokens: &[u32]) -> Result<(), ConstrainError>;
}
