//! Templates: the fixed text of a form with its slots, and the segments of its answer.
//!
//! Knows which text is whose: what fills a slot is the owner's text or judged material, and stays so.

use crate::ask::{Labels, Message, Part, Role, Segment};

/// What fills a slot.
pub(super) enum Slot {
    /// Text by the owner of the run, such as a rubric.
    Own(String),
    /// Judged text.
    Judged(String),
    /// Both in turn.
    Parts(Vec<Part>),
}

/// The parts of a template whose slots, `{name}`, are filled. What names no slot stays as it is.
pub(super) fn fill(template: &str, slots: Vec<(&str, Slot)>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = template;
    let mut slots: Vec<(String, Slot)> = slots
        .into_iter()
        .map(|(name, slot)| (format!("{{{name}}}"), slot))
        .collect();
    loop {
        let next = slots
            .iter()
            .enumerate()
            .filter_map(|(index, (name, _))| Some((rest.find(name.as_str())?, index)))
            .min();
        let Some((at, index)) = next else {
            say(&mut parts, rest);
            return parts;
        };
        let (name, slot) = slots.swap_remove(index);
        say(&mut parts, &rest[..at]);
        rest = &rest[at + name.len()..];
        match slot {
            Slot::Own(text) => say(&mut parts, &text),
            Slot::Judged(text) => parts.push(Part::Material(text)),
            Slot::Parts(given) => {
                for part in given {
                    match part {
                        Part::Instruction(text) => say(&mut parts, &text),
                        judged => parts.push(judged),
                    }
                }
            }
        }
    }
}

/// Appends the owner's text to what the owner said before.
fn say(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Instruction(before)) => before.push_str(text),
        _ => parts.push(Part::Instruction(text.to_owned())),
    }
}

/// A judged text in tags, each on a line of its own.
pub(super) fn tagged(tag: &str, text: &str) -> Vec<Part> {
    vec![
        Part::Instruction(format!("<{tag}>\n")),
        Part::Material(text.to_owned()),
        Part::Instruction(format!("\n</{tag}>")),
    ]
}

/// Groups of parts with a text of the owner's between them.
pub(super) fn joined(groups: Vec<Vec<Part>>, between: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for (index, group) in groups.into_iter().enumerate() {
        if index > 0 {
            parts.push(Part::Instruction(between.to_owned()));
        }
        parts.extend(group);
    }
    parts
}

/// The one user turn that most forms are.
pub(super) fn user(parts: Vec<Part>) -> Message {
    Message {
        role: Role::User,
        parts,
    }
}

/// The headers that the judged parts hold.
pub(super) fn forged(messages: &[Message], headers: &[&'static str]) -> Vec<&'static str> {
    let judged = |header: &&&'static str| {
        let mut parts = messages.iter().flat_map(|message| &message.parts);
        parts.any(|part| matches!(part, Part::Material(text) if text.contains(**header)))
    };
    headers.iter().filter(judged).copied().collect()
}

/// A literal segment.
pub(super) fn literal(text: &str) -> Segment {
    Segment::Literal(text.to_owned())
}

/// A text of the model's own up to a mark, if there is to be one.
pub(super) fn text(max_chars: Option<usize>, until: &str) -> Option<Segment> {
    max_chars.map(|max_chars| Segment::Text {
        max_chars,
        until: until.to_owned(),
    })
}

/// The labels, bare.
pub(super) fn labels(names: Vec<String>) -> Segment {
    Segment::Labels(Labels {
        names,
        quoted: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fills_a_slot_fills_no_other() {
        let slots = vec![
            ("a", Slot::Judged("{b} {c}".to_owned())),
            ("b", Slot::Own("{a}".to_owned())),
        ];
        let parts = fill("x {a} y {b} {c}", slots);
        let expected = [
            Part::Instruction("x ".to_owned()),
            Part::Material("{b} {c}".to_owned()),
            Part::Instruction(" y {a} {c}".to_owned()),
        ];
        assert_eq!(parts, expected);
    }
}
