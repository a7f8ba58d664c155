//! `run.json`: what was run, by what, on what.
//!
//! Some of it decides the verdicts and so the identity of the run; the rest (instruction set, threads, batch sizes) is
//! written down but may change between a run and its resumption, since no verdict depends on it.

use crate::judge::digest::Digest;
use serde::{Deserialize, Serialize};

/// The model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// Manifest name, or the path as given.
    pub name: String,
    /// The files' names.
    pub files: Vec<String>,
    /// sha256 in hex of the file; of a split model, that of the list of its files' own.
    pub sha256: Vec<String>,
}

/// The rubric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RubricDescription {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// sha256 in hex of its canonical form.
    pub digest: String,
    /// sha256 in hex of the wording around rubric and item.
    pub prompt_digest: String,
}

/// A further model of a panel or a cascade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherModel {
    /// The model.
    pub model: ModelDescription,
    /// sha256 in hex of its tokenizer.
    pub tokenizer_digest: String,
    /// sha256 in hex of its chat template.
    pub template_digest: String,
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsDescription {
    /// `rationale` or `score-only`.
    pub mode: String,
    /// The panel or cascade, in words and numbers, where the run has one.
    #[serde(default)]
    pub ensemble: Option<String>,
    /// Whether activations stay in 32 bits.
    pub exact: bool,
    /// How keys and values are kept: `f16`, `f32` or `q8`.
    #[serde(default = "half")]
    pub kv_type: String,
    /// Longest sequence in tokens, where one was asked for.
    pub context: Option<usize>,
    /// The traces as given.
    pub traces: Vec<String>,
    /// The mapping of fields as given.
    pub map: Vec<String>,
    /// Most lines that are read, where that was limited.
    pub limit: Option<usize>,
    /// Most sequences in a batch.
    pub max_batch: usize,
    /// Most prompt tokens of one sequence in a step.
    pub prefill_chunk: usize,
    /// Whether prefixes are shared.
    pub prefix_cache: bool,
    /// Memory for the KV cache in bytes.
    pub cache_bytes: u64,
}

/// All of `run.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDescription {
    /// Version of assize.
    pub assize: String,
    /// The model.
    pub model: ModelDescription,
    /// sha256 in hex of the tokenizer.
    pub tokenizer_digest: String,
    /// sha256 in hex of the chat template.
    pub template_digest: String,
    /// Further models, where a panel or cascade has some.
    #[serde(default)]
    pub further: Vec<FurtherModel>,
    /// The rubrics.
    pub rubrics: Vec<RubricDescription>,
    /// Seed of the run.
    pub seed: u64,
    /// `cpu`.
    pub device: String,
    /// The instruction set of the kernels.
    pub instruction_set: String,
    /// Threads.
    pub threads: usize,
    /// The settings.
    pub settings: SettingsDescription,
}

