//! Preferences between two answers, A and B, from what a judge's letters said in both orders.
//!
//! A judge that is shown two answers leans to a place, not only to an answer. So both orders are asked, each order's
//! masses are mapped back from places to answers, and what is reported is the mean over the two. Every sum here is
//! symmetric in A and B and in the orders: turning the two answers round negates the log-odds and exchanges P(A) and
//! P(B), bit for bit. Knows no prompt and no letter; where a letter stood is told by the caller.

use super::distribution::ScoreError;

/// Log-odds beyond this are cut to it, in nats, so that a label of no probability leaves a number that can be averaged
/// and written down.
pub const MOST_LOG_ODDS: f64 = 1000.0;

/// AlpacaEval's preference, `2 − p(first) / (p(first) + p(second))`: 1 where the first is surely better, 2 where the second is.
///
/// The arguments are log-probabilities; −∞ stands for a label that is not among the most probable ones. Turning the
/// arguments round gives 3 minus the value, up to the last bit.
///
/// # Errors
/// An argument is NaN or +∞, or neither label has any probability.
pub fn one_to_two(first: f64, second: f64) -> Result<f64, ScoreError> {
    let [p, _, _] = renormalised([first, second, f64::NEG_INFINITY])?;
    Ok(2.0 - p)
}

/// Which of two places an answer was shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Shown first.
    First,
    /// Shown second.
    Second,
}

/// Who won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Winner {
    /// Answer A.
    A,
    /// Answer B.
    B,
    /// Neither.
    Tie,
}

impl Winner {
    /// Its label in verdicts.
    pub fn name(self) -> &'static str {
        match self {
            Winner::A => "A",
            Winner::B => "B",
            Winner::Tie => "tie",
        }
    }

    /// Who won, if A were called B and B were called A.
    pub fn mirrored(self) -> Winner {
        match self {
            Winner::A => Winner::B,
            Winner::B => Winner::A,
            Winner::Tie => Winner::Tie,
        }
    }
}

/// What one order said, mapped back from places to answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// Where A was shown.
    pub a_shown: Place,
    /// Probability of A, given that it is one of the labels.
    pub a: f64,
    /// Probability of B.
    pub b: f64,
    /// Probability of a tie; 0 where a tie was no label.
    pub tie: f64,
    /// ln P(A) − ln P(B), from −[`MOST_LOG_ODDS`] to [`MOST_LOG_ODDS`]; 0 where neither has any probability.
    pub log_odds: f64,
}

impl Order {
    /// From the log-masses of the label of the answer shown first, of the one shown second, and of a tie, where that is a
    /// label.
    ///
    /// # Errors
    /// A mass is NaN or +∞, or no label has any probability.
    pub fn new(
        a_shown: Place,
        first: f64,
        second: f64,
        tie: Option<f64>,
    ) -> Result<Order, ScoreError> {
        let tie = tie.unwrap_or(f64::NEG_INFINITY);
        let [p_first, p_second, p_tie] = renormalised([first, second, tie])?;
        let (log_a, log_b, a, b) = match a_shown {
            Place::First => (first, second, p_first, p_second),
            Place::Second => (second, first, p_second, p_first),
        };
        let odds = if log_a == log_b { 0.0 } else { log_a - log_b };
        Ok(Order {
            a_shown,
            a,
            b,
            tie: p_tie,
            log_odds: odds.clamp(-MOST_LOG_ODDS, MOST_LOG_ODDS),
        })
    }

    /// The most probable label. An answer wins only where it is more probable than everything else.
    pub fn top(&self) -> Winner {
        if self.a > self.b && self.a > self.tie {
            Winner::A
        } else if self.b > self.a && self.b > self.tie {
            Winner::B
        } else {
            Winner::Tie
        }
    }

    /// Log-odds of the answer that was shown first.
    pub fn first_log_odds(&self) -> f64 {
        match self.a_shown {
            Place::First => self.log_odds,
            Place::Second => 0.0 - self.log_odds,
        }
    }

    /// The place that won; `None` for a tie.
    pub fn place(&self) -> Option<Place> {
        match (self.top(), self.a_shown) {
            (Winner::Tie, _) => None,
            (Winner::A, Place::First) | (Winner::B, Place::Second) => Some(Place::First),
            (Winner::A, Place::Second) | (Winner::B, Place::First) => Some(Place::Second),
        }
    }
}

