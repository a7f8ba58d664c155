//! What tools an agent should have called, and how far it did.
//!
//! Three ways to compare: exact (these calls and no others, in this order), in order (these calls in this order, others
//! between them), any order (these calls, however they lie among others; a call expected twice must come twice). Arguments
//! are compared as JSON values, and only where the expected call gives some: key order does not matter, and 1 equals 1.0.

use super::trajectory::Call;
use serde_json::Value;

/// Most expected calls.
pub const MOST_EXPECTED: usize = 10_000;

/// A call that should be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The tool's name.
    pub name: String,
    /// Its arguments; `None` where any will do.
    pub arguments: Option<Value>,
}

/// Why a value is no list of expected calls.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpectedError {
    /// No list.
    #[error(
        "the expected calls are no list; write [\"search\", {{\"name\": \"open\", \"arguments\": {{…}}}}]"
    )]
    NoList,
    /// Too many.
    #[error("{0} expected calls; {MOST_EXPECTED} are the most")]
    TooMany(usize),
    /// An entry that can't be read.
    #[error(
        "expected call {at}: {problem}; write a tool's name, or an object with name and arguments"
    )]
    Entry {
        /// The entry, counted from 0.
        at: usize,
        /// What is wrong.
        problem: &'static str,
    },
}

impl Expected {
    /// Reads a list of names, or of calls as a trace has them. An empty list says that no tool should be called.
    ///
    /// # Errors
    /// A value that is no list, or an entry that is no call.
    pub fn read(value: &Value) -> Result<Vec<Expected>, ExpectedError> {
        let Value::Array(list) = value else {
            return Err(ExpectedError::NoList);
        };
        if list.len() > MOST_EXPECTED {
            return Err(ExpectedError::TooMany(list.len()));
        }
        let entry = |(at, value): (usize, &Value)| match value {
            Value::String(name) if !name.trim().is_empty() => Ok(Expected {
                name: name.clone(),
                arguments: None,
            }),
            value => {
                let call = Call::read(value);
                let call = call.map_err(|problem| ExpectedError::Entry { at, problem })?;
                let arguments = Some(call.arguments).filter(|arguments| !arguments.is_null());
                Ok(Expected {
                    name: call.name,
                    arguments,
                })
            }
        };
        list.iter().enumerate().map(entry).collect()
    }

    /// Whether a call is the expected one.
    pub fn meets(&self, call: &Call) -> bool {
        let arguments = self.arguments.as_ref();
        self.name == call.name
            && arguments.is_none_or(|arguments| same_value(arguments, &call.arguments))
    }
}

/// How calls are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// These calls and no others, in this order.
    Exact,
    /// These calls in this order, others between them.
    InOrder,
    /// These calls, among others, in whatever order.
    AnyOrder,
}

/// What the comparison found. Calls are counted from 0, over the calls of the trace alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The expected calls were made and no others.
    Match,
    /// Another call stands where an expected one should.
    Diverged {
        /// The call of the trace.
        step: usize,
        /// What was expected.
        expected: Expected,
        /// What was called.
        got: Call,
    },
    /// The trace ends before these were called.
    StoppedEarly {
        /// What was not called.
        missing: Vec<Expected>,
    },
    /// All that was expected was called, and more.
    Extra {
        /// The calls of the trace that nobody expected.
        steps: Vec<usize>,
    },
}

impl Outcome {
    /// Whether the trace is as expected: further calls are a fault in the exact order alone.
    pub fn passes(&self, order: Order) -> bool {
        match self {
            Outcome::Match => true,
            Outcome::Extra { .. } => order != Order::Exact,
            Outcome::Diverged { .. } | Outcome::StoppedEarly { .. } => false,
        }
    }
}

impl std::fmt::Display for Outcome {
    /// What was found, with the names of tools and without their arguments.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Match => f.write_str("the expected calls and no others"),
            Outcome::Diverged {
                step,
                expected,
                got,
            } => {
                let (want, got_name) = (&expected.name, &got.name);
                write!(
                    f,
                    "diverged at call {step} (expected {want}, got {got_name}"
                )?;
                // The same tool was called with something else.
                f.write_str(if want == got_name {
                    " with other arguments)"
                } else {
                    ")"
                })
            }
            Outcome::StoppedEarly { missing } => {
                let names: Vec<&str> = missing.iter().map(|call| call.name.as_str()).collect();
                write!(f, "stopped early (missing {})", names.join(", "))
            }
            Outcome::Extra { steps } => {
                let steps: Vec<String> = steps.iter().map(usize::to_string).collect();
                write!(f, "extra calls: {}", steps.join(", "))
            }
        }
    }
}

