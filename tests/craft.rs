//! The judge's craft from the command line, with the small test model: several rubrics, pairs, panels, cascades, examples out of
//! labels, kept verdicts and attacks.

mod common;

use common::{TEST_MODEL, assize, stdout_of, test_model};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

const BINARY: &str = "scale = \"binary\"\nshows = [\"input\", \"answer\"]\n[[level]]\nlabel = \"pass\"\n\
    description = \"It answers.\"\n[[level]]\nlabel = \"fail\"\ndescription = \"It does not.\"\n";

const PAIRS: [(&str, &str, &str, &str); 3] = [
    ("one", "What is 2 + 2?", "Four.", "It is a number."),
    (
        "two",
        "Who wrote Faust?",
        "Somebody.",
        "Goethe wrote Faust.",
    ),
    ("three", "Do you open on Sundays?", "No.", "No."),
];

/// Writes a rubric file.
fn rubric(folder: &Path, id: &str, rest: &str) {
    let text = format!(
        "id = \"{id}\"\nversion = 1\ncriterion = \"Helpfulness\"\nquestion = \"Does the ANSWER answer the INPUT?\"\n{rest}"
    );
    std::fs::write(folder.join(format!("{id}.toml")), text).unwrap();
}

/// Writes pairs, and the same with their answers exchanged.
fn pairs(folder: &Path) {
    let write = |name: &str, turned: bool| {
        let lines = PAIRS.map(|(id, input, a, b)| {
            let (a, b) = if turned { (b, a) } else { (a, b) };
            serde_json::json!({ "id": id, "input": input, "answer": a, "answer_b": b }).to_string()
        });
        std::fs::write(folder.join(name), lines.join("\n")).unwrap();
    };
    write("pairs.jsonl", false);
    write("turned.jsonl", true);
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = assize();
    command.current_dir(folder).args(arguments);
    command.args([
        "--mode",
        "score-only",
        "--model",
        TEST_MODEL,
        "--offline",
        "--json",
    ]);
    command.output().unwrap()
}

/// The verdict lines of a run, and its summary.
fn judged(folder: &Path, arguments: &[&str]) -> (Vec<Value>, Value) {
    let stdout = stdout_of(&run(folder, arguments));
    let mut lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let summary = lines.pop().unwrap()["summary"].clone();
    (lines, summary)
}

/// A folder with the test model's traces; `None`, said aloud, without the model.
fn place(test: &str) -> Option<tempfile::TempDir> {
    test_model(test)?;
    let folder = tempfile::tempdir().unwrap();
    pairs(folder.path());
    Some(folder)
}

fn texts<'a>(lines: &'a [Value], field: &str) -> Vec<&'a str> {
    lines
        .iter()
        .map(|line| line[field].as_str().unwrap())
        .collect()
}

#[test]
fn rubrics_share_a_run_and_kept_verdicts_are_taken_whole() {
    let Some(folder) = place("kept verdicts") else {
        return;
    };
    let path = folder.path();
    rubric(path, "first", &format!("weight = 3\n{BINARY}"));
    rubric(path, "second", &format!("weight = 1\n{BINARY}"));
    let both = [
        "judge",
        "pairs.jsonl",
        "-r",
        "first.toml",
        "-r",
        "second.toml",
    ];
    let kept = |out| [&both[..], &["--verdict-cache", "kept", "--out", out]].concat();
    let (lines, summary) = judged(path, &kept("a"));
    assert_eq!(texts(&lines, "rubric"), ["first", "second"].repeat(3));
    assert_eq!(
        texts(&lines, "item"),
        ["one", "one", "two", "two", "three", "three"]
    );
    assert_eq!(
        (&summary["judged"], &summary["rubrics"]["second"]["judged"]),
        (&6.into(), &3.into())
    );
    let score = |rubric: usize| lines[rubric]["expected"].as_f64().unwrap();
    let composite = summary["composite"]["items"]["one"].as_f64().unwrap();
    assert!((composite - (3.0 * score(0) + score(1)) / 4.0).abs() < 1e-12);

    // Another folder, and nothing is judged anew: the lines are the very same, milliseconds included.
    let (again, _) = judged(path, &kept("b"));
    assert_eq!(again, lines);
    // A rubric by itself has the keys that it had in company.
    let alone = [
        "judge",
        "pairs.jsonl",
        "-r",
        "second.toml",
        "--prompt-order",
        "rubric-first",
    ];
    let (alone, _) = judged(
        path,
        &[&alone[..], &["--verdict-cache", "kept", "--out", "c"]].concat(),
    );
    let second: Vec<Value> = lines
        .into_iter()
        .filter(|line| line["rubric"] == "second")
        .collect();
    assert_eq!(alone, second);
}

