//! Evaluator contracts: the prompt that a model was trained to judge by, and the form in which it answers.
//!
//! A [`Contract`] turns a [`Case`] into messages and a [`Shape::Written`], and reads the
//! answer back. It knows no model, no file of a run and no verdict. The general form, asked and answered as JSON, is
//! `judge/prompt`'s; here it has only its name.
//!
//! These forms have fixed headers, so judged text can't be kept from holding one, as it is between `judge/prompt`'s
//! delimiters. It stays material, so that it becomes no control token, and it can't forge a score: the score is what the
//! model's own probabilities say at the place that the shape sets, and no text is searched for it. What it can do is to
//! look like a section of the prompt; [`Posed::forged`] names the headers that it holds, so that a run can say so.

mod case;
mod error;
mod flow_judge;
mod glider;
mod prometheus;
mod prometheus_v1;
mod prometheus_v2;
mod selene;
mod template;

pub use case::{Case, Grade, Responses};
pub use error::ContractError;

use crate::ask::{Message, Readout, Segment, Shape};

/// The name of the general form, which is no evaluator's.
pub const JSON: &str = "json";

/// A form that an evaluator model was trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Prometheus 1: one response, a reference, levels 1 to 5.
    PrometheusV1,
    /// Prometheus 2 and M-Prometheus: one response on levels 1 to 5, or two compared.
    PrometheusV2,
    /// Flow Judge: pass or fail, levels 1 to 3 or 1 to 5, in tags.
    FlowJudge,
    /// GLIDER: any integer levels, in tags, with the phrases that decided.
    Glider,
    /// Selene 1: levels 1 to 5, pass or fail, or two responses compared.
    Selene,
}

/// How a contract's authors had its answers decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 means the most probable token.
    pub temperature: f32,
    /// Nucleus mass, 1 means all.
    pub top_p: f32,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// Longest rationale, in characters: what so many tokens hold of English text, with some to spare for the label.
    pub rationale_chars: usize,
}

/// A case in the form of a contract.
#[derive(Clone, Debug, PartialEq)]
pub struct Posed {
    /// The prompt.
    pub messages: Vec<Message>,
    /// The answer's shape.
    pub shape: Shape,
    /// What each label of the shape is called in the rubric, in the shape's order.
    pub labels: Vec<String>,
    /// Headers of the form that the judged text holds.
    pub forged: Vec<&'static str>,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The rationale, without blanks around it; `None` where none was asked for.
    pub rationale: Option<String>,
    /// The phrases that decided, where the form asks for them.
    pub highlights: Option<String>,
    /// The label, as the rubric calls it.
    pub label: String,
}

impl Contract {
    /// All contracts.
    pub const ALL: [Contract; 5] = [
        Contract::PrometheusV1,
        Contract::PrometheusV2,
        Contract::FlowJudge,
        Contract::Glider,
        Contract::Selene,
    ];

    /// The name in manifests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Contract::PrometheusV1 => "prometheus-v1",
            Contract::PrometheusV2 => "prometheus-v2",
            Contract::FlowJudge => "flow-judge",
            Contract::Glider => "glider",
            Contract::Selene => "selene",
        }
    }

    /// The contract that a manifest names; `None` for the general form, [`JSON`].
    ///
    /// # Errors
    /// [`ContractError::Unknown`] for any other name.
    pub fn for_model(name: &str) -> Result<Option<Contract>, ContractError> {
        let found = Contract::ALL
            .into_iter()
            .find(|contract| contract.name() == name);
        match found {
            None if name != JSON => Err(ContractError::Unknown(name.to_owned())),
            found => Ok(found),
        }
    }

    /// How its authors had its answers decoded. These are defaults: a rubric or a manifest may say otherwise.
    pub fn sampling(self) -> Sampling {
        match self {
            Contract::PrometheusV1 => prometheus_v1::SAMPLING,
            Contract::PrometheusV2 => prometheus_v2::SAMPLING,
            Contract::FlowJudge => flow_judge::SAMPLING,
            Contract::Glider => glider::SAMPLING,
            Contract::Selene => selene::SAMPLING,
        }
    }

    /// Puts a case into the contract's form. `rationale` is the longest rationale in characters; without one the label
    /// is read where it would stand after an empty rationale, and no token is decoded.
    ///
    /// # Errors
    /// [`ContractError`] where the form can't express the case, with what to do about it.
    pub fn pose(self, case: &Case<'_>, rationale: Option<usize>) -> Result<Posed, ContractError> {
        match self {
            Contract::PrometheusV1 => prometheus_v1::pose(case, rationale),
            Contract::PrometheusV2 => prometheus_v2::pose(case, rationale),
            Contract::FlowJudge => flow_judge::pose(case, rationale),
            Contract::Glider => glider::pose(case, rationale),
            Contract::Selene => selene::pose(case, rationale),
        }
    }

    /// Reads the answer to `posed`, which was this contract's.
    ///
    /// # Errors
    /// [`ContractError::Answer`] for text that is not of the posed shape: it is never guessed what was meant.
    pub fn read(self, posed: &Posed, text: &str) -> Result<Reading, ContractError> {
        let refuse = || ContractError::Answer {
            contract: self.name(),
        };
        let Shape::Written(segments) = &posed.shape else {
            return Err(refuse());
        };
        let (texts, label) = take_apart(segments, text).ok_or_else(refuse)?;
        let mut texts = texts.into_iter().map(|text| text.trim().to_owned());
        let label = posed.labels.get(label).ok_or_else(refuse)?.clone();
        Ok(Reading {
            rationale: texts.next(),
            highlights: texts.next(),
            label,
        })
    }
}

