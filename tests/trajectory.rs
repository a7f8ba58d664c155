//! Agents' traces: the shapes that are read, and how their tool calls compare with expected ones.

mod common;

use assize::judge::expected::{Expected, ExpectedError, Order, Outcome, compare, tool_scores};
use assize::judge::trajectory::{Call, StepKind, Trajectory, TrajectoryError};
use serde_json::{Value, json};

/// Steps in short: agent, and what it did.
fn shown(trace: &Value) -> Vec<String> {
    let trace = Trajectory::read(trace).unwrap();
    let step = |step: &assize::judge::trajectory::Step| {
        let what = match &step.kind {
            StepKind::Message => format!("says {}", step.text),
            StepKind::ToolCall(call) => format!("calls {} {}", call.name, call.arguments),
            StepKind::Observation => format!("gives {}", step.text),
        };
        format!("{} {} {what}", step.entry, step.agent)
    };
    trace.steps.iter().map(step).collect()
}

#[test]
fn chat_messages_with_tool_calls() {
    let trace = json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "Weather "}, {"type": "image_url"}, {"type": "text", "text": "in Oslo?"}]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}},
            {"id": "2", "type": "function", "function": {"name": "clock", "arguments": "not json"}},
        ]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
        {"role": "tool", "tool_call_id": "9", "content": "noon"},
        {"role": "assistant", "content": "One more.", "function_call": {"name": "weather", "arguments": {"city": "Rome"}}},
        {"role": "function", "name": "weather", "content": "sun"},
        {"role": "assistant", "name": "helper", "content": ""},
    ]});
    assert_eq!(
        shown(&trace),
        [
            "0 user says Weather in Oslo?",
            "1 assistant calls weather {\"city\":\"Oslo\"}",
            "1 assistant calls clock \"not json\"",
            "2 weather gives rain",
            "3 tool gives noon",
            "4 assistant says One more.",
            "4 assistant calls weather {\"city\":\"Rome\"}",
            "5 weather gives sun",
            "6 helper says ",
        ]
    );
    let read = Trajectory::read(&trace).unwrap();
    assert_eq!(
        read.agents(),
        ["user", "assistant", "weather", "tool", "helper"]
    );
    assert_eq!(
        read.calls().map(|(at, _)| at).collect::<Vec<_>>(),
        [1, 2, 6]
    );
    assert_eq!(read.entries, 7);
}

#[test]
fn plain_lists_of_agents() {
    let trace = json!([
        {"role": "human", "content": "q"},
        {"role": "Orchestrator (-> WebSurfer)", "content": "go"},
        {"agent": "WebSurfer", "role": "assistant", "content": "went"},
        {"name": "f(x)", "content": "(a)"},
    ]);
    assert_eq!(
        shown(&trace),
        [
            "0 human says q",
            "1 Orchestrator says go",
            "2 WebSurfer says went",
            "3 f(x) says (a)"
        ]
    );
    let read = Trajectory::read(&trace).unwrap();
    assert_eq!(read.steps[1].remark.as_deref(), Some("-> WebSurfer"));
    assert_eq!(read.steps[3].remark, None);
}

#[test]
fn what_is_no_trace() {
    let check = |value: Value, want: TrajectoryError| {
        assert_eq!(Trajectory::read(&value), Err(want), "{value}");
    };
    let entry = |entry, problem, mend| TrajectoryError::Entry {
        entry,
        problem,
        mend,
    };
    check(json!("x"), TrajectoryError::NoList("text"));
    check(
        json!({"log": []}),
        TrajectoryError::NoList("an object without one"),
    );
    check(json!({"history": []}), TrajectoryError::Empty);
    check(
        json!([1]),
        entry(
            0,
            "it is no object",
            "write it as an object with role and content",
        ),
    );
    check(
        json!([{"content": "x"}]),
        entry(0, "nobody is named", "name who acts: role, name or agent"),
    );
    check(
        json!([{"role": "user", "content": "x"}, {"role": "user"}]),
        entry(
            1,
            "nothing is said and no tool is called",
            "give content, or tool_calls",
        ),
    );
    check(
        json!([{"role": "user", "content": 3}]),
        entry(
            0,
            "its content is no text",
            "write text, or a list of parts of type text",
        ),
    );
    let mend = "write {\"function\": {\"name\": …, \"arguments\": …}}";
    check(
        json!([{"role": "assistant", "tool_calls": [{"function": {}}]}]),
        entry(0, "a tool call has no name", mend),
    );
    check(
        json!([{"role": "assistant", "tool_calls": {}}]),
        entry(0, "its tool_calls are no list", mend),
    );
    let long = json!(vec![json!({"role": "user", "content": "x"}); 10_001]);
    check(long, TrajectoryError::TooMany);
}

fn calls(names: &[&str]) -> Vec<Call> {
    let call = |name: &&str| {
        let (name, arguments) = name.split_once(' ').unwrap_or((name, "null"));
        Call {
            name: name.into(),
            arguments: serde_json::from_str(arguments).unwrap(),
        }
    };
    names.iter().map(call).collect()
}

fn expected(names: &[&str]) -> Vec<Expected> {
    let expected = |call: Call| Expected {
        name: call.name,
        arguments: Some(call.arguments).filter(|arguments| !arguments.is_null()),
    };
    calls(names).into_iter().map(expected).collect()
}

