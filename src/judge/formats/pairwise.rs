//! Pairwise judging: two answers, in both orders unless the rubric asks for one.

use super::pair::Pair;
use crate::judge::evaluation::{self, Evaluation, Format, Step};
use crate::judge::rubric::Rubric;
use crate::judge::unjudged::Unjudged;
use crate::judge::{Manner, prompt};
use crate::score::Place;
use crate::trace::Item;
use std::sync::Arc;

/// Pairwise judging under one rubric.
#[derive(Clone, Debug)]
pub struct Pairwise {
    /// The rubric.
    pub rubric: Rubric,
    /// How the run judges.
    pub manner: Manner,
}

impl Pairwise {
    fn pair<'a>(&'a self, item: &'a Item) -> Result<Pair<'a>, Unjudged> {
        let missing = |field| Unjudged::missing(field, item);
        Ok(Pair {
            rubric: &self.rubric,
            manner: self.manner,
            item,
            a: item.answer.as_deref().ok_or_else(|| missing("answer"))?,
            b: item
                .answer_b
                .as_deref()
                .ok_or_else(|| missing("answer_b"))?,
        })
    }
}

impl Format for Pairwise {
    fn rubric(&self) -> &Rubric {
        &self.rubric
    }

    fn wording(&self) -> String {
        let item = super::probe();
        let question = self
            .pair(&item)
            .and_then(|pair| pair.question(Place::First));
        prompt::digest(question.as_ref())
    }

    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step) {
        let asks = self.pair(&item).and_then(|pair| pair.asks());
        evaluation::ask_all(asks, move |answers| self.pair(&item)?.verdict(answers))
    }
}
