//! Why an item has no verdict: the engine could not answer, or the item is not one that the rubric can judge.

use crate::ask::Failure;
use crate::trace::Item;

/// Why an item has no verdict. Never a score.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unjudged {
    /// The engine could not answer.
    #[error("{0}")]
    Asked(Failure),
    /// The item lacks what the rubric judges, or judges by.
    #[error("the rubric needs \"{field}\", but item {line} of {file} has none")]
    Missing {
        /// The field.
        field: &'static str,
        /// The line of the item.
        line: u64,
        /// Its file.
        file: String,
    },
    /// The answer holds nothing that could be checked.
    #[error("the judge found no claim in the answer")]
    NoClaims,
    /// The steps of the agent can't be read.
    #[error("{field}: {reason}")]
    Trajectory {
        /// `trajectory` or `expected`.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// There are too few answers, or too many, to rank them.
    #[error("{found} answers can't be ranked: {reason}")]
    Candidates {
        /// How many the item has.
        found: usize,
        /// Why not.
        reason: String,
    },
    /// The evaluator's own form can't hold this item.
    #[error("the form of {contract}: {reason}")]
    Contract {
        /// The form.
        contract: &'static str,
        /// Why not.
        reason: String,
    },
    /// The item is one of the examples that the judge is shown.
    #[error("the item is an example of the rubric too, so the judge has seen its label")]
    Shown,
    /// The judges of a panel did not all answer.
    #[error("the panel: {0}")]
    Panel(String),
}

impl From<Failure> for Unjudged {
    fn from(failure: Failure) -> Self {
        Unjudged::Asked(failure)
    }
}

impl Unjudged {
    /// Whether the same item may well be judged when it is tried again: it was interrupted, memory was short, or the fault was ours.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Unjudged::Asked(
                Failure::Interrupted | Failure::Engine(_) | Failure::ContextOverflow { .. }
            )
        )
    }

    /// A field that the item does not have.
    pub fn missing(field: &'static str, item: &Item) -> Unjudged {
        Unjudged::Missing {
            field,
            line: item.line,
            file: item.file.clone(),
        }
    }
}