/// Compares the calls of a trace with the expected ones.
pub fn compare(expected: &[Expected], calls: &[&Call], order: Order) -> Outcome {
    match order {
        Order::Exact => exact(expected, calls),
        Order::InOrder => in_order(expected, calls),
        Order::AnyOrder => any_order(expected, calls),
    }
}

fn exact(expected: &[Expected], calls: &[&Call]) -> Outcome {
    let mut pairs = expected.iter().zip(calls).enumerate();
    if let Some((step, (expected, got))) = pairs.find(|(_, (expected, got))| !expected.meets(got)) {
        return diverged(step, expected, got);
    }
    ended(
        &expected[calls.len().min(expected.len())..],
        (expected.len()..calls.len()).collect(),
    )
}

/// The earliest call that meets each expected one is taken; where any choice fits, this one does.
fn in_order(expected: &[Expected], calls: &[&Call]) -> Outcome {
    let mut extra = Vec::new();
    let mut next = 0;
    for (at, expected_call) in expected.iter().enumerate() {
        match calls[next..]
            .iter()
            .position(|call| expected_call.meets(call))
        {
            Some(skipped) => {
                extra.extend(next..next + skipped);
                next += skipped + 1;
            }
            None => {
                return match calls.get(next) {
                    Some(got) => diverged(next, expected_call, got),
                    None => ended(&expected[at..], Vec::new()),
                };
            }
        }
    }
    extra.extend(next..calls.len());
    ended(&[], extra)
}

fn any_order(expected: &[Expected], calls: &[&Call]) -> Outcome {
    let pairing = Pairing::new(expected, calls);
    match (pairing.missing.first(), pairing.extra.first()) {
        (Some(missing), Some(extra)) => diverged(*extra, &expected[*missing], calls[*extra]),
        _ => {
            let missing: Vec<Expected> = pairing
                .missing
                .iter()
                .map(|at| expected[*at].clone())
                .collect();
            ended(&missing, pairing.extra)
        }
    }
}

fn diverged(step: usize, expected: &Expected, got: &Call) -> Outcome {
    Outcome::Diverged {
        step,
        expected: expected.clone(),
        got: got.clone(),
    }
}

fn ended(missing: &[Expected], extra: Vec<usize>) -> Outcome {
    if !missing.is_empty() {
        Outcome::StoppedEarly {
            missing: missing.to_vec(),
        }
    } else if extra.is_empty() {
        Outcome::Match
    } else {
        Outcome::Extra { steps: extra }
    }
}

/// Which expected calls were made, whatever the order; each call of the trace serves one.
struct Pairing {
    missing: Vec<usize>,
    extra: Vec<usize>,
}

impl Pairing {
    /// Those that give arguments choose first. What meets one of them also meets the ones of its name that give none, so no
    /// other choice pairs more.
    fn new(expected: &[Expected], calls: &[&Call]) -> Pairing {
        let mut taken = vec![false; calls.len()];
        let mut missing = Vec::new();
        for particular in [true, false] {
            for (at, expected) in expected.iter().enumerate() {
                if expected.arguments.is_some() != particular {
                    continue;
                }
                let mut free = calls.iter().zip(&mut taken);
                match free.find(|(call, taken)| !**taken && expected.meets(call)) {
                    Some((_, taken)) => *taken = true,
                    None => missing.push(at),
                }
            }
        }
        missing.sort_unstable();
        let extra = taken.iter().enumerate().filter(|(_, taken)| !**taken);
        Pairing {
            missing,
            extra: extra.map(|(at, _)| at).collect(),
        }
    }
}

/// Precision and recall of tool calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolScores {
    /// Share of the calls made that were expected. No call where none was expected: 1. No call where some were: 0, so that
    /// an agent that does nothing earns nothing.
    pub precision: f64,
    /// Share of the expected calls that were made. None expected: 1, since none was missed.
    pub recall: f64,
}

/// Precision and recall over multisets: order does not matter, and how often a call was made does.
pub fn tool_scores(expected: &[Expected], calls: &[&Call]) -> ToolScores {
    let pairing = Pairing::new(expected, calls);
    let paired = (expected.len() - pairing.missing.len()) as f64;
    let share = |of: usize, none: f64| if of == 0 { none } else { paired / of as f64 };
    ToolScores {
        precision: share(calls.len(), if expected.is_empty() { 1.0 } else { 0.0 }),
        recall: share(expected.len(), 1.0),
    }
}

/// Equality of JSON values: keys in any order, numbers by value. Depth is bounded by the reader of JSON.
fn same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || {
                // Whole numbers that differ may be one number in f64.
                let fraction = a.is_f64() || b.is_f64();
                fraction && a.as_f64() == b.as_f64()
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| same_value(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => one == other,
    }
}
