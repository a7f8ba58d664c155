//! A panel: the same item before several judges, which may be models, rubrics or samples of one of them.
//!
//! A panel is itself a format: it runs the evaluations of its members side by side and brings their verdicts together. What a
//! member could not judge is told beside the others, and is no vote.

use super::details::{self, Details};
use super::digest::Digest;
use super::evaluation::{Evaluation, Format, Posed, Step};
use super::rubric::Rubric;
use super::unjudged::Unjudged;
use super::verdict::{Cost, Verdict};
use crate::ask::{Answer, Failure};
use crate::trace::Item;
use std::sync::Arc;

/// How verdicts are brought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// The label with the most votes; of equals, the one with the greater sum of probabilities.
    Majority,
    /// The level nearest to the mean of the expected scores.
    Mean,
    /// The label that all name; no verdict where they do not.
    Unanimous,
}

impl Together {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Together::Majority => "majority",
            Together::Mean => "mean",
            Together::Unanimous => "unanimous",
        }
    }
}

/// One judge of a panel.
#[derive(Clone)]
pub struct Member {
    /// Model, rubric and sample, as verdicts tell it.
    pub name: String,
    /// Which of the run's models is asked.
    pub judge: usize,
    /// How it judges.
    pub format: Arc<dyn Format>,
}

/// A panel.
#[derive(Clone)]
pub struct Panel {
    /// Its judges.
    pub members: Vec<Member>,
    /// How their verdicts are brought together.
    pub together: Together,
    /// Entropy of the votes, in nats, above which an item is for a human to look at.
    pub review_above: f64,
    /// The rubric whose labels are given.
    pub rubric: Rubric,
}

/// Slots of one member: more than any format asks.
pub(super) const SLOTS: usize = 1 << 24;

/// The questions of one member, as the panel's own.
pub(super) fn of_member(member: usize, judge: usize, posed: Vec<Posed>) -> Vec<Posed> {
    let mine = |posed: Posed| Posed {
        slot: member * SLOTS + posed.slot,
        judge,
        ask: posed.ask,
    };
    posed.into_iter().map(mine).collect()
}

impl Format for Panel {
    fn rubric(&self) -> &Rubric {
        &self.rubric
    }

    fn wording(&self) -> String {
        let start = Digest::new("assize panel").field(self.together.name());
        let members = self.members.iter();
        members
            .fold(start, |digest, member| {
                digest
                    .field(&member.name)
                    .field(member.format.rubric().digest())
                    .field(member.format.wording())
            })
            .hex()
    }

    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step) {
        let mut asked = Asked {
            panel: self.clone(),
            evaluations: Vec::new(),
            outcomes: vec![None; self.members.len()],
        };
        let mut all = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            let (evaluation, step) = member.format.clone().begin(item.clone());
            asked.evaluations.push(evaluation);
            all.extend(asked.take(index, step));
        }
        let step = match asked.settled() {
            Some(step) => step,
            None => Step::Ask(all),
        };
        (Box::new(asked), step)
    }
}

/// An item before the panel.
struct Asked {
    panel: Arc<Panel>,
    evaluations: Vec<Box<dyn Evaluation>>,
    outcomes: Vec<Option<Result<Verdict, Unjudged>>>,
}

impl Evaluation for Asked {
    fn answer(&mut self, slot: usize, answer: Result<Answer, Failure>) -> Step {
        let index = slot / SLOTS;
        let Some(evaluation) = self.evaluations.get_mut(index) else {
            return Step::Ask(Vec::new());
        };
        let step = evaluation.answer(slot % SLOTS, answer);
        let posed = self.take(index, step);
        self.settled().unwrap_or(Step::Ask(posed))
    }
}

impl Asked {
    fn take(&mut self, index: usize, step: Step) -> Vec<Posed> {
        match step {
            Step::Ask(posed) => of_member(index, self.panel.members[index].judge, posed),
            Step::Settled(outcome) => {
                self.outcomes[index].get_or_insert(*outcome);
                Vec::new()
            }
        }
    }

    fn settled(&mut self) -> Option<Step> {
        if self.outcomes.iter().any(Option::is_none) {
            return None;
        }
        let outcomes: Vec<_> = std::mem::take(&mut self.outcomes)
            .into_iter()
            .flatten()
            .collect();
        Some(Step::settled(self.panel.rule(&outcomes)))
    }
}

