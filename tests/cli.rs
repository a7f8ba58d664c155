//! The command line from outside: exit codes, streams, messages, and what a run leaves behind.

mod common;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn assize(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assize"));
    command
        .current_dir(folder)
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

/// Runs, and compares exit code, stdout and stderr.
fn check(folder: &Path, arguments: &[&str], code: i32, stdout: &str, stderr: &str) {
    let output = assize(folder, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    );
    assert_eq!(
        found,
        (Some(code), stdout.into(), stderr.into()),
        "{arguments:?}"
    );
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["support.jsonl", "grounded.toml", "helpful.toml"] {
        std::fs::copy(example(name), folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn bad_rubrics_and_inputs_exit_with_2() {
    let folder = folder();
    let path = folder.path();
    let rubric = std::fs::read_to_string(example("grounded.toml")).unwrap();
    std::fs::write(
        path.join("typo.toml"),
        rubric.replacen("criterion", "criterium", 1),
    )
    .unwrap();
    check(
        path,
        &["judge", "support.jsonl", "--rubric", "typo.toml"],
        2,
        "",
        "error: typo.toml:4: unknown key \"criterium\"\n\nhint: did you mean \"criterion\"?\n",
    );
    let description = rubric
        .lines()
        .position(|line| line.starts_with("description"))
        .unwrap();
    let without: Vec<&str> = rubric
        .lines()
        .enumerate()
        .filter(|(line, _)| *line != description)
        .map(|(_, text)| text)
        .collect();
    std::fs::write(path.join("level.toml"), without.join("\n")).unwrap();
    check(
        path,
        &["judge", "support.jsonl", "--rubric", "level.toml"],
        2,
        "",
        &format!(
            "error: level.toml:{}: level pass has no description\n\nhint: add description = \"…\": when an answer is \
             on level pass\n",
            description - 1,
        ),
    );
    check(
        path,
        &[
            "judge",
            "support.jsonl",
            "--rubric",
            "grounded.toml",
            "--map",
            "answr=x",
        ],
        2,
        "",
        "error: --map: \"answr\" is no field of an item; the fields are id, input, context, answer, answer_b, answers, \
         reference, trajectory, expected, generator, label, metadata\n\nhint: for example --map answer=response.text\n",
    );
    std::fs::write(path.join("empty.jsonl"), "\n").unwrap();
    check(
        path,
        &["judge", "empty.jsonl", "--rubric", "grounded.toml"],
        2,
        "",
        "error: the traces hold no item\n\nhint: each line is one item, such as {\"answer\": …}\n",
    );
    // A build with the feature says what is missing here instead.
    #[cfg(not(feature = "cuda"))]
    check(
        path,
        &[
            "judge",
            "support.jsonl",
            "--rubric",
            "grounded.toml",
            "--device",
            "cuda",
        ],
        2,
        "",
        "error: cuda can't be used: this build has no kernels for NVIDIA cards; build with --features cuda\n\nhint: \
         assize devices tells what can be used; --device cpu computes here\n",
    );
}

#[test]
fn missing_files_are_named() {
    let folder = folder();
    let check = |arguments: &[&str], names: &str| {
        let output = assize(folder.path(), arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
        assert!(
            stderr.starts_with("error: ")
                && stderr.contains(names)
                && stderr.contains("\n\nhint: "),
            "{stderr}"
        );
    };
    check(
        &["judge", "no.jsonl", "--rubric", "grounded.toml"],
        "no.jsonl",
    );
    check(
        &["judge", "support.jsonl", "--rubric", "no.toml"],
        "no.toml",
    );
    check(
        &[
            "judge",
            "support.jsonl",
            "--rubric",
            "grounded.toml",
            "--model",
            "no-such-model",
        ],
        "no-such-model",
    );
    check(
        &["judge", "grounded.toml", "--rubric", "grounded.toml"],
        "grounded.toml",
    );
    check(
        &["bench", "--workload", "no.jsonl", "--mode", "json"],
        "no.jsonl",
    );
    std::fs::write(folder.path().join("bad.gguf"), b"GGUF and nothing more").unwrap();
    let with_bad_model = [
        "judge",
        "support.jsonl",
        "--rubric",
        "grounded.toml",
        "--model",
        "bad.gguf",
    ];
    let output = assize(folder.path(), &with_bad_model);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("bad.gguf"));
}

#[test]
fn help_is_data() {
    let folder = folder();
    for command in ["judge", "bench", "fetch", "models", "inspect", "synth"] {
        let output = assize(folder.path(), &[command, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(
            output.stderr.is_empty() && text.contains("Examples:"),
            "{command}: {text}"
        );
    }
    assert_eq!(
        assize(folder.path(), &["no-such-command"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_run_with_a_bad_line_ends_resumes_and_is_guarded() {
    let test = "a_run_with_a_bad_line_ends_resumes_and_is_guarded";
    let Some(model) = common::test_model(test) else {
        return;
    };
    let model = model.display().to_string();
    let folder = folder();
    let path = folder.path();
    let traces = std::fs::read_to_string(example("support.jsonl")).unwrap();
    let first: Vec<&str> = traces.lines().take(2).collect();
    std::fs::write(
        path.join("t.jsonl"),
        format!("{}\n{{\"id\":\"x\"}}\n{}\n", first[0], first[1]),
    )
    .unwrap();
    let base = [
        "--quiet",
        "judge",
        "t.jsonl",
        "--rubric",
        "grounded.toml",
        "--model",
        &model,
        "--mode",
        "score-only",
    ];
    let with = |more: &[&str]| assize(path, &[&base[..], more].concat());

    let output = with(&["--out", "run", "--json"]);
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        (&lines[0]["item"], &lines[1]["item"]),
        (&first_id(first[0]), &Value::from("x"))
    );
    let reason = lines[1]["failure"]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("item 2 of t.jsonl: no field \"answer\""),
        "{reason}"
    );
    let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "item",
            "rubric",
            "key",
            "label",
            "expected",
            "distribution",
            "mass",
            "low_mass",
            "entropy",
            "margin",
            "rationale",
            "evidence",
            "raw",
            "tokens",
            "milliseconds",
        ]
    );
    let total: f64 = lines[0]["distribution"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_f64)
        .sum();
    assert!((total - 1.0).abs() < 1e-9);
    let summary = &lines[3]["summary"];
    assert_eq!(
        (&summary["judged"], &summary["failed"]),
        (&Value::from(2), &Value::from(1))
    );
    let written = std::fs::read_to_string(path.join("run/verdicts.jsonl")).unwrap();
    assert!(stdout.starts_with(&written));

    let again = with(&["--out", "run"]);
    assert_eq!(again.status.code(), Some(3));
    let table = String::from_utf8(again.stdout).unwrap();
    assert!(
        table.starts_with("item ") && table.contains("2 judged, 1 failed"),
        "{table}"
    );
    assert_eq!(
        std::fs::read_to_string(path.join("run/verdicts.jsonl")).unwrap(),
        written,
        "nothing is judged again"
    );

    let other = with(&["--out", "run", "--seed", "5"]);
    let stderr = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(2));
    assert!(
        stderr.contains("run holds another run: seed: 0 there, 5 here"),
        "{stderr}"
    );

    let strict = with(&["--out", "strict", "--strict"]);
    assert_eq!(strict.status.code(), Some(2));
    let stderr = String::from_utf8(strict.stderr).unwrap();
    assert!(
        stderr.starts_with("error: item 2 of t.jsonl: no field \"answer\"\n\nhint: "),
        "{stderr}"
    );

    // The way of running changes no verdict.
    let plain = [
        "--out",
        "alone",
        "--max-batch",
        "1",
        "--prefill-chunk",
        "7",
        "--no-prefix-cache",
        "--threads",
        "1",
    ];
    assert_eq!(with(&plain).status.code(), Some(3));
    let alone = std::fs::read_to_string(path.join("alone/verdicts.jsonl")).unwrap();
    assert_eq!(timeless(&alone), timeless(&written));
}

fn first_id(line: &str) -> Value {
    serde_json::from_str::<Value>(line).unwrap()["id"].clone()
}

/// Verdicts without what may differ between two runs of the same thing.
fn timeless(verdicts: &str) -> Vec<Value> {
    let strip = |line: &str| {
        let mut verdict: Value = serde_json::from_str(line).unwrap();
        if let Some(object) = verdict.as_object_mut() {
            object.remove("milliseconds");
        }
        if let Some(tokens) = verdict.get_mut("tokens").and_then(Value::as_object_mut) {
            tokens.remove("cached");
        }
        verdict
    };
    verdicts.lines().map(strip).collect()
}
