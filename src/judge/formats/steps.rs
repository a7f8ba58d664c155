//! The steps of an agent: judged as a whole, one by one, or for who made the failure and when; and compared with those that were
//! expected, which needs no model.
//!
//! A step is an entry of the trace, numbered as the trace numbers it. Names of agents come from the trace, so they stand in the
//! prompt as judged text, and never among the instructions.

use super::pointwise::Mode;
use crate::ask::{Answer, Ask};
use crate::judge::details::{self, Comparison, StepOpinion};
use crate::judge::evaluation::{self, Evaluation, Format, Step};
use crate::judge::expected::{self, Expected, Outcome};
use crate::judge::prompt::{self, Sections};
use crate::judge::question::{self, Question};
use crate::judge::rubric::{Level, Rubric};
use crate::judge::rules::TrajectoryTask;
use crate::judge::trajectory::{Call, StepKind, Trajectory};
use crate::judge::unjudged::Unjudged;
use crate::judge::verdict::{Cost, Opinion, Verdict};
use crate::judge::{Details, Manner};
use crate::trace::Item;
use std::sync::Arc;

/// Most entries of a trace whose steps are judged.
const MOST_ENTRIES: usize = 1000;

/// Longest name of an agent that can be a label, in bytes.
const LONGEST_NAME: usize = 40;

/// Judging of steps under one rubric.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The rubric.
    pub rubric: Rubric,
    /// How the run judges.
    pub manner: Manner,
}

/// A trace made ready to be shown.
struct Shown {
    trajectory: Trajectory,
    /// The text of each entry, and the agent who acts in it.
    entries: Vec<(String, String)>,
    agents: Vec<Level>,
    numbers: Vec<Level>,
}

impl Steps {
    fn shown(&self, item: &Item) -> Result<Shown, Unjudged> {
        let value = item.trajectory.as_ref();
        let value = value.ok_or_else(|| Unjudged::missing("trajectory", item))?;
        let refuse = |reason: String| Unjudged::Trajectory {
            field: "trajectory",
            reason,
        };
        let trajectory = Trajectory::read(value).map_err(|error| refuse(error.to_string()))?;
        if trajectory.entries > MOST_ENTRIES {
            let reason = format!(
                "{} entries are more than {MOST_ENTRIES}",
                trajectory.entries
            );
            return Err(refuse(reason));
        }
        let mut entries = vec![(String::new(), String::new()); trajectory.entries];
        for step in &trajectory.steps {
            let Some((text, agent)) = entries.get_mut(step.entry) else {
                continue;
            };
            if agent.is_empty() {
                *agent = step.agent.clone();
                text.push_str(&step.agent);
                text.push_str(": ");
            } else {
                text.push('\n');
            }
            match &step.kind {
                StepKind::Message => text.push_str(&step.text),
                StepKind::Observation => text.push_str(&format!("gives back: {}", step.text)),
                StepKind::ToolCall(Call { name, arguments }) => {
                    text.push_str(&format!("calls {name} with {arguments}"));
                }
            }
        }
        for (text, _) in &mut entries {
            self.shorten(text);
        }
        let level = |label: String| Level {
            label,
            value: None,
            description: String::new(),
        };
        let names = trajectory.agents().into_iter().map(String::from);
        let agents = names.map(level).collect();
        let numbers = (0..entries.len()).map(|entry| level(entry.to_string()));
        Ok(Shown {
            numbers: numbers.collect(),
            agents,
            entries,
            trajectory,
        })
    }

    /// Leaves out what goes beyond the rubric's bound, and says so.
    fn shorten(&self, text: &mut String) {
        let Some(most) = self.rubric.trajectory.step_chars else {
            return;
        };
        if let Some((end, _)) = text.char_indices().nth(most) {
            let left_out = text[end..].chars().count();
            text.truncate(end);
            text.push_str(&format!(" … ({left_out} characters are left out)"));
        }
    }

