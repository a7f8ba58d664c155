//! Admission: from an ask to a session, or to the reason why it can never run.
//!
//! Tokenizes and compiles, and checks that prompt and answer fit before the first row is computed. Knows no batch and no
//! tensor.

use crate::ask::{Ask, Failure, FieldValue, Labels, Segment, Shape, Ticket};
use crate::engine::frontend::Frontend;
use crate::engine::session::Session;
use crate::model::batch::PAGE;

/// What bounds a single ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest sequence that the model was made for, in tokens.
    pub context: usize,
    /// Pages in the cache.
    pub pages: usize,
}

/// Makes a session of an ask, of which nothing is computed yet.
///
/// # Errors
/// [`Failure::Input`], [`Failure::Grammar`], [`Failure::ContextOverflow`], or [`Failure::Engine`] for a shape that this
/// version doesn't serve.
pub fn admit(
    ticket: Ticket,
    ask: Ask,
    frontend: &dyn Frontend,
    limits: Limits,
) -> Result<Session, Failure> {
    let decoding = ask.decoding;
    if !(decoding.temperature.is_finite() && decoding.temperature >= 0.0) {
        return Err(Failure::Input(format!(
            "the temperature is {}",
            decoding.temperature
        )));
    }
    if !(decoding.top_p > 0.0 && decoding.top_p <= 1.0) {
        return Err(Failure::Input(format!(
            "top_p is {}, not above 0 and up to 1",
            decoding.top_p
        )));
    }
    if ask.shape == Shape::Hidden {
        return Err(Failure::Engine(
            "hidden states are not in this version".to_owned(),
        ));
    }
    let tokens = frontend.encode(&ask.prompt)?;
    let prompt = tokens.len();
    if prompt == 0 {
        return Err(Failure::Input("the prompt is empty".to_owned()));
    }
    let (answer, context) = room(&ask.shape, decoding.max_tokens, limits);
    if prompt
        .checked_add(answer)
        .is_none_or(|needed| needed > context)
    {
        return Err(Failure::ContextOverflow {
            prompt,
            answer,
            context,
        });
    }
    let constraint = frontend.constrain(&ask.shape)?;
    Ok(Session::new(ticket, tokens, constraint, decoding, context))
}

/// The tokens that an answer may need, and the tokens that fit. A branch of a readout is shorter than its label has
/// bytes, and needs one page more than the sequence alone, since it has a copy of the last one.
fn room(shape: &Shape, max_tokens: usize, limits: Limits) -> (usize, usize) {
    let longest = |labels: &Labels| labels.names.iter().map(String::len).max().unwrap_or(0);
    let (answer, spare) = match shape {
        Shape::Labels(labels) => (longest(labels), 1),
        Shape::Object(fields) => {
            let branch = fields.iter().filter_map(|field| match &field.value {
                FieldValue::Labels(labels) => Some(longest(labels)),
                _ => None,
            });
            match branch.max() {
                Some(branch) => (max_tokens.saturating_add(branch), 1),
                None => (max_tokens, 0),
            }
        }
        Shape::Written(segments) => {
            let branch = segments.iter().filter_map(|segment| match segment {
                // A blank before the label may be a token of its own.
                Segment::Labels(labels) => Some(longest(labels) + 1),
                _ => None,
            });
            match branch.max() {
                Some(branch) => (max_tokens.saturating_add(branch), 1),
                None => (max_tokens, 0),
            }
        }
        Shape::Free | Shape::Schema(_) | Shape::Hidden => (max_tokens, 0),
    };
    (
        answer,
        limits
            .context
            .min(limits.pages.saturating_sub(spare) * PAGE),
    )
}
