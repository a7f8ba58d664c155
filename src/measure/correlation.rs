//! Correlation of scores with people's scores: Pearson's, Spearman's and Kendall's, with bootstrap intervals.
//!
//! Spearman's is Pearson's of mid-ranks, so ties share a rank. Kendall's is tau-b, counted in n·log n by merging. An
//! interval is from the 2.5th to the 97.5th percentile over items drawn with replacement, by a seed.

use super::bootstrap::{Draws, percentile};

/// Fewest items that a correlation is computed over: below it, any interval would be for show.
pub const FEWEST: usize = 5;

/// Why a correlation is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError {
    /// Too few items.
    #[error("{found} items, but at least {FEWEST} are needed")]
    TooFew {
        /// Items there were.
        found: usize,
    },
    /// One side does not vary.
    #[error("all {0} are the same, so nothing can go along with them")]
    Constant(Side),
    /// A number is NaN or infinite.
    #[error("a number among the {0} is not finite")]
    NotFinite(Side),
    /// The sides have different lengths.
    #[error("{scores} scores but {labels} labels")]
    Lengths {
        /// Scores.
        scores: usize,
        /// Labels.
        labels: usize,
    },
}

/// One of the two sides of a correlation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The judge's scores.
    Scores,
    /// People's labels.
    Labels,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::Scores => "scores",
            Side::Labels => "labels",
        })
    }
}

/// Which correlation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of the values.
    Pearson,
    /// Of the ranks.
    Spearman,
    /// Of the orders of pairs, tau-b.
    Kendall,
}

impl Kind {
    /// All three.
    pub const ALL: [Kind; 3] = [Kind::Pearson, Kind::Spearman, Kind::Kendall];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Pearson => "pearson",
            Kind::Spearman => "spearman",
            Kind::Kendall => "kendall",
        }
    }

    fn of(self, xs: &[f64], ys: &[f64]) -> Option<f64> {
        match self {
            Kind::Pearson => pearson(xs, ys),
            Kind::Spearman => pearson(&ranks(xs), &ranks(ys)),
            Kind::Kendall => kendall(xs, ys),
        }
    }
}

/// A correlation with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// From −1 to 1.
    pub value: f64,
    /// Lower bound of the interval of 95 %; `None` where fewer than nine in ten draws had a correlation, as when one side
    /// hardly varies.
    pub interval: Option<(f64, f64)>,
    /// Items.
    pub n: usize,
}

/// The correlation of scores with labels, with an interval over `draws` resamples.
///
/// # Errors
/// Too few items, a side that does not vary, a number that is not finite, or sides of different lengths.
pub fn correlate(
    kind: Kind,
    scores: &[f64],
    labels: &[f64],
    draws: usize,
    seed: u64,
) -> Result<Correlation, MeasureError> {
    if scores.len() != labels.len() {
        return Err(MeasureError::Lengths {
            scores: scores.len(),
            labels: labels.len(),
        });
    }
    let n = scores.len();
    if n < FEWEST {
        return Err(MeasureError::TooFew { found: n });
    }
    for (side, values) in [(Side::Scores, scores), (Side::Labels, labels)] {
        if !values.iter().all(|value| value.is_finite()) {
            return Err(MeasureError::NotFinite(side));
        }
        if values.iter().all(|value| *value == values[0]) {
            return Err(MeasureError::Constant(side));
        }
    }
    // Values that differ by less than their squares can hold have no variance in f64.
    let value = kind
        .of(scores, labels)
        .ok_or(MeasureError::Constant(Side::Scores))?;
    let mut random = Draws::new(seed);
    let mut found = Vec::with_capacity(draws);
    let (mut xs, mut ys) = (vec![0.0; n], vec![0.0; n]);
    for _ in 0..draws {
        for (x, y) in xs.iter_mut().zip(&mut ys) {
            let at = random.below(n);
            (*x, *y) = (scores[at], labels[at]);
        }
        found.extend(kind.of(&xs, &ys));
    }
    found.sort_by(f64::total_cmp);
    let enough = !found.is_empty() && found.len() * 10 >= draws * 9;
    let interval = enough.then(|| (percentile(&found, 0.025), percentile(&found, 0.975)));
    Ok(Correlation { value, interval, n })
}

