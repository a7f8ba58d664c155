//! One trace: the text that is judged and what belongs to it, and how its fields are found in a JSON object.
//!
//! Knows no file and no format beyond a JSON value.

use super::fault::Fault;
use serde_json::{Map, Value};

/// The fields of an item, by the names that `--map` takes.
pub const FIELDS: [&str; 12] = [
    "id",
    "input",
    "context",
    "answer",
    "answer_b",
    "answers",
    "reference",
    "trajectory",
    "expected",
    "generator",
    "label",
    "metadata",
];

/// One trace to be judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What the item is called in verdicts: its id, or its line number where it has none.
    pub name: String,
    /// The file's name, without its folder.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
    /// What the judged system was given.
    pub input: Option<String>,
    /// Passages that it had before it; `None` where the trace says nothing about context.
    pub context: Option<Vec<String>>,
    /// What it answered; may be empty. Absent where the item brings several answers, or the steps of an agent, instead.
    pub answer: Option<String>,
    /// What another system answered, where two are compared.
    pub answer_b: Option<String>,
    /// What several systems answered, where they are ranked.
    pub answers: Option<Vec<String>>,
    /// A right answer.
    pub reference: Option<String>,
    /// The steps of an agent, as they were logged.
    pub trajectory: Option<Value>,
    /// The steps that the agent should have taken.
    pub expected: Option<Value>,
    /// The model, or family of models, that made the answer.
    pub generator: Option<String>,
    /// A human's or another judge's label.
    pub label: Option<String>,
    /// Anything else that travels with the item.
    pub metadata: Option<Value>,
}

impl Item {
    /// An item that is only an answer, from no file.
    pub fn answered(name: &str, answer: &str) -> Item {
        Item {
            name: name.into(),
            file: "memory".into(),
            line: 1,
            input: None,
            context: None,
            answer: Some(answer.into()),
            answer_b: None,
            answers: None,
            reference: None,
            trajectory: None,
            expected: None,
            generator: None,
            label: None,
            metadata: None,
        }
    }
}

/// Why a `--map` argument was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Not of the form `field=path`.
    #[error("\"{0}\" is not of the form FIELD=KEY")]
    Form(String),
    /// No such field.
    #[error(
        "\"{0}\" is no field of an item; the fields are {fields}", fields = FIELDS.join(", ")
    )]
    Field(String),
    /// The field was mapped twice.
    #[error("\"{0}\" is mapped twice")]
    Twice(String),
}

/// Where each field is looked for: a key, or a dotted path into nested objects and arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldMap {
    paths: Vec<(&'static str, String)>,
}

impl FieldMap {
    /// Reads arguments of the form `answer=response.text`.
    pub fn parse<T: AsRef<str>>(arguments: &[T]) -> Result<FieldMap, MapError> {
        let mut map = FieldMap::default();
        for argument in arguments {
            let argument = argument.as_ref();
            let (field, path) = match argument.split_once('=') {
                Some((field, path)) if !path.is_empty() => (field, path),
                _ => return Err(MapError::Form(argument.to_string())),
            };
            let known = FIELDS.iter().find(|known| **known == field);
            let known = known.ok_or_else(|| MapError::Field(field.to_string()))?;
            if map.paths.iter().any(|(mapped, _)| mapped == known) {
                return Err(MapError::Twice(field.to_string()));
            }
            map.paths.push((known, path.to_string()));
        }
        Ok(map)
    }

    /// The path of `field`: what `--map` said, or the field's own name.
    pub fn path<'a>(&'a self, field: &'a str) -> &'a str {
        self.paths
            .iter()
            .find(|(mapped, _)| *mapped == field)
            .map_or(field, |(_, path)| path)
    }

