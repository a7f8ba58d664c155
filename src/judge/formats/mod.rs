//! Formats of judging. Each holds both halves: how the questions are posed, and how the answers are ruled on.

pub mod checked;
pub mod claims;
pub mod pair;
pub mod pairwise;
pub mod passages;
pub mod pointwise;
pub mod rag;
pub mod ranking;
pub mod steps;

use super::contracts::Contract;
use super::evaluation::Format;
use super::order::PromptOrder;
use super::rubric::Rubric;
use super::rules::FormatName;
use crate::trace::Item;
use checked::Checked;
use claims::Claims;
use pairwise::Pairwise;
use pointwise::{Mode, Pointwise};
use ranking::Ranking;
use std::sync::Arc;
use steps::Steps;

/// How a run judges, whatever its rubrics say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// What is written before a label.
    pub mode: Mode,
    /// What stands first in a prompt.
    pub order: PromptOrder,
    /// The evaluator's own form, in which answers and pairs are judged; the general one where absent.
    pub contract: Option<Contract>,
    /// Seed of the run.
    pub seed: u64,
}

/// The formats that judge under a rubric: one, but for those that give several verdicts an item.
pub fn of(rubric: Rubric, manner: Manner) -> Vec<Arc<dyn Format>> {
    let checks = !rubric.checks.is_empty();
    let format: Arc<dyn Format> = match rubric.format {
        FormatName::Rag => return rag::formats(&rubric, manner),
        FormatName::Pointwise | FormatName::Classify => Arc::new(Pointwise { rubric, manner }),
        FormatName::Pairwise => Arc::new(Pairwise { rubric, manner }),
        FormatName::Ranking => Arc::new(Ranking { rubric, manner }),
        FormatName::Claims => Arc::new(Claims::new(rubric, manner)),
        FormatName::Trajectory => Arc::new(Steps { rubric, manner }),
    };
    match checks {
        true => vec![Arc::new(Checked { format })],
        false => vec![format],
    }
}

/// An item that has every field: what is around its texts in a prompt is the wording.
pub(super) fn probe() -> Item {
    let probe = || "probe".to_string();
    Item {
        input: Some(probe()),
        context: Some(vec![probe()]),
        answer_b: Some(probe()),
        answers: Some(vec![probe(), probe()]),
        reference: Some(probe()),
        trajectory: Some(serde_json::json!([{ "role": "assistant", "content": "probe" }])),
        ..Item::answered("probe", "probe")
    }
}
