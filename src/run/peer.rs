//! Another inference server on this machine, asked the same as our own engine: to be measured against, and for nothing else.
//!
//! Speaks llama.cpp's `/completion`, or the completions API that many servers share. An answer is checked as far as both
//! sides promise it: JSON under the schema, or one of the labels.

use super::loopback::{PeerError, Server, beginning};
use crate::ask::{Ask, Prompt, Shape};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// What a server understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// llama.cpp's own: `POST /completion`.
    Llama,
    /// The one that many share: `POST /v1/completions`.
    OpenAi,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The text.
    pub text: String,
    /// Prompt tokens computed, as the server counts them; zero where it does not say.
    pub prompt_tokens: u64,
    /// Tokens generated, likewise.
    pub generated_tokens: u64,
}

/// What one round over all rows measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerRound {
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Answers that hold to their shape.
    pub valid: usize,
    /// Answers that came, but don't.
    pub invalid: usize,
    /// Requests without an answer, each with its row, counted from 1.
    pub failures: Vec<(usize, PeerError)>,
    /// Prompt tokens computed.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
}

/// A server to be measured.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it is.
    pub server: Server,
    /// What it understands.
    pub api: Api,
    /// Requests at a time.
    pub slots: usize,
    /// What the model is called, for servers that want to know.
    pub model: String,
}

impl Peer {
    /// Asks all rows, as many at a time as there are slots. `cache` is whether the server may use what it remembers.
    pub fn round(&self, asks: &[Ask], cache: bool) -> PeerRound {
        let next = AtomicUsize::new(0);
        let round = Mutex::new(PeerRound::default());
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.slots.clamp(1, asks.len().max(1)) {
                scope.spawn(|| {
                    while let Some((row, ask)) = take(&next, asks) {
                        let result = self.complete(ask, cache);
                        let mut round = match round.lock() {
                            Ok(round) => round,
                            Err(poisoned) => poisoned.into_inner(),
                        };
                        match result {
                            Ok(answer) => {
                                let valid = holds(&ask.shape, &answer.text);
                                round.valid += usize::from(valid);
                                round.invalid += usize::from(!valid);
                                round.prompt_tokens += answer.prompt_tokens;
                                round.generated_tokens += answer.generated_tokens;
                            }
                            Err(error) => round.failures.push((row + 1, error)),
                        }
                    }
                });
            }
        });
        let seconds = began.elapsed().as_secs_f64();
        let mut round = round
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        round.seconds = seconds;
        round.failures.sort_by_key(|(row, _)| *row);
        round
    }

    /// Asks one row.
    ///
    /// # Errors
    /// Any [`PeerError`] but those of addresses.
    pub fn complete(&self, ask: &Ask, cache: bool) -> Result<Completion, PeerError> {
        let (path, body) = match self.api {
            Api::Llama => ("/completion", llama_body(ask, cache)?),
            Api::OpenAi => ("/v1/completions", openai_body(ask, &self.model)?),
        };
        let answer = self.server.post(path, body.to_string().as_bytes())?;
        let value: Value = serde_json::from_slice(&answer)
            .map_err(|_| PeerError::Unexpected(format!("no JSON: {}", beginning(&answer))))?;
        let (text, prompt, generated) = match self.api {
            Api::Llama => (
                &value["content"],
                &value["timings"]["prompt_n"],
                &value["timings"]["predicted_n"],
            ),
            Api::OpenAi => (
                &value["choices"][0]["text"],
                &value["usage"]["prompt_tokens"],
                &value["usage"]["completion_tokens"],
            ),
        };
        let Some(text) = text.as_str() else {
            let shown = beginning(&answer);
            return Err(PeerError::Unexpected(format!("no text in {shown}")));
        };
        Ok(Completion {
            text: text.into(),
            prompt_tokens: prompt.as_u64().unwrap_or(0),
            generated_tokens: generated.as_u64().unwrap_or(0),
        })
    }
}

fn take<'a>(next: &AtomicUsize, asks: &'a [Ask]) -> Option<(usize, &'a Ask)> {
    let row = next.fetch_add(1, Ordering::Relaxed);
    asks.get(row).map(|ask| (row, ask))
}

/// Prompt and shape of a row, where a server can be asked for them.
fn parts(ask: &Ask) -> Result<&str, PeerError> {
    match &ask.prompt {
        Prompt::Raw(prompt) => Ok(prompt),
        Prompt::Chat(_) => Err(PeerError::Unexpected("a row is no raw prompt".into())),
    }
}

