//! The prompts that Prometheus 1 was measured with, taken apart and put together again.

use crate::spoken;
use assize::judge::contracts::{Case, Contract, Grade, Responses};
use serde_json::Value;

const HEADERS: [&str; 5] = [
    "###The instruction to evaluate:\n",
    "\n\n###Response to evaluate:\n",
    "\n\n###Reference Answer (Score 5):\n",
    "\n\n###Score Rubrics:\n",
    "\n\n###Feedback: ",
];

/// The texts between the headers: instruction, response, reference and rubric.
fn take_apart(prompt: &str) -> Option<[&str; 4]> {
    let mut rest = prompt.split_once(HEADERS[0])?.1;
    let mut texts = [""; 4];
    for (text, header) in texts.iter_mut().zip(&HEADERS[1..]) {
        (*text, rest) = rest.split_once(header)?;
    }
    rest.is_empty().then_some(texts)
}

/// The question and the five levels' descriptions of a rubric.
fn rubric(text: &str) -> Option<(&str, Vec<&str>)> {
    let (question, mut rest) = text.strip_prefix('[')?.split_once("]\nScore 1: ")?;
    let mut levels = Vec::new();
    for level in 2..=5 {
        let (description, next) = rest.split_once(&format!("\nScore {level}: "))?;
        levels.push(description);
        rest = next;
    }
    levels.push(rest);
    Some((question, levels))
}

#[test]
fn the_prompts_of_vicuna_eval_come_out_byte_for_byte() {
    let test = "the_prompts_of_vicuna_eval_come_out_byte_for_byte";
    let Some(file) = crate::common::shared(test, "data/vicuna-eval/vicuna_eval.json") else {
        return;
    };
    let text = std::fs::read_to_string(file).expect("the data can be read");
    let rows: Vec<Value> = serde_json::from_str(&text).expect("and are JSON");
    assert_eq!(rows.len(), 320);
    let labels = ["1", "2", "3", "4", "5"];
    let mut different = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let prompt = row["instruction"].as_str().expect("a prompt");
        let Some([input, response, reference, scale]) = take_apart(prompt) else {
            different.push(format!("row {index} has other sections"));
            continue;
        };
        let Some((question, levels)) = rubric(scale) else {
            different.push(format!("row {index} has another rubric"));
            continue;
        };
        let grades: Vec<Grade<'_>> = labels
            .into_iter()
            .zip(levels)
            .map(|(label, description)| Grade { label, description })
            .collect();
        let case = Case {
            input: Some(input),
            context: &[],
            reference: Some(reference),
            responses: Responses::One(response),
            question,
            grades: &grades,
        };
        let posed = Contract::PrometheusV1
            .pose(&case, Some(100))
            .expect("the form fits");
        if posed.messages.last().map(spoken).as_deref() != Some(prompt) {
            different.push(format!("row {index} comes out otherwise"));
        }
    }
    println!(
        "{} of {} rows differ: {different:?}",
        different.len(),
        rows.len()
    );
    assert!(different.is_empty(), "{}", different.join("\n"));
}
