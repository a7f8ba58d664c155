//! What is judged, in plain terms, and on which scale.
//!
//! Knows no form: it only tells whether the labels are pass and fail, integers, or neither.

use super::ContractError;

/// What is to be judged, and by what.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What the judged system was given.
    pub input: Option<&'a str>,
    /// The passages that it had.
    pub context: &'a [String],
    /// A right answer.
    pub reference: Option<&'a str>,
    /// What is judged.
    pub responses: Responses<'a>,
    /// The question that the judge answers.
    pub question: &'a str,
    /// The levels; not looked at where two responses are compared.
    pub grades: &'a [Grade<'a>],
}

/// The judged responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responses<'a> {
    /// One, which is graded.
    One(&'a str),
    /// Two, which are compared; the labels are `A` and `B`.
    Pair(&'a str, &'a str),
}

/// One level of the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grade<'a> {
    /// `pass`, `fail`, or an integer in decimal digits.
    pub label: &'a str,
    /// When a response is on this level.
    pub description: &'a str,
}

/// The kind of a scale.
pub(super) enum Scale<'a> {
    /// Pass and fail.
    Binary {
        /// When a response passes.
        pass: &'a str,
        /// When it fails.
        fail: &'a str,
    },
    /// Integers with their descriptions, ascending.
    Integers(Vec<(i64, &'a str)>),
    /// Anything else.
    Other,
}

impl<'a> Case<'a> {
    /// The scale that the labels make.
    pub(super) fn scale(&self) -> Scale<'a> {
        let described = |label: &str| {
            let grade = self.grades.iter().find(|grade| grade.label == label);
            grade.map(|grade| grade.description)
        };
        if let (Some(pass), Some(fail), 2) =
            (described("pass"), described("fail"), self.grades.len())
        {
            return Scale::Binary { pass, fail };
        }
        let integer = |grade: &Grade<'a>| {
            let value: i64 = grade.label.parse().ok()?;
            (value.to_string() == grade.label).then_some((value, grade.description))
        };
        match self.grades.iter().map(integer).collect::<Option<Vec<_>>>() {
            Some(mut integers) if !integers.is_empty() => {
                integers.sort_by_key(|(value, _)| *value);
                Scale::Integers(integers)
            }
            _ => Scale::Other,
        }
    }

    /// The rubric's labels, in its order.
    pub(super) fn labels(&self) -> Vec<String> {
        let labels = self.grades.iter().map(|grade| grade.label.to_owned());
        labels.collect()
    }

    /// The labels of a binary scale in the rubric's order, each as a contract writes it.
    pub(super) fn binary(&self, pass: &str, fail: &str) -> Vec<String> {
        let labels = self.grades.iter().map(|grade| match grade.label {
            "pass" => pass.to_owned(),
            _ => fail.to_owned(),
        });
        labels.collect()
    }

    /// The one response.
    pub(super) fn one(&self, contract: &'static str) -> Result<&'a str, ContractError> {
        match self.responses {
            Responses::One(response) => Ok(response),
            Responses::Pair(..) => Err(ContractError::Pair { contract }),
        }
    }

    /// The instruction alone.
    pub(super) fn input(&self, contract: &'static str) -> Result<&'a str, ContractError> {
        self.input.ok_or(ContractError::Missing {
            contract,
            field: "input",
            other: "the contract json, flow-judge or glider",
        })
    }

    /// The instruction, with the passages below it: these forms say that an instruction may have an input inside it, and
    /// have no other place for one.
    pub(super) fn instruction(&self, contract: &'static str) -> Result<String, ContractError> {
        let mut texts = vec![self.input(contract)?];
        texts.extend(self.context.iter().map(String::as_str));
        Ok(texts.join("\n\n"))
    }

    /// The error for a scale that the form does not have.
    pub(super) fn no_scale(
        &self,
        contract: &'static str,
        grades: &'static str,
        mend: &'static str,
    ) -> ContractError {
        ContractError::Scale {
            contract,
            grades,
            labels: match self.grades {
                [] => "none".to_owned(),
                _ => self.labels().join(", "),
            },
            mend,
        }
    }
}
