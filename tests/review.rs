//! `assize review` from outside: what is queued, and the way back as labels.

mod common;

use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

fn assize(folder: &Path, arguments: &[&str]) -> Output {
    common::assize()
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn verdict(item: &str, label: &str, pass: f64, low: bool) -> String {
    let fail = 1.0 - pass;
    let entropy = -(pass * pass.ln() + fail * fail.ln());
    json!({"item": item, "key": item, "label": label, "expected": pass, "distribution": {"pass": pass, "fail": fail},
        "mass": 0.9, "low_mass": low, "entropy": entropy, "margin": (pass - fail).abs(),
        "rationale": "It says \"so\",\nand more.", "evidence": [{"quote": "so", "start": 0, "end": 2}], "raw": "…"})
    .to_string()
        + "\n"
}

/// A sure verdict, one of low mass, one that is nearly even, and a failure.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = verdict("sure, very", "pass", 0.95, false)
        + &verdict("low", "fail", 0.1, true)
        + &verdict("even, \"so\"", "pass", 0.55, false)
        + &json!({"item": "bad", "key": "bad", "failure": {"kind": "length", "reason": "too long"}})
            .to_string() + "\n";
    std::fs::write(folder.path().join("verdicts.jsonl"), text).unwrap();
    folder
}

#[test]
fn the_queue_comes_back_as_labels() {
    let folder = folder();
    let path = folder.path();
    for name in ["queue.csv", "queue.jsonl"] {
        let output = assize(path, &["review", ".", "--out", name]);
        assert_eq!(common::stdout_of(&output), "");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "3 of 4 items to review: failure 1, high_entropy 1, low_mass 1, small_margin 1\n"
        );
        // As it is, it labels nothing.
        let measure = ["measure", "verdicts.jsonl", "--labels", name, "--json"];
        let output = assize(path, &measure);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            String::from_utf8_lossy(&output.stderr)
                .starts_with("error: the labels file labels no item\n")
        );
        // A person fills in two of the three lines.
        let text = std::fs::read_to_string(path.join(name)).unwrap();
        let filled = if name == "queue.csv" {
            text.replace("\nlow,,", "\nlow,fail,")
                .replace("so\"\"\",,", "so\"\"\",fail,")
        } else {
            let lines = text.lines().map(|line| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                if line["id"] != "bad" {
                    line["label"] = "fail".into();
                }
                line.to_string() + "\n"
            });
            lines.collect()
        };
        std::fs::write(path.join(name), filled).unwrap();
        let found: Value =
            serde_json::from_str(&common::stdout_of(&assize(path, &measure))).unwrap();
        assert_eq!(found["n"], 2, "{name}");
        assert_eq!(found["accuracy"]["hits"], 1);
        assert_eq!(found["unlabelled"], json!(["bad"]));
        assert_eq!(found["without_label"], json!(["sure, very", "bad"]));
        // What people filled in is not written over.
        let output = assize(path, &["review", ".", "--out", name]);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            told.ends_with("hint: it may hold labels: give another name, or remove it\n"),
            "{told}"
        );
    }
}

#[test]
fn the_queue_on_stdout() {
    let folder = folder();
    let output = assize(folder.path(), &["review", ".", "--quiet"]);
    let want = "\
id,label,note,reasons,judge_label,expected,margin,entropy,mass,distribution,rationale,evidence,failure
low,,,low_mass,fail,0.1,0.8,0.325083,0.9,pass: 0.100; fail: 0.900,\"It says \"\"so\"\",
and more.\",so,
\"even, \"\"so\"\"\",,,small_margin; high_entropy,pass,0.55,0.1,0.688139,0.9,pass: 0.550; fail: 0.450,\"It says \"\"so\"\",
and more.\",so,
bad,,,failure: length,,,,,,,,,too long
";
    assert_eq!(common::stdout_of(&output), want);
    let all = assize(folder.path(), &["review", ".", "--json", "--margin", "1"]);
    let lines = common::stdout_of(&all);
    assert_eq!(lines.lines().count(), 4);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["id"], &first["label"]),
        (&json!("sure, very"), &Value::Null)
    );
    let none = assize(folder.path(), &["review", ".", "--margin", "2"]);
    assert_eq!(none.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&none.stderr),
        "error: --margin 2\n\nhint: use a number from 0 to 1\n"
    );
}
