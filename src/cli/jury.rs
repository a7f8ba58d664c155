//! Who judges besides the one model: a panel of models, rubrics and samples, or a larger model for what a small one leaves open.

use super::Globals;
use super::fault::Fault;
use super::layouts::{self, LayoutCache};
use super::model::{find_model, load};
use super::style::Console;
use crate::journal::{FurtherModel, ModelDescription};
use crate::judge::contracts::Contract;
use crate::judge::rules::{FormatName, TrajectoryTask};
use crate::judge::{Cascade, Format, Manner, Member, Panel, Rubric, Thresholds, Together, formats};
use crate::run::devices::Place;
use crate::run::replicas::Answering;
use crate::run::{JudgeSettings, ModelFile};
use crate::trace::{Item, ItemError};
use crate::weights::fetch::Located;
use anyhow::{Context as _, Result};
use std::sync::Arc;

/// Options of panels and cascades.
#[derive(Clone, Debug, clap::Args)]
pub struct JuryArguments {
    /// Put every item before a panel (models, rubrics and samples) and bring the verdicts together in this way.
    #[arg(long, value_enum, value_name = "HOW", conflicts_with = "cascade")]
    pub panel: Option<PanelArgument>,
    /// A further model of the panel; may be given several times.
    #[arg(long, value_name = "MODEL", requires = "panel")]
    pub also: Vec<String>,
    /// Judge every item so many times, each with random numbers of its own; needs a temperature in the rubric.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub samples: u8,
    /// Entropy of a panel's votes, in nats, above which an item is marked for review.
    #[arg(long, value_name = "NATS", default_value_t = 0.5, requires = "panel", value_parser = within::<0, 10>)]
    pub review_above: f64,
    /// A larger model, which judges what the first is not sure of.
    #[arg(long, value_name = "MODEL")]
    pub cascade: Option<String>,
    /// Margin below which the first judge is not sure, from 0 to 1.
    #[arg(long, value_name = "P", default_value_t = 0.5, requires = "cascade", value_parser = within::<0, 1>)]
    pub least_margin: f64,
    /// Entropy above which it is not sure, in nats.
    #[arg(long, value_name = "NATS", requires = "cascade", value_parser = within::<0, 10>)]
    pub most_entropy: Option<f64>,
    /// Mass on the labels below which it is not sure, from 0 to 1.
    #[arg(long, value_name = "P", default_value_t = 0.5, requires = "cascade", value_parser = within::<0, 1>)]
    pub least_mass: f64,
    /// Share of the items that both judges of a cascade are shown, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, requires = "cascade", value_parser = within::<0, 1>)]
    pub audit: f64,
}

/// `--panel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PanelArgument {
    /// The label with the most votes.
    Majority,
    /// The level nearest to the mean of the expected scores.
    Mean,
    /// The label that all name; no verdict where they do not.
    Unanimous,
}

impl PanelArgument {
    fn together(self) -> Together {
        match self {
            PanelArgument::Majority => Together::Majority,
            PanelArgument::Mean => Together::Mean,
            PanelArgument::Unanimous => Together::Unanimous,
        }
    }
}

/// A number from `LEAST` to `MOST`.
fn within<const LEAST: u32, const MOST: u32>(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= f64::from(LEAST) && number <= f64::from(MOST) => Ok(number),
        _ => Err(format!("a number from {LEAST} to {MOST} is expected")),
    }
}

/// A model beside the first.
pub struct Further {
    name: String,
    located: Located,
    file: ModelFile,
    /// Its own form.
    contract: Option<Contract>,
}

/// The formats of a run, and what of them is no rubric.
pub struct Jury {
    /// In the order in which an item is judged by them.
    pub formats: Vec<Arc<dyn Format>>,
    /// The panel or cascade, in words and numbers.
    pub ensemble: Option<String>,
}

