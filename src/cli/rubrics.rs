//! The rubrics of a run: read, told apart, and what of a prompt comes first.

use super::fault::Fault;
use super::jury::{contract_of, fits};
use super::style::Console;
use crate::journal::{RubricDescription, RunDescription};
use crate::judge::contracts::{Contract, mismatch};
use crate::judge::rules::FormatName;
use crate::judge::{Format, Manner, PromptOrder, Rubric, order};
use crate::trace::{self, FieldMap, Item, TraceFormat};
use crate::weights::fetch::Located;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// `--prompt-order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OrderArgument {
    /// Whichever takes fewer tokens.
    Auto,
    /// The rubric.
    RubricFirst,
    /// The item.
    ItemFirst,
}

/// Reads the rubrics, whose ids tell their verdicts apart.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Rubric>> {
    let mut rubrics: Vec<Rubric> = Vec::new();
    for path in paths {
        let rubric = read_one(path)?;
        if rubrics.iter().any(|earlier| earlier.id == rubric.id) {
            let message = format!(
                "{}: another rubric has the id \"{}\", too",
                path.display(),
                rubric.id
            );
            return Err(Fault::usage(message, "give every rubric of a run its own id").into());
        }
        rubrics.push(rubric);
    }
    Ok(rubrics)
}

/// What a run says of a rubric.
pub(super) fn describe(format: &dyn Format) -> RubricDescription {
    let rubric = format.rubric();
    RubricDescription {
        id: rubric.id.clone(),
        version: rubric.version.clone(),
        digest: rubric.digest(),
        prompt_digest: format.wording(),
    }
}

/// Items by whose length it is decided what stands first in a prompt.
const PROBED: usize = 16;

/// What stands first: for several rubrics the item, where its text is longer than what the rubrics would add to it. Told, since it
/// is part of what was run.
pub(super) fn prompt_order(
    asked: OrderArgument,
    manner: Manner,
    traces: &[PathBuf],
    rubrics: &[Rubric],
    format: Option<TraceFormat>,
    map: &FieldMap,
    console: &Console,
) -> Result<PromptOrder> {
    // An evaluator's own form has its own order.
    if let Some(contract) = manner.contract {
        if asked == OrderArgument::ItemFirst {
            let message = format!("the form of {} has its own order", contract.name());
            return Err(Fault::usage(message, "leave --prompt-order out").into());
        }
        return Ok(PromptOrder::RubricFirst);
    }
    match asked {
        OrderArgument::RubricFirst => return Ok(PromptOrder::RubricFirst),
        OrderArgument::ItemFirst => {
            if let Some(rubric) = rubrics.iter().find(|rubric| !rubric.examples.is_empty()) {
                let message = format!(
                    "rubric \"{}\" has examples, which come before the item",
                    rubric.id
                );
                return Err(Fault::usage(message, "use --prompt-order rubric-first").into());
            }
            return Ok(PromptOrder::ItemFirst);
        }
        OrderArgument::Auto => (),
    }
    let whole = traces
        .iter()
        .all(|path| path.as_os_str() != "-" && path.is_file());
    if rubrics.len() < 2 || !whole || rubrics.iter().any(|rubric| !rubric.examples.is_empty()) {
        return Ok(PromptOrder::RubricFirst);
    }
    let items = trace::open(traces, format, map.clone())?;
    let items: Vec<Item> = items.flatten().take(PROBED).collect();
    let chosen = order::cheaper_order(rubrics, &items, manner.mode);
    let what = match chosen {
        PromptOrder::RubricFirst => "rubrics are computed once and items once for each",
        PromptOrder::ItemFirst => "an item is computed once for all rubrics",
    };
    console.say(format!(
        "prompts are {}: {what} (--prompt-order)",
        chosen.name()
    ));
    Ok(chosen)
}

/// Reads and checks a rubric.
pub(super) fn read_one(path: &Path) -> Result<Rubric> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Fault::usage(format!("{shown}: {error}"), "--rubric takes a TOML file"))?;
    let rubric = Rubric::parse(&text).map_err(|error| {
        Fault::usage(
            format!("{shown}:{}: {}", error.line, error.problem),
            error.mend,
        )
    })?;
    Ok(rubric)
}

/// The form in which the model is asked, with a warning where it is not its own.
pub(super) fn contract(
    asked: Option<&str>,
    model: &str,
    located: &Located,
    rubrics: &[Rubric],
    console: &Console,
) -> Result<Option<Contract>> {
    let own = located.manifest.map(|manifest| manifest.contract.name());
    let contract = match (asked, own) {
        (Some(name), own) => {
            if let Some(warning) = own.and_then(|own| mismatch(model, own, name)) {
                console.say(format!("warning: {warning}"));
            }
            Contract::for_model(name).map_err(|error| {
                Fault::usage(
                    format!("--contract: {error}"),
                    "leave it out to use the model's own",
                )
            })?
        }
        (None, _) => contract_of(located)?,
    };
    if let Some(contract) = contract {
        fits(contract, rubrics)?;
        let general = |rubric: &&Rubric| {
            use FormatName::{Claims, Rag, Trajectory};
            matches!(rubric.format, Claims | Rag | Trajectory)
        };
        if let Some(rubric) = rubrics.iter().find(general) {
            console.say(format!(
                "warning: the form of {} has no place for what the format {} asks, which is asked in the general form",
                contract.name(),
                rubric.format.name()
            ));
        }
    }
    Ok(contract)
}

/// The folder of a run that was given none: its rubrics, and what is run.
pub(super) fn default_folder(description: &RunDescription) -> PathBuf {
    let ids: Vec<&str> = description
        .rubrics
        .iter()
        .map(|rubric| rubric.id.as_str())
        .collect();
    let ids: String = ids.join("+").chars().take(80).collect();
    Path::new("runs").join(format!("{ids}-{}", &description.folder_digest()[..8]))
}
