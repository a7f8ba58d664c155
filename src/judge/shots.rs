//! Few-shot examples out of a labelled file: which of its items the judge is shown, and which it can never be shown.
//!
//! A share of the file is held out by the items' own digests, whatever the seed, so that it can measure every choice of examples.
//! Of the rest, examples are taken from both sides of each boundary between neighbouring levels, where a judge errs; the seed
//! turns which of several equals is taken.

use super::digest;
use super::question;
use super::rubric::{Example, Rubric, Shown};
use crate::trace::Item;
use std::collections::BTreeMap;

/// Why a labelled file gives no examples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShotsError {
    /// A label that is no level.
    #[error("item {item}: the label \"{label}\" is no level of rubric \"{rubric}\"")]
    Label {
        /// The item.
        item: String,
        /// Its label.
        label: String,
        /// The rubric's id.
        rubric: String,
    },
    /// A field that an example must have.
    #[error("item {item} has no \"{field}\", which an example needs")]
    Missing {
        /// The item.
        item: String,
        /// The field.
        field: &'static str,
    },
    /// Too few items that are not held out.
    #[error(
        "{wanted} examples are wanted, and {there} of {all} items have a label and are not held out"
    )]
    TooFew {
        /// How many are wanted.
        wanted: usize,
        /// How many there are.
        there: usize,
        /// How many the file has.
        all: usize,
    },
}

impl ShotsError {
    /// What to do about it.
    pub fn mend(&self) -> &'static str {
        match self {
            ShotsError::Label { .. } => "use the rubric's own labels",
            ShotsError::Missing { field, .. } if *field == "metadata.rationale" => {
                "give each item {\"metadata\":{\"rationale\":…}}, or use --mode score-only"
            }
            ShotsError::Missing { .. } => "give the item what the rubric shows",
            ShotsError::TooFew { .. } => {
                "label more items, ask for fewer --shots, or hold out less"
            }
        }
    }
}

/// How examples are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How many.
    pub shots: usize,
    /// Share of the file that is never shown, from 0 to 1.
    pub held_out: f64,
    /// Which of equals.
    pub seed: u64,
    /// Whether examples must say why.
    pub reasons: bool,
}

/// Whether an item is held out: by its own text, so that no seed and no order of the file changes it.
pub fn is_held_out(item: &Item, share: f64) -> bool {
    let drawn = question::seed(0, item, &["held out", &digest::item(item)]);
    ((drawn >> 11) as f64 / (1u64 << 53) as f64) < share
}

/// The examples of a rubric out of a labelled file.
///
/// # Errors
/// The first fault of the file.
pub fn choose(
    rubric: &Rubric,
    labelled: &[Item],
    choice: Choice,
) -> Result<Vec<Example>, ShotsError> {
    // Items of each level, in the order in which this seed would take them.
    let mut levels: BTreeMap<usize, Vec<(u64, &Item)>> = BTreeMap::new();
    for item in labelled {
        let Some(label) = &item.label else { continue };
        let level = rubric.levels.iter().position(|level| level.label == *label);
        let level = level.ok_or_else(|| ShotsError::Label {
            item: item.name.clone(),
            label: label.chars().take(40).collect(),
            rubric: rubric.id.clone(),
        })?;
        if !is_held_out(item, choice.held_out) {
            let turn = question::seed(choice.seed, item, &["shot"]);
            levels.entry(level).or_default().push((turn, item));
        }
    }
    let there = levels.values().map(Vec::len).sum();
    if there < choice.shots {
        return Err(ShotsError::TooFew {
            wanted: choice.shots,
            there,
            all: labelled.len(),
        });
    }
    for items in levels.values_mut() {
        // Taken from the end.
        items.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| other.name.cmp(&one.name)));
    }
    let mut chosen: Vec<(usize, &Item)> = Vec::new();
    while chosen.len() < choice.shots {
        let there: Vec<usize> = levels
            .iter()
            .filter(|(_, items)| !items.is_empty())
            .map(|(level, _)| *level)
            .collect();
        // Both sides of every boundary; where one level is left, that.
        let sides: Vec<usize> = match there[..] {
            [] => break,
            [level] => vec![level],
            _ => there.windows(2).flatten().copied().collect(),
        };
        for level in sides {
            if chosen.len() == choice.shots {
                break;
            }
            if let Some((_, item)) = levels.get_mut(&level).and_then(Vec::pop) {
                chosen.push((level, item));
            }
        }
    }
    // Not in the order of levels, which a judge might take for a rule.
    chosen.sort_by_key(|(_, item)| question::seed(choice.seed, item, &["place"]));
    chosen
        .into_iter()
        .map(|(level, item)| example(rubric, &rubric.levels[level].label, item, choice.reasons))
        .collect()
}

