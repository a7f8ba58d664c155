//! Text as evaluators write it: literals, free text between them, and a label near the end.
//!
//! Knows where one segment ends and the next begins, and no tokens.

use super::ConstrainError;
use super::labels::check;
use super::walker::End;
use crate::ask::{Labels, Segment};

/// Longest text of one segment, in characters.
const MOST_CHARACTERS: usize = 1 << 20;

/// A stretch of the output.
#[derive(Debug, PartialEq)]
pub(super) enum Stretch {
    /// This text.
    Literal(String),
    /// Text of the model's own, and the literal that it is over with.
    Passage {
        /// Most characters of the text.
        longest: usize,
        /// What it is over with.
        mark: String,
        /// The literal behind it, up to and with the mark.
        end: String,
        /// The rest of that literal.
        rest: String,
    },
}

/// The stretches that these segments are made of, and what follows them.
///
/// # Errors
/// [`ConstrainError::Compile`] where labels come twice or are followed by more than a literal, a text is not followed by a
/// literal with its mark, or a bound admits nothing.
pub(super) fn written(segments: &[Segment]) -> Result<(Vec<Stretch>, End), ConstrainError> {
    let refuse = |at: usize, reason: String| {
        let segment = at + 1;
        Err(ConstrainError::Compile(format!(
            "segment {segment}: {reason}"
        )))
    };
    let labels = segments
        .iter()
        .position(|segment| matches!(segment, Segment::Labels(_)));
    let body = &segments[..labels.unwrap_or(segments.len())];
    let mut stretches = Vec::new();
    let mut rest = body.iter().enumerate();
    while let Some((at, segment)) = rest.next() {
        match segment {
            Segment::Literal(text) => literal(&mut stretches, text),
            Segment::Labels(_) => return refuse(at, "labels are there twice".to_owned()),
            Segment::Text { max_chars, until } => {
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
                            "the mark {until:?} is not in the literal {next:?} behind the text"
                        ),
                    );
                };
                let (end, rest) = next.split_at(place + until.len());
                stretches.push(Stretch::Passage {
                    longest: *max_chars,
                    mark: until.clone(),
                    end: end.to_owned(),
                    rest: rest.to_owned(),
                });
            }
        }
    }
    let Some((at, Segment::Labels(given))) = labels.map(|at| (at, &segments[at])) else {
        return Ok((stretches, End::Done));
    };
    check(given)?;
    if let Some(name) = given.names.iter().find(|name| name.starts_with(' ')) {
        return refuse(at, format!("the label {name:?} begins with a blank"));
    }
    let closing = match &segments[at + 1..] {
        [] => String::new(),
        [Segment::Literal(text)] => text.clone(),
        _ => return refuse(at, "more than a literal follows the labels".to_owned()),
    };
    let end = End::Labels {
        labels: Labels {
            names: given.names.clone(),
            quoted: false,
        },
        opening: take_blank(&mut stretches),
        closing,
    };
    Ok((stretches, end))
}

/// Appends a literal to the one that is there.
fn literal(stretches: &mut Vec<Stretch>, text: &str) {
    match stretches.last_mut() {
        Some(Stretch::Literal(before)) => before.push_str(text),
        Some(Stretch::Passage { rest, .. }) => rest.push_str(text),
        None => stretches.push(Stretch::Literal(text.to_owned())),
    }
}

/// Takes the blank from the end of the last literal, if it has one, since it may be one token with the label.
fn take_blank(stretches: &mut [Stretch]) -> String {
    let (Some(Stretch::Literal(last)) | Some(Stretch::Passage { rest: last, .. })) =
        stretches.last_mut()
    else {
        return String::new();
    };
    match last.strip_suffix(' ') {
        Some(rest) => {
            *last = rest.to_owned();
            " ".to_owned()
        }
        None => String::new(),
    }
}
