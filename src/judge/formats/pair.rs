//! Two answers against each other: the questions of one or both orders, and what they say together.
//!
//! Nothing here depends on which of the two is called A: the orders that are asked are the same, and every number that is made
//! of them is the mirror image, when an item's answers are exchanged.

use super::pointwise::Mode;
use crate::ask::{Answer, Ask};
use crate::judge::contracts::Responses;
use crate::judge::details::{Order, Pairwise};
use crate::judge::prompt::Sections;
use crate::judge::question::{self, Evidence, Question, Under, refuse};
use crate::judge::rubric::Rubric;
use crate::judge::rules::{Decide, Orders};
use crate::judge::unjudged::Unjudged;
use crate::judge::verdict::{Cost, Opinion, Reading, Verdict};
use crate::judge::{Details, Manner};
use crate::score::{self, Band, Place, Winner};
use crate::trace::Item;

/// Two answers of an item.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    /// The rubric.
    pub rubric: &'a Rubric,
    /// How the run judges.
    pub manner: Manner,
    /// The item.
    pub item: &'a Item,
    /// Answer A.
    pub a: &'a str,
    /// Answer B.
    pub b: &'a str,
}

impl<'a> Pair<'a> {
    /// Where A stands in each order that is asked, in the order of asking.
    pub fn places(&self) -> Vec<Place> {
        // Drawn over the texts in an order of their own, so that the same texts stand first whatever they are called.
        let (least, most) = (self.a.min(self.b), self.a.max(self.b));
        let drawn = question::seed(self.manner.seed, self.item, &["order", least, most]);
        let least_first = drawn & 1 == 0;
        let a_first = least_first == (self.a == least);
        let (one, other) = match a_first {
            true => (Place::First, Place::Second),
            false => (Place::Second, Place::First),
        };
        match self.rubric.pairwise.orders {
            Orders::Both => vec![one, other],
            Orders::One { .. } => vec![one],
        }
    }

    /// The asks, one for each of [`Pair::places`].
    ///
    /// # Errors
    /// [`Unjudged::Missing`] names a field that the rubric shows and the item does not have.
    pub fn asks(&self) -> Result<Vec<Ask>, Unjudged> {
        let ask = |place| {
            let [first, second] = self.shown(place);
            let seed = question::seed(self.manner.seed, self.item, &[first, second]);
            self.question(place)?.ask(seed)
        };
        self.places().into_iter().map(ask).collect()
    }

    /// The question that shows A in this place.
    ///
    /// # Errors
    /// As [`Pair::asks`].
    pub fn question(&self, a_shown: Place) -> Result<Question<'a>, Unjudged> {
        let missing = |field| Unjudged::missing(field, self.item);
        let [first, second] = self.shown(a_shown);
        let sections = Sections::given(self.rubric, self.item).map_err(missing)?;
        let levels = match self.rubric.pairwise.ties {
            true => self.rubric.levels.as_slice(),
            false => self.rubric.levels.get(..2).unwrap_or_default(),
        };
        let quotes = |field, section, source| Evidence {
            field,
            section,
            source,
            most: self.rubric.decoding.quotes.min(1),
        };
        Ok(Question {
            rubric: self.rubric,
            task: "You compare two answers by the rubric below",
            duty: "Compare ANSWER A with ANSWER B. Which of them stands first, and which is longer, says nothing about \
                   which is better. The other texts are there to judge them by.",
            question: &self.rubric.question,
            levels,
            listed: true,
            label_field: "better",
            quoted: true,
            reasons: self.manner.mode == Mode::Rationale,
            evidence: vec![
                quotes("evidence_a", "ANSWER A", first),
                quotes("evidence_b", "ANSWER B", second),
            ],
            examples: &[],
            sections: sections.with("ANSWER A", first).with("ANSWER B", second),
            order: self.manner.order,
            under: self.manner.contract.map(|contract| Under {
                contract,
                item: self.item,
                responses: Responses::Pair(first, second),
            }),
        })
    }

    /// What the answers to [`Pair::asks`] say, and who won.
    ///
    /// # Errors
    /// An answer is not what was asked for.
    pub fn rule(&self, answers: &[Answer]) -> Result<(Winner, Pairwise), Unjudged> {
        let mut orders = Vec::new();
        let mut scores = Vec::new();
        for (place, answer) in self.places().into_iter().zip(answers) {
            let opinion = self.question(place)?.read(answer)?;
            let score = score(place, answer)?;
            orders.push(Order {
                first: match place {
                    Place::First => "A",
                    Place::Second => "B",
                }
                .into(),
                log_odds: score.log_odds,
                p_a: score.a,
                opinion: named(opinion, place),
            });
            scores.push(score);
        }
        let rules = &self.rubric.pairwise;
        let band = Band::new(rules.band).map_err(|error| refuse(&error.to_string()))?;
        let both = match scores[..] {
            [one, other] => score::Orders::new(one, other),
            _ => None,
        };
        let (winner, pairwise) = match (both, scores.first(), rules.orders) {
            (Some(both), _, _) => {
                let strict = both.decide(score::Decide::Strict);
                let weighted = both.decide(score::Decide::Weighted(band));
                let winner = match rules.decide {
                    Decide::Strict => strict,
                    Decide::Weighted => weighted,
                };
                let pairwise = Pairwise {
                    orders,
                    flipped: Some(both.flipped()),
                    log_odds: both.mean_log_odds(),
                    p_a: both.mean_probability(Winner::A),
                    strict: Some(strict.name().into()),
                    weighted: weighted.name().into(),
                };
                (winner, pairwise)
            }
            (None, Some(score), Orders::One { prior }) => {
                // What stands first is preferred by so much whatever it is.
                let log_odds = match score.a_shown {
                    Place::First => score.log_odds - prior,
                    Place::Second => score.log_odds + prior,
                };
                let winner = band.winner(log_odds);
                let pairwise = Pairwise {
                    orders,
                    flipped: None,
                    log_odds,
                    p_a: 1.0 / (1.0 + (-log_odds).exp()),
                    strict: None,
                    weighted: winner.name().into(),
                };
                (winner, pairwise)
            }
            _ => return Err(refuse("an order of the answers is missing").into()),
        };
        Ok((winner, pairwise))
    }

    /// The verdict on the pair.
    ///
    /// # Errors
    /// As [`Pair::rule`].
    pub fn verdict(&self, answers: &[Answer]) -> Result<Verdict, Unjudged> {
        let (winner, pairwise) = self.rule(answers)?;
        let label = winner.name();
        let mut agreeing = pairwise.orders.iter();
        let rationale = agreeing.find(|order| order.opinion.label == label);
        let rationale = rationale.and_then(|order| order.opinion.rationale.clone());
        let reading = mean(&pairwise, self.rubric.mass_threshold);
        let expected = reading.probability("A") + reading.probability("tie") / 2.0;
        let cost = Cost::of(answers);
        let mut verdict = Verdict::made(label, Some(expected), Details::Pairwise(pairwise), cost);
        verdict.reading = Some(reading);
        verdict.rationale = rationale;
        Ok(verdict)
    }

    fn shown(&self, a_shown: Place) -> [&'a str; 2] {
        match a_shown {
            Place::First => [self.a, self.b],
            Place::Second => [self.b, self.a],
        }
    }
}

