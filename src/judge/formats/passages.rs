//! Passages: each passage of a context is judged by itself.

use super::pointwise::Mode;
use crate::ask::Answer;
use crate::judge::details::Passage;
use crate::judge::evaluation::{self, Evaluation, Format, Step};
use crate::judge::prompt::{self, Sections};
use crate::judge::question::{self, Question};
use crate::judge::rubric::Rubric;
use crate::judge::unjudged::Unjudged;
use crate::judge::verdict::{Cost, Verdict};
use crate::judge::{Details, Manner};
use crate::trace::Item;
use std::sync::Arc;

/// Judging of passages under one binary rubric.
#[derive(Clone, Debug)]
pub struct Passages {
    /// The rubric.
    pub rubric: Rubric,
    /// How the run judges.
    pub manner: Manner,
}

impl Passages {
    fn passages<'a>(&self, item: &'a Item) -> Result<&'a [String], Unjudged> {
        match item.context.as_deref() {
            None | Some([]) => Err(Unjudged::missing("context", item)),
            Some(passages) => Ok(passages),
        }
    }

    fn question<'a>(&'a self, item: &'a Item, passage: &'a str) -> Result<Question<'a>, Unjudged> {
        let sections = Sections::given(&self.rubric, item);
        let sections = sections.map_err(|field| Unjudged::missing(field, item))?;
        Ok(Question {
            rubric: &self.rubric,
            task: "You judge one passage by the rubric below",
            duty: "Judge the PASSAGE. The other texts are there to judge it by.",
            question: &self.rubric.question,
            levels: &self.rubric.levels,
            listed: true,
            label_field: self.rubric.label_field(),
            quoted: self.rubric.quoted(),
            reasons: self.manner.mode == Mode::Rationale,
            evidence: Vec::new(),
            examples: &[],
            sections: sections.with("PASSAGE", passage),
            order: self.manner.order,
            under: None,
        })
    }

    fn rule(&self, item: &Item, answers: &[Answer]) -> Result<Verdict, Unjudged> {
        let mut passages = Vec::new();
        for (number, (passage, answer)) in (1..).zip(self.passages(item)?.iter().zip(answers)) {
            passages.push(Passage {
                passage: number,
                opinion: self.question(item, passage)?.read(answer)?,
            });
        }
        let expected = passages
            .iter()
            .filter_map(|passage| passage.opinion.expected);
        let mean = expected.sum::<f64>() / passages.len() as f64;
        let any = passages
            .iter()
            .any(|passage| passage.opinion.label == "pass");
        let label = if any { "pass" } else { "fail" };
        let details = Details::Passages(passages);
        Ok(Verdict::made(label, Some(mean), details, Cost::of(answers)))
    }
}

impl Format for Passages {
    fn rubric(&self) -> &Rubric {
        &self.rubric
    }

    fn wording(&self) -> String {
        let item = super::probe();
        prompt::digest(self.question(&item, "probe").as_ref())
    }

    fn begin(self: Arc<Self>, item: Arc<Item>) -> (Box<dyn Evaluation>, Step) {
        let asks = self.passages(&item).and_then(|passages| {
            let ask = |passage: &String| {
                let seed = question::seed(self.manner.seed, &item, &["passage", passage]);
                self.question(&item, passage)?.ask(seed)
            };
            passages.iter().map(ask).collect()
        });
        evaluation::ask_all(asks, move |answers| self.rule(&item, answers))
    }
}
