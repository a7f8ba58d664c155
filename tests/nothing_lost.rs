//! Nothing is lost: a run that is killed again and again ends with the verdicts of an undisturbed one.

mod common;

use common::{assize, skip, stdout_of, test_model};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Kills in all; each at a random moment of a run that has not finished.
const KILLS: usize = 100;

/// Items judged.
const ITEMS: usize = 24;

#[test]
fn killed_and_resumed_equals_undisturbed() {
    let name = "killed_and_resumed_equals_undisturbed";
    if test_model(name).is_none() {
        return;
    }
    if cfg!(not(unix)) {
        return skip(name, "kills by signal");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let traces = folder.path().join("traces.jsonl");
    fs::write(&traces, items()).expect("traces");

    let undisturbed = folder.path().join("undisturbed");
    let began = Instant::now();
    stdout_of(&command(&traces, &undisturbed).output().expect("a run"));
    let whole = began.elapsed();
    let expected = settled(&undisturbed);
    assert_eq!(expected.len(), ITEMS);

    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut kills, mut rounds) = (0, 0);
    while kills < KILLS {
        rounds += 1;
        let disturbed = folder.path().join(format!("disturbed-{rounds}"));
        loop {
            let mut child = command(&traces, &disturbed)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a run");
            // Some moments fall into loading, some between two verdicts, some into the last write.
            let moment = whole.mul_f64(uniform(&mut random));
            let deadline = Instant::now() + moment;
            let finished = loop {
                if let Some(status) = child.try_wait().expect("a child") {
                    break Some(status);
                }
                if Instant::now() >= deadline {
                    break None;
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            match finished {
                Some(status) => {
                    assert!(status.success(), "a resumed run ended with {status}");
                    break;
                }
                None => {
                    child.kill().expect("SIGKILL");
                    child.wait().expect("a child");
                    kills += 1;
                }
            }
            if kills >= KILLS {
                stdout_of(&command(&traces, &disturbed).output().expect("the last run"));
                break;
            }
        }
        assert_eq!(
            settled(&disturbed),
            expected,
            "round {rounds}, after {kills} kills"
        );
    }
}

fn command(traces: &Path, out: &Path) -> std::process::Command {
    let mut command = assize();
    command
        .arg("judge")
        .arg(traces)
        .args([
            "--rubric",
            "examples/grounded.toml",
            "--model",
            common::TEST_MODEL,
            "--mode",
            "score-only",
        ])
        .args(["--offline", "--max-batch", "2", "--quiet", "--out"])
        .arg(out)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Traces of different lengths, so that verdicts come out of order.
fn items() -> String {
    (0..ITEMS)
        .map(|at| {
            let context =
                "The depot in Harrow opens at eight and closes at five. ".repeat(1 + at % 5);
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
