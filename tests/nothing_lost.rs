//! Nothing is lost: a run that is killed again and again ends with the verdicts of an undisturbed one.

mod common;

use common::{assize, skip, stdout_of, test_model};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Longest time that a run is left alone before it is killed, so that a busy machine doesn't make the test long.
const LONGEST: Duration = Duration::from_secs(4);

#[test]
fn killed_between_scores_equals_undisturbed() {
    check(
        "killed_between_scores_equals_undisturbed",
        "score-only",
        12,
        88,
    );
}

#[test]
fn killed_within_rationales_equals_undisturbed() {
    check(
        "killed_within_rationales_equals_undisturbed",
        "rationale",
        4,
        12,
    );
}

/// Judges `items` items, killing the run `kills` times at random moments, and resumes each time.
fn check(name: &str, mode: &str, items: usize, kills: usize) {
    if test_model(name).is_none() {
        return;
    }
    if cfg!(not(unix)) {
        return skip(name, "kills by signal");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (traces, rubric) = (
        folder.path().join("traces.jsonl"),
        folder.path().join("rubric.toml"),
    );
    fs::write(&traces, traces_of(items)).expect("traces");
    fs::write(&rubric, RUBRIC).expect("a rubric");
    let run = |out: &Path| command(&traces, &rubric, mode, out);

    let undisturbed = folder.path().join("undisturbed");
    let began = Instant::now();
    stdout_of(&run(&undisturbed).output().expect("a run"));
    let whole = began.elapsed();
    let expected = settled(&undisturbed);
    assert_eq!(expected.len(), items);

    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut killed, mut rounds) = (0, 0);
    while killed < kills {
        rounds += 1;
        let disturbed = folder.path().join(format!("disturbed-{rounds}"));
        while killed < kills {
            let mut child = run(&disturbed)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a run");
            // Some moments fall into loading, some between two verdicts, some into the last write.
            let deadline = Instant::now() + whole.min(LONGEST).mul_f64(uniform(&mut random));
            let finished = loop {
                if let Some(status) = child.try_wait().expect("a child") {
                    break Some(status);
                }
                if Instant::now() >= deadline {
                    break None;
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            if let Some(status) = finished {
                assert!(status.success(), "a resumed run ended with {status}");
                break;
            }
            child.kill().expect("SIGKILL");
            child.wait().expect("a child");
            killed += 1;
        }
        stdout_of(&run(&disturbed).output().expect("the last run"));
        assert_eq!(
            settled(&disturbed),
            expected,
            "round {rounds}, after {killed} kills"
        );
    }
}

/// A short one, so that a run is about as long as loading the model.
const RUBRIC: &str = r#"
id = "hours"
version = "1"
criterion = "Correctness"
question = "Is the ANSWER what the CONTEXT says?"
shows = ["input", "context", "answer"]
scale = "binary"

[[level]]
label = "pass"
description = "it is"

[[level]]
label = "fail"
description = "it is not"

[decoding]
rationale_chars = 60
"#;

fn command(traces: &Path, rubric: &Path, mode: &str, out: &Path) -> std::process::Command {
    let mut command = assize();
    command
        .arg("judge")
        .arg(traces)
        .arg("--rubric")
        .arg(rubric)
        .args(["--model", common::TEST_MODEL, "--mode", mode])
        .args(["--offline", "--max-batch", "2", "--quiet", "--out"])
        .arg(out);
    command
}

/// Traces of different lengths, so that verdicts come out of order.
fn traces_of(items: usize) -> String {
    (0..items)
        .map(|at| {
            let context =
                "The depot in Harrow opens at eight and closes at five. ".repeat(1 + at % 3);
            format!(
                "{}\n",
                serde_json::json!({
                    "id": format!("item-{at}"),
                    "input": "When does the depot open?",
                    "context": [context],
                    "answer": format!("It opens at {}.", 6 + at % 4),
                })
            )
        })
        .collect()
}

/// The verdict lines as bytes, without what measures time.
fn settled(out: &Path) -> Vec<String> {
    let file: PathBuf = out.join("verdicts.jsonl");
    let text =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().map(common::timeless).collect()
}

/// The next number in [0, 1) of a small multiplicative generator.
fn uniform(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}
