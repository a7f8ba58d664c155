//! A distribution over labels, from the logarithms of their masses under the full softmax.

/// Why masses are no distribution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// There is nothing to choose from, or the counts of labels and masses differ.
    #[error("{labels} labels but {masses} masses")]
    Count {
        /// Number of labels.
        labels: usize,
        /// Number of masses.
        masses: usize,
    },
    /// A mass is NaN or plus infinity.
    #[error("the mass of label {0} is not a number")]
    NotFinite(usize),
    /// Every label has probability zero.
    #[error("no label has any probability")]
    Empty,
}

/// Probabilities of labels, renormalised over the labels, and the mass that they had before.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// The labels, in the order asked.
    pub labels: Vec<String>,
    /// Probability of each label given that it is one of the labels; they sum to 1.
    pub probabilities: Vec<f64>,
    /// Probability under the full softmax that it is any of the labels, 0 to 1.
    pub mass: f64,
}

impl Distribution {
    /// Renormalises. `log_masses` are natural logarithms of full-softmax probabilities; −∞ is a probability of zero.
    pub fn new(labels: &[String], log_masses: &[f64]) -> Result<Distribution, ScoreError> {
        if labels.is_empty() || labels.len() != log_masses.len() {
            return Err(ScoreError::Count {
                labels: labels.len(),
                masses: log_masses.len(),
            });
        }
        if let Some(bad) = log_masses
            .iter()
            .position(|mass| mass.is_nan() || *mass == f64::INFINITY)
        {
            return Err(ScoreError::NotFinite(bad));
        }
        let largest = log_masses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            return Err(ScoreError::Empty);
        }
        // Divided by the largest first, so that masses of e^-1000 do not all round to zero.
        let relative: Vec<f64> = log_masses
            .iter()
            .map(|mass| (mass - largest).exp())
            .collect();
        let total = super::expectation::sum(relative.iter().copied());
        let probabilities = relative.iter().map(|mass| mass / total).collect();
        // Rounding may leave the sum a hair above 1.
        let mass = (largest + total.ln()).exp().min(1.0);
        Ok(Distribution {
            labels: labels.to_vec(),
            probabilities,
            mass,
        })
    }

    /// The index of the most probable label; of several, the first.
    pub fn top(&self) -> usize {
        let mut best = 0;
        for (index, probability) in self.probabilities.iter().enumerate() {
            if *probability > self.probabilities[best] {
                best = index;
            }
        }
        best
    }

    /// The probability of `label`, or `None` where it is no label.
    pub fn probability(&self, label: &str) -> Option<f64> {
        self.labels
            .iter()
            .position(|name| name == label)
            .map(|index| self.probabilities[index])
    }

    /// Shannon entropy in nats: 0 where one label is certain, ln n where n labels are equally probable.
    pub fn entropy(&self) -> f64 {
        let terms = self
            .probabilities
            .iter()
            .filter(|p| **p > 0.0)
            .map(|p| -p * p.ln());
        super::expectation::sum(terms).max(0.0)
    }

    /// How far the most probable label is ahead of the second, 0 to 1; 1 where there is one label alone.
    pub fn margin(&self) -> f64 {
        let top = self.top();
        let others = self
            .probabilities
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != top);
        let second = others
            .map(|(_, probability)| *probability)
            .fold(0.0, f64::max);
        self.probabilities[top] - second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Want {
        probabilities: &'static [f64],
        mass: f64,
        top: usize,
        entropy: f64,
        margin: f64,
    }

    fn labels(count: usize) -> Vec<String> {
        (1..=count).map(|label| label.to_string()).collect()
    }

    fn check(log_masses: &[f64], want: Want) {
        let found = Distribution::new(&labels(log_masses.len()), log_masses).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        for (p, q) in found.probabilities.iter().zip(want.probabilities) {
            assert!(close(*p, *q), "{log_masses:?}: {p} is not {q}");
        }
        assert!(
            close(found.probabilities.iter().sum(), 1.0),
            "{log_masses:?}"
        );
        assert!(
            close(found.mass, want.mass),
            "{log_masses:?}: mass {}",
            found.mass
        );
        assert_eq!(found.top(), want.top, "{log_masses:?}");
        assert!(
            close(found.entropy(), want.entropy),
            "{log_masses:?}: entropy {}",
            found.entropy()
        );
        assert!(
            close(found.margin(), want.margin),
            "{log_masses:?}: margin {}",
            found.margin()
        );
    }

    #[test]
    fn ordinary_and_extreme_masses() {
        let ln = f64::ln;
        let none = f64::NEG_INFINITY;
        let half = 2f64.ln();
        check(
            &[ln(0.2), ln(0.6)],
            Want {
                probabilities: &[0.25, 0.75],
                mass: 0.8,
                top: 1,
                entropy: 0.25 * 4f64.ln() + 0.75 * (4.0 / 3.0f64).ln(),
                margin: 0.5,
            },
        );
        check(
            &[-1000.0, -1000.0],
            Want {
                probabilities: &[0.5, 0.5],
                mass: 0.0,
                top: 0,
                entropy: half,
                margin: 0.0,
            },
        );
        check(
            &[-1e300, none],
            Want {
                probabilities: &[1.0, 0.0],
                mass: 0.0,
                top: 0,
                entropy: 0.0,
                margin: 1.0,
            },
        );
        check(
            &[none, 0.0, none],
            Want {
                probabilities: &[0.0, 1.0, 0.0],
                mass: 1.0,
                top: 1,
                entropy: 0.0,
                margin: 1.0,
            },
        );
        check(
            &[0.0],
            Want {
                probabilities: &[1.0],
                mass: 1.0,
                top: 0,
                entropy: 0.0,
                margin: 1.0,
            },
        );
        check(
            &[ln(0.3), ln(0.4), ln(0.4)],
            Want {
                probabilities: &[0.3 / 1.1, 0.4 / 1.1, 0.4 / 1.1],
                mass: 1.0,
                top: 1,
                entropy: -(0.3 / 1.1) * ln(0.3 / 1.1) - (0.8 / 1.1) * ln(0.4 / 1.1),
                margin: 0.0,
            },
        );
    }

    #[test]
    fn masses_that_are_no_distribution() {
        let none = f64::NEG_INFINITY;
        let check =
            |masses: &[f64], want| assert_eq!(Distribution::new(&labels(2), masses), Err(want));
        check(
            &[0.0],
            ScoreError::Count {
                labels: 2,
                masses: 1,
            },
        );
        check(&[none, none], ScoreError::Empty);
        check(&[0.0, f64::NAN], ScoreError::NotFinite(1));
        check(&[f64::INFINITY, 0.0], ScoreError::NotFinite(0));
    }
}