#[test]
fn what_comes_first_changes_no_key_by_chance() {
    let Some(folder) = place("the order of a prompt") else {
        return;
    };
    let path = folder.path();
    rubric(path, "first", BINARY);
    let judge = |order, out| {
        let command = [
            "judge",
            "pairs.jsonl",
            "-r",
            "first.toml",
            "--prompt-order",
            order,
            "--out",
            out,
        ];
        judged(path, &command).0
    };
    let (rubric_first, item_first) = (judge("rubric-first", "a"), judge("item-first", "b"));
    for (one, other) in rubric_first.iter().zip(&item_first) {
        assert_ne!(one["key"], other["key"], "another wording is another key");
    }
}

#[test]
fn exchanging_the_answers_of_a_file_exchanges_the_winners() {
    let Some(folder) = place("pairs") else { return };
    let path = folder.path();
    for decide in ["strict", "weighted"] {
        let rules = format!("format = \"pairwise\"\n[pairwise]\ndecide = \"{decide}\"\n");
        rubric(path, decide, &rules);
        let file = format!("{decide}.toml");
        let judge = |traces| {
            let out = format!("{decide}-{traces}");
            judged(path, &["judge", traces, "-r", &file, "--out", &out])
        };
        let (there, summary) = judge("pairs.jsonl");
        let (back, _) = judge("turned.jsonl");
        assert_eq!(summary["pairs"]["both_orders"], 3);
        for (one, other) in there.iter().zip(&back) {
            let turned = match one["label"].as_str().unwrap() {
                "A" => "B",
                "B" => "A",
                tie => tie,
            };
            assert_eq!(other["label"], turned, "{decide} {}", one["item"]);
            let odds = |line: &Value| line["pairwise"]["log_odds"].as_f64().unwrap();
            assert_eq!(odds(one), 0.0 - odds(other), "{decide} {}", one["item"]);
        }
        assert_eq!(there[2]["label"], "tie", "the same answer twice");
    }
}

#[test]
fn a_panel_and_a_cascade_go_past_several_models() {
    let Some(folder) = place("panels") else {
        return;
    };
    let path = folder.path();
    rubric(path, "first", BINARY);
    let judge = |more: &[&str]| {
        judged(
            path,
            &[&["judge", "pairs.jsonl", "-r", "first.toml"], more].concat(),
        )
    };
    let (alone, _) = judge(&["--out", "alone"]);
    let (panel, summary) = judge(&["--panel", "mean", "--also", TEST_MODEL, "--out", "panel"]);
    assert_eq!(texts(&panel, "label"), texts(&alone, "label"));
    assert_eq!(summary["panel"]["items"], 3);
    for (one, all) in alone.iter().zip(&panel) {
        assert_eq!(all["panel"]["members"][1]["expected"], one["expected"]);
        assert_eq!(all["panel"]["range"], 0.0);
    }
    let handing_on = [
        "--cascade",
        TEST_MODEL,
        "--least-margin",
        "1",
        "--least-mass",
        "0",
        "--out",
        "cascade",
    ];
    let (cascade, summary) = judge(&handing_on);
    assert_eq!(summary["cascade"]["settled_by_second"], 3);
    for (one, all) in alone.iter().zip(&cascade) {
        assert_eq!(
            (&all["label"], &all["cascade"]["first"]),
            (&one["label"], &one["label"])
        );
        assert_eq!(all["cascade"]["handed_on"], "margin");
    }
    // Running it again resumes: every decision is read back from the journal.
    let again = judge(&handing_on);
    assert_eq!(
        (again.0, &again.1["cascade"]),
        (cascade, &summary["cascade"])
    );
}

