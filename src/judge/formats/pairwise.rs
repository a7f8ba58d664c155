//! Pairwise judging: two answers, in both orders unless the rubric asks for one.

use super::pair::Pair;
use crate::ask::{Answer, Failure};
use crate::judge::evaluation::{Evaluation, Format, Gathered, Nothing, Step};
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
        let count = asks.as_ref().map_or(0, Vec::len);
        let step = Step::all(asks);
        match step {
            Step::Settled(_) => (Box::new(Nothing), step),
            Step::Ask(_) => {
                let gathered = Gathered::new(0, count);
                let asked = Asked {
                    format: self,
                    item,
                    gathered,
                };
                (Box::new(asked), step)
            }
        }
    }
}

/// An item whose orders were asked.
struct Asked {
    format: Arc<Pairwise>,
    item: Arc<Item>,
    gathered: Gathered,
}

impl Evaluation for Asked {
    fn answer(&mut self, slot: usize, answer: Result<Answer, Failure>) -> Step {
        let Some(answers) = self.gathered.take(slot, answer) else {
            return Step::Ask(Vec::new());
        };
        let answers = answers.map_err(Unjudged::from);
        let ruled = answers.and_then(|answers| self.format.pair(&self.item)?.verdict(&answers));
        Step::settled(ruled)
    }
}
