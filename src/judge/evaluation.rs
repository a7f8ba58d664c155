//! The evaluation of one item, as a state machine: it asks, waits, and is settled.
//!
//! A [`Format`] poses what an item needs and rules on what comes back; the pipeline that drives it knows only steps. Knows no
//! engine.

use super::rubric::Rubric;
use super::unjudged::Unjudged;
use super::verdict::Verdict;
use crate::ask::{Answer, Ask, Failure};
use crate::trace::Item;
use std::sync::Arc;

/// A question of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Posed {
    /// Names the question within its evaluation.
    pub slot: usize,
    /// Which of the run's judges is asked; 0 where there is one.
    pub judge: usize,
    /// The question.
    pub ask: Ask,
}

/// What an evaluation needs next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The answers to these, besides those that are still owed; none where it only waits.
    Ask(Vec<Posed>),
    /// Nothing: this is the outcome. Answers that are still owed are of no use any more.
    Settled(Box<Result<Verdict, Unjudged>>),
}

impl Step {
    /// Settles.
    pub fn settled(outcome: Result<Verdict, Unjudged>) -> Step {
        Step::Settled(Box::new(outcome))
    }

    /// Asks one question in slot 0, or settles where it can't be posed.
    pub fn one(ask: Result<Ask, Unjudged>) -> Step {
        Step::all(ask.map(|ask| vec![ask]))
    }

    /// Asks questions in slots from 0 on, or settles where they can't be posed.
    pub fn all(asks: Result<Vec<Ask>, Unjudged>) -> Step {
        match asks {
            Ok(asks) => Step::Ask(posed(0, asks)),
            Err(unjudged) => Step::settled(Err(unjudged)),
        }
    }
}

/// Questions to the first judge, in slots from `first` on.
pub fn posed(first: usize, asks: impl IntoIterator<Item = Ask>) -> Vec<Posed> {
    let pose = |(slot, ask)| Posed {
        slot,
        judge: 0,
        ask,
    };
    (first..).zip(asks).map(pose).collect()
}

/// One item on its way to a verdict.
pub trait Evaluation: Send {
    /// Takes the answer to the question in `slot`, each of which is answered once.
    fn answer(&mut self, slot: usize, answer: Result<Answer, Failure>) -> Step;
}

/// A way of judging under a rubric.
pub trait Format: Send + Sync {
    /// The rubric.
    fn rubric(&self) -> &Rubric;
    /// sha256 in hex of the wording around rubric and item, so that a run is not resumed under another wording.
    fn wording(&self) -> String;
    /// Begins with the first questions, or settles at once where the item can't be posed.
    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step);
}

/// Collects the answers to so many questions, in the order of their slots, whatever the order in which they come. Where some
/// fail, the failure of the lowest slot counts, and only when all are there, so that it is the same in every run.
pub struct Gathered {
    first: usize,
    answers: Vec<Option<Result<Answer, Failure>>>,
}

impl Gathered {
    /// Nothing yet, of questions in slots from `first` on.
    pub fn new(first: usize, count: usize) -> Gathered {
        Gathered {
            first,
            answers: vec![None; count],
        }
    }

    /// Takes one in. `Some` once all are there.
    pub fn take(
        &mut self,
        slot: usize,
        answer: Result<Answer, Failure>,
    ) -> Option<Result<Vec<Answer>, Failure>> {
        if let Some(place) = slot
            .checked_sub(self.first)
            .and_then(|slot| self.answers.get_mut(slot))
        {
            *place = Some(answer);
        }
        if self.answers.iter().any(Option::is_none) {
            return None;
        }
        Some(
            std::mem::take(&mut self.answers)
                .into_iter()
                .flatten()
                .collect(),
        )
    }
}

/// What the answers to all questions of an evaluation say together.
type Rule = Box<dyn FnOnce(&[Answer]) -> Result<Verdict, Unjudged> + Send>;

/// Asks all questions at once and rules when every answer is there; settles at once where they can't be posed, or there is none.
pub fn ask_all(
    asks: Result<Vec<Ask>, Unjudged>,
    rule: impl FnOnce(&[Answer]) -> Result<Verdict, Unjudged> + Send + 'static,
) -> (Box<dyn Evaluation>, Step) {
    match asks {
        Err(unjudged) => (Box::new(Nothing), Step::settled(Err(unjudged))),
        Ok(asks) if asks.is_empty() => (Box::new(Nothing), Step::settled(rule(&[]))),
        Ok(asks) => {
            let asked = Asked {
                gathered: Gathered::new(0, asks.len()),
                rule: Some(Box::new(rule)),
            };
            (Box::new(asked), Step::Ask(posed(0, asks)))
        }
    }
}

/// An evaluation whose questions were all asked.
struct Asked {
    gathered: Gathered,
    /// There until it has ruled.
    rule: Option<Rule>,
}

impl Evaluation for Asked {
    fn answer(&mut self, slot: usize, answer: Result<Answer, Failure>) -> Step {
        let Some(answers) = self.gathered.take(slot, answer) else {
            return Step::Ask(Vec::new());
        };
        let Some(rule) = self.rule.take() else {
            return Step::Ask(Vec::new());
        };
        Step::settled(
            answers
                .map_err(Unjudged::from)
                .and_then(|answers| rule(&answers)),
        )
    }
}

/// An evaluation that can't ask anything: it was settled when it began.
pub struct Nothing;

impl Evaluation for Nothing {
    fn answer(&mut self, _slot: usize, _answer: Result<Answer, Failure>) -> Step {
        Step::Ask(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::TokenCounts;

    fn answer(text: &str) -> Result<Answer, Failure> {
        Ok(Answer {
            text: text.into(),
            readout: None,
            hidden: None,
            tokens: TokenCounts::default(),
            milliseconds: 0.0,
        })
    }

    #[test]
    fn answers_are_gathered_in_order_and_the_first_failure_counts() {
        let mut gathered = Gathered::new(2, 3);
        assert_eq!(gathered.take(4, answer("c")), None);
        assert_eq!(gathered.take(2, answer("a")), None);
        let all = gathered.take(3, answer("b")).unwrap().unwrap();
        let texts: Vec<String> = all.into_iter().map(|answer| answer.text).collect();
        assert_eq!(texts, ["a", "b", "c"]);

        let mut gathered = Gathered::new(0, 2);
        assert_eq!(gathered.take(1, Err(Failure::NonFiniteLogits)), None);
        let failed = gathered.take(0, Err(Failure::Length { max_tokens: 3 }));
        assert_eq!(failed, Some(Err(Failure::Length { max_tokens: 3 })));
    }
}