impl JuryArguments {
    /// Refuses what can't sit together, before anything is read.
    pub fn check(&self, rubrics: &[Rubric]) -> Result<()> {
        if self.samples > 1 && self.panel.is_none() {
            let hint = "add --panel majority, or another way to bring samples together";
            return Err(Fault::usage("several samples make a panel", hint).into());
        }
        let cold = |rubric: &&Rubric| rubric.decoding.temperature == 0.0;
        if let (true, Some(rubric)) = (self.samples > 1, rubrics.iter().find(cold)) {
            let message = format!(
                "samples under rubric \"{}\" would all be the same",
                rubric.id
            );
            let hint = "give the rubric a temperature: [decoding] temperature = 0.7";
            return Err(Fault::usage(message, hint).into());
        }
        let refuse = |message: String, hint: &str| Err(Fault::usage(message, hint).into());
        // A cascade looks at the one reading behind a verdict; these formats have none, or several.
        let read = |rubric: &&Rubric| match rubric.format {
            FormatName::Pointwise | FormatName::Classify | FormatName::Pairwise => true,
            FormatName::Trajectory => is_outcome(rubric),
            FormatName::Ranking | FormatName::Claims | FormatName::Rag => false,
        };
        if let (Some(_), Some(rubric)) =
            (&self.cascade, rubrics.iter().find(|rubric| !read(rubric)))
        {
            let (id, format) = (&rubric.id, rubric.format.name());
            let message =
                format!("a cascade can't tell how sure a verdict of rubric \"{id}\" ({format}) is");
            return refuse(
                message,
                "use it with pointwise, classify, pairwise or an outcome",
            );
        }
        let (Some(panel), [first, others @ ..]) = (self.panel, rubrics) else {
            return Ok(());
        };
        // The label of these is the level nearest to their expected score; that of others is decided in another way.
        let levelled = |rubric: &&Rubric| match rubric.format {
            FormatName::Pointwise | FormatName::Classify => true,
            FormatName::Trajectory => is_outcome(rubric),
            _ => false,
        };
        if let (PanelArgument::Mean, Some(rubric)) =
            (panel, rubrics.iter().find(|rubric| !levelled(rubric)))
        {
            let message = format!(
                "a mean is no verdict of the format {}",
                rubric.format.name()
            );
            return refuse(message, "use --panel majority or unanimous");
        }
        let like = |other: &&Rubric| {
            let same = (first.format, first.labels(), first.values());
            same == (other.format, other.labels(), other.values())
                && other.format != FormatName::Rag
        };
        if let Some(other) = others.iter().find(|other| !like(other)) {
            let message = format!(
                "the rubrics \"{}\" and \"{}\" have other labels, values or formats, so their votes can't be counted together",
                first.id, other.id
            );
            return refuse(message, "leave --panel out to judge under each by itself");
        }
        Ok(())
    }

    /// Finds the further models and opens their files. Each is asked in its own form, which `asked`, given for the run, would not say.
    pub fn find(
        &self,
        asked: Option<&str>,
        rubrics: &[Rubric],
        place: &Place,
        globals: &Globals,
        console: &Console,
    ) -> Result<Vec<Further>> {
        let names = self.also.iter().chain(&self.cascade);
        if let (Some(form), Some(name)) = (asked, names.clone().next()) {
            let message = format!("--contract {form}, and {name} besides");
            let hint = "leave --contract out: each model is asked in its own form";
            return Err(Fault::usage(message, hint).into());
        }
        names
            .map(|name| {
                let located = find_model(name, globals, console)?;
                if let Some(contract) = contract_of(&located)? {
                    fits(contract, rubrics)?;
                }
                let file = ModelFile::open(located.path(), located.template())
                    .with_context(|| located.path().display().to_string())?
                    .compute_on(place.clone());
                Ok(Further {
                    contract: contract_of(&located)?,
                    name: name.clone(),
                    located,
                    file,
                })
            })
            .collect()
    }

