//! GLIDER: texts in tags, pass criteria, and a rubric of any integers; reasoning, the phrases that decided, the score.
//!
//! The tags are those that its card shows for texts that are no conversation. Two responses are not compared: the card
//! gives no form for it.

use super::case::{Case, Scale};
use super::template::{Slot, fill, forged, joined, labels, literal, tagged, text, user};
use super::{ContractError, Posed, Sampling};
use crate::ask::Shape;

const NAME: &str = "glider";

/// As the authors' own evaluation decodes.
pub(super) const SAMPLING: Sampling = Sampling {
    temperature: 0.0,
    top_p: 1.0,
    max_tokens: 2048,
    rationale_chars: 4000,
};

/// Longest list of phrases, in characters.
const HIGHLIGHT_CHARS: usize = 600;

const HEADERS: &[&str] = &[
    "</CONTEXT>",
    "</USER INPUT>",
    "</REFERENCE>",
    "<MODEL OUTPUT>",
    "</MODEL OUTPUT>",
    "Pass Criteria:",
    "Rubric:",
    "<reasoning>",
    "<highlight>",
    "<score>",
];

/// The blank at the end of the fifth line is the form's own.
const PROMPT: &str = "Analyze the following pass criteria carefully and score the text based on the rubric defined below.

To perform this evaluation, you must:

1. Understand the text tags, pass criteria and rubric thoroughly.
2. Review the finer details of the text and the rubric.
3. Compare the tags to be evaluated to the score descriptions in the rubric.
4. Pay close attention to small details that might impact the final score and form accurate associations between tags and pass criteria.
5. Write a detailed reasoning justifying your evaluation in a bullet point format.\u{20}
6. The reasoning must summarize the overall strengths and weaknesses of the output while quoting exact phrases from the output wherever required.
7. Output a list of words or phrases that you believe are the most important in determining the score.
8. Assign a final score based on the scoring rubric.

Data to evaluate:
{data}

Pass Criteria:
{criteria}

Rubric:
{rubric}

Your output must in the following format:
<reasoning>
[Detailed reasoning justifying your evaluation in a bullet point format according to the specifics defined above]
</reasoning>
<highlight>
[List of words or phrases that you believe are the most important in determining the score]
</highlight>
<score>
[The final integer score assigned based on the scoring rubric]
</score>
";

pub(super) fn pose(case: &Case<'_>, rationale: Option<usize>) -> Result<Posed, ContractError> {
    let response = case.one(NAME)?;
    let (levels, names) = match case.scale() {
        Scale::Binary { pass, fail } => (vec![(0, fail), (1, pass)], case.binary("1", "0")),
        Scale::Integers(levels) => (levels, case.labels()),
        Scale::Other => {
            return Err(case.no_scale(
                NAME,
                "pass and fail, or integers",
                "number the levels, or use the contract json, which takes any labels",
            ));
        }
    };
    let rubric: Vec<String> = levels
        .iter()
        .map(|(level, description)| format!("{level}: {description}"))
        .collect();
    let mut data = Vec::new();
    if !case.context.is_empty() {
        data.push(tagged("CONTEXT", &case.context.join("\n\n")));
    }
    data.extend(case.input.map(|text| tagged("USER INPUT", text)));
    data.extend(case.reference.map(|text| tagged("REFERENCE", text)));
    data.push(tagged("MODEL OUTPUT", response));
    let slots = vec![
        ("data", Slot::Parts(joined(data, "\n\n"))),
        ("criteria", Slot::Own(case.question.to_owned())),
        ("rubric", Slot::Own(rubric.join("\n"))),
    ];
    let messages = vec![user(fill(PROMPT, slots))];
    let highlights = rationale.map(|longest| longest.min(HIGHLIGHT_CHARS));
    let mut segments = vec![literal("<reasoning>\n")];
    segments.extend(text(rationale, "</reasoning>"));
    segments.push(literal("</reasoning>\n<highlight>\n"));
    segments.extend(text(highlights, "</highlight>"));
    segments.extend([
        literal("</highlight>\n<score>\n"),
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
