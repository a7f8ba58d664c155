//! Ranking: several answers, pair by pair in both orders, brought into one order of strength.

use super::pair::Pair;
use crate::ask::Answer;
use crate::judge::details::{self, RankedPair};
use crate::judge::evaluation::{self, Evaluation, Format, Step};
use crate::judge::question;
use crate::judge::rubric::Rubric;
use crate::judge::unjudged::Unjudged;
use crate::judge::verdict::{Cost, Verdict};
use crate::judge::{Details, Manner, prompt};
use crate::score::{Place, Winner, Wins};
use crate::trace::Item;
use std::sync::Arc;

/// Most answers that are ranked: all pairs in both orders are 9,900 questions.
const MOST: usize = 100;

/// Games that every answer plays against an imagined one of mean strength, so that one that wins all its games has a strength,
/// too.
const PRIOR: f64 = 1.0;

/// Log-strengths that are no further apart are equal: a fit settles to about this.
const EQUAL: f64 = 1e-9;

/// Ranking under one rubric.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The rubric.
    pub rubric: Rubric,
    /// How the run judges.
    pub manner: Manner,
}

impl Ranking {
    fn answers<'a>(&self, item: &'a Item) -> Result<&'a [String], Unjudged> {
        let answers = item.answers.as_deref();
        let answers = answers.ok_or_else(|| Unjudged::missing("answers", item))?;
        let refuse = |reason: &str| Unjudged::Candidates {
            found: answers.len(),
            reason: reason.into(),
        };
        match answers.len() {
            0 | 1 => Err(refuse("there must be two")),
            found if found > MOST => Err(refuse(&format!("{MOST} are the most"))),
            _ => Ok(answers),
        }
    }

    fn pair<'a>(&'a self, item: &'a Item, [a, b]: [usize; 2]) -> Result<Pair<'a>, Unjudged> {
        let answers = self.answers(item)?;
        Ok(Pair {
            rubric: &self.rubric,
            manner: self.manner,
            item,
            a: &answers[a],
            b: &answers[b],
        })
    }

    /// The pairs that are asked: all, or as many as the rubric says, drawn by the seed of the run. The first of a drawn schedule
    /// make a ring, so that no answer is left out as long as there are as many pairs as answers.
    fn schedule(&self, item: &Item, count: usize) -> Vec<[usize; 2]> {
        let all = (0..count).flat_map(|a| (a + 1..count).map(move |b| [a, b]));
        let mut all: Vec<[usize; 2]> = all.collect();
        let most = self.rubric.pairwise.pairs.unwrap_or(all.len());
        if most >= all.len() {
            return all;
        }
        let ring = |pair: &[usize; 2]| pair[1] - pair[0] == 1 || pair[1] - pair[0] == count - 1;
        let drawn = |pair: &[usize; 2]| {
            let names = pair.map(|answer| answer.to_string());
            question::seed(self.manner.seed, item, &["schedule", &names[0], &names[1]])
        };
        all.sort_by_key(|pair| (!ring(pair), drawn(pair)));
        all.truncate(most);
        all.sort_unstable();
        all
    }

    fn rule(
        &self,
        item: &Item,
        schedule: &[[usize; 2]],
        answers: &[Answer],
    ) -> Result<Verdict, Unjudged> {
        let count = self.answers(item)?.len();
        let refuse = |reason: String| Unjudged::Candidates {
            found: count,
            reason,
        };
        let mut wins = Wins::new(count).map_err(|error| refuse(error.to_string()))?;
        let mut pairs = Vec::new();
        let mut rest = answers;
        for [a, b] in schedule.iter().copied() {
            let pair = self.pair(item, [a, b])?;
            let (own, others) = rest.split_at(pair.places().len().min(rest.len()));
            rest = others;
            let (winner, pairwise) = pair.rule(own)?;
            let counted = match winner {
                Winner::A => wins.add(a, b, 1.0),
                Winner::B => wins.add(b, a, 1.0),
                Winner::Tie => wins.tie(a, b),
            };
            counted.map_err(|error| refuse(error.to_string()))?;
            pairs.push(RankedPair {
                pair: [a + 1, b + 1],
                label: winner.name().into(),
                pairwise,
            });
        }
        let strengths = wins.fit(PRIOR).map_err(|error| refuse(error.to_string()))?;
        let order = strengths.ranking();
        let best = order.first().copied().unwrap_or(0);
        let others = order.get(1).copied().unwrap_or(best);
        let ahead = strengths.probability(best, others);
        let details = details::Ranking {
            strengths: strengths.log_strengths.clone(),
            order: order.iter().map(|answer| answer + 1).collect(),
            pairs,
            possible: count * (count - 1) / 2,
        };
        // Where nobody is ahead, the first of equals is not the strongest.
        let gap = strengths.log_strengths[best] - strengths.log_strengths[others];
        let label = match gap > EQUAL {
            true => (best + 1).to_string(),
            false => "tie".to_string(),
        };
        let cost = Cost::of(answers);
        Ok(Verdict::made(
            &label,
            ahead,
            Details::Ranking(details),
            cost,
        ))
    }
}

