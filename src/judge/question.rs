//! One question to the judge under a rubric: what it is shown, in which shape it replies, and how its reply is read.
//!
//! The JSON keys that are asked for and those that are read stand here together. Every format is made of questions.

use super::contracts::{Case, Contract, ContractError, Grade, Posed, Responses};
use super::digest::Digest;
use super::formats::Manner;
use super::formats::pointwise::Mode;
use super::order::PromptOrder;
use super::prompt::{self, Sections};
use super::rubric::{DecodingSettings, Example, Level, Rubric, Shown};
use super::unjudged::Unjudged;
use super::verdict::{Opinion, Quote, Reading};
use crate::ask::{
    Answer, Ask, Decoding, Failure, Field, FieldValue, Labels, Message, Prompt, Readout, Shape,
};
use crate::score::{Distribution, ScoreError, expected};
use crate::trace::Item;
use serde_json::{Map, Value};

/// Passages that the judge quotes.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// The JSON key.
    pub field: &'static str,
    /// The name of the section that is quoted.
    pub section: &'a str,
    /// Its text.
    pub source: &'a str,
    /// Most passages.
    pub most: usize,
}

/// What an evaluator's own form needs of an item.
#[derive(Clone, Copy, Debug)]
pub struct Under<'a> {
    /// The form.
    pub contract: Contract,
    /// The item.
    pub item: &'a Item,
    /// What is judged.
    pub responses: Responses<'a>,
}

/// One question.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The rubric.
    pub rubric: &'a Rubric,
    /// What the judge does: a sentence that begins with "You" and lacks its end.
    pub task: &'a str,
    /// What it has to look at.
    pub duty: &'a str,
    /// The question itself.
    pub question: &'a str,
    /// The labels and when they hold.
    pub levels: &'a [Level],
    /// Whether the prompt lists the labels. Names that come out of a trace are judged text, and stand in its sections alone.
    pub listed: bool,
    /// The JSON key of the label.
    pub label_field: &'static str,
    /// Whether labels stand in JSON quotes.
    pub quoted: bool,
    /// Whether a rationale comes before the label.
    pub reasons: bool,
    /// What is quoted with the rationale.
    pub evidence: Vec<Evidence<'a>>,
    /// Examples that come before the item.
    pub examples: &'a [Example],
    /// What the judge is shown.
    pub sections: Sections<'a>,
    /// What stands first.
    pub order: PromptOrder,
    /// The evaluator's own form, in which the question is asked instead of the general one.
    pub under: Option<Under<'a>>,
}

/// Tokens that a reply without a rationale may take: what stands before the label.
const BARE_REPLY: usize = 64;

