//! The evaluation of one item, as a state machine: it either asks, or is settled.
//!
//! Pointwise judging asks once. Formats that ask again (a second order, a panel) add states here, and the pipeline that
//! drives it stays as it is. Knows no engine.

use super::formats::pointwise::Pointwise;
use super::verdict::Verdict;
use crate::ask::{Answer, Ask, Failure};
use crate::trace::Item;
use std::sync::Arc;

/// What an evaluation needs next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The answer to this.
    Ask(Box<Ask>),
    /// Nothing: this is the outcome.
    Settled(Box<Result<Verdict, Failure>>),
}

/// One item on its way to a verdict.
pub struct Evaluation {
    format: Arc<Pointwise>,
    item: Item,
}

impl Evaluation {
    /// Begins with the first ask, or settles at once where the item can't be posed.
    pub fn begin(format: Arc<Pointwise>, item: Item) -> (Evaluation, Step) {
        let step = match format.pose(&item) {
            Ok(ask) => Step::Ask(Box::new(ask)),
            Err(failure) => Step::Settled(Box::new(Err(failure))),
        };
        (Evaluation { format, item }, step)
    }

    /// The item.
    pub fn item(&self) -> &Item {
        &self.item
    }

    /// Takes the answer to the last ask.
    pub fn answer(&mut self, answer: Result<Answer, Failure>) -> Step {
        let outcome = answer.and_then(|answer| self.format.rule(&self.item, &answer));
        Step::Settled(Box::new(outcome))
    }
}