fn pearson(xs: &[f64], ys: &[f64]) -> Option<f64> {
    let n = xs.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (mean_x, mean_y) = (mean(xs), mean(ys));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in xs.iter().zip(ys) {
        let (dx, dy) = (x - mean_x, y - mean_y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    let value = xy / (xx.sqrt() * yy.sqrt());
    value.is_finite().then(|| value.clamp(-1.0, 1.0))
}

/// Ranks from 1; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let run = order[start..].iter();
        let length = run
            .take_while(|at| values[**at] == values[order[start]])
            .count();
        for at in &order[start..start + length] {
            ranks[*at] = start as f64 + (length + 1) as f64 / 2.0;
        }
        start += length;
    }
    ranks
}

/// tau-b, by Knight's method: sorted by x and then y, the pairs out of order are those that a merge sort by y has to turn.
fn kendall(xs: &[f64], ys: &[f64]) -> Option<f64> {
    // −0 and 0 are equal, but not to the total order.
    let mut pairs: Vec<(f64, f64)> = xs.iter().zip(ys).map(|(x, y)| (x + 0.0, y + 0.0)).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let all = choose(pairs.len());
    let tied_x = tied(pairs.iter().map(|pair| pair.0));
    let tied_both = tied_pairs(&pairs);
    let mut by_y: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
    let turned = sort_counting(&mut by_y);
    let tied_y = tied(by_y.iter().copied());
    let [all, tied_x, tied_y, tied_both, turned] =
        [all, tied_x, tied_y, tied_both, turned].map(|count| count as f64);
    let concordant_less_discordant = all - tied_x - tied_y + tied_both - 2.0 * turned;
    let room = (all - tied_x).sqrt() * (all - tied_y).sqrt();
    (room > 0.0).then(|| (concordant_less_discordant / room).clamp(-1.0, 1.0))
}

fn choose(n: usize) -> u64 {
    let n = n as u64;
    n * n.saturating_sub(1) / 2
}

/// Pairs of equal neighbours' runs.
fn tied(sorted: impl Iterator<Item = f64>) -> u64 {
    let (mut total, mut run, mut before) = (0, 0, None);
    for value in sorted {
        run = if before == Some(value) { run + 1 } else { 0 };
        total += run;
        before = Some(value);
    }
    total
}

fn tied_pairs(sorted: &[(f64, f64)]) -> u64 {
    let (mut total, mut run) = (0, 0);
    for two in sorted.windows(2) {
        run = if two[0] == two[1] { run + 1 } else { 0 };
        total += run;
    }
    total
}

