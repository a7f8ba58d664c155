//! What a verdict was made of, where it is more than one opinion: the two orders of a pair, the claims of an answer, the judges
//! of a panel.
//!
//! Written to the journal as it stands here and read back for reports.

use super::checks::Broken;
use super::verdict::Opinion;
use serde::{Deserialize, Serialize};

/// What a verdict was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Details {
    /// A check settled the item, and no model was asked.
    Check(Broken),
    /// Two answers were compared.
    Pairwise(Pairwise),
    /// Several answers were ranked.
    Ranking(Ranking),
    /// An answer was taken apart into claims.
    Claims(Claims),
    /// Passages were judged one by one.
    Passages(Vec<Passage>),
    /// Steps of an agent were judged.
    Trajectory(Box<Trajectory>),
    /// Several judges were asked.
    Panel(Panel),
    /// A first judge was asked, and perhaps a second.
    Cascade(Cascade),
}

impl Details {
    /// The keys under which details stand in the journal.
    pub const NAMES: [&str; 8] = [
        "check",
        "pairwise",
        "ranking",
        "claims",
        "passages",
        "trajectory",
        "panel",
        "cascade",
    ];
}

impl Details {
    /// One line that says why, where no judge gave a rationale.
    pub fn note(&self) -> Option<String> {
        match self {
            Details::Check(broken) => Some(format!("check {}: {}", broken.check, broken.reason)),
            Details::Claims(claims) => Some(format!(
                "{} of {} claims supported, {} contradicted; they cover {:.0} % of the answer",
                claims.supported,
                claims.claims.len(),
                claims.contradicted,
                100.0 * claims.coverage
            )),
            Details::Trajectory(trajectory) => {
                let comparison = trajectory.comparison.as_ref();
                comparison.map(|comparison| comparison.what.clone())
            }
            Details::Ranking(ranking) => {
                let order: Vec<String> = ranking.order.iter().map(usize::to_string).collect();
                Some(format!("in order of strength: {}", order.join(", ")))
            }
            Details::Cascade(cascade) => cascade.inner.as_ref().and_then(|inner| inner.note()),
            Details::Pairwise(_) | Details::Passages(_) | Details::Panel(_) => None,
        }
    }
}

/// The opinion of one order of two answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Which answer stood first: `A` or `B`.
    pub first: String,
    /// The log-odds of A against B, in nats.
    pub log_odds: f64,
    /// The probability of A against B.
    pub p_a: f64,
    /// The opinion, in which A and B are the item's answers and not the places where they stood.
    #[serde(flatten)]
    pub opinion: Opinion,
}

/// What the orders of two answers say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pairwise {
    /// The orders, in the order in which they were asked.
    pub orders: Vec<Order>,
    /// Whether both orders name the same place rather than the same answer; `None` where one order was asked.
    pub flipped: Option<bool>,
    /// Mean log-odds of A over the orders, in nats.
    pub log_odds: f64,
    /// Mean probability of A over the orders.
    pub p_a: f64,
    /// What both orders agree on: `A`, `B` or `tie`; `None` where one order was asked.
    pub strict: Option<String>,
    /// What the mean log-odds say: `A`, `B` or `tie`.
    pub weighted: String,
}

/// One pair of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankedPair {
    /// The two answers, counted from 1: A, then B.
    pub pair: [usize; 2],
    /// What was decided between them.
    pub label: String,
    /// What their orders say.
    #[serde(flatten)]
    pub pairwise: Pairwise,
}

/// Several answers in order of strength.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// Bradley-Terry strength of each answer as a logarithm, their mean being 0.
    pub strengths: Vec<f64>,
    /// The answers, counted from 1, strongest first.
    pub order: Vec<usize>,
    /// The pairs that were asked.
    pub pairs: Vec<RankedPair>,
    /// Pairs of all that there are.
    pub possible: usize,
}

/// One claim of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The claim, in the judge's words.
    pub claim: String,
    /// Where the answer makes it: the passage and its bytes.
    pub span: super::verdict::Quote,
    /// `supported`, `contradicted` or `not_found`, with the reading behind it.
    #[serde(flatten)]
    pub opinion: Opinion,
    /// Expected severity from 1 to 5 of a claim that is not supported.
    pub severity: Option<f64>,
}

/// The claims of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// Each of them, in the order of the answer.
    pub claims: Vec<Claim>,
    /// Claims that the context supports.
    pub supported: usize,
    /// Claims that it contradicts.
    pub contradicted: usize,
    /// Claims that it says nothing about.
    pub not_found: usize,
    /// Sections into which the answer was cut.
    pub sections: usize,
    /// Share of the answer's letters and digits that stand in the passage of some claim: what lies outside was not checked.
    pub coverage: f64,
}

/// One passage of a context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passage {
    /// Its number, from 1.
    pub passage: usize,
    /// What the judge said of it.
    #[serde(flatten)]
    pub opinion: Opinion,
}

/// One step of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepOpinion {
    /// Its number, from 0 as traces count.
    pub step: usize,
    /// Who took it.
    pub agent: String,
    /// What the judge said of it.
    #[serde(flatten)]
    pub opinion: Opinion,
}

/// How an agent's tool calls compare with the expected ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `match`, `diverged`, `stopped_early` or `extra_steps`.
    pub outcome: String,
    /// In words, with the names of tools.
    pub what: String,
    /// Share of the calls made that were expected.
    pub precision: f64,
    /// Share of the expected calls that were made.
    pub recall: f64,
}

/// What was found in an agent's steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// Of each step, where steps were judged.
    #[serde(default)]
    pub steps: Vec<StepOpinion>,
    /// Against the expected steps, where there are some.
    pub comparison: Option<Comparison>,
    /// The agent that made the failure, with the reading, where that was asked.
    pub agent: Option<Opinion>,
    /// The step at which it was made, with the reading, where that was asked.
    pub step: Option<Opinion>,
}

/// One judge of a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Which: model, rubric and sample.
    pub member: String,
    /// Its label; `None` where it failed.
    pub label: Option<String>,
    /// Its expected score.
    pub expected: Option<f64>,
    /// Why it has none.
    pub failure: Option<String>,
    /// Its rationale.
    pub rationale: Option<String>,
}

/// What a panel said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// How they were brought together: `majority`, `mean` or `unanimous`.
    pub decide: String,
    /// Each of them.
    pub members: Vec<Member>,
    /// Entropy of the votes in nats.
    pub vote_entropy: f64,
    /// From the least to the greatest expected score.
    pub range: Option<f64>,
    /// Whether it is for a human to look at.
    pub review: bool,
}

/// How a cascade went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cascade {
    /// Which judge's verdict this is: 0 the first, 1 the second.
    pub settled_by: usize,
    /// Why the item was handed on: `margin`, `entropy`, `mass`, `failure`; or `audit`, where both were asked to compare them.
    pub handed_on: Option<String>,
    /// Label of the first judge.
    pub first: Option<String>,
    /// Label of the second, where it was asked.
    pub second: Option<String>,
    /// Tokens that each judge computed or made.
    pub cost: [usize; 2],
    /// What the verdict itself was made of, where it is more than one opinion.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub inner: Option<Box<Details>>,
}
