//! `assize measure` from outside: a hand-made run beside hand-made labels.

mod common;

use serde_json::Value;
use std::path::Path;

/// Runs, and compares exit code, stdout and stderr.
fn check(folder: &Path, arguments: &[&str], code: i32, stdout: &str, stderr: &str) {
    let output = common::assize()
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
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

fn line(item: &str, label: &str, expected: f64, labels: &[&str]) -> String {
    let share = 1.0 / labels.len() as f64;
    let distribution: Vec<String> = labels
        .iter()
        .map(|label| format!("\"{label}\":{share}"))
        .collect();
    format!(
        "{{\"item\":\"{item}\",\"key\":\"k-{item}\",\"label\":\"{label}\",\"expected\":{expected},\"distribution\":{{{}}},\
         \"mass\":0.9,\"low_mass\":false,\"entropy\":0.1,\"margin\":0.5,\"rationale\":null,\"evidence\":[],\"raw\":\"\"}}\n",
        distribution.join(",")
    )
}

fn failure(item: &str) -> String {
    format!(
        "{{\"item\":\"{item}\",\"key\":\"k-{item}\",\"failure\":{{\"kind\":\"length\",\"reason\":\"too long\"}}}}\n"
    )
}

/// A run of a binary rubric: five verdicts, a failure, and a torn line.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let mut text = String::new();
    for (item, label, expected) in [
        ("a", "pass", 0.9),
        ("b", "pass", 0.8),
        ("c", "fail", 0.2),
        ("d", "pass", 0.6),
        ("e", "fail", 0.4),
    ] {
        text += &line(item, label, expected, &["pass", "fail"]);
    }
    // A verdict that was given again: the last one counts.
    text += &line("e", "pass", 0.7, &["pass", "fail"]);
    text += &failure("f");
    std::fs::write(run.join("verdicts.jsonl"), text.clone() + "{\"item\":\"g\"").unwrap();
    std::fs::write(folder.path().join("whole.jsonl"), text).unwrap();
    let labels = "id,label\na,pass\nb,pass\nc,fail\nd,fail\ne,\n";
    std::fs::write(folder.path().join("labels.csv"), labels).unwrap();
    std::fs::write(
        folder.path().join("more.csv"),
        "id,label\na,pass\nf,fail\nz,pass\n",
    )
    .unwrap();
    folder
}

#[test]
fn agreement_of_a_run_with_labels() {
    let folder = folder();
    let table = "\
items       4 with a label and a verdict
accuracy    0.750  [0.301, 0.954]  3 of 4
baseline    0.500  [0.150, 0.850]  2 of 4  always pass
kappa       0.500
TPR         1.000  [0.342, 1.000]  2 of 2  labelled pass
TNR         0.500  [0.095, 0.905]  1 of 2  labelled otherwise
no label    2: e, f

labels down, verdicts across
          pass    fail
pass         2       0
fail         1       1
";
    let torn = "run/verdicts.jsonl: its last line is torn and left out\n";
    let path = folder.path();
    check(
        path,
        &["measure", "run", "--labels", "labels.csv"],
        0,
        table,
        torn,
    );
    check(
        path,
        &["measure", "whole.jsonl", "--labels", "labels.csv"],
        0,
        table,
        "",
    );
    let turned = [
        "measure",
        "whole.jsonl",
        "-l",
        "labels.csv",
        "--positive",
        "fail",
        "--json",
    ];
    let output = common::assize()
        .current_dir(path)
        .args(turned)
        .output()
        .unwrap();
    let found: Value = serde_json::from_str(&common::stdout_of(&output)).unwrap();
    assert_eq!(found["tpr"]["hits"], 1);
    assert_eq!(found["tnr"]["value"], 1.0);
    assert_eq!(found["unlabelled"][0], "e");
    assert_eq!(found["correlations"], Value::Null);
}

#[test]
fn items_without_a_verdict_are_named_and_exit_with_3() {
    let folder = folder();
    let want = "\
items       1 with a label and a verdict
accuracy    1.000  [0.207, 1.000]  1 of 1
baseline    1.000  [0.207, 1.000]  1 of 1  always pass
kappa       not defined: both gave one label throughout
TPR         1.000  [0.207, 1.000]  1 of 1  labelled pass
TNR         not defined: no item has such a label  labelled otherwise
failed      1: f
no verdict  1: z
no label    4: b, c, d, e

labels down, verdicts across
          pass    fail
pass         1       0
fail         0       0
";
    let arguments = ["measure", "whole.jsonl", "--labels", "more.csv"];
    check(folder.path(), &arguments, 3, want, "");
}

