//! Text as evaluators write it: literals, free text between them, and a label near the end.
//!
//! Knows where one segment ends and the next begins, and no tokens. A free text is over with the first occurrence of its
//! mark, which stands in the literal that follows: text and mark are one terminal, so that no lexer has to guess where
//! the text ends, whatever is written in it.

use super::ConstrainError;
use super::labels::check;
use super::rules::{MOST_CHARACTERS, Outline, Rules};
use super::walker::End;
use crate::ask::{Labels, Segment};

/// The outline of these segments. No text may hold one of `endings`, which are what ends a judge's answer.
///
/// # Errors
/// [`ConstrainError::Compile`] where labels come twice or are followed by more than a literal, a text is not followed by a
/// literal with its mark, or a bound admits nothing.
pub(super) fn written(segments: &[Segment], endings: &[String]) -> Result<Outline, ConstrainError> {
    let mut rules = Rules::default();
    let refuse = |at: usize, reason: String| {
        Err(ConstrainError::Compile(format!(
            "segment {}: {reason}",
            at + 1
        )))
    };
    let labels = segments
        .iter()
        .position(|segment| matches!(segment, Segment::Labels(_)));
    let body = &segments[..labels.unwrap_or(segments.len())];
    // All that is literal at the end of the body is held back: its last blank may belong to the label.
    let mut literal = String::new();
    let mut rest = body.iter().enumerate();
    while let Some((at, segment)) = rest.next() {
        match segment {
            Segment::Literal(text) => literal.push_str(text),
            Segment::Labels(_) => return refuse(at, "labels are there twice".to_owned()),
            Segment::Text { max_chars, until } => {
                rules.literal(&std::mem::take(&mut literal));
                if !(1..=MOST_CHARACTERS).contains(max_chars) {
                    return refuse(
                        at,
                        format!(
                            "a text of {max_chars} characters is outside 1..={MOST_CHARACTERS}"
                        ),
                    );
                }
                let Some((_, Segment::Literal(next))) = rest.next() else {
                    return refuse(at, "no literal follows the text".to_owned());
                };
                let Some(place) = next.find(until.as_str()).filter(|_| !until.is_empty()) else {
                    return refuse(
                        at,
                        format!(
                            "the mark {until:?} is not in the literal {next:?} that follows the text"
                        ),
                    );
                };
                let end = place + until.len();
                let never: Vec<&str> = endings.iter().map(String::as_str).collect();
                rules.written(*max_chars, &next[..end], until, &never);
                literal.push_str(&next[end..]);
            }
        }
    }
    let Some((at, Segment::Labels(given))) = labels.map(|at| (at, &segments[at])) else {
        rules.literal(&literal);
        return Ok(Outline {
            body: rules.finish(),
            end: End::Done,
        });
    };
    check(given)?;
    let closing = match &segments[at + 1..] {
        [] => String::new(),
        [Segment::Literal(text)] => text.clone(),
        _ => return refuse(at, "more than a literal follows the labels".to_owned()),
    };
    let opening = if literal.ends_with(' ') {
        literal.pop();
        " ".to_owned()
    } else {
        String::new()
    };
    if let Some(name) = given.names.iter().find(|name| name.starts_with(' ')) {
        return refuse(at, format!("the label {name:?} begins with a blank"));
    }
    rules.literal(&literal);
    Ok(Outline {
        body: rules.finish(),
        end: End::Labels {
            labels: Labels {
                names: given.names.clone(),
                quoted: false,
            },
            opening,
            closing,
        },
    })
}