#[test]
fn examples_come_out_of_labels_and_are_not_judged() {
    let Some(folder) = place("examples") else {
        return;
    };
    let path = folder.path();
    rubric(path, "first", BINARY);
    let labelled: Vec<String> = (0..12)
        .map(|number| {
            let label = if number % 2 == 0 { "pass" } else { "fail" };
            let (input, answer) = (format!("question {number}"), format!("answer {number}"));
            serde_json::json!({ "id": number, "input": input, "answer": answer, "label": label })
                .to_string()
        })
        .collect();
    std::fs::write(path.join("labelled.jsonl"), labelled.join("\n")).unwrap();
    let judge = |traces, out| {
        let command = [
            "judge",
            traces,
            "-r",
            "first.toml",
            "--examples-from",
            "labelled.jsonl",
        ];
        run(
            path,
            &[&command[..], &["--shots", "2", "--out", out]].concat(),
        )
    };
    let output = judge("pairs.jsonl", "a");
    assert!(output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("rubric first: shown as examples are "),
        "{told}"
    );
    let output = judge("labelled.jsonl", "b");
    assert_eq!(
        output.status.code(),
        Some(3),
        "two of the judged items are examples"
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    let shown = stdout
        .lines()
        .filter(|line| line.contains("\"kind\":\"shown\""))
        .count();
    assert_eq!(shown, 2, "{stdout}");
}

#[test]
fn attacks_are_counted() {
    let Some(folder) = place("attacks") else {
        return;
    };
    let path = folder.path();
    rubric(path, "first", BINARY);
    let mut command = assize();
    command.current_dir(path);
    command.args(["redteam", "pairs.jsonl", "-r", "first.toml", "--limit", "1"]);
    command.args(["--model", TEST_MODEL, "--offline", "--json"]);
    let found: Value = serde_json::from_str(&stdout_of(&command.output().unwrap())).unwrap();
    let effects = found["effects"].as_array().unwrap();
    assert!(effects.len() >= 40);
    assert_eq!(
        (&found["tried"], &found["failed"]),
        (&effects.len().into(), &0.into())
    );
    let moved: u64 = effects
        .iter()
        .map(|effect| effect["moved"].as_u64().unwrap())
        .sum();
    assert_eq!(found["moved"], moved);
}

#[test]
fn what_can_not_sit_together_is_told_before_a_model_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    pairs(path);
    rubric(path, "first", BINARY);
    rubric(
        path,
        "other",
        "scale = \"integer\"\n[[level]]\nlabel = 1\ndescription = \"d\"\n[[level]]\nlabel = 2\ndescription = \"d\"\n",
    );
    let check = |more: &[&str], part: &str| {
        let output = run(
            path,
            &[&["judge", "pairs.jsonl", "-r", "first.toml"], more].concat(),
        );
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {told}");
        assert!(
            told.contains(part) && told.contains("hint: "),
            "{more:?}: {told}"
        );
    };
    check(&["--samples", "3"], "several samples make a panel");
    check(
        &["--samples", "3", "--panel", "mean"],
        "would all be the same",
    );
    check(
        &["-r", "other.toml", "--panel", "majority"],
        "have other labels",
    );
    check(&["-r", "first.toml"], "another rubric has the id \"first\"");
    check(
        &["--examples-from", "pairs.jsonl", "--shots", "1"],
        "0 of 3 items have a label",
    );
    check(&["--examples-from", "absent.jsonl"], "absent.jsonl");
}
