//! What a rubric says beyond its levels, for the formats that need more: how two answers are compared, claims are checked and the
//! steps of an agent are judged.

use super::checks::Check;
use super::expected::Order;

/// A way of judging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormatName {
    /// One answer on a scale.
    #[default]
    Pointwise,
    /// One answer among named labels.
    Classify,
    /// Two answers against each other, in both orders.
    Pairwise,
    /// Several answers, pair by pair.
    Ranking,
    /// The claims of an answer, one by one, against the context.
    Claims,
    /// Faithfulness, relevance of the answer, and relevance of each passage.
    Rag,
    /// The steps of an agent.
    Trajectory,
}

impl FormatName {
    /// All of them.
    pub const ALL: [FormatName; 7] = [
        FormatName::Pointwise,
        FormatName::Classify,
        FormatName::Pairwise,
        FormatName::Ranking,
        FormatName::Claims,
        FormatName::Rag,
        FormatName::Trajectory,
    ];

    /// Its name in rubrics.
    pub fn name(self) -> &'static str {
        match self {
            FormatName::Pointwise => "pointwise",
            FormatName::Classify => "classify",
            FormatName::Pairwise => "pairwise",
            FormatName::Ranking => "ranking",
            FormatName::Claims => "claims",
            FormatName::Rag => "rag",
            FormatName::Trajectory => "trajectory",
        }
    }
}

/// When one of two answers wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decide {
    /// Where the most probable label names it in both orders.
    #[default]
    Strict,
    /// Where the mean of its log-odds over both orders is beyond the band.
    Weighted,
}

impl Decide {
    /// Its name in rubrics.
    pub fn name(self) -> &'static str {
        match self {
            Decide::Strict => "strict",
            Decide::Weighted => "weighted",
        }
    }
}

/// Which orders of two answers are asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Orders {
    /// Both.
    Both,
    /// One, drawn by the seed of the run; the log-odds by which whatever stands first is preferred are taken off.
    One {
        /// As a run in both orders estimates it, in nats.
        prior: f64,
    },
}

/// A check, and what an answer gets that does not pass it.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckRule {
    /// The check.
    pub check: Check,
    /// The label of an answer that does not pass.
    pub label: String,
}

/// How two answers are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct PairwiseRules {
    /// Whether the judge may call a tie.
    pub ties: bool,
    /// When one of the two wins.
    pub decide: Decide,
    /// Mean log-odds up to which a weighted decision is a tie, in nats.
    pub band: f64,
    /// Which orders are asked.
    pub orders: Orders,
    /// Most pairs of a ranking; all where absent.
    pub pairs: Option<usize>,
}

impl Default for PairwiseRules {
    fn default() -> Self {
        PairwiseRules {
            ties: false,
            decide: Decide::Strict,
            band: 0.0,
            orders: Orders::Both,
            pairs: None,
        }
    }
}

/// How claims are found and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimsRules {
    /// Most claims of one section.
    pub most: usize,
    /// Least share of supported claims that passes.
    pub pass_at: f64,
    /// Whether the severity of an unsupported claim is asked.
    pub severity: bool,
    /// Longest section of an answer that is split at once, in characters.
    pub section_chars: usize,
}

impl Default for ClaimsRules {
    fn default() -> Self {
        ClaimsRules {
            most: 12,
            pass_at: 1.0,
            severity: true,
            section_chars: 2000,
        }
    }
}

/// What of an agent's steps is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrajectoryTask {
    /// Whether the whole of them reaches its end, on the rubric's scale.
    #[default]
    Outcome,
    /// Each step, on the rubric's scale.
    Steps,
    /// Both.
    Both,
    /// Which agent, at which step, made the failure.
    Attribution,
    /// Nothing: they are compared with the expected steps, without a model.
    Compare,
}

impl TrajectoryTask {
    /// All of them.
    pub const ALL: [TrajectoryTask; 5] = [
        TrajectoryTask::Outcome,
        TrajectoryTask::Steps,
        TrajectoryTask::Both,
        TrajectoryTask::Attribution,
        TrajectoryTask::Compare,
    ];

    /// Its name in rubrics.
    pub fn name(self) -> &'static str {
        match self {
            TrajectoryTask::Outcome => "outcome",
            TrajectoryTask::Steps => "steps",
            TrajectoryTask::Both => "both",
            TrajectoryTask::Attribution => "attribution",
            TrajectoryTask::Compare => "compare",
        }
    }
}

/// How an agent's steps are judged.
#[derive(Clone, Debug, PartialEq)]
pub struct TrajectoryRules {
    /// What of them.
    pub task: TrajectoryTask,
    /// How they are compared with the expected ones: `exact`, `in-order` or `any-order`.
    pub order: Order,
    /// Longest text of a step that the judge is shown, in characters; of a longer one the rest is left out, and the judge is told so.
    /// The whole of it where absent.
    pub step_chars: Option<usize>,
}

impl Default for TrajectoryRules {
    fn default() -> Self {
        TrajectoryRules {
            task: TrajectoryTask::Outcome,
            order: Order::Exact,
            step_chars: None,
        }
    }
}
