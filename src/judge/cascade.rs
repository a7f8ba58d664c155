//! A cascade: a small judge first, and a larger one where the small one is not sure enough.
//!
//! A cascade is itself a format. An audit sample, drawn by the seed of the run and the item alone, is always shown to both, so
//! that a run tells how often they agree where the small one was sure.

use super::details::{self, Details};
use super::digest::Digest;
use super::evaluation::{Evaluation, Format, Nothing, Step};
use super::panel::{SLOTS, of_member};
use super::question;
use super::rubric::Rubric;
use super::unjudged::Unjudged;
use super::verdict::{Cost, Verdict};
use crate::ask::{Answer, Failure};
use crate::trace::Item;
use std::sync::Arc;

/// What an opinion must reach so that it is not handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// Least margin of the first label over the second.
    pub margin: f64,
    /// Greatest entropy, in nats; any where absent.
    pub entropy: Option<f64>,
    /// Least mass on the labels.
    pub mass: f64,
}

/// A cascade of two judges.
#[derive(Clone)]
pub struct Cascade {
    /// How the small judge judges.
    pub first: Arc<dyn Format>,
    /// How the large one does.
    pub second: Arc<dyn Format>,
    /// When an item is handed on.
    pub thresholds: Thresholds,
    /// Share of the items that both are shown, from 0 to 1.
    pub audit: f64,
    /// Seed of the run.
    pub seed: u64,
}

impl Thresholds {
    /// Why a verdict is handed on, if it is.
    pub fn miss(&self, verdict: &Verdict) -> Option<&'static str> {
        // What rests on no reading of its own, such as a check, is as sure as it gets.
        let reading = verdict.reading.as_ref()?;
        if reading.mass < self.mass {
            Some("mass")
        } else if reading.margin < self.margin {
            Some("margin")
        } else if self.entropy.is_some_and(|most| reading.entropy > most) {
            Some("entropy")
        } else {
            None
        }
    }
}

impl Format for Cascade {
    fn rubric(&self) -> &Rubric {
        self.first.rubric()
    }

    fn wording(&self) -> String {
        Digest::new("assize cascade")
            .field(self.first.wording())
            .field(self.second.wording())
            .hex()
    }

    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step) {
        let drawn = question::seed(self.seed, &item, &["audit"]);
        // 53 bits are all that a double holds.
        let audited = ((drawn >> 11) as f64 / (1u64 << 53) as f64) < self.audit;
        let (evaluation, step) = self.first.clone().begin(item.clone());
        let mut asked = Asked {
            cascade: self,
            item,
            audited,
            stages: [evaluation, Box::new(Nothing)],
            first: None,
            handed_on: None,
        };
        let step = asked.take(0, step);
        (Box::new(asked), step)
    }
}

/// An item on its way through the stages.
struct Asked {
    cascade: Arc<Cascade>,
    item: Arc<Item>,
    audited: bool,
    stages: [Box<dyn Evaluation>; 2],
    first: Option<Result<Verdict, Unjudged>>,
    handed_on: Option<&'static str>,
}

impl Evaluation for Asked {
    fn answer(&mut self, slot: usize, answer: Result<Answer, Failure>) -> Step {
        let stage = (slot / SLOTS).min(1);
        let step = self.stages[stage].answer(slot % SLOTS, answer);
        self.take(stage, step)
    }
}

impl Asked {
    fn take(&mut self, stage: usize, step: Step) -> Step {
        let outcome = match step {
            Step::Ask(posed) => return Step::Ask(of_member(stage, stage, posed)),
            Step::Settled(outcome) => *outcome,
        };
        if stage == 1 {
            return Step::settled(self.second(outcome));
        }
        let reason = match &outcome {
            Ok(verdict) => self.cascade.thresholds.miss(verdict),
            // What may pass is tried again, and what can't be posed can't be posed to anybody.
            Err(unjudged) if unjudged.may_pass() => None,
            Err(Unjudged::Asked(_) | Unjudged::NoClaims) => Some("failure"),
            Err(_) => None,
        };
        // A check asks nobody, so there is nothing to compare.
        let judged = |verdict: &Verdict| !matches!(verdict.details, Some(Details::Check(_)));
        let audited = self.audited && outcome.as_ref().is_ok_and(judged);
        let reason = reason.or_else(|| audited.then_some("audit"));
        if reason.is_none() {
            return Step::settled(outcome.map(|verdict| self.told(verdict, 0, None, None)));
        }
        self.first = Some(outcome);
        self.handed_on = reason;
        let (evaluation, step) = self.cascade.second.clone().begin(self.item.clone());
        self.stages[1] = evaluation;
        self.take(1, step)
    }

    /// The end of the second stage: its verdict counts, but for an audit, in which the first was sure.
    fn second(&mut self, outcome: Result<Verdict, Unjudged>) -> Result<Verdict, Unjudged> {
        let first = self.first.take();
        let sure = self.handed_on == Some("audit");
        match (first, outcome) {
            (_, Err(unjudged)) if unjudged.may_pass() => Err(unjudged),
            (Some(Ok(first)), second) if sure => {
                let second = second.ok();
                Ok(self.told(first, 0, None, second.as_ref()))
            }
            (first, Ok(second)) => {
                let first = first.and_then(Result::ok);
                Ok(self.told(second, 1, first.as_ref(), None))
            }
            // Where the large judge fails, the small one's doubtful verdict does not take its place.
            (_, Err(unjudged)) => Err(unjudged),
        }
    }

    /// A verdict with how it came about. `first` and `second` are the other's, where there is one.
    fn told(
        &self,
        mut verdict: Verdict,
        settled_by: usize,
        first: Option<&Verdict>,
        second: Option<&Verdict>,
    ) -> Verdict {
        let computed = |verdict: &Verdict| {
            let tokens = &verdict.tokens;
            tokens.prompt - tokens.cached.min(tokens.prompt) + tokens.forced + tokens.generated
        };
        let (own, label) = (computed(&verdict), Some(verdict.label.clone()));
        let other = |verdict: Option<&Verdict>| verdict.map(|verdict| verdict.label.clone());
        let cost = |verdict: Option<&Verdict>| verdict.map_or(0, computed);
        let (labels, costs) = match settled_by {
            0 => ([label, other(second)], [own, cost(second)]),
            _ => ([other(first), label], [cost(first), own]),
        };
        let [first_label, second_label] = labels;
        let mut spent = Cost::default();
        for verdict in [Some(&verdict), first, second].into_iter().flatten() {
            spent.add(&verdict.tokens, verdict.milliseconds);
        }
        (verdict.tokens, verdict.milliseconds) = (spent.tokens, spent.milliseconds);
        let cascade = details::Cascade {
            settled_by,
            handed_on: self.handed_on.map(String::from),
            first: first_label,
            second: second_label,
            cost: costs,
            inner: verdict.details.take().map(Box::new),
        };
        verdict.details = Some(Details::Cascade(cascade));
        verdict
    }
}
