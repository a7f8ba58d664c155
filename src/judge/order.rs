//! What stands first in a prompt, and which order costs less.

use super::formats::Manner;
use super::formats::pointwise::Mode;
use super::prompt::messages;
use super::question::Question;
use super::rubric::Rubric;
use crate::trace::Item;

/// What stands first in a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptOrder {
    /// The rubric: the same for all items.
    #[default]
    RubricFirst,
    /// The item: the same for all rubrics.
    ItemFirst,
}

impl PromptOrder {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PromptOrder::RubricFirst => "rubric-first",
            PromptOrder::ItemFirst => "item-first",
        }
    }
}

/// Which order takes fewer characters over these items, each judged under all rubrics. Rubric first computes an item once for
/// each rubric; item first computes it once, and every rubric behind it. What can't be posed costs nothing in either.
pub fn cheaper_order(rubrics: &[Rubric], items: &[Item], mode: Mode) -> PromptOrder {
    let cost = |order| {
        let manner = Manner {
            mode,
            order,
            ..Manner::default()
        };
        let mut characters = 0;
        for item in items {
            let questions = rubrics
                .iter()
                .flat_map(|rubric| Question::pointwise(rubric, item, manner));
            for (index, question) in questions.enumerate() {
                let parts = messages(&question)
                    .pop()
                    .map(|last| last.parts)
                    .unwrap_or_default();
                // Behind an item that was computed already, only what follows its texts is new.
                let shared = match (order, index) {
                    (PromptOrder::ItemFirst, 1..) => parts.len().saturating_sub(1),
                    _ => 0,
                };
                characters += parts
                    .iter()
                    .skip(shared)
                    .map(|part| part.text().len())
                    .sum::<usize>();
            }
        }
        characters
    };
    match cost(PromptOrder::ItemFirst) < cost(PromptOrder::RubricFirst) {
        true => PromptOrder::ItemFirst,
        false => PromptOrder::RubricFirst,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::formats::pointwise::tests::{item, rubric};

    #[test]
    fn long_items_come_first_where_several_rubrics_judge_them() {
        let check = |rubrics: usize, length: usize, want| {
            let items = [item(&"word ".repeat(length))];
            let rubrics = vec![rubric(""); rubrics];
            let found = cheaper_order(&rubrics, &items, Mode::ScoreOnly);
            assert_eq!(
                found,
                want,
                "{length} words under {} rubrics",
                rubrics.len()
            );
        };
        check(1, 1000, PromptOrder::RubricFirst);
        check(3, 1000, PromptOrder::ItemFirst);
        check(3, 1, PromptOrder::RubricFirst);
    }
}