/// The outcome in short.
fn told(want: &[&str], got: &[&str], order: Order) -> String {
    let got = calls(got);
    let got: Vec<&Call> = got.iter().collect();
    match compare(&expected(want), &got, order) {
        Outcome::Match => "match".into(),
        Outcome::Diverged {
            step,
            expected,
            got,
        } => format!("{step}: {} not {}", got.name, expected.name),
        Outcome::StoppedEarly { missing } => {
            let names: Vec<String> = missing.into_iter().map(|call| call.name).collect();
            format!("missing {}", names.join(" "))
        }
        Outcome::Extra { steps } => format!("extra {steps:?}"),
    }
}

#[test]
fn three_orders() {
    let check = |want: &[&str], got: &[&str], told: [&str; 3]| {
        let orders = [Order::Exact, Order::InOrder, Order::AnyOrder];
        let found = orders.map(|order| self::told(want, got, order));
        assert_eq!(found, told, "{want:?} {got:?}");
    };
    check(&["a", "b"], &["a", "b"], ["match"; 3]);
    check(&[], &[], ["match"; 3]);
    check(&[], &["a"], ["extra [0]"; 3]);
    check(&["a", "b"], &[], ["missing a b"; 3]);
    check(&["a", "b"], &["a"], ["missing b"; 3]);
    check(&["a"], &["a", "b"], ["extra [1]"; 3]);
    check(
        &["a", "b"],
        &["b", "a"],
        ["0: b not a", "missing b", "match"],
    );
    check(
        &["a", "b"],
        &["a", "x", "b"],
        ["1: x not b", "extra [1]", "extra [1]"],
    );
    check(&["a", "b"], &["a", "x"], ["1: x not b"; 3]);
    check(
        &["a", "a"],
        &["a", "b", "a"],
        ["1: b not a", "extra [1]", "extra [1]"],
    );
    check(&["a", "a"], &["a"], ["missing a"; 3]);
    // One that gives no arguments must not take the call that another needs.
    check(
        &["a", "a {\"x\":1}"],
        &["a {\"x\":1.0}", "a {\"x\":2}"],
        ["1: a not a", "1: a not a", "match"],
    );
    check(
        &["a {\"x\":1,\"y\":[2]}"],
        &["a {\"y\":[2],\"x\":1}"],
        ["match"; 3],
    );
    check(
        &["a {\"x\":1}"],
        &["a {\"x\":1,\"y\":2}"],
        ["0: a not a"; 3],
    );
    check(
        &["a 9007199254740993"],
        &["a 9007199254740992"],
        ["0: a not a"; 3],
    );
    let extra = Outcome::Extra { steps: vec![0] };
    assert!(extra.passes(Order::InOrder) && !extra.passes(Order::Exact));
}

#[test]
fn precision_and_recall_and_their_empty_cases() {
    let check = |want: &[&str], got: &[&str], precision: f64, recall: f64| {
        let got = calls(got);
        let found = tool_scores(&expected(want), &got.iter().collect::<Vec<_>>());
        assert_eq!(
            (found.precision, found.recall),
            (precision, recall),
            "{want:?}"
        );
    };
    check(&["a", "b"], &["b", "a", "a", "c"], 0.5, 1.0);
    check(&["a", "a", "b", "b"], &["a", "b"], 1.0, 0.5);
    check(&["a"], &["b"], 0.0, 0.0);
    check(&[], &[], 1.0, 1.0);
    check(&["a"], &[], 0.0, 0.0);
    check(&[], &["a"], 0.0, 1.0);
}

#[test]
fn expected_calls_are_names_or_calls() {
    let read = Expected::read(
        &json!(["a", {"name": "b", "arguments": {"x": 1}}, {"function": {"name": "c"}}]),
    )
    .unwrap();
    assert_eq!(read, expected(&["a", "b {\"x\":1}", "c"]));
    assert_eq!(Expected::read(&json!("a")), Err(ExpectedError::NoList));
    let problem = "a tool call is no object";
    assert_eq!(
        Expected::read(&json!(["a", 3])),
        Err(ExpectedError::Entry { at: 1, problem })
    );
}

#[test]
fn people_s_failing_agents_and_steps_are_in_the_traces() {
    let test = "people_s_failing_agents_and_steps_are_in_the_traces";
    let Some(path) = common::shared(test, "data/who-and-when/Hand-Crafted.jsonl") else {
        return;
    };
    let text = std::fs::read_to_string(path).unwrap();
    let (mut traces, mut agents, mut steps, mut both) = (0, 0, 0, 0);
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let trace = Trajectory::read(&row).unwrap();
        let agent = row["mistake_agent"].as_str().unwrap();
        let step: usize = row["mistake_step"].as_str().unwrap().parse().unwrap();
        traces += 1;
        assert_eq!(trace.steps.len(), trace.entries);
        agents += usize::from(trace.agents().contains(&agent));
        steps += usize::from(step < trace.entries);
        both += usize::from(trace.steps.get(step).is_some_and(|at| at.agent == agent));
    }
    // Two labels spell an agent otherwise than their trace, and three name a step of another agent.
    assert_eq!((traces, agents, steps, both), (58, 56, 58, 53));
}
