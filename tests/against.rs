//! Measuring against another server: right answers, slow ones, refusals and garbage, from a server on a thread; and the
//! addresses that are refused before anything is sent.

mod common;
#[path = "common/tiny.rs"]
mod tiny;

use assize::ask::Ask;
use assize::run::loopback::{PeerError, Server};
use assize::run::peer::{Api, Peer};
use assize::run::workload::{WorkloadMode, asks};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROWS: &str = r#"{"prompt":"<|im_start|>a","json_schema":{"type":"object","properties":{"s":{"enum":[1,2]}},"required":["s"],"additionalProperties":false},"score_prompt":"s","score_grammar":"root ::= [12]"}
{"prompt":"<|im_start|>b","json_schema":{"type":"object","properties":{"s":{"enum":[1,2]}},"required":["s"],"additionalProperties":false},"score_prompt":"t","score_grammar":"root ::= [12]"}
"#;

/// A server that hears requests and does with each connection what it is told.
struct Fake {
    url: String,
    heard: Arc<Mutex<Vec<Value>>>,
}

impl Fake {
    fn new(answer: impl Fn(&Value, &mut TcpStream) + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (answer, list) = (Arc::new(answer), Arc::clone(&heard));
        // The thread ends with the process: nothing waits for it.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, list) = (Arc::clone(&answer), Arc::clone(&list));
                std::thread::spawn(move || {
                    let mut stream = stream;
                    if let Some(request) = request(&stream) {
                        list.lock().unwrap().push(request.clone());
                        answer(&request, &mut stream);
                    }
                });
            }
        });
        Fake { url, heard }
    }

    /// A server that says the same bytes to everybody.
    fn saying(bytes: impl Into<Vec<u8>>) -> Fake {
        let bytes = bytes.into();
        Fake::new(move |_, stream| drop(stream.write_all(&bytes)))
    }

    fn peer(&self, api: Api, seconds: u64) -> Peer {
        Peer {
            server: Server::parse(&self.url, Duration::from_secs(seconds)).unwrap(),
            api,
            slots: 2,
            model: "m".into(),
        }
    }
}