impl<'a> Question<'a> {
    /// The question that judges one answer.
    ///
    /// # Errors
    /// [`Unjudged::Missing`] names a field that the rubric shows and the item does not have.
    pub fn pointwise(
        rubric: &'a Rubric,
        item: &'a Item,
        manner: Manner,
    ) -> Result<Question<'a>, Unjudged> {
        let missing = |field| Unjudged::missing(field, item);
        let answer = item.answer.as_deref().ok_or_else(|| missing("answer"))?;
        Ok(Question {
            rubric,
            task: "You judge one answer by the rubric below",
            duty: "Judge the ANSWER. The other texts are there to judge it by.",
            question: &rubric.question,
            levels: &rubric.levels,
            listed: true,
            label_field: rubric.label_field(),
            quoted: rubric.quoted(),
            reasons: manner.mode == Mode::Rationale,
            evidence: vec![Evidence {
                field: "evidence",
                section: "ANSWER",
                source: answer,
                most: rubric.decoding.quotes,
            }],
            examples: &rubric.examples,
            sections: Sections::of_item(rubric, item).map_err(missing)?,
            order: manner.order,
            under: manner.contract.map(|contract| Under {
                contract,
                item,
                responses: Responses::One(answer),
            }),
        })
    }

    /// The messages, and the shape of the reply.
    ///
    /// # Errors
    /// [`Unjudged::Contract`] where the evaluator's own form can't hold the item.
    pub fn posed(&self) -> Result<(Vec<Message>, Shape), Unjudged> {
        match self.contracted()? {
            Some(posed) => Ok((posed.messages, posed.shape)),
            None => Ok((prompt::messages(self), Shape::Object(self.fields()))),
        }
    }

    /// The question in the evaluator's own form, where it has one.
    fn contracted(&self) -> Result<Option<Posed>, Unjudged> {
        let Some(under) = &self.under else {
            return Ok(None);
        };
        let grades: Vec<Grade<'_>> = self
            .levels
            .iter()
            .map(|level| Grade {
                label: &level.label,
                description: &level.description,
            })
            .collect();
        let (item, rubric) = (under.item, self.rubric);
        let shows = |shown| rubric.shows.contains(&shown);
        // These forms have no place of their own for what else a rubric says.
        let mut question = self.question.to_string();
        if !rubric.ignore.is_empty() {
            question.push_str(&format!(" Ignore: {}.", rubric.ignore.join("; ")));
        }
        for more in [&rubric.partial, &rubric.refusals].into_iter().flatten() {
            question.push(' ');
            question.push_str(more);
        }
        let context = item.context.as_deref().filter(|_| shows(Shown::Context));
        let case = Case {
            input: item.input.as_deref().filter(|_| shows(Shown::Input)),
            context: context.unwrap_or_default(),
            reference: item
                .reference
                .as_deref()
                .filter(|_| shows(Shown::Reference)),
            responses: under.responses,
            question: &question,
            grades: &grades,
        };
        let rationale = self.reasons.then(|| self.decoding().rationale_chars());
        let posed = under.contract.pose(&case, rationale);
        let posed = posed.map_err(|error| Unjudged::Contract {
            contract: under.contract.name(),
            reason: error.to_string(),
        })?;
        if posed.labels != self.labels() {
            return Err(Unjudged::Contract {
                contract: under.contract.name(),
                reason: format!(
                    "it has the labels {} and no others; leave ties out, or use --contract json",
                    posed.labels.join(", ")
                ),
            });
        }
        if !posed.forged.is_empty() {
            tracing::info!(
                item = item.line,
                "the judged text holds headers of the form: {}",
                posed.forged.join(", ")
            );
        }
        Ok(Some(posed))
    }

    /// The rubric's decoding; where it says nothing, an evaluator gets as much room as its authors gave it.
    fn decoding(&self) -> DecodingSettings {
        let own = &self.rubric.decoding;
        match &self.under {
            Some(under) => {
                let sampling = under.contract.sampling();
                DecodingSettings {
                    max_tokens: own.max_tokens.or(Some(sampling.max_tokens)),
                    rationale_chars: own.rationale_chars.or(Some(sampling.rationale_chars)),
                    ..own.clone()
                }
            }
            None => own.clone(),
        }
    }

    /// The ask.
    ///
    /// # Errors
    /// As [`Question::posed`].
    pub fn ask(&self, seed: u64) -> Result<Ask, Unjudged> {
        let (messages, shape) = self.posed()?;
        let decoding = self.decoding();
        Ok(Ask {
            prompt: Prompt::Chat(messages),
            shape,
            decoding: Decoding {
                temperature: decoding.temperature,
                top_p: decoding.top_p,
                max_tokens: match self.reasons {
                    true => decoding.max_tokens(),
                    false => decoding.max_tokens().min(BARE_REPLY),
                },
                seed,
            },
        })
    }

    /// The fields of the general form.
    fn fields(&self) -> Vec<Field> {
        let decoding = &self.rubric.decoding;
        let field = |name: &str, value| Field {
            name: name.into(),
            value,
        };
        let mut fields = Vec::new();
        if self.reasons {
            let value = FieldValue::Text {
                max_chars: decoding.rationale_chars(),
            };
            fields.push(field("rationale", value));
            for quotes in &self.evidence {
                let value = FieldValue::Quotes {
                    source: quotes.source.into(),
                    max_items: quotes.most,
                    max_chars: decoding.quote_chars,
                };
                fields.push(field(quotes.field, value));
            }
        }
        let labels = Labels {
            names: self.labels(),
            quoted: self.quoted,
        };
        fields.push(field(self.label_field, FieldValue::Labels(labels)));
        fields
    }

    /// Reads the answer to [`Question::ask`].
    ///
    /// # Errors
    /// [`Failure::NonFiniteLogits`] for masses that are not numbers, and [`Failure::Grammar`] for any answer that is not
    /// what was asked for: it is never guessed what was meant.
    pub fn read(&self, answer: &Answer) -> Result<Opinion, Failure> {
        let missing = || refuse("the answer has no readout of its label");
        let readout = answer.readout.as_ref().ok_or_else(missing)?;
        let contracted = self
            .contracted()
            .map_err(|unjudged| refuse(&unjudged.to_string()))?;
        let (written, rationale, evidence, readout) = match (contracted, &self.under) {
            (Some(posed), Some(under)) => {
                let broken = |error: ContractError| refuse(&error.to_string());
                let reading = under.contract.read(&posed, &answer.text).map_err(broken)?;
                let readout = posed.relabel(readout).map_err(broken)?;
                (reading.label, reading.rationale, Vec::new(), readout)
            }
            _ => {
                let (written, rationale, evidence) = self.read_object(answer)?;
                (written, rationale, evidence, readout.clone())
            }
        };
        let distribution = self.distribution(&readout)?;
        let top = distribution.probabilities[distribution.top()];
        // Where two labels tie to the last bit, the written one counts; it may never be another than a top one.
        if distribution.probability(&written) != Some(top) {
            return Err(refuse("the written label is not the most probable one"));
        }
        let values: Option<Vec<f64>> = self.levels.iter().map(|level| level.value).collect();
        Ok(Opinion {
            label: written,
            expected: values.map(|values| expected(&distribution, &values)),
            reading: reading(distribution, self.rubric.mass_threshold),
            rationale: rationale.filter(|_| self.reasons),
            evidence,
            raw: answer.text.clone(),
        })
    }

    /// Label, rationale and evidence of a reply in the general form.
    fn read_object(
        &self,
        answer: &Answer,
    ) -> Result<(String, Option<String>, Vec<Quote>), Failure> {
        let object = object(answer)?;
        let written = match object.get(self.label_field) {
            Some(Value::String(label)) if self.quoted => label.clone(),
            Some(Value::Number(label)) if !self.quoted => label.to_string(),
            _ => return Err(refuse("the judge's output has no label")),
        };
        if !self.reasons {
            return Ok((written, None, Vec::new()));
        }
        let Some(Value::String(rationale)) = object.get("rationale") else {
            return Err(refuse("the judge's output has no rationale"));
        };
        let mut evidence = Vec::new();
        for quotes in &self.evidence {
            evidence.extend(passages(quotes.source, object.get(quotes.field))?);
        }
        Ok((written, Some(rationale.clone()), evidence))
    }

    fn distribution(&self, readout: &Readout) -> Result<Distribution, Failure> {
        if readout.labels != self.labels() {
            return Err(refuse("the readout is of other labels than the rubric's"));
        }
        Distribution::new(&readout.labels, &readout.log_masses).map_err(|error| match error {
            ScoreError::NotFinite(_) => Failure::NonFiniteLogits,
            other => Failure::Grammar(other.to_string()),
        })
    }

    fn labels(&self) -> Vec<String> {
        self.levels
            .iter()
            .map(|level| level.label.clone())
            .collect()
    }
}