impl RunDescription {
    /// What decides the verdicts: names and values.
    fn identity(&self) -> [(&'static str, String); 15] {
        let rubrics = |part: fn(&RubricDescription) -> &String| {
            let parts: Vec<&str> = self
                .rubrics
                .iter()
                .map(|rubric| part(rubric).as_str())
                .collect();
            parts.join(" ")
        };
        let further = self.further.iter().map(|further| further.digest());
        [
            ("assize version", self.assize.clone()),
            ("model sha256", self.model.sha256.join(" ")),
            ("tokenizer digest", self.tokenizer_digest.clone()),
            ("template digest", self.template_digest.clone()),
            ("prompt digest", rubrics(|rubric| &rubric.prompt_digest)),
            ("rubric id", rubrics(|rubric| &rubric.id)),
            ("rubric digest", rubrics(|rubric| &rubric.digest)),
            ("further models", further.collect::<Vec<_>>().join(" ")),
            (
                "ensemble",
                self.settings.ensemble.clone().unwrap_or_default(),
            ),
            ("seed", self.seed.to_string()),
            ("device", self.device.clone()),
            ("mode", self.settings.mode.clone()),
            ("exact", self.settings.exact.to_string()),
            ("kv type", self.settings.kv_type.clone()),
            ("context", context_name(self.settings.context)),
        ]
    }

    /// What keeps this run from going on in the folder of `earlier`, as `name: there, here`; empty where nothing does.
    pub fn differences(&self, earlier: &RunDescription) -> Vec<String> {
        let pairs = earlier.identity().into_iter().zip(self.identity());
        pairs
            .filter(|((_, there), (_, here))| there != here)
            .map(|((name, there), (_, here))| {
                format!("{name}: {} there, {} here", short(&there), short(&here))
            })
            .collect()
    }

    /// sha256 in hex of the identity and of the traces' paths: names the default run folder.
    pub fn folder_digest(&self) -> String {
        let start = Digest::new("assize folder")
            .list(&self.settings.traces)
            .list(&self.settings.map);
        self.identity()
            .iter()
            .fold(start, |digest, (_, value)| digest.field(value))
            .hex()
    }

    /// The key of an item under one of the run's rubrics: sha256 in hex over the digests of item, rubric, template, model and
    /// settings. The other rubrics of the run are not in it.
    pub fn key(&self, rubric: &RubricDescription, item_digest: &str) -> String {
        self.key_over(&rubric.digest, &rubric.prompt_digest, item_digest)
    }

    /// The key of a line that is no item, which no rubric judges.
    pub fn line_key(&self, line_digest: &str) -> String {
        self.key_over("", "", line_digest)
    }

    fn key_over(&self, rubric: &str, prompt: &str, item_digest: &str) -> String {
        let template = Digest::new("assize template")
            .field(&self.template_digest)
            .field(prompt);
        let model = Digest::new("assize model")
            .list(&self.model.sha256)
            .field(&self.tokenizer_digest);
        let model = self
            .further
            .iter()
            .fold(model, |digest, further| digest.field(further.digest()));
        let settings = Digest::new("assize settings")
            .field(&self.settings.mode)
            .field(self.settings.exact.to_string())
            .field(&self.settings.kv_type)
            .field(context_name(self.settings.context))
            .optional(self.settings.ensemble.as_deref())
            .field(self.seed.to_le_bytes());
        Digest::new("assize key")
            .field(item_digest)
            .field(rubric)
            .field(template.bytes())
            .field(model.bytes())
            .field(settings.bytes())
            .hex()
    }
}

impl FurtherModel {
    fn digest(&self) -> String {
        Digest::new("assize further model")
            .list(&self.model.sha256)
            .field(&self.tokenizer_digest)
            .field(&self.template_digest)
            .hex()
    }
}

fn context_name(context: Option<usize>) -> String {
    context.map_or_else(|| "the model's".into(), |tokens| tokens.to_string())
}

/// What runs kept that do not say.
fn half() -> String {
    "f16".into()
}

/// A digest is told by its first digits.
fn short(value: &str) -> &str {
    if value.len() >= 64 {
        &value[..12]
    } else {
        value
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn description() -> RunDescription {
        RunDescription {
            assize: "0.1.0".into(),
            model: ModelDescription {
                name: "m".into(),
                files: vec!["m.gguf".into()],
                sha256: vec!["a".repeat(64)],
            },
            tokenizer_digest: "t".into(),
            template_digest: "c".into(),
            further: vec![],
            rubrics: vec![RubricDescription {
                id: "r".into(),
                version: "1".into(),
                digest: "d".repeat(64),
                prompt_digest: "p".into(),
            }],
            seed: 0,
            device: "cpu".into(),
            instruction_set: "avx2".into(),
            threads: 2,
            settings: SettingsDescription {
                mode: "rationale".into(),
                ensemble: None,
                exact: false,
                kv_type: "f16".into(),
                context: None,
                traces: vec!["a.jsonl".into()],
                map: vec![],
                limit: None,
                max_batch: 8,
                prefill_chunk: 256,
                prefix_cache: true,
                cache_bytes: 1,
            },
        }
    }

    #[test]
    fn what_decides_verdicts_decides_identity() {
        let base = description();
        let key_of = |run: &RunDescription, item| run.key(&run.rubrics[0], item);
        let check = |change: fn(&mut RunDescription), same: bool, key: bool| {
            let mut other = description();
            change(&mut other);
            assert_eq!(other.differences(&base).is_empty(), same);
            assert_eq!(other.folder_digest() == base.folder_digest(), same);
            assert_eq!(key_of(&other, "i") == key_of(&base, "i"), key);
        };
        check(|_| (), true, true);
        check(|other| other.threads = 1, true, true);
        check(|other| other.settings.max_batch = 1, true, true);
        check(|other| other.settings.limit = Some(1), true, true);
        check(|other| other.seed = 1, false, false);
        check(|other| other.settings.exact = true, false, false);
        check(|other| other.settings.kv_type = "q8".into(), false, false);
        check(|other| other.settings.context = Some(4096), false, false);
        check(
            |other| other.settings.mode = "score-only".into(),
            false,
            false,
        );
        check(|other| other.rubrics[0].digest = "e".into(), false, false);
        check(|other| other.model.sha256 = vec!["b".into()], false, false);
        check(
            |other| other.rubrics[0].prompt_digest = "q".into(),
            false,
            false,
        );
        check(|other| other.instruction_set = "avx512".into(), true, true);
        check(
            |other| other.settings.ensemble = Some("panel".into()),
            false,
            false,
        );
        assert_ne!(key_of(&base, "i"), key_of(&base, "j"));
        // A key does not depend on the other rubrics of the run, so that one can be added.
        let mut more = description();
        more.rubrics.push(RubricDescription {
            id: "s".into(),
            ..base.rubrics[0].clone()
        });
        assert!(!more.differences(&base).is_empty());
        assert_eq!(key_of(&more, "i"), key_of(&base, "i"));
    }
}
