//! What both versions of Prometheus share: the rubric's lines, the answer's form and the headers.
//!
//! Knows no prompt.

use super::case::{Case, Scale};
use super::template::{forged, labels, literal, text};
use super::{ContractError, Posed};
use crate::ask::{Message, Shape};

/// What the sections of the prompts and the answer are headed by.
const HEADERS: &[&str] = &[
    "###Task Description:",
    "###The instruction to evaluate:",
    "###Instruction:",
    "###Response to evaluate:",
    "###Response A:",
    "###Response B:",
    "###Reference Answer",
    "###Relevant Context:",
    "###Score Rubric",
    "###Feedback:",
    "[RESULT]",
];

/// The rubric's lines: the question in brackets, and a line for each of the five levels.
pub(super) fn rubric(case: &Case<'_>, contract: &'static str) -> Result<String, ContractError> {
    match case.scale() {
        Scale::Integers(levels) if levels.iter().map(|level| level.0).eq(1..=5) => {
            let lines = levels
                .iter()
                .map(|(level, description)| format!("\nScore {level}: {description}"));
            Ok(format!("[{}]{}", case.question, lines.collect::<String>()))
        }
        _ => Err(case.no_scale(
            contract,
            "the integers 1 to 5",
            "describe five levels from 1 to 5, or use the contract json, which takes any scale",
        )),
    }
}

/// Feedback, the mark, and one of the labels.
pub(super) fn posed(messages: Vec<Message>, names: Vec<String>, rationale: Option<usize>) -> Posed {
    let mut segments: Vec<_> = text(rationale, "[RESULT]").into_iter().collect();
    segments.extend([literal("[RESULT] "), labels(names.clone())]);
    Posed {
        forged: forged(&messages, HEADERS),
        messages,
        shape: Shape::Written(segments),
        labels: names,
    }
}
