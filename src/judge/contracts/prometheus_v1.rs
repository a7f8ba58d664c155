//! Prometheus 1: one response, with a reference that is worth a 5, on five levels.
//!
//! The model was trained with the reference in every prompt, so a case without one is refused.

use super::case::Case;
use super::template::{Slot, fill, user};
use super::{ContractError, Posed, Sampling, prometheus};
use crate::ask::{Message, Part, Role};

const NAME: &str = "prometheus-v1";

/// The authors sampled three answers with these (and a repetition penalty of 1.03, which is not applied here) and let
/// each have 256 tokens, drawing anew where one was cut off. Nothing is drawn anew here, so there is more room.
pub(super) const SAMPLING: Sampling = Sampling {
    temperature: 1.0,
    top_p: 0.9,
    max_tokens: 640,
    rationale_chars: 1600,
};

const SYSTEM: &str = "You are a fair evaluator language model.";

const PROMPT: &str = r#"###Task Description:
An instruction (might include an Input inside it), a response to evaluate, a reference answer that gets a score of 5, and a score rubric representing a evaluation criteria are given.
1. Write a detailed feedback that assess the quality of the response strictly based on the given score rubric, not evaluating in general.
2. After writing a feedback, write a score that is an integer between 1 and 5. You should refer to the score rubric.
3. The output format should look as follows: "Feedback: (write a feedback for criteria) [RESULT] (an integer number between 1 and 5)"
4. Please do not generate any other opening, closing, and explanations.

###The instruction to evaluate:
{instruction}

###Response to evaluate:
{response}

###Reference Answer (Score 5):
{reference}

###Score Rubrics:
{rubric}

###Feedback: "#;

pub(super) fn pose(case: &Case<'_>, rationale: Option<usize>) -> Result<Posed, ContractError> {
    let rubric = prometheus::rubric(case, NAME)?;
    let response = case.one(NAME)?;
    let reference = case.reference.ok_or(ContractError::Missing {
        contract: NAME,
        field: "reference",
        other: "the contract prometheus-v2, which can do without",
    })?;
    let slots = vec![
        ("instruction", Slot::Judged(case.instruction(NAME)?)),
        ("response", Slot::Judged(response.to_owned())),
        ("reference", Slot::Judged(reference.to_owned())),
        ("rubric", Slot::Own(rubric)),
    ];
    let system = Message {
        role: Role::System,
        parts: vec![Part::Instruction(SYSTEM.to_owned())],
    };
    let messages = vec![system, user(fill(PROMPT, slots))];
    Ok(prometheus::posed(messages, case.labels(), rationale))
}
