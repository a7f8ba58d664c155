//! Flow Judge: inputs and output in tags, graded pass or fail, on three levels, or on five.
//!
//! Inputs are named as the authors' own metrics name them: query, context, reference answer; the output is a response.
//! A case that has none of them is judged by the form without inputs.

use super::case::{Case, Scale};
use super::template::{Slot, fill, forged, joined, labels, literal, tagged, text, user};
use super::{ContractError, Posed, Sampling};
use crate::ask::Shape;

const NAME: &str = "flow-judge";

/// As the authors' own settings say.
pub(super) const SAMPLING: Sampling = Sampling {
    temperature: 0.1,
    top_p: 0.95,
    max_tokens: 1000,
    rationale_chars: 2800,
};

const HEADERS: &[&str] = &[
    "</inputs>",
    "</query>",
    "</context>",
    "</reference_answer>",
    "<output>",
    "</output>",
    "</response>",
    "<evaluation_criteria>",
    "<scoring_rubric>",
    "# INSTRUCTIONS FOR THE EVALUATION",
    "<feedback>",
    "<score>",
];

const PROMPT: &str = "# GOAL
Your job is to evaluate a task carried out by an AI system powered by a large language model.

You will be provided {given} of the task, as well as the evaluation criteria and scoring rubric. Your task is to evaluate the output of the AI system based on the evaluation criteria and scoring rubric provided.

{input_section}# OUTPUT
Below is the output of the task:
<output>
{output}
</output>

# EVALUATION CRITERIA AND SCORING RUBRIC
Here are the evaluation criteria and the rubric that you need to use for evaluating the task:
<evaluation_criteria>
{criteria}
</evaluation_criteria>

<scoring_rubric>
{rubric}
</scoring_rubric>

# INSTRUCTIONS FOR THE EVALUATION
1. Understand the task and criteria: Familiarize yourself with the task to be evaluated. Review the evaluation criteria and scoring rubric to understand the different levels of performance and the descriptions for each score.
2. {review}
3. Compare output to score descriptions: Compare the output against the criteria and score descriptions in the scoring rubric. For each criterion,decide which description best matches the output.
4. After comparing the output to the score descriptions, pay attention to the small details that might impact the final score that you assign. Sometimes a small difference can dictate the final score.
5. Write verbal feedback justifying your evaluation that includes a detailed rationale, referring to specific aspects of the output and comparing them to the rubric.
6. Assign a final score based on the scoring rubric.

## FORMAT FOR THE EVALUATION
- Write the verbal feedback inside <feedback> tags without any additional surrounding text.
- Write the numeric score inside <score> tags, without any additional surrounding text and always after the feedback.

Please accurately evaluate the task. Strictly adhere to the evaluation criteria and rubric.";

const INPUTS: &str = "# INPUT
Below are the inputs required for performing the task:
<inputs>
{inputs}
</inputs>

";

const REVIEW: &str = "Review the inputs and output: Look at the inputs provided for the task. Examine the output generated from completing the task.";

const REVIEW_OUTPUT: &str =
    "Review the output: Examine the output generated from completing the task.";

pub(super) fn pose(case: &Case<'_>, rationale: Option<usize>) -> Result<Posed, ContractError> {
    let response = case.one(NAME)?;
    let (rubric, names) = match case.scale() {
        Scale::Binary { pass, fail } => (lines(&[(0, fail), (1, pass)]), case.binary("1", "0")),
        Scale::Integers(levels) if trained(&levels) => (lines(&levels), case.labels()),
        _ => {
            return Err(case.no_scale(
                NAME,
                "pass and fail, 0 and 1, or the integers 1 to 3 and 1 to 5",
                "take one of these scales, or use the contract json, which takes any",
            ));
        }
    };
    let mut inputs = Vec::new();
    inputs.extend(case.input.map(|text| tagged("query", text)));
    if !case.context.is_empty() {
        inputs.push(tagged("context", &case.context.join("\n\n")));
    }
    inputs.extend(case.reference.map(|text| tagged("reference_answer", text)));
    let (given, review) = match inputs.is_empty() {
        true => ("the output", REVIEW_OUTPUT),
        false => ("with the inputs and output", REVIEW),
    };
    let section = match inputs.is_empty() {
        true => Vec::new(),
        false => fill(INPUTS, vec![("inputs", Slot::Parts(joined(inputs, "\n")))]),
    };
    let slots = vec![
        ("given", Slot::Own(given.to_owned())),
        ("input_section", Slot::Parts(section)),
        ("output", Slot::Parts(tagged("response", response))),
        ("criteria", Slot::Own(case.question.to_owned())),
        ("rubric", Slot::Own(rubric)),
        ("review", Slot::Own(review.to_owned())),
    ];
    let messages = vec![user(fill(PROMPT, slots))];
    let mut segments = vec![literal("<feedback>\n")];
    segments.extend(text(rationale, "</feedback>"));
    segments.extend([
        literal("</feedback>\n<score>\n"),
        labels(names),
        literal("\n</score>"),
    ]);
    Ok(Posed {
        forged: forged(&messages, HEADERS),
        messages,
        shape: Shape::Written(segments),
        labels: case.labels(),
    })
}

/// Whether the model was trained on these levels.
fn trained(levels: &[(i64, &str)]) -> bool {
    [0..=1, 1..=3, 1..=5]
        .into_iter()
        .any(|range| levels.iter().map(|level| level.0).eq(range))
}

fn lines(levels: &[(i64, &str)]) -> String {
    let lines: Vec<String> = levels
        .iter()
        .map(|(level, description)| format!("- Score {level}: {description}"))
        .collect();
    lines.join("\n")
}