    /// A question that shows the first `entries` steps.
    fn question<'a>(
        &'a self,
        item: &'a Item,
        shown: &'a Shown,
        entries: usize,
        asked: &Asked,
    ) -> Result<Question<'a>, Unjudged> {
        let sections = Sections::given(&self.rubric, item);
        let mut sections = sections.map_err(|field| Unjudged::missing(field, item))?;
        for (entry, (text, _)) in shown.entries.iter().enumerate().take(entries) {
            sections = sections.with(format!("STEP {entry}"), text);
        }
        let rubric = &self.rubric;
        let whole = Question {
            rubric,
            task: "You judge the steps of an agent by the rubric below",
            duty: "Judge the STEPS. The other texts are there to judge them by.",
            question: &rubric.question,
            levels: &rubric.levels,
            listed: true,
            label_field: rubric.label_field(),
            quoted: rubric.quoted(),
            reasons: self.manner.mode == Mode::Rationale,
            evidence: Vec::new(),
            examples: &[],
            sections,
            order: self.manner.order,
            under: None,
        };
        Ok(match asked {
            Asked::Outcome => whole,
            Asked::Step(_) => Question {
                duty: "Judge the last of the STEPS by itself. Those before it tell what it had to go on.",
                ..whole
            },
            Asked::Agent => Question {
                task: "You look for the failure of a group of agents",
                duty: "Each of the STEPS begins with the name of the agent who takes it.",
                question: "Which agent made the mistake that the failure comes from? Name it as the STEPS do.",
                levels: &shown.agents,
                listed: false,
                label_field: "agent",
                quoted: true,
                ..whole
            },
            Asked::Number => Question {
                task: "You look for the failure of a group of agents",
                duty: "Each of the STEPS has a number.",
                question: "At which of the STEPS was the mistake made that the failure comes from? Give its number.",
                levels: &shown.numbers,
                listed: false,
                label_field: "step",
                quoted: false,
                ..whole
            },
        })
    }

    /// What is asked, in the order of slots.
    fn asked(&self, shown: &Shown) -> Result<Vec<Asked>, Unjudged> {
        let steps = || {
            let entries = shown.entries.iter().enumerate();
            let acted = entries.filter(|(_, (_, agent))| !agent.is_empty());
            acted.map(|(entry, _)| Asked::Step(entry))
        };
        Ok(match self.rubric.trajectory.task {
            TrajectoryTask::Outcome => vec![Asked::Outcome],
            TrajectoryTask::Steps => steps().collect(),
            TrajectoryTask::Both => std::iter::once(Asked::Outcome).chain(steps()).collect(),
            TrajectoryTask::Compare => Vec::new(),
            TrajectoryTask::Attribution => {
                let long = |agent: &&Level| agent.label.len() > LONGEST_NAME;
                if shown.agents.iter().any(|agent| long(&agent)) {
                    return Err(Unjudged::Trajectory {
                        field: "trajectory",
                        reason: format!("an agent's name is longer than {LONGEST_NAME} bytes"),
                    });
                }
                vec![Asked::Agent, Asked::Number]
            }
        })
    }

    fn asks(&self, item: &Item, shown: &Shown) -> Result<Vec<Ask>, Unjudged> {
        let ask = |asked: &Asked| {
            let seed = question::seed(self.manner.seed, item, &[&format!("{asked:?}")]);
            let question = self.question(item, shown, asked.entries(shown), asked)?;
            question.ask(seed)
        };
        self.asked(shown)?.iter().map(ask).collect()
    }

    /// The comparison with the expected steps, where the item has some.
    fn comparison(
        &self,
        item: &Item,
        shown: &Shown,
    ) -> Result<Option<(bool, Comparison)>, Unjudged> {
        let Some(value) = &item.expected else {
            return match self.rubric.trajectory.task {
                TrajectoryTask::Compare => Err(Unjudged::missing("expected", item)),
                _ => Ok(None),
            };
        };
        let expected = Expected::read(value).map_err(|error| Unjudged::Trajectory {
            field: "expected",
            reason: error.to_string(),
        })?;
        let calls: Vec<&Call> = shown.trajectory.calls().map(|(_, call)| call).collect();
        let order = self.rubric.trajectory.order;
        let outcome = expected::compare(&expected, &calls, order);
        let scores = expected::tool_scores(&expected, &calls);
        let comparison = Comparison {
            outcome: outcome_name(&outcome).into(),
            what: outcome.to_string(),
            precision: scores.precision,
            recall: scores.recall,
        };
        Ok(Some((outcome.passes(order), comparison)))
    }

    fn rule(&self, item: &Item, answers: &[Answer]) -> Result<Verdict, Unjudged> {
        let shown = self.shown(item)?;
        let compared = self.comparison(item, &shown)?;
        let mut details = details::Trajectory::default();
        let mut outcome = None;
        for (asked, answer) in self.asked(&shown)?.iter().zip(answers) {
            let opinion = self
                .question(item, &shown, asked.entries(&shown), asked)?
                .read(answer)?;
            match asked {
                Asked::Outcome => outcome = Some(opinion),
                Asked::Agent => details.agent = Some(opinion),
                Asked::Number => details.step = Some(opinion),
                Asked::Step(entry) => details.steps.push(StepOpinion {
                    step: *entry,
                    agent: shown
                        .entries
                        .get(*entry)
                        .map(|(_, agent)| agent.clone())
                        .unwrap_or_default(),
                    opinion,
                }),
            }
        }
        let passes = compared.as_ref().map(|(passes, _)| *passes);
        details.comparison = compared.map(|(_, comparison)| comparison);
        let cost = Cost::of(answers);
        let made = |label: &str, expected, details| {
            Verdict::made(
                label,
                expected,
                Details::Trajectory(Box::new(details)),
                cost,
            )
        };
        let verdict = match (outcome, passes) {
            (Some(opinion), _) => {
                let mut verdict = Verdict::of(opinion, cost);
                if details != details::Trajectory::default() {
                    verdict.details = Some(Details::Trajectory(Box::new(details)));
                }
                verdict
            }
            (None, passes) => match (&details.agent, worst(&details.steps), passes) {
                (Some(agent), _, _) => made(&agent.label.clone(), None, details),
                (None, Some((label, mean)), _) => made(&label, mean, details),
                (None, None, Some(true)) => made("pass", Some(1.0), details),
                (None, None, Some(false)) => made("fail", Some(0.0), details),
                (None, None, None) => {
                    return Err(Unjudged::Trajectory {
                        field: "trajectory",
                        reason: "there is nothing to judge in it".into(),
                    });
                }
            },
        };
        Ok(verdict)
    }
}

