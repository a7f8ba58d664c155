//! Bradley-Terry: one strength a candidate, from wins between pairs of candidates.
//!
//! The probability that `i` beats `j` is `1 / (1 + exp(s_j − s_i))`. Strengths are found by the minorisation-maximisation
//! steps of Hunter (2004), which rise in likelihood at every step and need no step width. Wins may be fractions: a tie is
//! half a win for either side, and a probability of winning is as good as a win.
//!
//! The likelihood has no maximum where some candidates never lost to the others (or never met them): their strength would
//! be infinite. Two answers to that: a `prior` of games against an imagined opponent of strength 0, half of them won,
//! which keeps every strength finite and pulls all towards the middle (a candidate without games stands level with that
//! opponent); or a prior of 0, with a typed refusal. Knows no names: candidates are numbers.

use super::expectation::sum;
use super::inverse::inverse;

/// Most candidates: their matrix takes 8 MiB.
pub const MOST_CANDIDATES: usize = 1024;

/// Most steps before the fit is given up.
const MOST_STEPS: usize = 200_000;

/// The fit ends where nobody's wins differ from the wins that the strengths expect by more than this share of the games
/// played.
const CLOSE: f64 = 1e-11;

/// Why wins have no strengths.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BradleyTerryError {
    /// Fewer than two candidates, or more than fit.
    #[error("{0} candidates: from 2 to {MOST_CANDIDATES} can be ranked")]
    Candidates(usize),
    /// A candidate that there isn't.
    #[error("candidate {candidate} of {candidates}")]
    NoCandidate {
        /// The number, counted from 0.
        candidate: usize,
        /// How many there are.
        candidates: usize,
    },
    /// A candidate against itself.
    #[error("candidate {0} can't meet itself")]
    Itself(usize),
    /// Wins that are negative, infinite or NaN.
    #[error("{0} wins: wins are a number of 0 or more")]
    Wins(f64),
    /// A prior that is negative, infinite or NaN.
    #[error("a prior of {0} games: it is a number of 0 or more")]
    Prior(f64),
    /// No finite strengths: there are no wins of one side over the other, directly or through others.
    #[error(
        "no chain of wins leads from candidate {winner} to candidate {loser}, so the strengths between them have no bound; \
         compare more pairs, or give a prior above 0"
    )]
    Unbounded {
        /// The candidate that never won against the other's side.
        winner: usize,
        /// The other.
        loser: usize,
    },
    /// The strengths still moved after the last step.
    #[error("the strengths did not settle in {0} steps; give a greater prior")]
    NotSettled(usize),
}

/// Wins of every candidate over every other.
#[derive(Clone, Debug, PartialEq)]
pub struct Wins {
    candidates: usize,
    /// Row-major: row `i`, column `j` has the wins of `i` over `j`.
    wins: Vec<f64>,
}

impl Wins {
    /// No games yet.
    ///
    /// # Errors
    /// Fewer than two candidates, or more than [`MOST_CANDIDATES`].
    pub fn new(candidates: usize) -> Result<Wins, BradleyTerryError> {
        if !(2..=MOST_CANDIDATES).contains(&candidates) {
            return Err(BradleyTerryError::Candidates(candidates));
        }
        let wins = vec![0.0; candidates * candidates];
        Ok(Wins { candidates, wins })
    }

    /// Adds wins, whole or fractions, of one candidate over another.
    ///
    /// # Errors
    /// A candidate that there isn't, a candidate against itself, or wins that are no number of 0 or more.
    pub fn add(&mut self, winner: usize, loser: usize, wins: f64) -> Result<(), BradleyTerryError> {
        for candidate in [winner, loser] {
            if candidate >= self.candidates {
                return Err(BradleyTerryError::NoCandidate {
                    candidate,
                    candidates: self.candidates,
                });
            }
        }
        if winner == loser {
            return Err(BradleyTerryError::Itself(winner));
        }
        let cell = &mut self.wins[winner * self.candidates + loser];
        let total = *cell + wins;
        if wins < 0.0 || !total.is_finite() {
            return Err(BradleyTerryError::Wins(wins));
        }
        *cell = total;
        Ok(())
    }

    /// Adds a tie: half a win for either.
    ///
    /// # Errors
    /// As [`Wins::add`].
    pub fn tie(&mut self, one: usize, other: usize) -> Result<(), BradleyTerryError> {
        self.add(one, other, 0.5)?;
        self.add(other, one, 0.5)
    }