    /// Builds an item from a JSON object. `name` is used where the object has no id.
    pub fn item(
        &self,
        object: &Map<String, Value>,
        file: &str,
        line: u64,
        name: String,
    ) -> Result<Item, Fault> {
        let text = |field: &'static str| -> Result<Option<String>, Fault> {
            match self.find(object, field) {
                None | Some(Value::Null) => Ok(None),
                Some(value) => scalar(value).map(Some).ok_or(Fault::NotText {
                    field,
                    found: kind(value),
                }),
            }
        };
        let answer = match self.find(object, "answer") {
            Some(Value::Null) => {
                return Err(Fault::NotText {
                    field: "answer",
                    found: "null",
                });
            }
            _ => text("answer")?,
        };
        let answers = self.texts(object, "answers")?;
        let trajectory = self.value(object, "trajectory");
        if answer.is_none() && answers.is_none() && trajectory.is_none() {
            return Err(Fault::NoField {
                field: "answer",
                looked_for: self.path("answer").to_string(),
                present: object
                    .keys()
                    .take(8)
                    .map(|key| key.chars().take(40).collect())
                    .collect(),
            });
        }
        Ok(Item {
            name: text("id")?.filter(|id| !id.is_empty()).unwrap_or(name),
            file: file.to_string(),
            line,
            input: text("input")?,
            context: self.texts(object, "context")?,
            answer,
            answer_b: text("answer_b")?,
            answers,
            reference: text("reference")?,
            trajectory,
            expected: self.value(object, "expected"),
            generator: text("generator")?,
            label: text("label")?,
            metadata: self.find(object, "metadata").cloned(),
        })
    }

    /// The id of an object that may be no item otherwise, where it can be read.
    pub fn id(&self, object: &Map<String, Value>) -> Option<String> {
        self.find(object, "id")
            .and_then(scalar)
            .filter(|id| !id.is_empty())
    }

    /// A list of texts; one text alone is a list of one.
    fn texts(
        &self,
        object: &Map<String, Value>,
        field: &'static str,
    ) -> Result<Option<Vec<String>>, Fault> {
        let read = |value: &Value| {
            scalar(value).ok_or(Fault::NotText {
                field,
                found: kind(value),
            })
        };
        match self.find(object, field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(texts)) => texts.iter().map(read).collect::<Result<_, _>>().map(Some),
            Some(text) => Ok(Some(vec![read(text)?])),
        }
    }

    /// Any value but null. A cell of a table holds it as text.
    fn value(&self, object: &Map<String, Value>, field: &str) -> Option<Value> {
        match self.find(object, field) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => {
                Some(serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str())))
            }
            Some(value) => Some(value.clone()),
        }
    }

    fn find<'a>(&self, object: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
        let path = self.path(field);
        // A key that holds the dots itself, such as a CSV column "response.text", comes before the way inside.
        if let Some(value) = object.get(path) {
            return Some(value);
        }
        let mut segments = path.split('.');
        let mut value = object.get(segments.next()?)?;
        for segment in segments {
            value = match value {
                Value::Object(inner) => inner.get(segment)?,
                Value::Array(inner) => inner.get(segment.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(value)
    }
}

/// The text of a string, whole number or boolean. Any other number is not what stood in the file any more once it is read.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_f64() => None,
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// What a JSON value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number that is not a whole one of 64 bits",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, maps: &[&str], want: Result<Item, Fault>) {
        let Value::Object(object) = serde_json::from_str(json).unwrap() else {
            panic!("an object")
        };
        let map = FieldMap::parse(maps).unwrap();
        assert_eq!(map.item(&object, "a.jsonl", 3, "3".into()), want, "{json}");
    }

    fn bare(answer: &str) -> Item {
        Item {
            file: "a.jsonl".into(),
            line: 3,
            ..Item::answered("3", answer)
        }
    }

    #[test]
    fn fields_are_found_and_read_as_text() {
        check(r#"{"answer":"x"}"#, &[], Ok(bare("x")));
        check(r#"{"answer":""}"#, &[], Ok(bare("")));
        check(r#"{"answer":4,"id":7,"label":true}"#, &[], {
            Ok(Item {
                name: "7".into(),
                label: Some("true".into()),
                ..bare("4")
            })
        });
        check(
            r#"{"answer":"x","context":"one"}"#,
            &[],
            Ok(Item {
                context: Some(vec!["one".into()]),
                ..bare("x")
            }),
        );
        check(
            r#"{"answer":"x","context":[]}"#,
            &[],
            Ok(Item {
                context: Some(vec![]),
                ..bare("x")
            }),
        );
        check(r#"{"answer":"a\u0000b"}"#, &[], Ok(bare("a\0b")));
    }

    #[test]
    fn paths_reach_inside() {
        check(
            r#"{"response":{"text":"x"}}"#,
            &["answer=response.text"],
            Ok(bare("x")),
        );
        check(r#"{"r":[{"m":"x"}]}"#, &["answer=r.0.m"], Ok(bare("x")));
        check(
            r#"{"a.b":"flat","a":{"b":"deep"}}"#,
            &["answer=a.b"],
            Ok(bare("flat")),
        );
    }

    #[test]
    fn faults_name_the_field() {
        let missing = |looked_for: &str, present: &[&str]| Fault::NoField {
            field: "answer",
            looked_for: looked_for.into(),
            present: present.iter().map(|key| key.to_string()).collect(),
        };
        check(
            r#"{"output":"x"}"#,
            &[],
            Err(missing("answer", &["output"])),
        );
        check(
            r#"{"a":{"c":1}}"#,
            &["answer=a.b"],
            Err(missing("a.b", &["a"])),
        );
        check(
            r#"{"answer":null}"#,
            &[],
            Err(Fault::NotText {
                field: "answer",
                found: "null",
            }),
        );
        check(
            r#"{"answer":{"t":1}}"#,
            &[],
            Err(Fault::NotText {
                field: "answer",
                found: "an object",
            }),
        );
        check(
            r#"{"answer":"x","context":[{}]}"#,
            &[],
            Err(Fault::NotText {
                field: "context",
                found: "an object",
            }),
        );
    }

    #[test]
    fn maps_are_checked() {
        assert_eq!(
            FieldMap::parse(&["answer"]),
            Err(MapError::Form("answer".into()))
        );
        assert_eq!(
            FieldMap::parse(&["answr=x"]),
            Err(MapError::Field("answr".into()))
        );
        assert_eq!(
            FieldMap::parse(&["answer=x", "answer=y"]),
            Err(MapError::Twice("answer".into()))
        );
    }
}
