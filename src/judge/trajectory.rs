//! An agent's trace: who said what, which tools were called with what, and what came back.
//!
//! Read from the shapes in which such traces are kept: chat messages with `tool_calls` and role `tool`, and plain lists of
//! entries with a name, a role or an agent and a content; bare, or under `messages`, `history`, `steps` or `trajectory`. One
//! entry may be several steps: a message and the calls that it makes. Knows no model and judges nothing; `expected` compares.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// Most steps of a trace.
pub const MOST_STEPS: usize = 10_000;

/// Names of the field that holds the list, where the trace is an object.
const LISTS: [&str; 4] = ["messages", "history", "steps", "trajectory"];

/// Why a value is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrajectoryError {
    /// Neither a list nor an object with one.
    #[error(
        "a trace is a list of steps, or an object with one under messages, history, steps or trajectory; this is {0}"
    )]
    NoList(&'static str),
    /// The list is empty.
    #[error("the trace has no step; give at least one message or call")]
    Empty,
    /// Too many steps.
    #[error("the trace has over {MOST_STEPS} steps; cut it into parts")]
    TooMany,
    /// An entry that can't be read.
    #[error("entry {entry} of the trace: {problem}; {mend}")]
    Entry {
        /// The entry, counted from 0 as in the trace.
        entry: usize,
        /// What is wrong.
        problem: &'static str,
        /// What to do about it.
        mend: &'static str,
    },
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The tool's name.
    pub name: String,
    /// Its arguments; text where they were given as text that is no JSON.
    pub arguments: Value,
}

/// What a step is.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// Something said.
    Message,
    /// A tool called.
    ToolCall(Call),
    /// What a tool gave back.
    Observation,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The entry that it was read from, counted from 0.
    pub entry: usize,
    /// Who did it: the agent's, the tool's or the role's name, without a remark in brackets behind it.
    pub agent: String,
    /// The remark: `thought` of `Orchestrator (thought)`.
    pub remark: Option<String>,
    /// What it is.
    pub kind: StepKind,
    /// What was said or given back; empty for a call.
    pub text: String,
}

/// A trace, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Trajectory {
    /// The steps; never empty.
    pub steps: Vec<Step>,
    /// Entries of the list: step names of people are numbers below this.
    pub entries: usize,
}

impl Trajectory {
    /// Reads a trace.
    ///
    /// # Errors
    /// A value that holds no list, an empty or overlong one, or an entry without a speaker or something said.
    pub fn read(value: &Value) -> Result<Trajectory, TrajectoryError> {
        let list = match value {
            Value::Array(list) => list,
            Value::Object(object) => LISTS
                .iter()
                .find_map(|name| object.get(*name)?.as_array())
                .ok_or(TrajectoryError::NoList("an object without one"))?,
            other => return Err(TrajectoryError::NoList(kind_name(other))),
        };
        let mut reader = Reader::default();
        for (entry, value) in list.iter().enumerate() {
            reader.entry(entry, value)?;
        }
        if reader.steps.is_empty() {
            return Err(TrajectoryError::Empty);
        }
        Ok(Trajectory {
            steps: reader.steps,
            entries: list.len(),
        })
    }

    /// The tool calls, in order, with the places of their steps.
    pub fn calls(&self) -> impl Iterator<Item = (usize, &Call)> {
        let steps = self.steps.iter().enumerate();
        steps.filter_map(|(at, step)| match &step.kind {
            StepKind::ToolCall(call) => Some((at, call)),
            _ => None,
        })
    }

    /// Everybody who did something, in order of appearance.
    pub fn agents(&self) -> Vec<&str> {
        let mut agents: Vec<&str> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for step in &self.steps {
            if seen.insert(step.agent.as_str()) {
                agents.push(&step.agent);
            }
        }
        agents
    }
}

/// Steps so far, and which call has which id.
#[derive(Default)]
struct Reader {
    steps: Vec<Step>,
    names: HashMap<String, String>,
}

