//! Grammars in llguidance's terms: an object's fields as a Lark grammar, a JSON schema with compact separators.
//!
//! Knows no tokens: what it makes is text, and the literal end that follows.

use super::ConstrainError;
use super::labels::{check, escaped, written};
use super::quotes::Quotes;
use crate::ask::{Field, FieldValue, Labels};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt::Write;

/// Longest text that a field may hold, in characters.
const MOST_CHARACTERS: usize = 1 << 20;

/// Most passages that a field may hold.
const MOST_QUOTES: usize = 1 << 10;

/// What an object's text is made of, up to the labels.
#[derive(Debug, PartialEq)]
pub(super) struct Outline {
    /// The text that comes whatever the model thinks, or a grammar where it has a choice.
    pub(super) body: Body,
    /// The labels that follow and the text after them, if the object ends with labels.
    pub(super) labels: Option<(Labels, String)>,
}

/// The text of an object up to its labels.
#[derive(Debug, PartialEq)]
pub(super) enum Body {
    /// There is nothing to choose.
    Literal(String),
    /// A Lark grammar.
    Lark(String),
}

/// The outline of an object whose fields come in this order, with compact separators.
///
/// # Errors
/// [`ConstrainError::Compile`] where a name comes twice, labels are not the last field, bare labels are no JSON, or a
/// bound admits nothing.
pub(super) fn object(fields: &[Field]) -> Result<Outline, ConstrainError> {
    let mut names = HashSet::new();
    let mut rules = Rules::default();
    let mut labels = None;
    rules.literal("{");
    for (index, field) in fields.iter().enumerate() {
        let refuse = |reason: String| {
            Err(ConstrainError::Compile(format!(
                "field {:?}: {reason}",
                field.name
            )))
        };
        if !names.insert(&field.name) {
            return refuse("the name is there twice".to_owned());
        }
        if index > 0 {
            rules.literal(",");
        }
        rules.literal(&format!("\"{}\":", escaped(&field.name)));
        match &field.value {
            FieldValue::Text { max_chars } => {
                if !(1..=MOST_CHARACTERS).contains(max_chars) {
                    return refuse(format!(
                        "a text of {max_chars} characters is outside 1..={MOST_CHARACTERS}"
                    ));
                }
                rules.text(*max_chars);
            }
            FieldValue::Quotes {
                source,
                max_items,
                max_chars,
            } => {
                if *max_items > MOST_QUOTES {
                    return refuse(format!("{max_items} quotes are more than {MOST_QUOTES}"));
                }
                // The bound keeps the grammar's counters small; no source is longer.
                match Quotes::of(source, (*max_chars).min(MOST_CHARACTERS))? {
                    Some(quotes) if *max_items > 0 => rules.quotes(&quotes, *max_items),
                    _ => rules.literal("[]"),
                }
            }
            FieldValue::Labels(given) => {
                if index + 1 < fields.len() {
                    return refuse("labels must be the last field".to_owned());
                }
                check(given)?;
                if given.quoted {
                    rules.literal("\"");
                } else if let Some(name) = written(given).iter().find(|name| !is_compact_json(name))
                {
                    return refuse(format!("the bare label {name:?} is no JSON value"));
                }
                labels = Some((
                    given.clone(),
                    if given.quoted { "\"}" } else { "}" }.to_owned(),
                ));
            }
        }
    }
    if labels.is_none() {
        rules.literal("}");
    }
    Ok(Outline {
        body: rules.finish(),
        labels,
    })
}

/// A JSON schema, given as text, with the settings that make its separators compact.
///
/// # Errors
/// [`ConstrainError::Compile`] where the text is no JSON schema at all.
pub(super) fn schema(text: &str) -> Result<Value, ConstrainError> {
    let parsed: Value = serde_json::from_str(text)
        .map_err(|error| ConstrainError::Compile(format!("the schema is no JSON: {error}")))?;
    let mut schema = match parsed {
        Value::Object(schema) => schema,
        Value::Bool(true) => serde_json::Map::new(),
        _ => {
            return Err(ConstrainError::Compile(
                "the schema is neither an object nor true".to_owned(),
            ));
        }
    };
    let settings =
        json!({ "whitespace_flexible": false, "item_separator": ",", "key_separator": ":" });
    schema.insert("x-guidance".to_owned(), settings);
    Ok(Value::Object(schema))
}

/// Whether a bare label is one JSON value without blanks around or inside its structure.
fn is_compact_json(label: &str) -> bool {
    serde_json::from_str::<Value>(label).is_ok_and(|value| !value.is_object() && !value.is_array())
        && label.trim() == label
}

