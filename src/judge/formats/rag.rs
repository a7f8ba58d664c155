//! Retrieval-augmented answers: three verdicts on three things that fail apart from each other.
//!
//! Faithfulness is of the answer to its context, relevance of the answer to its input, relevance of each passage to the input.
//! None of them is shown what it must not judge by: the first does not see the question, the second not the context, and
//! the third not the answer.

use super::passages::Passages;
use super::pointwise::Pointwise;
use crate::judge::Manner;
use crate::judge::evaluation::Format;
use crate::judge::rubric::{Rubric, Shown};
use std::sync::Arc;

/// The three formats of a rubric, whose ids tell them apart.
pub fn formats(rubric: &Rubric, manner: Manner) -> Vec<Arc<dyn Format>> {
    let part = |id: &str, criterion: &str, question: &str, shows: &[Shown], levels: [&str; 2]| {
        let mut part = rubric.clone();
        part.id = format!("{}.{id}", rubric.id);
        part.criterion = criterion.into();
        part.question = question.into();
        part.shows = shows.to_vec();
        for (level, description) in part.levels.iter_mut().zip(levels) {
            level.description = description.into();
        }
        part
    };
    let faithfulness = part(
        "faithfulness",
        "Faithfulness of the answer to its context",
        "Is all that the ANSWER states supported by the CONTEXT?",
        &[Shown::Context, Shown::Answer],
        [
            "Everything that it states is said by the context, or follows from it.",
            "It states something that the context does not say, or denies.",
        ],
    );
    let relevance = part(
        "answer_relevance",
        "Relevance of the answer to the input",
        "Does the ANSWER answer the INPUT?",
        &[Shown::Input, Shown::Answer],
        [
            "It addresses what was asked, and keeps to it.",
            "It leaves what was asked unanswered, or is about something else.",
        ],
    );
    let context = part(
        "context_relevance",
        "Relevance of a passage to the input",
        "Does the PASSAGE help to answer the INPUT?",
        &[Shown::Input, Shown::Answer],
        [
            "It holds something that an answer to the input would use.",
            "Nothing in it bears on the input.",
        ],
    );
    let pointwise = |rubric| Pointwise { rubric, manner };
    vec![
        Arc::new(pointwise(faithfulness)),
        Arc::new(pointwise(relevance)),
        Arc::new(Passages {
            rubric: context,
            manner,
        }),
    ]
}