impl Reader {
    fn entry(&mut self, entry: usize, value: &Value) -> Result<(), TrajectoryError> {
        let wrong = |problem, mend| TrajectoryError::Entry {
            entry,
            problem,
            mend,
        };
        let Value::Object(object) = value else {
            let mend = "write it as an object with role and content";
            return Err(wrong("it is no object", mend));
        };
        let named = |name: &str| text_field(object, name);
        let role = named("role").or_else(|| named("type"));
        let tool = matches!(
            role,
            Some("tool" | "function" | "observation" | "tool_result")
        );
        let speaker = named("agent").or_else(|| named("name")).or(role);
        let text = match object.get("content").or_else(|| object.get("text")) {
            None | Some(Value::Null) => None,
            Some(content) => Some(content_text(content).ok_or_else(|| {
                wrong(
                    "its content is no text",
                    "write text, or a list of parts of type text",
                )
            })?),
        };
        let calls = calls_of(object).map_err(|problem| {
            wrong(
                problem,
                "write {\"function\": {\"name\": …, \"arguments\": …}}",
            )
        })?;
        if tool {
            let id = named("tool_call_id");
            let by_id = id.and_then(|id| self.names.get(id)).cloned();
            // A tool's own name says more than the role that all tools share.
            let given = named("agent").or_else(|| named("name")).map(String::from);
            let agent = given.or(by_id).unwrap_or_else(|| "tool".into());
            return self.push(
                entry,
                &agent,
                StepKind::Observation,
                text.unwrap_or_default(),
            );
        }
        let Some(speaker) = speaker else {
            return Err(wrong(
                "nobody is named",
                "name who acts: role, name or agent",
            ));
        };
        if text.is_none() && calls.is_empty() {
            let mend = "give content, or tool_calls";
            return Err(wrong("nothing is said and no tool is called", mend));
        }
        if let Some(text) = text.filter(|text| calls.is_empty() || !text.trim().is_empty()) {
            self.push(entry, speaker, StepKind::Message, text)?;
        }
        for (id, call) in calls {
            if let Some(id) = id {
                self.names.insert(id, call.name.clone());
            }
            self.push(entry, speaker, StepKind::ToolCall(call), String::new())?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        entry: usize,
        speaker: &str,
        kind: StepKind,
        text: String,
    ) -> Result<(), TrajectoryError> {
        if self.steps.len() == MOST_STEPS {
            return Err(TrajectoryError::TooMany);
        }
        let (agent, remark) = match speaker.trim().strip_suffix(')') {
            Some(rest) => match rest.split_once(" (") {
                Some((agent, remark)) if !agent.trim().is_empty() => (agent, Some(remark)),
                _ => (speaker, None),
            },
            None => (speaker, None),
        };
        self.steps.push(Step {
            entry,
            agent: agent.trim().to_string(),
            remark: remark.map(|remark| remark.trim().to_string()),
            kind,
            text,
        });
        Ok(())
    }
}

/// The text of a content: text, or parts of which those with a text count.
fn content_text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Option<Vec<&str>> = parts
                .iter()
                .map(|part| match part {
                    Value::String(text) => Some(text.as_str()),
                    // A picture or a sound has no text, and leaves the others theirs.
                    Value::Object(part) => Some(text_field(part, "text").unwrap_or_default()),
                    _ => None,
                })
                .collect();
            Some(texts?.concat())
        }
        _ => None,
    }
}

/// The calls of an entry, with their ids: `tool_calls`, the older `function_call`, or a single `tool_call`.
fn calls_of(object: &Map<String, Value>) -> Result<Vec<(Option<String>, Call)>, &'static str> {
    let listed = match object.get("tool_calls") {
        None | Some(Value::Null) => [].as_slice(),
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => return Err("its tool_calls are no list"),
    };
    let single = ["function_call", "tool_call"]
        .iter()
        .filter_map(|name| object.get(*name))
        .filter(|value| !value.is_null());
    let one = |value: &Value| {
        let id = value.get("id").and_then(Value::as_str).map(String::from);
        Ok((id, Call::read(value)?))
    };
    listed.iter().chain(single).map(one).collect()
}

impl Call {
    /// Reads a call: `{"name": …, "arguments": …}`, bare or under `function`. Absent arguments are none: null.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> Result<Call, &'static str> {
        let inner = value.get("function").filter(|inner| inner.is_object());
        let Value::Object(object) = inner.unwrap_or(value) else {
            return Err("a tool call is no object");
        };
        let name = text_field(object, "name")
            .or_else(|| text_field(object, "tool"))
            .ok_or("a tool call has no name")?;
        let arguments = ["arguments", "args", "input"]
            .iter()
            .find_map(|key| object.get(*key));
        let arguments = match arguments {
            None => Value::Null,
            // An agent that wrote no JSON has called the tool all the same: the text is kept, and equals nothing else.
            Some(Value::String(text)) => {
                serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
            }
            Some(value) => value.clone(),
        };
        Ok(Call {
            name: name.to_string(),
            arguments,
        })
    }
}

fn text_field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let text = object.get(name)?.as_str()?;
    (!text.trim().is_empty() || name == "text").then_some(text)
}

fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
