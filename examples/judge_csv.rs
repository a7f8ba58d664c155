//! Judges the rows of a CSV file and prints item, label and expected score; keeps no run folder.
//!
//! Run: `cargo run --release --example judge_csv -- answers.csv examples/helpful.toml smollm2-135m-instruct`

use assize::ask::Answerer as _;
use assize::judge::{Evaluation, Mode, Pointwise, Rubric, Step};
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
    let format = Arc::new(Pointwise {
        rubric,
        mode: Mode::ScoreOnly,
        seed: 0,
    });
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
    for (ticket, item) in (0..).zip(items) {
        match item.map(|item| Evaluation::begin(format.clone(), item)) {
            Err(error) => eprintln!("{error}"),
            Ok((evaluation, Step::Ask(ask))) => {
                engine.submit(ticket, *ask);
                open_evaluations.insert(ticket, evaluation);
            }
            Ok((evaluation, Step::Settled(outcome))) => {
                eprintln!("{}: {:?}", evaluation.item().name, outcome.err());
            }
        }
    }
    while !open_evaluations.is_empty() {
        for (ticket, result) in engine.step() {
            let Some(mut evaluation) = open_evaluations.remove(&ticket) else {
                continue;
            };
            // Pointwise judging asks once, so every answer settles its evaluation.
            let Step::Settled(outcome) = evaluation.answer(result) else {
                continue;
            };
            match *outcome {
                Ok(verdict) => println!(
                    "{}\t{}\t{:.3}",
                    evaluation.item().name,
                    verdict.label,
                    verdict.expected
                ),
                Err(failure) => eprintln!("{}: {failure}", evaluation.item().name),
            }
        }
    }
    Ok(())
}
