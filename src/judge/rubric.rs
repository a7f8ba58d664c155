//! A rubric: what is judged, by which question, on which scale.
//!
//! Holds a rubric that is known to be sound; `rubric_toml` reads one and `rubric_check` refuses the unsound.

use super::digest::Digest;
use super::rubric_error::RubricError;
use super::rules::{CheckRule, ClaimsRules, FormatName, PairwiseRules, TrajectoryRules};

/// A field of an item that the judge may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    /// What the judged system was given.
    Input,
    /// The passages that it had.
    Context,
    /// A right answer.
    Reference,
    /// The judged answer.
    Answer,
}

impl Shown {
    /// Every field, in the order in which they are shown.
    pub const ALL: [Shown; 4] = [
        Shown::Input,
        Shown::Context,
        Shown::Reference,
        Shown::Answer,
    ];

    /// The field's name in rubrics and traces.
    pub fn name(self) -> &'static str {
        match self {
            Shown::Input => "input",
            Shown::Context => "context",
            Shown::Reference => "reference",
            Shown::Answer => "answer",
        }
    }
}

/// The kind of the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The labels `pass` and `fail`; the expected score is the probability of `pass`.
    Binary,
    /// Integer levels; the expected score is Σ s·p(s).
    Integer,
    /// Any names; the expected score is Σ v·p over their values, where they have some.
    Named,
}

/// One level of the scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// `pass`, `fail`, an integer in decimal digits, or a name.
    pub label: String,
    /// What the level is worth: the integer, or 1 for `pass` and 0 for `fail`; a name is worth what the rubric says, if it does.
    pub value: Option<f64>,
    /// When an answer is on this level.
    pub description: String,
}

/// A judged example that the prompt shows before the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Its name, distinct among the examples.
    pub id: String,
    /// What the judged system was given.
    pub input: Option<String>,
    /// The passages that it had.
    pub context: Option<Vec<String>>,
    /// A right answer.
    pub reference: Option<String>,
    /// The judged answer.
    pub answer: String,
    /// Why the label is right.
    pub rationale: String,
    /// Verbatim passages of the answer.
    pub evidence: Vec<String>,
    /// The right label.
    pub label: String,
}

/// How the judge's text is decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodingSettings {
    /// 0 means the most probable token.
    pub temperature: f32,
    /// Nucleus mass, above 0 and up to 1.
    pub top_p: f32,
    /// Most tokens of the whole answer, where the rubric says so.
    pub max_tokens: Option<usize>,
    /// Longest rationale, in characters, where the rubric says so.
    pub rationale_chars: Option<usize>,
    /// Most quotes.
    pub quotes: usize,
    /// Longest quote, in characters.
    pub quote_chars: usize,
}

impl Default for DecodingSettings {
    fn default() -> Self {
        DecodingSettings {
            temperature: 0.0,
            top_p: 1.0,
            max_tokens: None,
            rationale_chars: None,
            quotes: 2,
            quote_chars: 120,
        }
    }
}

impl DecodingSettings {
    /// Most tokens of the whole answer.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens.unwrap_or(640)
    }

    /// Longest rationale, in characters.
    pub fn rationale_chars(&self) -> usize {
        self.rationale_chars.unwrap_or(240)
    }
}

/// A sound rubric.
#[derive(Clone, Debug, PartialEq)]
pub struct Rubric {
    /// Its name: letters, digits, `-`, `_` and `.`; names the run folder.
    pub id: String,
    /// Its version, as its author counts.
    pub version: String,
    /// What is judged, in a few words.
    pub criterion: String,
    /// The question that the judge answers.
    pub question: String,
    /// What the judge must not let change the verdict.
    pub ignore: Vec<String>,
    /// What to do with partly right answers.
    pub partial: Option<String>,
    /// What to do with refusals.
    pub refusals: Option<String>,
    /// How it is judged.
    pub format: FormatName,
    /// The fields that the judge is shown; the answer is always among them.
    pub shows: Vec<Shown>,
    /// The kind of the scale.
    pub scale: Scale,
    /// The levels in the order in which they are reported: `pass` before `fail`, integers ascending.
    pub levels: Vec<Level>,
    /// Examples.
    pub examples: Vec<Example>,
    /// How the judge's text is decoded.
    pub decoding: DecodingSettings,
    /// A verdict with less label mass than this is marked, 0 to 1.
    pub mass_threshold: f64,
    /// Its share of a score over several rubrics, where it has one.
    pub weight: Option<f64>,
    /// What settles an answer before a model is asked.
    pub checks: Vec<CheckRule>,
    /// How two answers are compared.
    pub pairwise: PairwiseRules,
    /// How claims are checked.
    pub claims: ClaimsRules,
    /// How an agent's steps are judged.
    pub trajectory: TrajectoryRules,
}