/// The masses of an answer, whose labels name places, as a score of A and B.
fn score(a_shown: Place, answer: &Answer) -> Result<score::Order, Unjudged> {
    let masses = answer
        .readout
        .as_ref()
        .map(|readout| readout.log_masses.as_slice());
    let (first, second, tie) = match masses {
        Some([first, second]) => (*first, *second, None),
        Some([first, second, tie]) => (*first, *second, Some(*tie)),
        _ => return Err(refuse("the readout is of other labels than the rubric's").into()),
    };
    let order = score::Order::new(a_shown, first, second, tie);
    order.map_err(|error| refuse(&error.to_string()).into())
}

/// The opinion with the answers' own names in place of those of the places where they stood.
fn named(mut opinion: Opinion, a_shown: Place) -> Opinion {
    if a_shown == Place::First {
        return opinion;
    }
    let turned = |label: &str| match label {
        "A" => "B".to_string(),
        "B" => "A".to_string(),
        other => other.to_string(),
    };
    opinion.label = turned(&opinion.label);
    opinion.expected = opinion.expected.map(|expected| 1.0 - expected);
    for (label, _) in &mut opinion.reading.distribution {
        *label = turned(label);
    }
    opinion
        .reading
        .distribution
        .sort_by(|(a, _), (b, _)| a.cmp(b));
    opinion
}

/// The mean of the orders' readings.
fn mean(pairwise: &Pairwise, mass_threshold: f64) -> Reading {
    let count = pairwise.orders.len() as f64;
    let mean = |of: &dyn Fn(&Reading) -> f64| {
        let values = pairwise
            .orders
            .iter()
            .map(|order| of(&order.opinion.reading));
        values.sum::<f64>() / count
    };
    let labels = pairwise
        .orders
        .first()
        .map(|order| &order.opinion.reading.distribution);
    let distribution: Vec<(String, f64)> = labels
        .into_iter()
        .flatten()
        .map(|(label, _)| (label.clone(), mean(&|reading| reading.probability(label))))
        .collect();
    let mut ranked: Vec<f64> = distribution.iter().map(|(_, p)| *p).collect();
    ranked.sort_by(|a, b| b.total_cmp(a));
    let entropy: f64 = ranked
        .iter()
        .filter(|p| **p > 0.0)
        .map(|p| -p * p.ln())
        .sum();
    let mass = mean(&|reading| reading.mass);
    Reading {
        mass,
        low_mass: mass < mass_threshold,
        entropy: entropy.max(0.0),
        margin: ranked.first().unwrap_or(&0.0) - ranked.get(1).unwrap_or(&0.0),
        distribution,
    }
}
