//! Prometheus 2 and M-Prometheus: one response on five levels, or two compared, each bare, with a reference, or with a
//! context.
//!
//! In training, the system's text stood at the head of the user's turn with an empty line behind it, and so it does here.
//! Comparing shows the rubric's first line only.

use super::case::{Case, Responses};
use super::template::{Slot, fill, user};
use super::{ContractError, Posed, Sampling, prometheus};

const NAME: &str = "prometheus-v2";

/// As the authors' own code asks, but for a repetition penalty of 1.03, which is not applied here.
pub(super) const SAMPLING: Sampling = Sampling {
    temperature: 1.0,
    top_p: 0.9,
    max_tokens: 1024,
    rationale_chars: 2800,
};

const ABSOLUTE: &str = r#"You are a fair judge assistant tasked with providing clear, objective feedback based on specific criteria, ensuring each assessment reflects the absolute standards set for performance.

###Task Description:
An instruction (might include an Input inside it), a response to evaluate, {given}and a score rubric representing a evaluation criteria are given.
1. Write a detailed feedback that assess the quality of the response strictly based on the given score rubric, not evaluating in general.{refer}
2. After writing a feedback, write a score that is an integer between 1 and 5. You should refer to the score rubric.
3. The output format should look as follows: "(write a feedback for criteria) [RESULT] (an integer number between 1 and 5)"
4. Please do not generate any other opening, closing, and explanations.

###The instruction to evaluate:
{instruction}

###Response to evaluate:
{response}

{reference}###Score Rubrics:
{rubric}

###Feedback: "#;

const RELATIVE: &str = r#"You are a fair judge assistant assigned to deliver insightful feedback that compares individual performances, highlighting how each stands relative to others within the same cohort.

###Task Description:
An instruction (might include an Input inside it), two responses to evaluate (denoted as Response A and Response B), {given}and an evaluation criteria are given.
1. Write a detailed feedback that assess the quality of the two responses strictly based on the given evaluation criteria, not evaluating in general.{refer}
2. Make comparisons between Response A, Response B, and the Reference Answer. Instead of examining Response A and Response B separately, go straight to the point and mention about the commonalities and differences between them.
3. After writing the feedback, indicate the better response, either "A" or "B".
4. The output format should look as follows: "Feedback: (write a feedback for criteria) [RESULT] (Either "A" or "B")"
5. Please do not generate any other opening, closing, and explanations.

###Instruction:
{instruction}

###Response A:
{response_a}

###Response B:
{response_b}

{reference}###Score Rubric:
{rubric}

###Feedback: "#;

/// What the forms with a context say of it.
const CONTEXT: &str =
    "a relevant context to support the evaluation (denoted as Relevant Context), ";
const REFER: &str =
    " Refer to the given context when writing the feedback and making an assessment.";

pub(super) fn pose(case: &Case<'_>, rationale: Option<usize>) -> Result<Posed, ContractError> {
    let (template, referred, header, rubric, names) = match case.responses {
        Responses::One(_) => (
            ABSOLUTE,
            "a reference answer that gets a score of 5, ",
            "###Reference Answer (Score 5):\n",
            prometheus::rubric(case, NAME)?,
            case.labels(),
        ),
        Responses::Pair(..) => (
            RELATIVE,
            "a reference answer, ",
            "###Reference Answer:\n",
            format!("[{}]", case.question),
            vec!["A".to_owned(), "B".to_owned()],
        ),
    };
    let section = |header: &str, text: String| {
        let slots = vec![
            ("header", Slot::Own(header.to_owned())),
            ("text", Slot::Judged(text)),
        ];
        Slot::Parts(fill("{header}{text}\n\n", slots))
    };
    // No form has both a reference and a context: with a reference, the passages are the instruction's input.
    let (instruction, given, refer, reference) = match case.reference {
        Some(reference) => {
            let instruction = case.instruction(NAME)?;
            let reference = section(header, reference.to_owned());
            (instruction, referred, "", reference)
        }
        None if case.context.is_empty() => {
            (case.instruction(NAME)?, "", "", Slot::Parts(Vec::new()))
        }
        None => {
            let context = section("###Relevant Context:\n", case.context.join("\n\n"));
            (case.input(NAME)?.to_owned(), CONTEXT, REFER, context)
        }
    };
    let mut slots = vec![
        ("instruction", Slot::Judged(instruction)),
        ("given", Slot::Own(given.to_owned())),
        ("refer", Slot::Own(refer.to_owned())),
        ("reference", reference),
        ("rubric", Slot::Own(rubric)),
    ];
    match case.responses {
        Responses::One(response) => slots.push(("response", Slot::Judged(response.to_owned()))),
        Responses::Pair(a, b) => slots.extend([
            ("response_a", Slot::Judged(a.to_owned())),
            ("response_b", Slot::Judged(b.to_owned())),
        ]),
    }
    let messages = vec![user(fill(template, slots))];
    Ok(prometheus::posed(messages, names, rationale))
}