    /// The strengths. `prior` is the number of games that every candidate plays, in addition, against an imagined opponent of
    /// strength 0, half of them won; 0 for none.
    ///
    /// # Errors
    /// A prior that is no number of 0 or more; strengths without bound, where the prior is 0; or a fit that does not settle.
    pub fn fit(&self, prior: f64) -> Result<Strengths, BradleyTerryError> {
        if !prior.is_finite() || prior < 0.0 {
            return Err(BradleyTerryError::Prior(prior));
        }
        if prior == 0.0 {
            self.bounded()?;
        }
        let met = self.met();
        let won: Vec<f64> = (0..self.candidates)
            .map(|i| sum((0..self.candidates).map(|j| self.at(i, j))) + prior / 2.0)
            .collect();
        let games: Vec<f64> = met
            .iter()
            .map(|met| sum(met.iter().map(|(_, games)| *games)) + prior)
            .collect();
        let mut power = vec![1.0; self.candidates];
        for step in 1..=MOST_STEPS {
            // Σ n_ij / (p_i + p_j), which is the games that i would win over its own power.
            let weight = |i: usize, met: &[(usize, f64)]| {
                let imagined = prior / (power[i] + 1.0);
                sum(met.iter().map(|(j, games)| games / (power[i] + power[*j]))) + imagined
            };
            let weights: Vec<f64> = met
                .iter()
                .enumerate()
                .map(|(i, met)| weight(i, met))
                .collect();
            let settled = (0..self.candidates)
                .all(|i| (won[i] - power[i] * weights[i]).abs() <= CLOSE * games[i]);
            if settled {
                let errors = self.standard_errors(&power, &met, prior);
                let logs: Vec<f64> = power.iter().map(|power| power.ln()).collect();
                return Ok(Strengths {
                    log_strengths: centred(&logs),
                    standard_errors: errors,
                    steps: step,
                });
            }
            for i in 0..self.candidates {
                if weights[i] > 0.0 {
                    power[i] = won[i] / weights[i];
                }
            }
            if prior == 0.0 {
                // Nothing else holds the scale, so it would wander away with rounding.
                let logs: Vec<f64> = power.iter().map(|power| power.ln()).collect();
                power = centred(&logs).iter().map(|log| log.exp()).collect();
            }
        }
        Err(BradleyTerryError::NotSettled(MOST_STEPS))
    }

    fn at(&self, winner: usize, loser: usize) -> f64 {
        self.wins[winner * self.candidates + loser]
    }

    /// Whom each candidate met, and how often.
    fn met(&self) -> Vec<Vec<(usize, f64)>> {
        let games = |i, j| self.at(i, j) + self.at(j, i);
        (0..self.candidates)
            .map(|i| {
                let others = (0..self.candidates).map(|j| (j, games(i, j)));
                others.filter(|(_, games)| *games > 0.0).collect()
            })
            .collect()
    }

    /// Refuses wins whose strengths have no bound: a chain of wins must lead from everybody to everybody, and so from
    /// candidate 0 to everybody and back.
    fn bounded(&self) -> Result<(), BradleyTerryError> {
        let reached = |forward: bool| {
            let mut seen = vec![false; self.candidates];
            seen[0] = true;
            let mut open = vec![0];
            while let Some(i) = open.pop() {
                for (j, seen) in seen.iter_mut().enumerate() {
                    let wins = if forward {
                        self.at(i, j)
                    } else {
                        self.at(j, i)
                    };
                    if wins > 0.0 && !*seen {
                        *seen = true;
                        open.push(j);
                    }
                }
            }
            seen.iter().position(|seen| !seen)
        };
        match (reached(true), reached(false)) {
            (Some(loser), _) => Err(BradleyTerryError::Unbounded { winner: 0, loser }),
            (None, Some(winner)) => Err(BradleyTerryError::Unbounded { winner, loser: 0 }),
            (None, None) => Ok(()),
        }
    }