/// Half the width of the band of mean log-odds that counts as a tie, in nats: 0 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band(f64);

/// A band that is negative or no number.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a band of {0}: a band of ties is a number of nats, 0 or more")]
pub struct BandError(pub f64);

impl Band {
    /// A band.
    ///
    /// # Errors
    /// It is negative, infinite or NaN.
    pub fn new(nats: f64) -> Result<Band, BandError> {
        if nats.is_finite() && nats >= 0.0 {
            Ok(Band(nats))
        } else {
            Err(BandError(nats))
        }
    }

    /// The band in nats.
    pub fn nats(self) -> f64 {
        self.0
    }

    /// Who wins at these log-odds of A: a tie on the edges of the band, too.
    pub fn winner(self, log_odds: f64) -> Winner {
        if log_odds > self.0 {
            Winner::A
        } else if log_odds < -self.0 {
            Winner::B
        } else {
            Winner::Tie
        }
    }
}

/// How two orders become one winner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decide {
    /// An answer wins where both orders' most probable label names it.
    Strict,
    /// The sign of the mean log-odds decides, outside a band.
    Weighted(Band),
}

/// Both orders of one pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Orders {
    /// The order in which A was shown first.
    pub a_first: Order,
    /// The order in which B was shown first.
    pub b_first: Order,
}

impl Orders {
    /// Two orders, in whichever order they were asked; `None` where both showed the same answer first.
    pub fn new(one: Order, other: Order) -> Option<Orders> {
        let (a_first, b_first) = match (one.a_shown, other.a_shown) {
            (Place::First, Place::Second) => (one, other),
            (Place::Second, Place::First) => (other, one),
            _ => return None,
        };
        Some(Orders { a_first, b_first })
    }

    /// Mean over the orders of the log-odds of A; never −0.
    pub fn mean_log_odds(&self) -> f64 {
        // 0 is its own mirror image: a negative zero would be another bit pattern for the same odds.
        (self.a_first.log_odds + self.b_first.log_odds) / 2.0 + 0.0
    }

    /// Mean over the orders of the probability of a label.
    pub fn mean_probability(&self, label: Winner) -> f64 {
        let of = |order: &Order| match label {
            Winner::A => order.a,
            Winner::B => order.b,
            Winner::Tie => order.tie,
        };
        (of(&self.a_first) + of(&self.b_first)) / 2.0
    }

    /// Who won.
    pub fn decide(&self, how: Decide) -> Winner {
        match how {
            Decide::Strict if self.a_first.top() == self.b_first.top() => self.a_first.top(),
            Decide::Strict => Winner::Tie,
            Decide::Weighted(band) => band.winner(self.mean_log_odds()),
        }
    }

    /// The place that won in both orders, so that the winner turned with the order; `None` where none did.
    pub fn winning_place(&self) -> Option<Place> {
        self.a_first
            .place()
            .filter(|place| self.b_first.place() == Some(*place))
    }

    /// Whether one place won in both orders.
    pub fn flipped(&self) -> bool {
        self.winning_place().is_some()
    }

    /// The pair with its answers' names exchanged.
    pub fn mirrored(&self) -> Orders {
        let turned = |order: &Order, a_shown| Order {
            a_shown,
            a: order.b,
            b: order.a,
            tie: order.tie,
            log_odds: 0.0 - order.log_odds,
        };
        Orders {
            a_first: turned(&self.b_first, Place::First),
            b_first: turned(&self.a_first, Place::Second),
        }
    }
}