fn example(
    rubric: &Rubric,
    label: &str,
    item: &Item,
    reasons: bool,
) -> Result<Example, ShotsError> {
    let missing = |field| ShotsError::Missing {
        item: item.name.clone(),
        field,
    };
    for shown in &rubric.shows {
        let there = match shown {
            Shown::Input => item.input.is_some(),
            Shown::Context => item.context.is_some(),
            Shown::Reference => item.reference.is_some(),
            Shown::Answer => item.answer.is_some(),
        };
        if !there {
            return Err(missing(shown.name()));
        }
    }
    let answer = item.answer.clone().ok_or_else(|| missing("answer"))?;
    let metadata = item.metadata.as_ref();
    let rationale = metadata.and_then(|metadata| metadata.get("rationale")?.as_str());
    if reasons && rationale.is_none() {
        return Err(missing("metadata.rationale"));
    }
    let evidence = metadata.and_then(|metadata| metadata.get("evidence")?.as_array());
    let quotes = evidence
        .into_iter()
        .flatten()
        .filter_map(|quote| quote.as_str());
    Ok(Example {
        id: item.name.clone(),
        input: item.input.clone(),
        context: item.context.clone(),
        reference: item.reference.clone(),
        // What the answer does not say is no evidence, whoever wrote it down.
        evidence: quotes
            .filter(|quote| !quote.is_empty() && answer.contains(quote))
            .map(String::from)
            .collect(),
        answer,
        rationale: rationale.unwrap_or_default().to_string(),
        label: label.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rubric() -> Rubric {
        let levels: String = (1..=3)
            .map(|level| format!("[[level]]\nlabel = {level}\ndescription = \"d\"\n"))
            .collect();
        Rubric::parse(&format!(
            "id = \"r\"\nversion = 1\ncriterion = \"c\"\nquestion = \"q\"\nscale = \"integer\"\nshows = [\"answer\"]\n{levels}"
        ))
        .unwrap()
    }

    fn items(count: usize) -> Vec<Item> {
        let item = |number: usize| Item {
            label: Some((number % 3 + 1).to_string()),
            ..Item::answered(&number.to_string(), &format!("answer {number}"))
        };
        (0..count).map(item).collect()
    }

    const CHOICE: Choice = Choice {
        shots: 4,
        held_out: 0.5,
        seed: 1,
        reasons: false,
    };

    #[test]
    fn both_sides_of_each_boundary_are_shown() {
        let examples = choose(&rubric(), &items(60), CHOICE).unwrap();
        let mut labels: Vec<&str> = examples
            .iter()
            .map(|example| example.label.as_str())
            .collect();
        labels.sort_unstable();
        assert_eq!(labels, ["1", "2", "2", "3"]);
    }

    #[test]
    fn what_is_held_out_is_never_shown() {
        let items = items(60);
        let mut seen = std::collections::HashSet::new();
        for seed in 0..50 {
            let examples = choose(&rubric(), &items, Choice { seed, ..CHOICE }).unwrap();
            seen.extend(examples.into_iter().map(|example| example.id));
        }
        assert!(seen.len() > 10, "seeds turn the choice");
        let held: Vec<&Item> = items.iter().filter(|item| is_held_out(item, 0.5)).collect();
        assert!((15..45).contains(&held.len()), "{}", held.len());
        assert!(held.iter().all(|item| !seen.contains(&item.name)));
    }

    #[test]
    fn files_that_give_none_are_refused() {
        let check = |items: &[Item], choice: Choice, want: ShotsError| {
            assert_eq!(choose(&rubric(), items, choice), Err(want));
        };
        let mut odd = items(1);
        odd[0].label = Some("7".into());
        let label = ShotsError::Label {
            item: "0".into(),
            label: "7".into(),
            rubric: "r".into(),
        };
        check(&odd, CHOICE, label);
        let few = ShotsError::TooFew {
            wanted: 4,
            there: 3,
            all: 3,
        };
        check(
            &items(3),
            Choice {
                held_out: 0.0,
                ..CHOICE
            },
            few,
        );
        let silent = Choice {
            reasons: true,
            held_out: 0.0,
            ..CHOICE
        };
        let error = choose(&rubric(), &items(6), silent).unwrap_err();
        assert!(matches!(
            error,
            ShotsError::Missing {
                field: "metadata.rationale",
                ..
            }
        ));
    }
}
