//! Agreement on categories: the table of who said what, and what follows from it.
//!
//! Intervals are Wilson's: unlike the plain normal ones they stay between 0 and 1 and keep a width at 0 of n and n of n.

use std::collections::BTreeMap;

/// The 97.5 % point of the normal distribution: intervals hold 95 %.
const Z: f64 = 1.959_963_984_540_054;

/// A share, with its interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proportion {
    /// How many.
    pub hits: usize,
    /// Of how many; at least 1.
    pub of: usize,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl Proportion {
    /// The share itself.
    pub fn value(&self) -> f64 {
        self.hits as f64 / self.of as f64
    }
}

/// A share with Wilson's interval; `None` of nothing, or where there are more hits than tries.
pub fn wilson(hits: usize, of: usize) -> Option<Proportion> {
    if of == 0 || hits > of {
        return None;
    }
    let n = of as f64;
    let share = hits as f64 / n;
    let spread = Z * Z / n;
    let middle = (share + spread / 2.0) / (1.0 + spread);
    let half = Z / (1.0 + spread) * (share * (1.0 - share) / n + spread / (4.0 * n)).sqrt();
    // Exactly 0 and 1 at the ends, where rounding would leave a trace.
    let low = if hits == 0 {
        0.0
    } else {
        (middle - half).max(0.0)
    };
    let high = if hits == of {
        1.0
    } else {
        (middle + half).min(1.0)
    };
    Some(Proportion {
        hits,
        of,
        low,
        high,
    })
}

/// Hit rates for one label against all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// The label that counts as positive.
    pub positive: String,
    /// Of the items that people gave this label, how many the judge gave it; `None` where people gave it to none.
    pub true_positive: Option<Proportion>,
    /// Of the items that people gave another label, how many the judge gave another one; `None` where there are none.
    pub true_negative: Option<Proportion>,
}

/// How often each label met each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confusion {
    labels: Vec<String>,
    /// By (people's label, judge's label), as places in `labels`.
    counts: BTreeMap<(usize, usize), usize>,
    total: usize,
}

impl Confusion {
    /// An empty table. Labels named here come first, in this order; others are added as they are met.
    pub fn new(labels: impl IntoIterator<Item = String>) -> Confusion {
        let mut table = Confusion::default();
        for label in labels {
            table.place(&label);
        }
        table
    }

    /// Counts an item.
    pub fn add(&mut self, human: &str, judge: &str) {
        let cell = (self.place(human), self.place(judge));
        *self.counts.entry(cell).or_default() += 1;
        self.total += 1;
    }

    fn place(&mut self, label: &str) -> usize {
        match self.labels.iter().position(|known| known == label) {
            Some(at) => at,
            None => {
                self.labels.push(label.to_string());
                self.labels.len() - 1
            }
        }
    }

    /// The labels, in the order of the table.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Items counted.
    pub fn total(&self) -> usize {
        self.total
    }

    /// How often people said the one and the judge the other.
    pub fn count(&self, human: &str, judge: &str) -> usize {
        let place = |label: &str| self.labels.iter().position(|known| known == label);
        let cell = place(human).zip(place(judge));
        cell.and_then(|cell| self.counts.get(&cell).copied())
            .unwrap_or(0)
    }

    /// Sums of the rows: how often people gave each label.
    fn given(&self, human: bool) -> Vec<usize> {
        let mut sums = vec![0; self.labels.len()];
        for ((row, column), count) in &self.counts {
            sums[if human { *row } else { *column }] += count;
        }
        sums
    }

    fn agreed(&self) -> usize {
        let same = self
            .counts
            .iter()
            .filter(|((row, column), _)| row == column);
        same.map(|(_, count)| count).sum()
    }

    /// How often both said the same; `None` of nothing.
    pub fn accuracy(&self) -> Option<Proportion> {
        wilson(self.agreed(), self.total)
    }