fn schema(text: &str) -> Result<Value, PeerError> {
    serde_json::from_str(text)
        .map_err(|error| PeerError::Unexpected(format!("a row's schema is no JSON: {error}")))
}

/// Bytes of the longest label: a server generates at most that many tokens for it.
fn longest(labels: &[String]) -> usize {
    labels.iter().map(String::len).max().unwrap_or(1).max(1)
}

fn llama_body(ask: &Ask, cache: bool) -> Result<Value, PeerError> {
    let mut body = json!({
        "prompt": parts(ask)?,
        "temperature": ask.decoding.temperature,
        "cache_prompt": cache,
    });
    match &ask.shape {
        Shape::Schema(text) => {
            body["json_schema"] = schema(text)?;
            body["n_predict"] = json!(ask.decoding.max_tokens);
        }
        Shape::Labels(labels) => {
            body["grammar"] = json!(grammar(&labels.names));
            body["n_predict"] = json!(longest(&labels.names));
            body["n_probs"] = json!(10);
        }
        _ => {
            return Err(PeerError::Unexpected(
                "a row has no schema and no labels".into(),
            ));
        }
    }
    Ok(body)
}

fn openai_body(ask: &Ask, model: &str) -> Result<Value, PeerError> {
    let mut body = json!({
        "model": model,
        "prompt": parts(ask)?,
        "temperature": ask.decoding.temperature,
    });
    match &ask.shape {
        Shape::Schema(text) => {
            // Servers differ in where they look for it, and pass over what they don't know.
            let schema = schema(text)?;
            body["json_schema"] = schema.clone();
            let named = json!({"name": "verdict", "strict": true, "schema": schema});
            body["response_format"] = json!({"type": "json_schema", "json_schema": named});
            body["max_tokens"] = json!(ask.decoding.max_tokens);
        }
        Shape::Labels(labels) => {
            body["guided_choice"] = json!(labels.names);
            body["grammar"] = json!(grammar(&labels.names));
            body["max_tokens"] = json!(longest(&labels.names));
            body["logprobs"] = json!(10);
        }
        _ => {
            return Err(PeerError::Unexpected(
                "a row has no schema and no labels".into(),
            ));
        }
    }
    Ok(body)
}

/// The labels as an alternation in GBNF.
fn grammar(labels: &[String]) -> String {
    let quoted: Vec<String> = labels
        .iter()
        .map(|label| {
            let label = label.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{}\"", label.replace('\n', "\\n"))
        })
        .collect();
    format!("root ::= {}", quoted.join(" | "))
}

/// Whether a text is what was asked for: a JSON object, or one of the labels.
fn holds(shape: &Shape, text: &str) -> bool {
    match shape {
        Shape::Labels(labels) => labels.names.iter().any(|label| label == text.trim()),
        _ => serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::workload::{WorkloadMode, asks};

    const ROW: &str = r#"{"prompt":"p","json_schema":{"type":"object"},"score_prompt":"s","score_grammar":"root ::= [12]"}"#;

    #[test]
    fn bodies_say_what_the_row_says() {
        let json = &asks(ROW, WorkloadMode::Json).unwrap()[0];
        let score = &asks(ROW, WorkloadMode::Score).unwrap()[0];
        let body = llama_body(json, false).unwrap();
        assert_eq!(body["json_schema"], json!({"type": "object"}));
        assert_eq!(
            (&body["cache_prompt"], &body["prompt"]),
            (&json!(false), &json!("p"))
        );
        let body = llama_body(score, true).unwrap();
        assert_eq!(body["grammar"], "root ::= \"1\" | \"2\"");
        assert_eq!(
            (&body["n_predict"], &body["cache_prompt"]),
            (&json!(1), &json!(true))
        );
        let body = openai_body(json, "m").unwrap();
        assert_eq!(
            body["response_format"]["json_schema"]["schema"]["type"],
            "object"
        );
        assert_eq!(openai_body(score, "m").unwrap()["max_tokens"], 1);
    }

    #[test]
    fn answers_that_hold() {
        let json = &asks(ROW, WorkloadMode::Json).unwrap()[0].shape;
        let score = &asks(ROW, WorkloadMode::Score).unwrap()[0].shape;
        assert!(holds(json, "{\"score\":1}") && !holds(json, "{\"score\":") && !holds(json, "3"));
        assert!(holds(score, " 2") && !holds(score, "3"));
    }
}