impl Rubric {
    /// Reads a rubric from TOML.
    ///
    /// # Errors
    /// The first fault, with its line and its mend.
    pub fn parse(text: &str) -> Result<Rubric, RubricError> {
        super::rubric_toml::parse(text)
    }

    /// The labels in the order in which they are reported.
    pub fn labels(&self) -> Vec<String> {
        self.levels
            .iter()
            .map(|level| level.label.clone())
            .collect()
    }

    /// The worth of each label, in the same order; `None` where one of them has none.
    pub fn values(&self) -> Option<Vec<f64>> {
        self.levels.iter().map(|level| level.value).collect()
    }

    /// The JSON key of the label: `verdict` for pass and fail, `score` for integers, `label` for names.
    pub fn label_field(&self) -> &'static str {
        match self.scale {
            Scale::Binary => "verdict",
            Scale::Integer => "score",
            Scale::Named => "label",
        }
    }

    /// Whether labels stand in JSON quotes.
    pub fn quoted(&self) -> bool {
        self.scale != Scale::Integer
    }

    /// sha256 in hex of all that the rubric says. Layout, comments and the order of keys in the file do not matter.
    pub fn digest(&self) -> String {
        let shows: Vec<&str> = self.shows.iter().map(|shown| shown.name()).collect();
        let mut digest = Digest::new("assize rubric 1")
            .field(&self.id)
            .field(&self.version)
            .field(&self.criterion)
            .field(&self.question)
            .list(&self.ignore)
            .optional(self.partial.as_deref())
            .optional(self.refusals.as_deref())
            .list(&shows)
            .field(self.label_field())
            .field((self.levels.len() as u64).to_le_bytes());
        for level in &self.levels {
            digest = digest.field(&level.label).field(&level.description);
        }
        digest = digest.field((self.examples.len() as u64).to_le_bytes());
        for example in &self.examples {
            digest = digest.field(&example.id).optional(example.input.as_deref());
            digest = match &example.context {
                Some(passages) => digest.field("some").list(passages),
                None => digest.field("none"),
            };
            digest = digest
                .optional(example.reference.as_deref())
                .field(&example.answer)
                .field(&example.rationale)
                .list(&example.evidence)
                .field(&example.label);
        }
        // Only what the format reads, so that the digest of a rubric that says none of it is what it was before there was any.
        digest = self.rules(digest);
        let decoding = &self.decoding;
        digest
            .field(decoding.temperature.to_le_bytes())
            .field(decoding.top_p.to_le_bytes())
            .field(format!("{:?}", decoding.max_tokens))
            .field(format!("{:?}", decoding.rationale_chars))
            .field((decoding.quotes as u64).to_le_bytes())
            .field((decoding.quote_chars as u64).to_le_bytes())
            .field(self.mass_threshold.to_le_bytes())
            .hex()
    }

    /// Adds what goes beyond levels and examples.
    fn rules(&self, mut digest: Digest) -> Digest {
        if self.scale == Scale::Named {
            for level in &self.levels {
                let value = level.value.map(|value| value.to_string());
                digest = digest.optional(value.as_deref());
            }
        }
        if self.format != FormatName::Pointwise {
            digest = digest.field(self.format.name());
        }
        for rule in &self.checks {
            let kind = format!("{:?}", rule.check.kind());
            digest = digest
                .field(rule.check.name())
                .field(kind)
                .field(&rule.label);
        }
        match self.format {
            FormatName::Pointwise | FormatName::Classify | FormatName::Rag => digest,
            FormatName::Pairwise | FormatName::Ranking => {
                digest.field(format!("{:?}", self.pairwise))
            }
            FormatName::Claims => digest.field(format!("{:?}", self.claims)),
            FormatName::Trajectory => digest.field(format!("{:?}", self.trajectory)),
        }
    }
}