impl Panel {
    /// Brings the members' verdicts together.
    ///
    /// # Errors
    /// [`Unjudged::Panel`] where there is no verdict to be had from them; the failure itself where no member has one.
    pub fn rule(&self, outcomes: &[Result<Verdict, Unjudged>]) -> Result<Verdict, Unjudged> {
        // What may pass, such as a shortage of memory, decides nothing: the item is tried again.
        let passing = |outcome: &&Result<Verdict, Unjudged>| matches!(outcome, Err(unjudged) if unjudged.may_pass());
        if let Some(passing) = outcomes.iter().find(passing) {
            return passing.clone();
        }
        let verdicts: Vec<&Verdict> = outcomes.iter().flatten().collect();
        if let (true, Some(Err(unjudged))) = (verdicts.is_empty(), outcomes.first()) {
            return Err(unjudged.clone());
        }
        let votes = self.votes(&verdicts);
        let label = match self.together {
            Together::Majority => majority(&votes, &verdicts)?,
            Together::Mean => self.nearest(&verdicts)?,
            Together::Unanimous => match &votes[..] {
                [(label, _)] if verdicts.len() == outcomes.len() => label.clone(),
                [_] => {
                    let failed = outcomes.len() - verdicts.len();
                    let reason = format!("{failed} of {} judges failed", outcomes.len());
                    return Err(Unjudged::Panel(reason));
                }
                _ => {
                    let told: Vec<String> = votes
                        .iter()
                        .map(|(label, count)| format!("{label} {count}"))
                        .collect();
                    let reason = format!("the judges do not all agree ({})", told.join(", "));
                    return Err(Unjudged::Panel(reason));
                }
            },
        };
        let count = verdicts.len() as f64;
        let shares = votes.iter().map(|(_, votes)| *votes as f64 / count);
        let vote_entropy = shares
            .map(|share| -share * share.ln())
            .sum::<f64>()
            .max(0.0);
        let expected: Vec<f64> = verdicts
            .iter()
            .filter_map(|verdict| verdict.expected)
            .collect();
        let mean = (expected.len() == verdicts.len()).then(|| expected.iter().sum::<f64>() / count);
        let least = expected.iter().copied().reduce(f64::min);
        let most = expected.iter().copied().reduce(f64::max);
        let members = self.members.iter().zip(outcomes);
        let details = details::Panel {
            decide: self.together.name().into(),
            members: members
                .map(|(member, outcome)| told(member, outcome))
                .collect(),
            vote_entropy,
            range: least.zip(most).map(|(least, most)| most - least),
            review: vote_entropy > self.review_above || verdicts.len() < outcomes.len(),
        };
        let mut cost = Cost::default();
        for verdict in &verdicts {
            cost.add(&verdict.tokens, verdict.milliseconds);
        }
        let speaker = verdicts.iter().find(|verdict| verdict.label == label);
        let mut verdict = Verdict::made(&label, mean, Details::Panel(details), cost);
        if let Some(speaker) = speaker {
            verdict.rationale = speaker.rationale.clone();
            verdict.evidence = speaker.evidence.clone();
        }
        Ok(verdict)
    }

    /// Votes by label, in the order of the rubric's labels, those without a vote left out.
    fn votes(&self, verdicts: &[&Verdict]) -> Vec<(String, usize)> {
        let mut labels = self.rubric.labels();
        for verdict in verdicts {
            if !labels.contains(&verdict.label) {
                labels.push(verdict.label.clone());
            }
        }
        let count = |label: &String| {
            verdicts
                .iter()
                .filter(|verdict| verdict.label == *label)
                .count()
        };
        let counted = labels
            .into_iter()
            .map(|label| (label.clone(), count(&label)));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// The level whose value is nearest to the mean of the expected scores; of two, the lower.
    fn nearest(&self, verdicts: &[&Verdict]) -> Result<String, Unjudged> {
        let none = || Unjudged::Panel("labels without values have no mean".into());
        let expected: Option<Vec<f64>> = verdicts.iter().map(|verdict| verdict.expected).collect();
        let expected = expected.ok_or_else(none)?;
        let mean = expected.iter().sum::<f64>() / expected.len() as f64;
        let valued = self
            .rubric
            .levels
            .iter()
            .filter_map(|level| Some((level.value?, &level.label)));
        let nearest = valued.min_by(|(a, _), (b, _)| {
            let distance = (a - mean).abs().total_cmp(&(b - mean).abs());
            distance.then(a.total_cmp(b))
        });
        Ok(nearest.ok_or_else(none)?.1.clone())
    }
}

fn majority(votes: &[(String, usize)], verdicts: &[&Verdict]) -> Result<String, Unjudged> {
    let most = votes.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let leading: Vec<&String> = votes
        .iter()
        .filter(|(_, count)| *count == most)
        .map(|(label, _)| label)
        .collect();
    if let [label] = leading[..] {
        return Ok(label.clone());
    }
    let mass = |label: &str| {
        let readings = verdicts
            .iter()
            .filter_map(|verdict| verdict.reading.as_ref());
        readings
            .map(|reading| reading.probability(label))
            .sum::<f64>()
    };
    let best = leading.iter().map(|label| mass(label)).fold(0.0, f64::max);
    let mut ahead = leading.into_iter().filter(|label| mass(label) == best);
    match (ahead.next(), ahead.next()) {
        (Some(label), None) => Ok(label.clone()),
        _ => Err(Unjudged::Panel(format!(
            "{most} votes for each of several labels"
        ))),
    }
}

fn told(member: &Member, outcome: &Result<Verdict, Unjudged>) -> details::Member {
    let verdict = outcome.as_ref().ok();
    details::Member {
        member: member.name.clone(),
        label: verdict.map(|verdict| verdict.label.clone()),
        expected: verdict.and_then(|verdict| verdict.expected),
        failure: outcome.as_ref().err().map(Unjudged::to_string),
        rationale: verdict.and_then(|verdict| verdict.rationale.clone()),
    }
}