    /// The label that people gave most often, and the accuracy of a judge that always gives it; of equals, the first.
    pub fn majority(&self) -> Option<(&str, Proportion)> {
        let mut best: Option<(usize, usize)> = None;
        for (at, count) in self.given(true).into_iter().enumerate() {
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((at, count));
            }
        }
        let (at, count) = best?;
        Some((&self.labels[at], wilson(count, self.total)?))
    }

    /// Cohen's kappa: agreement beyond what the two would have by chance, given how often each gives each label. `None` of
    /// nothing, and where chance alone would agree always, which is where both gave one label throughout.
    pub fn kappa(&self) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        let n = self.total as f64;
        let seen = self.agreed() as f64 / n;
        let both = self.given(true).into_iter().zip(self.given(false));
        let chance: f64 = both
            .map(|(human, judge)| (human as f64 / n) * (judge as f64 / n))
            .sum();
        let room = 1.0 - chance;
        // Shares of whole counts: what is not exactly 1 is at least 1/n² away from it.
        (room > 1e-12).then(|| (seen - chance) / room)
    }

    /// Hit rates of one label against all others.
    pub fn rates(&self, positive: &str) -> Rates {
        let (mut hits, mut positives, mut rejections, mut negatives) = (0, 0, 0, 0);
        for ((row, column), count) in &self.counts {
            let [human, judge] = [row, column].map(|at| self.labels[*at] == positive);
            if human {
                positives += count;
                hits += if judge { *count } else { 0 };
            } else {
                negatives += count;
                rejections += if judge { 0 } else { *count };
            }
        }
        Rates {
            positive: positive.to_string(),
            true_positive: wilson(hits, positives),
            true_negative: wilson(rejections, negatives),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden values: scipy 1.17's `binomtest(hits, of).proportion_ci(0.95, "wilson")`.
    #[test]
    fn wilson_intervals() {
        let check = |hits, of, low: f64, high: f64| {
            let found = wilson(hits, of).unwrap();
            assert!(
                (found.low - low).abs() < 1e-12 && (found.high - high).abs() < 1e-12,
                "{hits} of {of}: {found:?}"
            );
        };
        check(0, 10, 0.0, 0.27753279986288926);
        check(10, 10, 0.7224672001371109, 1.0);
        check(1, 10, 0.017876213095072896, 0.4041500267952385);
        check(35, 50, 0.562496495355466, 0.8089644649911906);
        check(71, 100, 0.6146110882442888, 0.7898516425087772);
        check(803, 805, 0.9909869168260265, 0.9993184035365977);
        assert_eq!(wilson(0, 0), None);
        assert_eq!(wilson(2, 1), None);
    }

    fn table(cells: &[(&str, &str, usize)]) -> Confusion {
        let mut table = Confusion::default();
        for (human, judge, count) in cells {
            for _ in 0..*count {
                table.add(human, judge);
            }
        }
        table
    }

    #[test]
    fn tables_and_what_follows() {
        // The textbook case of two readers and fifty grants: kappa 0.4.
        let table = self::table(&[
            ("yes", "yes", 20),
            ("yes", "no", 5),
            ("no", "yes", 10),
            ("no", "no", 15),
        ]);
        assert_eq!((table.total(), table.count("no", "yes")), (50, 10));
        assert!((table.kappa().unwrap() - 0.4).abs() < 1e-12);
        let accuracy = table.accuracy().unwrap();
        assert_eq!((accuracy.hits, accuracy.of), (35, 50));
        let (label, share) = table.majority().unwrap();
        assert_eq!((label, share.hits), ("yes", 25));
        let rates = table.rates("yes");
        assert_eq!(rates.true_positive, wilson(20, 25));
        assert_eq!(rates.true_negative, wilson(15, 25));
        let rates = table.rates("no");
        assert_eq!(rates.true_positive, wilson(15, 25));
    }

    #[test]
    fn what_is_not_defined() {
        assert_eq!(Confusion::default().kappa(), None);
        assert_eq!(Confusion::default().accuracy(), None);
        assert_eq!(Confusion::default().majority(), None);
        let one = table(&[("pass", "pass", 3)]);
        assert_eq!(one.kappa(), None);
        assert_eq!(one.rates("pass").true_negative, None);
        // A judge that always says one thing agrees no better than chance.
        let flat = table(&[("pass", "pass", 3), ("fail", "pass", 2)]);
        assert_eq!(flat.kappa().map(|kappa| kappa.abs() < 1e-12), Some(true));
    }

    #[test]
    fn labels_keep_their_order() {
        let mut table = Confusion::new(["1", "2", "3"].map(String::from));
        table.add("3", "2");
        table.add("9", "2");
        assert_eq!(table.labels(), ["1", "2", "3", "9"]);
        assert_eq!(table.kappa(), Some(0.0));
    }
}