/// Sorts, and counts how many pairs stood in the wrong order.
fn sort_counting(values: &mut [f64]) -> u64 {
    let mut turned = 0;
    let mut merged = vec![0.0; values.len()];
    let mut width = 1;
    while width < values.len() {
        for start in (0..values.len()).step_by(2 * width) {
            let middle = (start + width).min(values.len());
            let end = (start + 2 * width).min(values.len());
            let (mut left, mut right) = (start, middle);
            for slot in &mut merged[start..end] {
                let from_right = left == middle || right < end && values[right] < values[left];
                if from_right {
                    turned += (middle - left) as u64;
                    *slot = values[right];
                    right += 1;
                } else {
                    *slot = values[left];
                    left += 1;
                }
            }
        }
        values.copy_from_slice(&merged);
        width *= 2;
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden values: scipy 1.17's pearsonr, spearmanr and kendalltau.
    #[test]
    fn values_are_scipys() {
        let check = |xs: &[f64], ys: &[f64], want: [f64; 3]| {
            for (kind, want) in Kind::ALL.into_iter().zip(want) {
                let found = correlate(kind, xs, ys, 50, 7).unwrap();
                assert!(
                    (found.value - want).abs() < 1e-12,
                    "{kind:?} of {xs:?}: {} is not {want}",
                    found.value
                );
                let (low, high) = found.interval.unwrap();
                assert!(low <= high && (-1.0..=1.0).contains(&low) && high <= 1.0);
                assert_eq!(found, correlate(kind, xs, ys, 50, 7).unwrap());
            }
        };
        check(
            &[1.0, 2.0, 3.0, 4.0, 5.0],
            &[5.0, 6.0, 7.0, 8.0, 7.0],
            [0.8320502943378436, 0.8207826816681233, 0.7378647873726218],
        );
        check(
            &[0.1, 0.4, 0.35, 0.8, 0.9, 0.05, 0.6],
            &[1.0, 3.0, 2.0, 4.0, 5.0, 1.0, 3.0],
            [0.9754064028996801, 0.981980506061966, 0.9511897312113419],
        );
        check(
            &[3.2, 1.1, 4.4, 1.1, 5.0, 2.2, 3.2, 0.0],
            &[2.0, 4.0, 1.0, 5.0, 2.0, 4.0, 3.0, 5.0],
            [
                -0.9152555776000209,
                -0.9141276325084521,
                -0.8236877675803729,
            ],
        );
    }

    #[test]
    fn kendall_counts_what_all_pairs_count() {
        let mut draws = Draws::new(3);
        for round in 0..200 {
            let n = 2 + draws.below(30);
            let mut side = || {
                (0..n)
                    .map(|_| draws.below(6) as f64 - 3.0)
                    .collect::<Vec<_>>()
            };
            let (xs, ys) = (side(), side());
            let (mut sum, mut x_pairs, mut y_pairs) = (0.0, 0.0, 0.0);
            for i in 0..n {
                for j in 0..i {
                    let [dx, dy] = [xs[i] - xs[j], ys[i] - ys[j]]
                        .map(|d: f64| if d == 0.0 { 0.0 } else { d.signum() });
                    sum += dx * dy;
                    x_pairs += dx * dx;
                    y_pairs += dy * dy;
                }
            }
            let want = (x_pairs * y_pairs > 0.0).then(|| sum / f64::sqrt(x_pairs * y_pairs));
            match (kendall(&xs, &ys), want) {
                (Some(found), Some(want)) => assert!((found - want).abs() < 1e-12, "{round}"),
                (found, want) => assert_eq!(found, want, "{round}"),
            }
        }
    }

    #[test]
    fn what_has_no_correlation_is_refused() {
        let five = [1.0, 2.0, 3.0, 4.0, 5.0];
        let check = |xs: &[f64], ys: &[f64], want: MeasureError, told: &str| {
            for kind in Kind::ALL {
                assert_eq!(correlate(kind, xs, ys, 10, 0), Err(want));
            }
            assert_eq!(want.to_string(), told);
        };
        check(
            &five[..4],
            &five[..4],
            MeasureError::TooFew { found: 4 },
            "4 items, but at least 5 are needed",
        );
        check(
            &five,
            &[2.0; 5],
            MeasureError::Constant(Side::Labels),
            "all labels are the same, so nothing can go along with them",
        );
        check(
            &[1.0, 2.0, 3.0, 4.0, f64::NAN],
            &five,
            MeasureError::NotFinite(Side::Scores),
            "a number among the scores is not finite",
        );
        check(
            &five,
            &five[..4],
            MeasureError::Lengths {
                scores: 5,
                labels: 4,
            },
            "5 scores but 4 labels",
        );
    }

    #[test]
    fn a_side_that_hardly_varies_has_no_interval() {
        let mut labels = [1.0; 20];
        labels[0] = 2.0;
        let scores: Vec<f64> = (0..20).map(f64::from).collect();
        let found = correlate(Kind::Pearson, &scores, &labels, 200, 0).unwrap();
        // A draw misses the one odd item in 36 % of cases.
        assert_eq!(found.interval, None);
    }
}
