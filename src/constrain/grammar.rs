//! Grammars in llguidance's terms: an object's fields as a Lark grammar, a JSON schema with compact separators.
//!
//! Knows no tokens: what it makes is text, and the literal end that follows.

use super::ConstrainError;
use super::labels::{check, escaped};
use super::quotes::Quotes;
use super::rules::{MOST_CHARACTERS, Outline, Rules};
use super::walker::End;
use crate::ask::{Field, FieldValue, Labels};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Most passages or objects that a field may hold.
const MOST_ITEMS: usize = 1 << 10;

/// The outline of an object whose fields come in this order, with compact separators.
///
/// # Errors
/// [`ConstrainError::Compile`] where a name comes twice, labels are not the last field, bare labels are no JSON, or a
/// bound admits nothing.
pub(super) fn object(fields: &[Field]) -> Result<Outline, ConstrainError> {
    let mut rules = Rules::default();
    rules.literal("{");
    let plain = match fields.split_last() {
        Some((
            Field {
                value: FieldValue::Labels(_),
                ..
            },
            rest,
        )) => rest,
        _ => fields,
    };
    members(&mut rules, plain)?;
    let end = match fields[plain.len()..].first() {
        Some(Field {
            name,
            value: FieldValue::Labels(labels),
        }) => {
            if plain.iter().any(|field| field.name == *name) {
                return Err(refused(name, "the name is there twice"));
            }
            check(labels)?;
            rules.literal(&format!(
                "{}\"{}\":{}",
                if plain.is_empty() { "" } else { "," },
                escaped(name),
                if labels.quoted { "\"" } else { "" }
            ));
            if let Some(label) = labels
                .names
                .iter()
                .find(|label| !labels.quoted && !is_compact_json(label))
            {
                let reason = format!("the bare label {label:?} is no JSON value");
                return Err(refused(name, &reason));
            }
            End::Labels {
                labels: labels.clone(),
                opening: String::new(),
                closing: if labels.quoted { "\"}" } else { "}" }.to_owned(),
            }
        }
        _ => {
            rules.literal("}");
            End::Done
        }
    };
    Ok(Outline {
        body: rules.finish(),
        end,
    })
}

/// Writes fields that hold no labels, with commas between them.
fn members(rules: &mut Rules, fields: &[Field]) -> Result<(), ConstrainError> {
    let mut names = HashSet::new();
    for (index, field) in fields.iter().enumerate() {
        if !names.insert(&field.name) {
            return Err(refused(&field.name, "the name is there twice"));
        }
        let comma = if index > 0 { "," } else { "" };
        rules.literal(&format!("{comma}\"{}\":", escaped(&field.name)));
        value(rules, &field.value).map_err(|error| refused(&field.name, &error.to_string()))?;
    }
    Ok(())
}

/// Writes what a field holds.
fn value(rules: &mut Rules, value: &FieldValue) -> Result<(), ConstrainError> {
    let refuse = |reason: String| Err(ConstrainError::Compile(reason));
    match value {
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
            if *max_items > MOST_ITEMS {
                return refuse(format!("{max_items} quotes are more than {MOST_ITEMS}"));
            }
            // The bound keeps the grammar's counters small; no source is longer.
            match Quotes::of(source, (*max_chars).min(MOST_CHARACTERS))? {
                Some(quotes) if *max_items > 0 => rules.quotes(&quotes, *max_items),
                _ => rules.literal("[]"),
            }
        }
        FieldValue::Quote { source, max_chars } => {
            match Quotes::of(source, (*max_chars).min(MOST_CHARACTERS))? {
                Some(quotes) => {
                    rules.quote(&quotes);
                }
                None => rules.literal("\"\""),
            }
        }
        FieldValue::Choice(texts) => {
            check(&Labels {
                names: texts.clone(),
                quoted: true,
            })?;
            rules.choice(texts);
        }
        FieldValue::List {
            fields,
            min_items,
            max_items,
        } => {
            if fields.is_empty() {
                return refuse("the objects of the list have no field".to_owned());
            }
            if min_items > max_items || *max_items > MOST_ITEMS {
                return refuse(format!(
                    "a list of {min_items} to {max_items} objects is outside 0..={MOST_ITEMS}"
                ));
            }
            let nested = |field: &&Field| {
                matches!(field.value, FieldValue::Labels(_) | FieldValue::List { .. })
            };
            if let Some(field) = fields.iter().find(nested) {
                return refuse(format!(
                    "the field {:?} holds labels or a list, and neither can stand in a list",
                    field.name
                ));
            }
            if *max_items == 0 {
                rules.literal("[]");
                return Ok(());
            }
            let outer = rules.enter();
            rules.literal("{");
            members(rules, fields)?;
            rules.literal("}");
            rules.list(outer, *min_items, *max_items);
        }
        FieldValue::Labels(_) => return refuse("labels must be the last field".to_owned()),
    }
    Ok(())
}

fn refused(name: &str, reason: &str) -> ConstrainError {
    ConstrainError::Compile(format!("field {name:?}: {reason}"))
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

#[cfg(test)]
mod tests {
    use super::super::rules::Body;
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

    fn list(fields: Vec<Field>, min_items: usize, max_items: usize) -> FieldValue {
        FieldValue::List {
            fields,
            min_items,
            max_items,
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
            let found = match &outline.end {
                End::Labels { closing, .. } => Some(closing.as_str()),
                End::Done => None,
            };
            assert_eq!(found, closing);
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
        let quote = FieldValue::Quote {
            source: "?".to_owned(),
            max_chars: 9,
        };
        check(&[field("q", quote)], "{\"q\":\"\"}", None);
        let choice = FieldValue::Choice(vec!["a\"b".to_owned()]);
        check(&[field("c", choice.clone())], "{\"c\":\"a\\\"b\"}", None);
        let list = list(vec![field("c", choice)], 0, 0);
        check(&[field("l", list)], "{\"l\":[]}", None);
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
        check(&[field("a", FieldValue::Choice(Vec::new()))]);
        check(&[field(
            "a",
            FieldValue::Choice(vec!["x".to_owned(), "x".to_owned()]),
        )]);
        let text = || field("t", FieldValue::Text { max_chars: 9 });
        check(&[field("a", list(vec![], 0, 3))]);
        check(&[field("a", list(vec![text(), text()], 0, 3))]);
        check(&[field("a", list(vec![text()], 4, 3))]);
        check(&[field("a", list(vec![text()], 0, usize::MAX))]);
        check(&[field(
            "a",
            list(vec![field("l", labels(&["1"], false))], 0, 3),
        )]);
        check(&[field(
            "a",
            list(vec![field("l", list(vec![text()], 0, 3))], 0, 3),
        )]);
        check(&[
            field("a", FieldValue::Text { max_chars: 9 }),
            field("a", FieldValue::Text { max_chars: 9 }),
        ]);
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