/// What a distribution says, in a verdict's terms.
pub fn reading(distribution: Distribution, mass_threshold: f64) -> Reading {
    Reading {
        mass: distribution.mass,
        low_mass: distribution.mass < mass_threshold,
        entropy: distribution.entropy(),
        margin: distribution.margin(),
        distribution: distribution
            .labels
            .into_iter()
            .zip(distribution.probabilities)
            .collect(),
    }
}

/// The stream of random numbers of one question about an item: the same whatever else is judged, and in whatever order. `texts`
/// are what tells the question from the item's others.
pub fn seed(run: u64, item: &Item, texts: &[&str]) -> u64 {
    let start = Digest::new("assize seed")
        .field(run.to_le_bytes())
        .field(&item.name);
    let digest = texts.iter().fold(start, |digest, text| digest.field(text));
    let bytes = digest.bytes();
    bytes[..8]
        .iter()
        .fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// The JSON object that an answer is.
pub(super) fn object(answer: &Answer) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_str(&answer.text) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(refuse("the judge's output is not one JSON object")),
    }
}

pub(super) fn refuse(reason: &str) -> Failure {
    Failure::Grammar(reason.to_string())
}

fn passages(source: &str, evidence: Option<&Value>) -> Result<Vec<Quote>, Failure> {
    let Some(Value::Array(evidence)) = evidence else {
        return Err(refuse("the judge's output has no evidence"));
    };
    let mut quotes: Vec<Quote> = Vec::new();
    for value in evidence {
        let Value::String(text) = value else {
            return Err(refuse("a piece of evidence is not a string"));
        };
        // A passage quoted twice means its next occurrence.
        let from = quotes
            .iter()
            .filter(|quote| quote.quote == *text)
            .map(|quote| quote.end)
            .max()
            .unwrap_or(0);
        let quote = Quote::find(source, text, from).filter(|quote| !quote.quote.is_empty());
        quotes.push(quote.ok_or_else(|| refuse("a quote is not in the answer"))?);
    }
    Ok(quotes)
}