#[test]
fn scores_are_correlated_with_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut verdicts = String::new();
    let mut labels = String::new();
    // The textbook pairs whose correlations are known: scipy's spearman is -0.9141276325084521 over all eight.
    let scores = [3.2, 1.1, 4.4, 1.1, 5.0, 2.2, 3.2, 0.0];
    let humans = [2, 4, 1, 5, 2, 4, 3, 5];
    for (at, (score, human)) in scores.iter().zip(humans).enumerate() {
        verdicts += &line(&at.to_string(), "3", *score, &["1", "2", "3", "4", "5"]);
        labels += &format!("{{\"id\":{at},\"label\":{human}}}\n");
    }
    std::fs::write(path.join("v.jsonl"), verdicts).unwrap();
    std::fs::write(path.join("l.jsonl"), &labels).unwrap();
    let run = |seed: &str| {
        let arguments = [
            "measure", "v.jsonl", "-l", "l.jsonl", "--json", "--seed", seed,
        ];
        let output = common::assize()
            .current_dir(path)
            .args(arguments)
            .output()
            .unwrap();
        serde_json::from_str::<Value>(&common::stdout_of(&output)).unwrap()
    };
    let found = run("3");
    let spearman = &found["correlations"]["spearman"];
    assert!((spearman["value"].as_f64().unwrap() + 0.9141276325084521).abs() < 1e-12);
    assert!(spearman["low"].as_f64() < spearman["value"].as_f64());
    assert!(spearman["value"].as_f64() < spearman["high"].as_f64());
    assert_eq!(found["accuracy"]["hits"], 1);
    assert_eq!(found["positive"], Value::Null);
    assert_eq!(found, run("3"));
    assert_ne!(found["correlations"], run("4")["correlations"]);
    // Means of several people are no levels: nothing is counted as equal.
    std::fs::write(path.join("l.jsonl"), labels.replace(":2}", ":2.5}")).unwrap();
    assert_eq!(run("3")["accuracy"], Value::Null);
    assert_eq!(run("3")["correlations"]["kendall"]["n"], 8);
}

#[test]
fn bad_files_exit_with_2_and_a_mend() {
    let folder = folder();
    let path = folder.path();
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).unwrap();
    write("twice.csv", "id,label\na,pass\na,fail\n");
    write("other.csv", "id,label\nx,pass\n");
    write("empty.csv", "id,label\na,\n");
    write("foreign.csv", "id,label\na,good\nb,pass\n");
    write("bad.jsonl", "{\"item\":\"a\"}\n");
    let two =
        line("a", "pass", 0.9, &["pass"]) + &line("a", "pass", 0.9, &["pass"]).replace("k-a", "k");
    write("two.jsonl", &two);
    let check = |verdicts: &str, labels: &str, stderr: &str| {
        check(
            path,
            &["measure", verdicts, "--labels", labels],
            2,
            "",
            stderr,
        );
    };
    check(
        "run",
        "twice.csv",
        "error: twice.csv:3: its item was already named by line 2\n\n\
         hint: keep one line an item: settle what two people said before it is measured\n",
    );
    check(
        "whole.jsonl",
        "other.csv",
        "error: no labelled item has a verdict\n\n\
         hint: items are matched by name: the labels have \"x\", the verdicts \"a\"\n",
    );
    check(
        "whole.jsonl",
        "empty.csv",
        "error: the labels file labels no item\n\nhint: fill in its column label, for one line at least\n",
    );
    check(
        "bad.jsonl",
        "labels.csv",
        "error: line 1 of bad.jsonl is not a verdict: no \"key\"\n\n\
         hint: give a file that assize judge wrote, or remove the line\n",
    );
    check(
        "two.jsonl",
        "labels.csv",
        "error: line 2 of two.jsonl: a second verdict of item \"a\"\n\n\
         hint: verdicts are matched by item: give one run of one rubric at a time\n",
    );
    check(
        "run",
        "run",
        "error: run: can't tell its format from its name\n\nhint: name it .csv or .jsonl\n",
    );
    let foreign = [
        "measure",
        "whole.jsonl",
        "--labels",
        "foreign.csv",
        "--positive",
        "great",
    ];
    self::check(
        path,
        &foreign,
        2,
        "",
        "error: --positive great: no label or verdict says that\n\nhint: the labels are pass, fail, good\n",
    );
    let output = common::assize()
        .current_dir(path)
        .args(&foreign[..4])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "warning: people gave labels that the judge can't give: good\n"
    );
}

#[test]
fn one_rubric_of_several_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let of = |rubric: &str, label: &str| {
        line("a", label, 0.5, &["pass", "fail"]).replace(
            "\"key\":\"k-a\"",
            &format!("\"rubric\":\"{rubric}\",\"key\":\"k-{rubric}\""),
        )
    };
    std::fs::write(path.join("both.jsonl"), of("r", "pass") + &of("s", "fail")).unwrap();
    std::fs::write(path.join("labels.csv"), "id,label\na,pass\n").unwrap();
    check(
        path,
        &["measure", "both.jsonl", "--labels", "labels.csv"],
        2,
        "",
        "error: line 2 of both.jsonl: a second verdict of item \"a\"\n\n\
         hint: verdicts are matched by item: name one rubric with --of (r, s)\n",
    );
    let accuracy = |rubric: &str| {
        let output = common::assize()
            .current_dir(path)
            .args([
                "measure",
                "both.jsonl",
                "--labels",
                "labels.csv",
                "--json",
                "--of",
                rubric,
            ])
            .output()
            .unwrap();
        let found: Value = serde_json::from_str(&common::stdout_of(&output)).unwrap();
        found["accuracy"]["value"].as_f64()
    };
    assert_eq!((accuracy("r"), accuracy("s")), (Some(1.0), Some(0.0)));
    check(
        path,
        &[
            "measure",
            "both.jsonl",
            "--labels",
            "labels.csv",
            "--of",
            "t",
        ],
        2,
        "",
        "error: both.jsonl: no verdict is of rubric \"t\"\n\nhint: its rubrics are r, s\n",
    );
}