    /// Square roots of the diagonal of the centred strengths' covariance: the inverse of the information at the maximum.
    /// Whole-number wins are taken to be independent games.
    fn standard_errors(&self, power: &[f64], met: &[Vec<(usize, f64)>], prior: f64) -> Vec<f64> {
        let size = self.candidates;
        // Without a prior the information says nothing of the strengths' sum, so its inverse is taken across it: adding the
        // same to every cell settles the sum and leaves the differences as they are.
        let across = if prior == 0.0 { 1.0 / size as f64 } else { 0.0 };
        let mut information = vec![across; size * size];
        let share = |one: f64, other: f64| one * other / ((one + other) * (one + other));
        for (i, met) in met.iter().enumerate() {
            information[i * size + i] += prior * share(power[i], 1.0);
            for (j, games) in met {
                let worth = games * share(power[i], power[*j]);
                information[i * size + i] += worth;
                information[i * size + j] -= worth;
            }
        }
        let covariance = inverse(&information, size);
        let means: Vec<f64> = covariance
            .chunks(size)
            .map(|row| sum(row.iter().copied()) / size as f64)
            .collect();
        let mean = sum(means.iter().copied()) / size as f64;
        (0..size)
            .map(|i| covariance[i * size + i] - 2.0 * means[i] + mean)
            .map(|variance| variance.max(0.0).sqrt())
            .collect()
    }
}

/// What the wins say.
#[derive(Clone, Debug, PartialEq)]
pub struct Strengths {
    /// Natural logarithms of the strengths; they add up to 0.
    pub log_strengths: Vec<f64>,
    /// Standard errors of these, by the information at the maximum; with a prior they hold its certainty, too.
    pub standard_errors: Vec<f64>,
    /// Steps that the fit took.
    pub steps: usize,
}

impl Strengths {
    /// The probability that one candidate beats another; `None` where there is no such candidate.
    pub fn probability(&self, winner: usize, loser: usize) -> Option<f64> {
        let of = |candidate| self.log_strengths.get(candidate);
        Some(1.0 / (1.0 + (of(loser)? - of(winner)?).exp()))
    }

    /// Candidates from the strongest to the weakest; of equals, the first comes first.
    pub fn ranking(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.log_strengths.len()).collect();
        order.sort_by(|one, other| self.log_strengths[*other].total_cmp(&self.log_strengths[*one]));
        order
    }
}

fn centred(logs: &[f64]) -> Vec<f64> {
    let mean = sum(logs.iter().copied()) / logs.len() as f64;
    logs.iter().map(|log| log - mean).collect()
}

#[cfg(test)]
mod tests {
    //! The golden values come by another road, in Python 3.11 with scipy 1.17: BFGS and then Newton steps on the logarithm of
    //! the likelihood (games against the imagined opponent included) until no slope was above 1e-11, then the diagonal of
    //! the covariance `C H⁻¹ C`, where `H` is the matrix of second derivatives (its pseudo-inverse without a prior) and `C`
    //! takes the mean away.

    use super::*;

    fn wins(matrix: &[&[f64]]) -> Wins {
        let mut wins = Wins::new(matrix.len()).unwrap();
        for (i, row) in matrix.iter().enumerate() {
            for (j, count) in row.iter().enumerate().filter(|(_, count)| **count > 0.0) {
                wins.add(i, j, *count).unwrap();
            }
        }
        wins
    }

    fn check(wins: &Wins, prior: f64, strengths: &[f64], errors: &[f64]) {
        let found = wins.fit(prior).unwrap();
        let near = |found: &[f64], want: &[f64], what: &str| {
            for (found, want) in found.iter().zip(want) {
                assert!(
                    (found - want).abs() < 1e-8,
                    "prior {prior}, {what}: {found} is not {want}"
                );
            }
        };
        assert_eq!(found.log_strengths.len(), strengths.len());
        near(&found.log_strengths, strengths, "strength");
        near(&found.standard_errors, errors, "error");
        assert!(sum(found.log_strengths.iter().copied()).abs() < 1e-9);
    }

    const FOUR: &[&[f64]] = &[
        &[0.0, 7.0, 4.5, 9.0],
        &[3.0, 0.0, 6.0, 5.25],
        &[5.5, 4.0, 0.0, 8.0],
        &[1.0, 2.75, 2.0, 0.0],
    ];

    #[test]
    fn strengths_and_errors_are_scipys() {
        check(
            &wins(FOUR),
            0.0,
            &[
                0.626061881652782,
                0.09765923163917613,
                0.288591777020556,
                -1.012312890312514,
            ],
            &[
                0.30572270849464717,
                0.3008642102092551,
                0.293593305654817,
                0.35238425670582674,
            ],
        );
        check(
            &wins(FOUR),
            2.5,
            &[
                0.5761801979934038,
                0.08388051348743174,
                0.264474187178937,
                -0.9245348986597727,
            ],
            &[
                0.2910499529309774,
                0.2878847946167447,
                0.2811471731107997,
                0.327718501093906,
            ],
        );
    }