/// Reads a request and returns its body; `None` for a connection that brings none.
fn request(stream: &TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

fn ok(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn rows(mode: WorkloadMode) -> Vec<Ask> {
    asks(ROWS, mode).unwrap()
}

#[test]
fn right_answers_are_counted() {
    let llama = json!({"content": "{\"s\":1}", "timings": {"prompt_n": 7, "predicted_n": 5}});
    let fake = Fake::saying(ok(&llama));
    let round = fake
        .peer(Api::Llama, 5)
        .round(&rows(WorkloadMode::Json), false);
    assert_eq!(
        (round.valid, round.invalid, round.failures.len()),
        (2, 0, 0)
    );
    assert_eq!((round.prompt_tokens, round.generated_tokens), (14, 10));
    let heard = fake.heard.lock().unwrap();
    assert!(heard.iter().all(|body| body["cache_prompt"] == false));
    assert!(heard.iter().any(|body| body["prompt"] == "<|im_start|>b"));

    let choice =
        json!({"choices": [{"text": " 2"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    let fake = Fake::saying(ok(&choice));
    let round = fake
        .peer(Api::OpenAi, 5)
        .round(&rows(WorkloadMode::Score), true);
    assert_eq!((round.valid, round.invalid), (2, 0));
    assert_eq!((round.prompt_tokens, round.generated_tokens), (6, 2));

    let wrong = Fake::saying(ok(&json!({"content": "3"})));
    let round = wrong
        .peer(Api::Llama, 5)
        .round(&rows(WorkloadMode::Score), true);
    assert_eq!((round.valid, round.invalid), (0, 2));
}

#[test]
fn whatever_a_server_does_is_a_typed_error() {
    let ask = &rows(WorkloadMode::Json)[0];
    let check = |what: &str, fake: Fake, expected: fn(&PeerError) -> bool| {
        let error = fake.peer(Api::Llama, 5).complete(ask, true).unwrap_err();
        assert!(expected(&error), "{what}: {error:?}");
        let round = fake
            .peer(Api::Llama, 5)
            .round(&rows(WorkloadMode::Json), true);
        assert_eq!((round.valid, round.failures.len()), (0, 2), "{what}");
    };
    let refusal = "HTTP/1.1 500 Oh\r\nContent-Length: 9\r\n\r\nno\u{7} slots";
    check("500", Fake::saying(refusal), |error| {
        *error
            == PeerError::Status {
                status: 500,
                body: "no slots".into(),
            }
    });
    let moved = "HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n";
    check("a redirect is not followed", Fake::saying(moved), |error| {
        matches!(error, PeerError::Status { status: 302, .. })
    });
    let malformed = |error: &PeerError| matches!(error, PeerError::Malformed(_));
    check("garbage", Fake::saying("\0\u{1}garbage\r\n\r\n"), malformed);
    check("nothing", Fake::saying(""), malformed);
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"content\"";
    check("cut off", Fake::saying(cut), malformed);
    let unexpected = |error: &PeerError| matches!(error, PeerError::Unexpected(_));
    let html = "HTTP/1.1 200 OK\r\n\r\n<html>hello</html>";
    check("no JSON", Fake::saying(html), unexpected);
    check(
        "no text",
        Fake::saying(ok(&json!({"content": 3}))),
        unexpected,
    );
    check("a list", Fake::saying(ok(&json!([]))), unexpected);
    let deep = format!("HTTP/1.1 200 OK\r\n\r\n{}", "[".repeat(100_000));
    check("deep JSON", Fake::saying(deep), unexpected);
}

#[test]
fn a_slow_server_is_waited_for_and_no_longer() {
    let ask = &rows(WorkloadMode::Json)[0];
    let slow = Fake::new(|_, stream| {
        std::thread::sleep(Duration::from_millis(300));
        let _ = stream.write_all(&ok(&json!({"content": "{}"})));
    });
    assert_eq!(
        slow.peer(Api::Llama, 5).complete(ask, true).unwrap().text,
        "{}"
    );

    let check = |what: &str, fake: Fake| {
        let began = Instant::now();
        let error = fake.peer(Api::Llama, 1).complete(ask, true).unwrap_err();
        assert_eq!(error, PeerError::Timeout { seconds: 1 }, "{what}");
        assert!(began.elapsed() < Duration::from_secs(4), "{what}");
    };
    let silent = Fake::new(|_, _| std::thread::sleep(Duration::from_secs(5)));
    check("silence", silent);
    // Each byte comes in time, but all of them together do not.
    let dripping = Fake::new(|_, stream| {
        for _ in 0..50 {
            if stream.write_all(b"H").is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    check("dripping", dripping);
}

fn bench(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = common::assize();
    command.current_dir(folder).arg("bench").args(arguments);
    command.output().unwrap()
}

#[test]
fn the_command_takes_turns_and_refuses_other_machines() {
    let folder = tempfile::tempdir().unwrap();
    let model = tiny::write(folder.path()).display().to_string();
    std::fs::write(folder.path().join("rows.jsonl"), ROWS).unwrap();
    let base = [
        "--workload",
        "rows.jsonl",
        "--mode",
        "json",
        "--model",
        &model,
        "--offline",
    ];
    let run = |more: &[&str]| bench(folder.path(), &[&base[..], more].concat());

    let fake = Fake::saying(ok(&json!({"content": "{\"s\":1}"})));
    let url = fake.url.clone();
    let output = run(&[
        "--against",
        &url,
        "--repeat",
        "3",
        "--json",
        "--cold",
        "--profile",
    ]);
    let stdout = common::stdout_of(&output);
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4, "{stdout}");
    assert_eq!(
        (&lines[2]["turn"], &lines[2]["ours"]["verdicts"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(lines[1]["theirs"]["verdicts"], 2);
    let last = &lines[3];
    let number = |value: &Value| value.as_f64().unwrap();
    let ratio = number(&last["ours"]["verdicts_per_minute"])
        / number(&last["theirs"]["verdicts_per_minute"]);
    assert!((ratio - number(&last["ratio"])).abs() <= 1e-3, "{last}");
    assert!(number(&last["profile"]["total"]) > 0.0);
    let prompts = |fake: &Fake| -> Vec<String> {
        let heard = fake.heard.lock().unwrap();
        let prompt = |body: &Value| body["prompt"].as_str().unwrap_or_default().to_owned();
        heard.iter().map(prompt).collect()
    };
    // Cold: no two turns have a prompt in common.
    let mut heard = prompts(&fake);
    heard.sort();
    heard.dedup();
    assert_eq!(heard.len(), 6, "{heard:?}");

    // Warm: a turn that does not count, and then the same prompts again.
    let fake = Fake::saying(ok(&json!({"content": "{\"s\":1}"})));
    let output = run(&["--against", &fake.url, "--repeat", "1", "--slots", "1"]);
    let stdout = common::stdout_of(&output);
    assert!(
        stdout.contains("turn 1: theirs") && stdout.contains("times as fast"),
        "{stdout}"
    );
    assert_eq!(prompts(&fake).len(), 4);
    let heard = fake.heard.lock().unwrap();
    assert!(heard.iter().all(|body| body["cache_prompt"] == true));

    let refused = |arguments: &[&str], code: i32, expected: &str| {
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    };
    let far = ["--against", "http://example.com:8080"];
    refused(
        &far,
        2,
        "error: example.com is not this machine, and a trace never leaves it\n\nhint: ",
    );
    refused(
        &["--against", "http://10.1.2.3"],
        2,
        "10.1.2.3 is not this machine",
    );
    refused(&["--against", "https://localhost"], 2, "only plain http");
    refused(&["--cold"], 2, "--against");
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    refused(&["--against", &port.to_string()], 2, "no server answers at");
    let broken = Fake::saying("HTTP/1.1 500 Oh\r\n\r\nno model");
    refused(&["--against", &broken.url], 1, "status 500: no model");
}

#[test]
fn the_plain_speed_of_a_model_without_a_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let mut synth = common::assize();
    synth.current_dir(folder.path());
    common::stdout_of(
        &synth
            .args(["synth", "tiny", "--out", "t.gguf"])
            .output()
            .unwrap(),
    );
    let base = [
        "--speed", "--model", "t.gguf", "--prompt", "40", "--batch", "1,3", "--repeat", "2",
    ];
    let output = bench(folder.path(), &[&base[..], &["--json"]].concat());
    let object: Value = serde_json::from_str(&common::stdout_of(&output)).unwrap();
    let tests = object["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 3);
    for test in tests {
        let number = |name: &str| test[name].as_f64().unwrap();
        assert!(
            number("min") > 0.0 && number("min") <= number("max"),
            "{test}"
        );
        assert!(number("share") > 0.0, "{test}");
    }
    let text = common::stdout_of(&bench(folder.path(), &base));
    assert!(
        text.contains("decode 64 × 3") && text.contains("% of memory"),
        "{text}"
    );
    let long = ["--speed", "--model", "t.gguf", "--prompt", "5000"];
    let output = bench(folder.path(), &long);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("beyond the context of 4096"), "{stderr}");
}