impl Format for Ranking {
    fn rubric(&self) -> &Rubric {
        &self.rubric
    }

    fn wording(&self) -> String {
        let item = super::probe();
        let question = self
            .pair(&item, [0, 1])
            .and_then(|pair| pair.question(Place::First));
        prompt::digest(question.as_ref())
    }

    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step) {
        let begun = || {
            let schedule = self.schedule(&item, self.answers(&item)?.len());
            let mut asks = Vec::new();
            for pair in &schedule {
                asks.extend(self.pair(&item, *pair)?.asks()?);
            }
            Ok((schedule, asks))
        };
        let (schedule, asks) = match begun() {
            Ok((schedule, asks)) => (schedule, Ok(asks)),
            Err(unjudged) => (Vec::new(), Err(unjudged)),
        };
        evaluation::ask_all(asks, move |answers| self.rule(&item, &schedule, answers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(pairs: &str) -> Ranking {
        let rubric = format!(
            "id = \"r\"\nversion = 1\ncriterion = \"c\"\nquestion = \"q\"\nformat = \"ranking\"\nshows = [\"answer\"]\n{pairs}"
        );
        Ranking {
            rubric: Rubric::parse(&rubric).unwrap(),
            manner: Manner::default(),
        }
    }

    #[test]
    fn a_drawn_schedule_leaves_nobody_out() {
        let item = Item::answered("1", "");
        assert_eq!(ranking("").schedule(&item, 4).len(), 6);
        let ranking = ranking("[pairwise]\npairs = 8\n");
        let drawn = ranking.schedule(&item, 7);
        assert_eq!(
            (drawn.len(), drawn.clone()),
            (8, ranking.schedule(&item, 7))
        );
        for answer in 0..7 {
            let games = drawn.iter().filter(|pair| pair.contains(&answer)).count();
            assert!(games >= 2, "{answer}: {drawn:?}");
        }
    }

    #[test]
    fn what_can_not_be_ranked_is_refused() {
        let check = |answers: Option<usize>, want: fn(&Unjudged) -> bool| {
            let item = Item {
                answers: answers.map(|count| vec!["x".into(); count]),
                ..Item::answered("1", "")
            };
            let unjudged = ranking("").answers(&item).unwrap_err();
            assert!(want(&unjudged), "{unjudged:?}");
        };
        check(None, |unjudged| {
            matches!(
                unjudged,
                Unjudged::Missing {
                    field: "answers",
                    ..
                }
            )
        });
        check(Some(1), |unjudged| {
            matches!(unjudged, Unjudged::Candidates { found: 1, .. })
        });
        check(Some(101), |unjudged| {
            matches!(unjudged, Unjudged::Candidates { found: 101, .. })
        });
    }
}
