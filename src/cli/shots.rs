//! Examples that the judge is shown, out of a labelled file.

use super::fault::Fault;
use super::style::Console;
use crate::judge::Rubric;
use crate::judge::rules::FormatName;
use crate::judge::shots::{self, Choice};
use crate::trace::{self, FieldMap, Item};
use anyhow::Result;
use std::path::PathBuf;

/// Options of few-shot examples.
#[derive(Clone, Debug, clap::Args)]
pub struct ShotsArguments {
    /// A file of items with labels (and, with a rationale, {"metadata":{"rationale":…}}), out of which the judge is shown examples.
    #[arg(long, value_name = "FILE")]
    pub examples_from: Option<PathBuf>,
    /// How many, from both sides of each boundary between levels; --seed turns which.
    #[arg(long, value_name = "N", default_value_t = 4, requires = "examples_from", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub shots: u8,
    /// Share of the file that is never shown, whatever the seed, so that it can measure the judge, from 0 to 1.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.5,
        requires = "examples_from"
    )]
    pub held_out: f64,
}

impl ShotsArguments {
    /// Gives the rubrics their examples.
    pub fn fill(
        &self,
        rubrics: &mut [Rubric],
        reasons: bool,
        seed: u64,
        console: &Console,
    ) -> Result<()> {
        let Some(path) = &self.examples_from else {
            return Ok(());
        };
        let shown = path.display();
        if !(0.0..=1.0).contains(&self.held_out) {
            let message = format!("--held-out {}", self.held_out);
            return Err(Fault::usage(message, "use a share from 0 to 1").into());
        }
        let items = trace::open(std::slice::from_ref(path), None, FieldMap::default())
            .map_err(|error| Fault::usage(error.to_string(), "give a .jsonl or .csv file"))?;
        let items: Vec<Item> = items
            .collect::<Result<_, _>>()
            .map_err(|error| Fault::usage(format!("{shown}: {error}"), error.hint()))?;
        let choice = Choice {
            shots: usize::from(self.shots),
            held_out: self.held_out,
            seed,
            reasons,
        };
        for rubric in rubrics {
            if !matches!(rubric.format, FormatName::Pointwise | FormatName::Classify) {
                let message = format!("rubric \"{}\" shows no examples", rubric.id);
                let hint = "use --examples-from with the formats pointwise and classify";
                return Err(Fault::usage(message, hint).into());
            }
            let examples = shots::choose(rubric, &items, choice)
                .map_err(|error| Fault::usage(format!("{shown}: {error}"), error.mend()))?;
            let names: Vec<&str> = examples.iter().map(|example| example.id.as_str()).collect();
            console.say(format!(
                "rubric {}: shown as examples are {}",
                rubric.id,
                names.join(", ")
            ));
            rubric.examples.extend(examples);
        }
        Ok(())
    }
}
