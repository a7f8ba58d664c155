//! Judges the rows of a CSV file and prints item, label and expected score; keeps no run folder.
//!
//! Run: `cargo run --release --example judge_csv -- answers.csv examples/helpful.toml smollm2-135m-instruct`

use assize::ask::Answerer as _;
use assize::judge::{Manner, Mode, Rubric, Step, formats};
use assize::run::{JudgeSettings, ModelFile};
use assize::trace::{FieldMap, TraceFormat, open};
use assize::weights::fetch::{FetchOptions, locate};
use assize::weights::progress::Silent;
use std::collections::HashMap;
use std::sync::Arc;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [traces, rubric, model] = &arguments[..] else {
        anyhow::bail!("usage: judge_csv TRACES.csv RUBRIC.toml MODEL");
    };
    let rubric = Rubric::parse(&std::fs::read_to_string(rubric)?)?;
    let manner = Manner {
        mode: Mode::ScoreOnly,
        ..Manner::default()
    };
    let [format] = &formats::of(rubric, manner)[..] else {
        anyhow::bail!("this example prints one verdict an item");
    };
    let located = locate(model, &FetchOptions::from_environment(false, &Silent)?)?;
    let settings = JudgeSettings::default();
    let model = ModelFile::open(located.path(), located.template())?;
    let memory = model.plan(&settings)?;
    let mut engine = model.load(&settings, &memory, None)?.engine;

    let mut open_evaluations = HashMap::new();
    let items = open(
        &[traces.into()],
        Some(TraceFormat::Csv),
        FieldMap::default(),
    )?;
    for (number, item) in (0..).zip(items) {
        let item = match item {
            Ok(item) => Arc::new(item),
            Err(error) => {
                eprintln!("{error}");
                continue;
            }
        };
        let (evaluation, step) = format.clone().begin(item.clone());
        match step {
            Step::Ask(posed) => {
                // Pointwise judging asks once, so the number of the item serves as the ticket.
                posed
                    .into_iter()
                    .for_each(|posed| engine.submit(number, posed.ask));
                open_evaluations.insert(number, (evaluation, item));
            }
            Step::Settled(outcome) => eprintln!("{}: {:?}", item.name, outcome.err()),
        }
    }
    while !open_evaluations.is_empty() {
        for (ticket, result) in engine.step() {
            let Some((mut evaluation, item)) = open_evaluations.remove(&ticket) else {
                continue;
            };
            let Step::Settled(outcome) = evaluation.answer(0, result) else {
                continue;
            };
            match *outcome {
                Ok(verdict) => println!("{}\t{}\t{:?}", item.name, verdict.label, verdict.expected),
                Err(unjudged) => eprintln!("{}: {unjudged}", item.name),
            }
        }
    }
    Ok(())
}