impl Posed {
    /// A readout at the answer's label, with the labels as the rubric calls them.
    ///
    /// # Errors
    /// [`ContractError::Readout`] for a readout of other labels than were asked for.
    pub fn relabel(&self, readout: &Readout) -> Result<Readout, ContractError> {
        if readout.labels != self.spoken() || readout.labels.len() != self.labels.len() {
            return Err(ContractError::Readout);
        }
        Ok(Readout {
            labels: self.labels.clone(),
            log_masses: readout.log_masses.clone(),
        })
    }

    /// The labels as the model writes them.
    pub fn spoken(&self) -> &[String] {
        let Shape::Written(segments) = &self.shape else {
            return &[];
        };
        let labels = segments.iter().find_map(|segment| match segment {
            Segment::Labels(labels) => Some(labels.names.as_slice()),
            _ => None,
        });
        labels.unwrap_or_default()
    }
}

/// What to tell the user where a model that was trained on the contract `own` is used with the contract `used`; `None`
/// where they are the same.
pub fn mismatch(model: &str, own: &str, used: &str) -> Option<String> {
    (own != used).then(|| {
        format!(
            "{model} was made for the contract {own}, but is asked in the form of {used}: its scores may mean little \
             (leave the contract out to use its own)"
        )
    })
}

/// The texts of an answer, and the index of its label.
fn take_apart<'a>(segments: &[Segment], text: &'a str) -> Option<(Vec<&'a str>, usize)> {
    let mut rest = text;
    let mut texts = Vec::new();
    let mut label = None;
    let mut segments = segments.iter().peekable();
    while let Some(segment) = segments.next() {
        match segment {
            Segment::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
            Segment::Text { until, .. } => {
                let Some(Segment::Literal(next)) = segments.peek() else {
                    return None;
                };
                let end = rest
                    .find(until.as_str())?
                    .checked_sub(next.find(until.as_str())?)?;
                texts.push(rest.get(..end)?);
                rest = rest.get(end..)?;
            }
            Segment::Labels(labels) => {
                let closing = match segments.peek() {
                    Some(Segment::Literal(closing)) => closing.as_str(),
                    _ => "",
                };
                let written = rest.strip_suffix(closing)?;
                label = Some(labels.names.iter().position(|name| name == written)?);
                rest = &rest[written.len()..];
            }
        }
    }
    Some((texts, label?)).filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_contracts_and_back() {
        for contract in Contract::ALL {
            assert_eq!(Contract::for_model(contract.name()), Ok(Some(contract)));
        }
        assert_eq!(Contract::for_model(JSON), Ok(None));
        let unknown = Contract::for_model("prometheus").unwrap_err();
        assert!(unknown.to_string().contains("prometheus-v2"), "{unknown}");
    }

    #[test]
    fn a_foreign_contract_is_told() {
        assert_eq!(mismatch("m", "glider", "glider"), None);
        let told = mismatch("m", "json", "selene").unwrap();
        assert!(told.contains("m was made for the contract json"), "{told}");
    }
}