    /// Seats the judges.
    pub fn seat(
        &self,
        model: &str,
        rubrics: Vec<Rubric>,
        manner: Manner,
        further: &[Further],
    ) -> Result<Jury> {
        let plain = |manner| -> Vec<Arc<dyn Format>> {
            let rubrics = rubrics.iter().cloned();
            rubrics
                .flat_map(|rubric| formats::of(rubric, manner))
                .collect()
        };
        if self.cascade.is_some() {
            let thresholds = Thresholds {
                margin: self.least_margin,
                entropy: self.most_entropy,
                mass: self.least_mass,
            };
            let contract = further.first().and_then(|further| further.contract);
            let second = plain(Manner { contract, ..manner });
            let cascade = |(first, second): (Arc<dyn Format>, _)| -> Arc<dyn Format> {
                Arc::new(Cascade {
                    first,
                    second,
                    thresholds,
                    audit: self.audit,
                    seed: manner.seed,
                })
            };
            return Ok(Jury {
                formats: plain(manner).into_iter().zip(second).map(cascade).collect(),
                ensemble: Some(format!("cascade {thresholds:?} audit {}", self.audit)),
            });
        }
        let Some(panel) = self.panel else {
            return Ok(Jury {
                formats: plain(manner),
                ensemble: None,
            });
        };
        // One panel for what each rubric gives; rubrics that sit together give one verdict.
        let mut panels: Vec<Vec<Member>> = Vec::new();
        let names = std::iter::once((model, manner.contract)).chain(
            further
                .iter()
                .map(|further| (further.name.as_str(), further.contract)),
        );
        for (judge, (name, contract)) in names.enumerate() {
            for sample in 0..u64::from(self.samples) {
                let sampled = Manner {
                    contract,
                    seed: manner.seed.wrapping_add(sample),
                    ..manner
                };
                for (index, format) in plain(sampled).into_iter().enumerate() {
                    let seat = if rubrics.len() > 1 { 0 } else { index };
                    if panels.len() <= seat {
                        panels.resize(seat + 1, Vec::new());
                    }
                    let mut told = name.to_string();
                    if rubrics.len() > 1 {
                        told = format!("{told} {}", format.rubric().id);
                    }
                    if self.samples > 1 {
                        told = format!("{told} sample {}", sample + 1);
                    }
                    panels[seat].push(Member {
                        name: told,
                        judge,
                        format,
                    });
                }
            }
        }
        if panels.iter().any(|members| members.len() < 2) {
            let hint = "add --also MODEL, --samples N or another --rubric";
            return Err(Fault::usage("a panel of one judge", hint).into());
        }
        let together = panel.together();
        let panel = |members: Vec<Member>| -> Option<Arc<dyn Format>> {
            let mut rubric = members.first()?.format.rubric().clone();
            if rubrics.len() > 1 {
                let ids: Vec<&str> = rubrics.iter().map(|rubric| rubric.id.as_str()).collect();
                rubric.id = ids.join("+");
            }
            Some(Arc::new(Panel {
                members,
                together,
                review_above: self.review_above,
                rubric,
            }))
        };
        Ok(Jury {
            formats: panels.into_iter().filter_map(panel).collect(),
            ensemble: Some(format!(
                "panel {} samples {} review above {}",
                together.name(),
                self.samples,
                self.review_above
            )),
        })
    }
}

impl Further {
    /// What a run says of it.
    pub fn describe(&self) -> Result<FurtherModel> {
        let template = self.file.template_digest();
        let template = template.ok_or_else(|| {
            let message = format!("{} has no chat template", self.located.path().display());
            let hint = "use an instruct model: a base model can't be asked to judge";
            Fault::usage(message, hint)
        })?;
        let names = self
            .located
            .files
            .iter()
            .filter_map(|path| path.file_name());
        Ok(FurtherModel {
            model: ModelDescription {
                name: self.name.clone(),
                files: names
                    .map(|name| name.to_string_lossy().into_owned())
                    .collect(),
                sha256: vec![self.located.sha256.clone()],
            },
            tokenizer_digest: self.file.tokenizer_digest().into(),
            template_digest: template.into(),
        })
    }

