//! A verdict depends on its item alone: not on the batch, the chunks, the threads, the cache, the order or a resume.
//! Seen from outside, on the command that users run; `tests/engine` and `tests/logits.rs` show it within.

mod common;

use common::{assize, shared, stdout_of, test_model, timeless};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[test]
fn every_way_of_running_gives_the_same_bits() {
    let name = "every_way_of_running_gives_the_same_bits";
    if test_model(name).is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let examples =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/support.jsonl"))
            .expect("examples");
    let lines: Vec<&str> = examples.lines().collect();
    let traces = folder.path().join("traces.jsonl");
    let reversed = folder.path().join("reversed.jsonl");
    fs::write(&traces, lines.join("\n")).expect("traces");
    fs::write(
        &reversed,
        lines.iter().rev().copied().collect::<Vec<_>>().join("\n"),
    )
    .expect("traces");

    let expected = judge(&traces, &folder.path().join("plain"), &[]);
    assert_eq!(expected.len(), lines.len());
    let ways: &[(&str, &Path, &[&str])] = &[
        ("alone", &traces, &["--max-batch", "1"]),
        ("in threes", &traces, &["--max-batch", "3"]),
        ("tiny chunks", &traces, &["--prefill-chunk", "7"]),
        ("one chunk", &traces, &["--prefill-chunk", "4096"]),
        ("one thread", &traces, &["--threads", "1"]),
        ("two threads", &traces, &["--threads", "2"]),
        ("cold prefixes", &traces, &["--no-prefix-cache"]),
        (
            "cold, alone, odd chunks",
            &traces,
            &[
                "--no-prefix-cache",
                "--max-batch",
                "1",
                "--prefill-chunk",
                "33",
            ],
        ),
        ("the other way round", &reversed, &["--max-batch", "4"]),
    ];
    for (at, (way, traces, extra)) in ways.iter().enumerate() {
        let found = judge(traces, &folder.path().join(format!("way-{at}")), extra);
        assert_eq!(found, expected, "{way}");
    }

    // Resumed: half the items first, all of them afterwards, in one folder.
    let out = folder.path().join("resumed");
    judge(&traces, &out, &["--limit", "6"]);
    assert_eq!(judge(&traces, &out, &[]), expected, "resumed");
}

#[test]
fn score_only_agrees_with_itself_on_real_rows() {
    let name = "score_only_agrees_with_itself_on_real_rows";
    let (Some(_), Some(data)) = (test_model(name), shared(name, "data/llmbar/Natural.json")) else {
        return;
    };
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(&fs::read_to_string(data).expect("data")).expect("JSON");
    let lines: Vec<String> = rows
        .iter()
        .take(12)
        .map(|row| {
            serde_json::json!({ "input": row["input"], "answer": row["output_1"] }).to_string()
        })
        .collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let traces = folder.path().join("rows.jsonl");
    fs::write(&traces, lines.join("\n")).expect("traces");
    let common = ["--mode", "score-only", "--rubric", "examples/helpful.toml"];
    let expected = judge(&traces, &folder.path().join("plain"), &common);
    for (at, extra) in [
        ["--max-batch", "1"],
        ["--prefill-chunk", "5"],
        ["--threads", "1"],
    ]
    .iter()
    .enumerate()
    {
        let arguments: Vec<&str> = common.iter().chain(extra).copied().collect();
        assert_eq!(
            judge(
                &traces,
                &folder.path().join(format!("way-{at}")),
                &arguments
            ),
            expected,
            "{extra:?}"
        );
    }
}

/// Judges and returns each item's verdict, timings aside.
fn judge(traces: &Path, out: &Path, extra: &[&str]) -> BTreeMap<String, String> {
    let mut command = assize();
    command.arg("judge").arg(traces);
    if !extra.contains(&"--rubric") {
        command.args(["--rubric", "examples/grounded.toml"]);
    }
    command
        .args([
            "--model",
            common::TEST_MODEL,
            "--offline",
            "--quiet",
            "--out",
        ])
        .arg(out)
        .args(extra)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    stdout_of(&command.output().expect("a run"));
    let text = fs::read_to_string(out.join("verdicts.jsonl")).expect("verdicts");
    text.lines()
        .map(|line| {
            let verdict: serde_json::Value = serde_json::from_str(line).expect("JSON");
            (
                verdict["item"].as_str().expect("an item id").to_owned(),
                timeless(line),
            )
        })
        .collect()
}