    #[test]
    fn a_chain_of_twelve_settles() {
        let mut chain = Wins::new(12).unwrap();
        for i in 0..11 {
            chain.add(i, i + 1, (3 + i % 3) as f64).unwrap();
            chain.add(i + 1, i, (1 + i % 2) as f64).unwrap();
        }
        check(
            &chain,
            0.0,
            &[
                5.603155204751989,
                4.50454291608388,
                3.8113957355239334,
                2.2019578230898333,
                1.7964927149816694,
                0.4101983538617799,
                -0.5060923780123747,
                -1.604704666680483,
                -2.2978518472404277,
                -3.907289759674527,
                -4.31275486778269,
                -5.699049228902581,
            ],
            &[
                1.9257634368776488,
                1.6116617832857196,
                1.448258852451352,
                1.2237049087519865,
                1.1043893905348448,
                1.0056553050586428,
                1.0056553050586432,
                1.110659630496587,
                1.2180167547348497,
                1.4434558582841435,
                1.624536971069101,
                1.9185377340665049,
            ],
        );
    }

    #[test]
    fn the_unbeaten_and_the_lonely_are_refused_or_held_by_a_prior() {
        let unbeaten = wins(&[
            &[0.0, 5.0, 3.0, 0.0],
            &[0.0, 0.0, 2.0, 0.0],
            &[0.0, 1.0, 0.0, 0.0],
            &[0.0, 0.0, 0.0, 0.0],
        ]);
        assert_eq!(
            unbeaten.fit(0.0),
            Err(BradleyTerryError::Unbounded {
                winner: 0,
                loser: 3
            })
        );
        check(
            &unbeaten,
            1.0,
            &[
                2.061706112707715,
                -0.7283161616753188,
                -1.216295152798242,
                -0.11709479823415436,
            ],
            &[
                1.2204472480962631,
                0.8814273526994139,
                0.963285861962425,
                1.8409506668520526,
            ],
        );
        let both = wins(&[&[0.0, 2.0], &[0.0, 0.0]]);
        assert_eq!(
            both.fit(0.0),
            Err(BradleyTerryError::Unbounded {
                winner: 1,
                loser: 0
            })
        );
    }

    #[test]
    fn ties_are_half_a_win_and_two_candidates_have_a_closed_form() {
        let mut tied = Wins::new(2).unwrap();
        tied.tie(0, 1).unwrap();
        check(&tied, 0.0, &[0.0, 0.0], &[1.0, 1.0]);
        tied.add(0, 1, 2.5).unwrap();
        // 3 wins against half a win: odds of 6.
        let half = 6f64.ln() / 2.0;
        let found = tied.fit(0.0).unwrap();
        assert!((found.log_strengths[0] - half).abs() < 1e-9);
        assert!((found.probability(0, 1).unwrap() - 6.0 / 7.0).abs() < 1e-9);
        assert_eq!(found.probability(0, 2), None);
        assert_eq!(found.ranking(), [0, 1]);
        assert_eq!(found, tied.fit(0.0).unwrap());
    }

    #[test]
    fn what_is_no_game_is_refused() {
        assert_eq!(Wins::new(1), Err(BradleyTerryError::Candidates(1)));
        assert!(Wins::new(MOST_CANDIDATES + 1).is_err());
        let mut wins = wins(FOUR);
        let check = |found: Result<(), BradleyTerryError>, want| assert_eq!(found, Err(want));
        check(wins.add(1, 1, 1.0), BradleyTerryError::Itself(1));
        check(wins.add(0, 1, -1.0), BradleyTerryError::Wins(-1.0));
        check(
            wins.add(0, 1, f64::INFINITY),
            BradleyTerryError::Wins(f64::INFINITY),
        );
        check(
            wins.add(4, 1, 1.0),
            BradleyTerryError::NoCandidate {
                candidate: 4,
                candidates: 4,
            },
        );
        assert!(wins.add(0, 1, f64::NAN).is_err());
        assert_eq!(wins, self::wins(FOUR));
        assert_eq!(wins.fit(-1.0), Err(BradleyTerryError::Prior(-1.0)));
    }
}