    /// Reads its weights, beside those that are there already.
    pub fn load(
        self,
        settings: &JudgeSettings,
        layout_cache: LayoutCache,
        console: &Console,
        threads: usize,
    ) -> Result<Answering> {
        let memory = self.file.plan(settings)?;
        let kept = layouts::place(layout_cache, &self.located, &self.file);
        let file = self.file.keep_packed(kept);
        let loaded = load(file, settings, &memory, console, threads)?;
        Ok(Answering::new(loaded.engine, loaded.others, settings))
    }
}

/// Whether the whole of a trajectory is judged.
fn is_outcome(rubric: &Rubric) -> bool {
    let task = rubric.trajectory.task;
    matches!(task, TrajectoryTask::Outcome | TrajectoryTask::Both)
}

/// Refuses rubrics whose examples a form has no place for.
pub fn fits(contract: Contract, rubrics: &[Rubric]) -> Result<()> {
    match rubrics.iter().find(|rubric| !rubric.examples.is_empty()) {
        None => Ok(()),
        Some(rubric) => {
            let (form, id) = (contract.name(), &rubric.id);
            let message = format!(
                "rubric \"{id}\" has examples, and the form of {form} has no place for them"
            );
            Err(Fault::usage(message, "leave the examples out, or use --contract json").into())
        }
    }
}

/// The form that a model was trained on, as its manifest says; none for the general one.
pub fn contract_of(located: &Located) -> Result<Option<Contract>> {
    match located.manifest {
        Some(manifest) => Ok(Contract::for_model(manifest.contract.name())?),
        None => Ok(None),
    }
}

/// Families of models, by what their names hold.
const FAMILIES: [(&str, &[&str]); 9] = [
    ("Qwen", &["qwen", "qwq"]),
    ("Llama", &["llama", "vicuna", "alpaca"]),
    ("Mistral", &["mistral", "mixtral", "ministral"]),
    ("Gemma", &["gemma", "gemini"]),
    ("Phi", &["phi-", "phi2", "phi3", "phi4"]),
    ("SmolLM", &["smollm"]),
    ("GPT", &["gpt"]),
    ("Claude", &["claude"]),
    ("DeepSeek", &["deepseek"]),
];

fn family(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let mut known = FAMILIES.iter();
    let found = known.find(|(_, marks)| marks.iter().any(|mark| name.contains(mark)));
    found.map(|(family, _)| *family)
}

/// Looks for items that a judge's own family has made: models prefer what is like themselves.
pub struct Kin {
    families: Vec<&'static str>,
    console: Console,
    told: bool,
}

impl Kin {
    /// Of judges by what they are called.
    pub fn new<'a>(judges: impl IntoIterator<Item = &'a str>, console: Console) -> Kin {
        Kin {
            families: judges.into_iter().filter_map(family).collect(),
            console,
            told: false,
        }
    }

    /// Warns at the first item of a judge's family.
    pub fn see(&mut self, item: &Result<Item, ItemError>) {
        let generator = item
            .as_ref()
            .ok()
            .and_then(|item| item.generator.as_deref());
        let Some(family) = generator.and_then(family) else {
            return;
        };
        if !self.told && self.families.contains(&family) {
            self.told = true;
            self.console.say(format!(
                "warning: answers were made by models of a judge's own family ({family}), which judges tend to prefer"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::family;

    #[test]
    fn families_are_known_by_name() {
        for (name, want) in [
            ("qwen2.5-coder-1.5b", Some("Qwen")),
            ("vicuna-13b", Some("Llama")),
            ("GPT-4o", Some("GPT")),
            ("a fine-tune of ours", None),
        ] {
            assert_eq!(family(name), want, "{name}");
        }
    }
}
