//! What reports count of a verdict's details, without their texts.

use crate::judge::{Details, details};
use crate::score::{Order, Place};

/// What reports count.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// A check settled the item.
    Checked,
    /// Two answers were compared.
    Pairwise {
        /// The orders that were asked.
        orders: Vec<Order>,
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
        /// What is counted of the verdict itself.
        inner: Option<Box<Facts>>,
    },
}

impl Facts {
    /// Of details; `None` where nothing is counted.
    pub fn of(details: &Details) -> Option<Facts> {
        match details {
            Details::Check(_) => Some(Facts::Checked),
            Details::Pairwise(pair) => Some(Facts::Pairwise {
                orders: pair.orders.iter().map(order).collect(),
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
                inner: cascade.inner.as_deref().and_then(Facts::of).map(Box::new),
            }),
            Details::Ranking(_) | Details::Passages(_) | Details::Trajectory(_) => None,
        }
    }
}

/// The numbers of an order.
fn order(order: &details::Order) -> Order {
    let reading = &order.opinion.reading;
    Order {
        a_shown: match order.first.as_str() {
            "A" => Place::First,
            _ => Place::Second,
        },
        a: reading.probability("A"),
        b: reading.probability("B"),
        tie: reading.probability("tie"),
        log_odds: order.log_odds,
    }
}
