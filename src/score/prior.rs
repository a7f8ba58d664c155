//! The order prior: how much a judge leans to the answer that it is shown first, and what a single order is worth once
//! that is taken away.
//!
//! Knows orders alone. It is estimated over pairs whose both orders were asked, so it costs nothing in a run that asks
//! both; a later run may then ask one order and subtract it.

use super::expectation::sum;
use super::preference::{Band, Order, Orders, Winner};

/// Mean log-odds of the answer shown first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// In nats; positive where the first place is favoured.
    pub log_odds: f64,
    /// Pairs that it was estimated over.
    pub pairs: usize,
}

/// How often one order alone names the winner that both orders' mean log-odds name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Orders that were tried: two a pair.
    pub orders: usize,
    /// Of those, how many agree as they are.
    pub raw: usize,
    /// How many agree after the prior is subtracted. The prior of a pair is estimated over all the other pairs, so that
    /// no pair votes for itself.
    pub debiased: usize,
}

impl Prior {
    /// The prior over pairs; `None` where there are none. Turning answers round in any pair changes no bit of it.
    pub fn estimate(pairs: &[Orders]) -> Option<Prior> {
        if pairs.is_empty() {
            return None;
        }
        let total = sum(pairs.iter().map(lean));
        Some(Prior {
            log_odds: total / (2 * pairs.len()) as f64 + 0.0,
            pairs: pairs.len(),
        })
    }

    /// Log-odds of A by one order, less what its place is worth.
    pub fn debiased(&self, order: &Order) -> f64 {
        let first = order.first_log_odds() - self.log_odds;
        match order.a_shown {
            super::preference::Place::First => first,
            super::preference::Place::Second => 0.0 - first,
        }
    }

    /// How much of the two orders' decisions a single order keeps; `None` below two pairs, where no other pair is left to
    /// estimate a prior over.
    pub fn kept(pairs: &[Orders], band: Band) -> Option<Kept> {
        if pairs.len() < 2 {
            return None;
        }
        let total = sum(pairs.iter().map(lean));
        let others = (2 * (pairs.len() - 1)) as f64;
        let mut kept = Kept {
            orders: 2 * pairs.len(),
            raw: 0,
            debiased: 0,
        };
        for pair in pairs {
            let both: Winner = band.winner(pair.mean_log_odds());
            let prior = Prior {
                log_odds: (total - lean(pair)) / others,
                pairs: pairs.len() - 1,
            };
            for order in [&pair.a_first, &pair.b_first] {
                kept.raw += usize::from(band.winner(order.log_odds) == both);
                kept.debiased += usize::from(band.winner(prior.debiased(order)) == both);
            }
        }
        Some(kept)
    }
}

/// Both orders' log-odds of the answer shown first, together.
fn lean(pair: &Orders) -> f64 {
    pair.a_first.first_log_odds() + pair.b_first.first_log_odds()
}

#[cfg(test)]
mod tests {
    use super::super::preference::Place;
    use super::*;

    /// A pair whose log-odds of A are `odds`, seen by a judge that adds `lean` to what is shown first.
    fn pair(odds: f64, lean: f64) -> Orders {
        let a_first = Order::new(Place::First, odds + lean, 0.0, None).unwrap();
        let b_first = Order::new(Place::Second, lean - odds, 0.0, None).unwrap();
        Orders::new(a_first, b_first).unwrap()
    }

    #[test]
    fn a_constant_lean_is_found_and_taken_away() {
        let odds = [0.5, -0.25, 1.0, -2.0, 0.125];
        let pairs: Vec<Orders> = odds.iter().map(|odds| pair(*odds, 3.0)).collect();
        let prior = Prior::estimate(&pairs).unwrap();
        assert!((prior.log_odds - 3.0).abs() < 1e-12, "{}", prior.log_odds);
        for (pair, odds) in pairs.iter().zip(odds) {
            for order in [&pair.a_first, &pair.b_first] {
                assert!((prior.debiased(order) - odds).abs() < 1e-12);
            }
        }
        // A lean of 3 hides every winner in one of the two orders; without it, each order names the winner.
        let kept = Prior::kept(&pairs, Band::new(0.0).unwrap()).unwrap();
        assert_eq!(
            kept,
            Kept {
                orders: 10,
                raw: 5,
                debiased: 10
            }
        );
    }

    #[test]
    fn too_few_pairs_have_no_prior() {
        assert_eq!(Prior::estimate(&[]), None);
        assert_eq!(
            Prior::kept(&[pair(1.0, 0.0)], Band::new(0.0).unwrap()),
            None
        );
    }

    #[test]
    fn a_pair_does_not_vote_for_itself() {
        // One pair of lean 8 among pairs without any: the others say that its lean is none, so its second place is lost.
        let pairs = [pair(1.0, 8.0), pair(1.0, 0.0), pair(-1.0, 0.0)];
        let kept = Prior::kept(&pairs, Band::new(0.0).unwrap()).unwrap();
        assert_eq!((kept.orders, kept.raw), (6, 5));
        // The other two are corrected by half of the 8 that is not theirs: one order of each is lost.
        assert_eq!(kept.debiased, 3);
    }
}
