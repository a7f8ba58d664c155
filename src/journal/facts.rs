//! What reports count of a verdict's details, without their texts.

use crate::judge::Details;

/// What reports count.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// A check settled the item.
    Checked,
    /// Two answers were compared.
    Pairwise {
        /// The log-odds of the answer that stood first, of each order, in nats.
        first_log_odds: Vec<f64>,
        /// Which answer stood first in the order that was asked first.
        first: String,
        /// Whether both orders name the same place.
        flipped: Option<bool>,
        /// What both orders agree on.
        strict: Option<String>,
        /// What the mean log-odds say.
        weighted: String,
    },
    /// Claims were checked: supported, contradicted, not found.
    Claims([usize; 3]),
    /// A panel was asked.
    Panel {
        /// Entropy of its votes in nats.
        vote_entropy: f64,
        /// Whether a human is to look at it.
        review: bool,
    },
    /// A cascade was asked.
    Cascade {
        /// Which judge's verdict it is.
        settled_by: usize,
        /// Why the item was handed on.
        handed_on: Option<String>,
        /// Whether both agree, where both were asked.
        agree: Option<bool>,
        /// Tokens of each judge.
        cost: [usize; 2],
    },
}

impl Facts {
    /// Of details; `None` where nothing is counted.
    pub fn of(details: &Details) -> Option<Facts> {
        match details {
            Details::Check(_) => Some(Facts::Checked),
            Details::Pairwise(pair) => Some(Facts::Pairwise {
                first_log_odds: pair
                    .orders
                    .iter()
                    .map(|order| match order.first.as_str() {
                        "A" => order.log_odds,
                        _ => -order.log_odds,
                    })
                    .collect(),
                first: pair
                    .orders
                    .first()
                    .map(|order| order.first.clone())
                    .unwrap_or_default(),
                flipped: pair.flipped,
                strict: pair.strict.clone(),
                weighted: pair.weighted.clone(),
            }),
            Details::Claims(claims) => Some(Facts::Claims([
                claims.supported,
                claims.contradicted,
                claims.not_found,
            ])),
            Details::Panel(panel) => Some(Facts::Panel {
                vote_entropy: panel.vote_entropy,
                review: panel.review,
            }),
            Details::Cascade(cascade) => Some(Facts::Cascade {
                settled_by: cascade.settled_by,
                handed_on: cascade.handed_on.clone(),
                agree: match (&cascade.first, &cascade.second) {
                    (Some(first), Some(second)) => Some(first == second),
                    _ => None,
                },
                cost: cascade.cost,
            }),
            Details::Ranking(_) | Details::Passages(_) | Details::Trajectory(_) => None,
        }
    }
}
