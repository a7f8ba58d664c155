//! Checks before the judge: an answer that does not pass one gets the label that the check says, and no model is asked.

use crate::judge::checks::Broken;
use crate::judge::details::Details;
use crate::judge::digest::Digest;
use crate::judge::evaluation::{Evaluation, Format, Nothing, Step};
use crate::judge::rubric::Rubric;
use crate::judge::verdict::{Cost, Verdict};
use crate::trace::Item;
use std::sync::Arc;

/// A format behind the checks of its rubric.
pub struct Checked {
    /// Judges what passes.
    pub format: Arc<dyn Format>,
}

impl Checked {
    /// The first check that the answer does not pass, and the label that follows.
    fn broken(&self, item: &Item) -> Option<(Broken, &str)> {
        let answer = item.answer.as_deref()?;
        let passages = item.context.as_ref().map_or(0, Vec::len);
        let mut rules = self.rubric().checks.iter();
        rules.find_map(|rule| Some((rule.check.run(answer, passages)?, rule.label.as_str())))
    }
}

impl Format for Checked {
    fn rubric(&self) -> &Rubric {
        self.format.rubric()
    }

    fn wording(&self) -> String {
        Digest::new("assize checked")
            .field(self.format.wording())
            .hex()
    }

    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step) {
        let Some((broken, label)) = self.broken(&item) else {
            return self.format.clone().begin(item);
        };
        let levels = self.rubric().levels.iter();
        let value = levels
            .filter(|level| level.label == label)
            .find_map(|level| level.value);
        let verdict = Verdict::made(label, value, Details::Check(broken), Cost::default());
        (Box::new(Nothing), Step::settled(Ok(verdict)))
    }
}
