//! Verdicts beside labels: which items meet, and all that is measured over them.
//!
//! Only an item with both a label and a verdict counts. Everything else is named, so that nothing is left out in silence.

use super::agreement::{Confusion, Rates};
use super::correlation::{Correlation, Kind, MeasureError, correlate};
use super::labels::{Labels, canonical, number};
use std::collections::{HashMap, HashSet};

/// What the judge said of one item.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The item's name.
    pub item: String,
    /// Its label and expected score; `None` where judging it failed.
    pub verdict: Option<(String, Option<f64>)>,
}

/// How correlations are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resampling {
    /// Draws a correlation.
    pub draws: usize,
    /// Their seed.
    pub seed: u64,
}

/// All that is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Items with both a label and a verdict.
    pub n: usize,
    /// Labels against verdicts; `None` where the labels are numbers between the levels, such as means, so that no verdict
    /// could equal them.
    pub confusion: Option<Confusion>,
    /// Hit rates, where a label counts as positive.
    pub rates: Option<Rates>,
    /// Correlations of the expected score with the labels; `None` where a label is no number.
    pub correlations: Option<Vec<(Kind, Result<Correlation, MeasureError>)>>,
    /// Labels that people gave and that the judge can't give.
    pub foreign: Vec<String>,
    /// Labelled items whose judging failed.
    pub failed: Vec<String>,
    /// Labelled items that the judge was not given.
    pub without_verdict: Vec<String>,
    /// Judged items that nobody labelled.
    pub without_label: Vec<String>,
}

impl Findings {
    /// Measures. `known` are the labels that the judge can give, in their order. `positive` is the label for the hit rates;
    /// without it, `pass` is taken where there are two labels and it is one of them.
    pub fn new(
        labels: &Labels,
        said: &[Said],
        known: &[String],
        positive: Option<&str>,
        resampling: Resampling,
    ) -> Findings {
        let human: HashMap<&str, &str> = labels
            .given
            .iter()
            .map(|(item, label)| (item.as_str(), label.as_str()))
            .collect();
        let judged: HashSet<&str> = said.iter().map(|said| said.item.as_str()).collect();
        let known: Vec<String> = known.iter().map(|label| canonical(label)).collect();
        let mut pairs = Vec::new();
        let (mut failed, mut without_label) = (Vec::new(), Vec::new());
        for said in said {
            match (human.get(said.item.as_str()), &said.verdict) {
                (None, _) => without_label.push(said.item.clone()),
                (Some(_), None) => failed.push(said.item.clone()),
                (Some(human), Some((label, expected))) => {
                    pairs.push((*human, canonical(label), *expected));
                }
            }
        }
        let absent = labels
            .given
            .iter()
            .filter(|(item, _)| !judged.contains(item.as_str()));
        let without_verdict = absent.map(|(item, _)| item.clone()).collect();

        let numbers: Option<Vec<f64>> = pairs.iter().map(|(human, _, _)| number(human)).collect();
        let between = numbers
            .as_ref()
            .is_some_and(|numbers| numbers.iter().any(|number| number.fract() != 0.0));
        let confusion = (!between).then(|| {
            let mut table = Confusion::new(known.iter().cloned());
            for (human, judge, _) in &pairs {
                table.add(human, judge);
            }
            table
        });
        let mut foreign: Vec<String> = Vec::new();
        if confusion.is_some() && !known.is_empty() {
            for (human, _, _) in &pairs {
                if !known.iter().any(|label| label == human)
                    && !foreign.iter().any(|label| label == human)
                {
                    foreign.push((*human).to_string());
                }
            }
        }
        let positive = positive.map(canonical).or_else(|| {
            let labels = confusion.as_ref()?.labels();
            (labels.len() == 2 && labels.iter().any(|label| label == "pass"))
                .then(|| "pass".to_string())
        });
        let rates = confusion
            .as_ref()
            .zip(positive)
            .map(|(table, positive)| table.rates(&positive));
        let correlations = numbers
            .filter(|numbers| !numbers.is_empty())
            .zip(
                pairs
                    .iter()
                    .map(|(_, _, expected)| *expected)
                    .collect::<Option<Vec<f64>>>(),
            )
            .map(|(numbers, expected)| {
                let found = Kind::ALL.into_iter().map(|kind| {
                    let Resampling { draws, seed } = resampling;
                    (kind, correlate(kind, &expected, &numbers, draws, seed))
                });
                found.collect()
            });
        Findings {
            n: pairs.len(),
            confusion,
            rates,
            correlations,
            foreign,
            failed,
            without_verdict,
            without_label,
        }
    }

    /// Whether every labelled item has a verdict.
    pub fn complete(&self) -> bool {
        self.failed.is_empty() && self.without_verdict.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::Form;
    use super::*;

    fn findings(labels: &str, said: &[(&str, Option<(&str, f64)>)], known: &[&str]) -> Findings {
        let labels = Labels::parse(labels, Form::Csv).unwrap();
        let said: Vec<Said> = said
            .iter()
            .map(|(item, verdict)| Said {
                item: (*item).into(),
                verdict: verdict.map(|(label, expected)| (label.to_string(), Some(expected))),
            })
            .collect();
        let known: Vec<String> = known.iter().map(|label| (*label).to_string()).collect();
        let resampling = Resampling { draws: 20, seed: 1 };
        Findings::new(&labels, &said, &known, None, resampling)
    }

    #[test]
    fn only_items_with_both_count() {
        let found = findings(
            "id,label\na,pass\nb,fail\nc,pass\nd,pass\ne,\n",
            &[
                ("a", Some(("pass", 0.9))),
                ("b", Some(("pass", 0.6))),
                ("c", None),
                ("e", Some(("fail", 0.1))),
                ("f", None),
            ],
            &["pass", "fail"],
        );
        assert_eq!(found.n, 2);
        assert_eq!(found.failed, ["c"]);
        assert_eq!(found.without_verdict, ["d"]);
        assert_eq!(found.without_label, ["e", "f"]);
        assert!(!found.complete() && found.foreign.is_empty() && found.correlations.is_none());
        let rates = found.rates.unwrap();
        assert_eq!(rates.positive, "pass");
        assert_eq!(rates.true_positive.unwrap().hits, 1);
        assert_eq!(rates.true_negative.unwrap().hits, 0);
    }

    #[test]
    fn numbers_are_correlated_and_means_are_no_category() {
        let said = [
            ("a", Some(("5", 4.5))),
            ("b", Some(("4", 3.5))),
            ("c", Some(("2", 2.5))),
            ("d", Some(("1", 1.5))),
            ("e", Some(("1", 1.25))),
        ];
        let whole = findings(
            "id,label\na,5.0\nb,4\nc,3\nd,1\ne,1\n",
            &said,
            &["1", "2", "4", "5"],
        );
        let table = whole.confusion.unwrap();
        assert_eq!(table.accuracy().unwrap().hits, 4);
        assert_eq!(whole.foreign, ["3"]);
        assert!(whole.rates.is_none());
        let means = findings(
            "id,label\na,4.67\nb,4\nc,3\nd,1\ne,1\n",
            &said,
            &["1", "2", "4", "5"],
        );
        assert!(means.confusion.is_none() && means.foreign.is_empty());
        let correlations = means.correlations.unwrap();
        assert!(
            correlations
                .iter()
                .all(|(_, found)| found.unwrap().value > 0.9)
        );
    }

    #[test]
    fn nothing_in_common_is_no_finding() {
        let found = findings("id,label\nx,1\n", &[("a", Some(("1", 1.0)))], &["1"]);
        assert_eq!((found.n, found.correlations.is_none()), (0, true));
    }
}