/// Probabilities of three log-masses. The first two are added before the third, so that exchanging them exchanges the
/// results and changes no bit of either.
fn renormalised(masses: [f64; 3]) -> Result<[f64; 3], ScoreError> {
    if let Some(bad) = masses
        .iter()
        .position(|mass| mass.is_nan() || *mass == f64::INFINITY)
    {
        return Err(ScoreError::NotFinite(bad));
    }
    let largest = masses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return Err(ScoreError::Empty);
    }
    let [first, second, third] = masses.map(|mass| (mass - largest).exp());
    let total = (first + second) + third;
    Ok([first / total, second / total, third / total])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: f64 = f64::NEG_INFINITY;

    fn orders(a_first: [f64; 3], b_first: [f64; 3]) -> Orders {
        let order =
            |place, [first, second, tie]: [f64; 3]| Order::new(place, first, second, Some(tie));
        Orders::new(
            order(Place::Second, b_first).unwrap(),
            order(Place::First, a_first).unwrap(),
        )
        .unwrap()
    }

    fn ln(probabilities: [f64; 3]) -> [f64; 3] {
        probabilities.map(f64::ln)
    }

    /// Masses as they are shown, first and second and tie, with A first and with B first; then the winners.
    fn check(a_first: [f64; 3], b_first: [f64; 3], strict: Winner, weighted: Winner, flip: bool) {
        let pair = orders(ln(a_first), ln(b_first));
        let band = Band::new(0.1).unwrap();
        let found = [Decide::Strict, Decide::Weighted(band)].map(|how| pair.decide(how));
        assert_eq!(found, [strict, weighted], "{a_first:?} {b_first:?}");
        assert_eq!(pair.flipped(), flip, "{a_first:?} {b_first:?}");
    }

    #[test]
    fn winners_of_two_orders() {
        use Winner::{A, B, Tie};
        check([0.8, 0.2, 0.0], [0.3, 0.7, 0.0], A, A, false);
        check([0.2, 0.8, 0.0], [0.7, 0.3, 0.0], B, B, false);
        // The first place wins in both orders, and by more where A stands in it.
        check([0.9, 0.1, 0.0], [0.6, 0.4, 0.0], Tie, A, true);
        check([0.6, 0.4, 0.0], [0.9, 0.1, 0.0], Tie, B, true);
        check([0.4, 0.6, 0.0], [0.4, 0.6, 0.0], Tie, Tie, true);
        // A tie is a label like another, and is won by what leads nothing.
        check([0.3, 0.2, 0.5], [0.2, 0.3, 0.5], Tie, A, false);
        check([0.6, 0.3, 0.1], [0.2, 0.3, 0.5], Tie, A, false);
        check([0.4, 0.4, 0.2], [0.4, 0.4, 0.2], Tie, Tie, false);
        // Inside the band of 0.1 nats.
        check([0.51, 0.49, 0.0], [0.49, 0.51, 0.0], A, Tie, false);
    }

    #[test]
    fn labels_of_no_probability_leave_numbers() {
        let pair = orders([0.0, NONE, NONE], [NONE, 0.0, NONE]);
        assert_eq!(pair.mean_log_odds(), MOST_LOG_ODDS);
        assert_eq!(pair.mean_probability(Winner::A), 1.0);
        let pair = orders([0.0, NONE, NONE], [0.0, NONE, NONE]);
        assert_eq!((pair.mean_log_odds(), pair.flipped()), (0.0, true));
        let pair = orders([NONE, NONE, -3.0], [NONE, NONE, -3.0]);
        assert_eq!(
            (pair.mean_log_odds(), pair.decide(Decide::Strict)),
            (0.0, Winner::Tie)
        );
        assert_eq!(
            Order::new(Place::First, NONE, NONE, None),
            Err(ScoreError::Empty)
        );
        assert_eq!(
            Order::new(Place::First, 0.0, f64::NAN, None),
            Err(ScoreError::NotFinite(1))
        );
        let order = Order::new(Place::First, 0.0, 0.0, None).unwrap();
        assert_eq!(Orders::new(order, order), None);
    }

    #[test]
    fn bands_are_numbers_from_0() {
        for bad in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(Band::new(bad).is_err());
        }
        let none = Band::new(0.0).unwrap();
        assert_eq!(
            [1e-300, 0.0, -1e-300].map(|odds| none.winner(odds)),
            [Winner::A, Winner::Tie, Winner::B]
        );
    }

    #[test]
    fn the_published_form_goes_from_1_to_2() {
        let check = |first, second, want: f64| {
            let found = one_to_two(first, second).unwrap();
            assert!((found - want).abs() < 1e-15, "{found} is not {want}");
        };
        check(0.25f64.ln(), 0.75f64.ln(), 1.75);
        check(-2000.0, -2000.0, 1.5);
        check(0.0, NONE, 1.0);
        check(NONE, -9.0, 2.0);
        assert_eq!(one_to_two(NONE, NONE), Err(ScoreError::Empty));
    }
}