/// What is asked about a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    /// The whole.
    Outcome,
    /// One entry, seen after those before it.
    Step(usize),
    /// Who made the failure.
    Agent,
    /// At which entry.
    Number,
}

impl Asked {
    /// Entries that the judge is shown.
    fn entries(self, shown: &Shown) -> usize {
        match self {
            Asked::Step(entry) => entry + 1,
            _ => shown.entries.len(),
        }
    }
}

/// The label of the worst step, and the mean of the expected scores.
fn worst(steps: &[StepOpinion]) -> Option<(String, Option<f64>)> {
    let expected: Option<Vec<f64>> = steps.iter().map(|step| step.opinion.expected).collect();
    let score = |opinion: &Opinion| opinion.expected.unwrap_or(0.0);
    let worst = steps
        .iter()
        .min_by(|a, b| score(&a.opinion).total_cmp(&score(&b.opinion)))?;
    let mean = expected.map(|all| all.iter().sum::<f64>() / all.len() as f64);
    Some((worst.opinion.label.clone(), mean))
}

fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Match => "match",
        Outcome::Diverged { .. } => "diverged",
        Outcome::StoppedEarly { .. } => "stopped_early",
        Outcome::Extra { .. } => "extra_steps",
    }
}

impl Format for Steps {
    fn rubric(&self) -> &Rubric {
        &self.rubric
    }

    fn wording(&self) -> String {
        let item = super::probe();
        let Ok(shown) = self.shown(&item) else {
            return String::new();
        };
        let all = [Asked::Outcome, Asked::Step(0), Asked::Agent, Asked::Number];
        let questions: Vec<Question<'_>> = all
            .iter()
            .flat_map(|asked| self.question(&item, &shown, asked.entries(&shown), asked))
            .collect();
        prompt::digest(&questions)
    }

    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step) {
        let asks = self.shown(&item).and_then(|shown| {
            self.comparison(&item, &shown)?;
            self.asks(&item, &shown)
        });
        evaluation::ask_all(asks, move |answers| self.rule(&item, answers))
    }
}