/// The rules of a Lark grammar, as they are gathered field by field.
#[derive(Default)]
struct Rules {
    /// Literal text that is not in `start` yet.
    pending: String,
    start: String,
    terminals: String,
    count: usize,
}

impl Rules {
    fn literal(&mut self, text: &str) {
        self.pending.push_str(text);
    }

    fn text(&mut self, longest: usize) {
        let name = self.terminal("TEXT");
        let _ = writeln!(
            self.terminals,
            r#"{name}: /"([^"\\\x00-\x1f\x7f]|\\["\\bfnrt]){{1,{longest}}}"/"#
        );
        self.start.push_str(&name);
    }

    fn quotes(&mut self, quotes: &Quotes, most: usize) {
        self.literal("[");
        let name = self.terminal("QUOTE");
        self.terminals.push_str(&quotes.terminals(&name));
        self.start.push_str(&name);
        if most > 1 {
            let _ = write!(self.start, " (\",\" {name}){{0,{}}}", most - 1);
        }
        self.literal("]");
    }

    /// A new terminal's name, after all literal text so far.
    fn terminal(&mut self, kind: &str) -> String {
        self.flush();
        self.count += 1;
        format!("{kind}_{}", self.count)
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            // Lark strings are JSON strings in which a delete character must be escaped too.
            let quoted = Value::from(std::mem::take(&mut self.pending))
                .to_string()
                .replace('\u{7f}', "\\u007f");
            let _ = write!(self.start, " {quoted} ");
        }
    }

    fn finish(mut self) -> Body {
        if self.count == 0 {
            return Body::Literal(self.pending);
        }
        self.flush();
        Body::Lark(format!("start: {}\n{}", self.start, self.terminals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str], quoted: bool) -> FieldValue {
        FieldValue::Labels(Labels {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            quoted,
        })
    }

    fn field(name: &str, value: FieldValue) -> Field {
        Field {
            name: name.to_owned(),
            value,
        }
    }

    fn quotes(source: &str, max_items: usize, max_chars: usize) -> FieldValue {
        FieldValue::Quotes {
            source: source.to_owned(),
            max_items,
            max_chars,
        }
    }

    #[test]
    fn objects_without_a_choice_are_literal() {
        let check = |fields: &[Field], expected: &str, closing: Option<&str>| {
            let outline = object(fields).expect("the fields are right");
            assert_eq!(outline.body, Body::Literal(expected.to_owned()));
            assert_eq!(
                outline.labels.map(|(_, closing)| closing).as_deref(),
                closing
            );
        };
        check(&[], "{}", None);
        check(
            &[field("score", labels(&["1", "2"], false))],
            "{\"score\":",
            Some("}"),
        );
        check(
            &[field("verdict", labels(&["pass"], true))],
            "{\"verdict\":\"",
            Some("\"}"),
        );
        check(
            &[field("a\"\u{1}", quotes(" ?", 3, 9))],
            "{\"a\\\"\\u0001\":[]}",
            None,
        );
        check(&[field("e", quotes("word", 0, 9))], "{\"e\":[]}", None);
    }

    #[test]
    fn fields_that_can_not_be_are_refused() {
        let check = |fields: &[Field]| {
            assert!(
                matches!(object(fields), Err(ConstrainError::Compile(_))),
                "{fields:?}"
            )
        };
        check(&[
            field("a", labels(&["1"], false)),
            field("b", FieldValue::Text { max_chars: 9 }),
        ]);
        check(&[
            field("a", FieldValue::Text { max_chars: 9 }),
            field("a", labels(&["1"], false)),
        ]);
        check(&[field("a", FieldValue::Text { max_chars: 0 })]);
        check(&[field(
            "a",
            FieldValue::Text {
                max_chars: usize::MAX,
            },
        )]);
        check(&[field("a", quotes("word", 3, 0))]);
        check(&[field("a", quotes("word", usize::MAX, 9))]);
        check(&[field("a", labels(&["pass"], false))]);
        check(&[field("a", labels(&[" 1"], false))]);
        check(&[field("a", labels(&["1", "1"], false))]);
        check(&[field("a", labels(&[""], true))]);
        check(&[field("a", labels(&[], true))]);
    }

    #[test]
    fn schemas_that_are_none_are_refused() {
        for text in ["", "{", "[]", "3", "false", "\"a\""] {
            assert!(
                matches!(schema(text), Err(ConstrainError::Compile(_))),
                "{text}"
            );
        }
        assert!(schema("true").is_ok());
    }
}
