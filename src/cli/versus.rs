//! `assize bench --against`: the same rows on our engine and on another server of this machine, in turns, so that whatever
//! disturbs the machine disturbs both.
//!
//! Warm, each side runs all rows once before anything counts, and may use what it remembers. Cold, every turn's prompts begin
//! with a line of their own, the same on both sides, so that nothing from an earlier turn helps either; within a turn our
//! engine shares prefixes as it always does.

use super::Globals;
use super::bench::{self, Args, Ready, figures, measure, medians, merge, ready, rounded, tell};
use super::fault::{Fault, SOME_FAILED};
use super::profile;
use super::style::Console;
use crate::ask::{Ask, Prompt};
use crate::run::loopback::{PeerError, Server};
use crate::run::peer::{Api, Peer, PeerRound};
use crate::run::profile::Profiling;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{Write as _, stdout};
use std::time::Duration;

/// Arguments of `assize bench --against`.
#[derive(Clone, Debug, clap::Args)]
pub struct AgainstArguments {
    /// Run the rows in turns with a server on this machine, such as http://127.0.0.1:8080.
    #[arg(long, value_name = "URL")]
    pub against: Option<String>,
    /// With --against, what the server understands.
    #[arg(long, value_enum, default_value_t = ApiArgument::Llama, requires = "against")]
    pub api: ApiArgument,
    /// With --against, requests that the server gets at a time.
    #[arg(long, default_value_t = 8, value_name = "N", requires = "against", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub slots: u32,
    /// With --against, see to it that no turn finds the prompts of another in a cache.
    #[arg(long, requires = "against")]
    pub cold: bool,
    /// With --against, whether the server may keep prompts; by default unless --cold.
    #[arg(long, value_name = "BOOL", requires = "against")]
    pub cache_prompt: Option<bool>,
    /// With --against, how long an answer may take.
    #[arg(long, default_value_t = 900, value_name = "SECONDS", requires = "against", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub patience: u64,
}

/// `--api`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ApiArgument {
    /// llama.cpp's /completion.
    Llama,
    /// The completions API of many servers, /v1/completions.
    Openai,
}

/// Takes turns. Returns the exit code.
///
/// # Errors
/// An address that is not of this machine, a server that is not there or that answers nothing, or whatever kept our own
/// engine from its end.
pub fn run(args: &Args, globals: &Globals, console: &Console) -> Result<u8> {
    let against = &args.against;
    let url = against.against.as_deref().unwrap_or_default();
    let server = Server::parse(url, Duration::from_secs(against.patience)).map_err(usage)?;
    server.reach().map_err(usage)?;
    let peer = Peer {
        server,
        api: match against.api {
            ApiArgument::Llama => Api::Llama,
            ApiArgument::Openai => Api::OpenAi,
        },
        slots: against.slots as usize,
        model: args.model.clone(),
    };
    let Ready {
        mut engine,
        asks,
        mode,
        threads,
    } = ready(args, globals, console)?;
    let cache = against.cache_prompt.unwrap_or(!against.cold);
    if !against.cold {
        measure(&mut *engine, &asks)?;
        answered(&peer.round(&asks, cache))?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut failed = 0;
    let mut profile = None;
    for turn in 1..=args.repeat {
        let asks = if against.cold {
            marked(&asks, turn)
        } else {
            asks.clone()
        };
        // Of our last turn alone: the server's turns are none of our time.
        let profiling = (args.engine.profile && turn == args.repeat).then(Profiling::begin);
        let round = measure(&mut *engine, &asks)?;
        profile = profiling.map(Profiling::end);
        failed += tell(&round.failures, console);
        let our = figures(&round);
        let round = peer.round(&asks, cache);
        answered(&round)?;
        let failures: Vec<String> = (round.failures.iter())
            .map(|(row, error)| format!("row {row} of the server: {error}"))
            .collect();
        failed += tell(&failures, console);
        if round.invalid > 0 {
            console.say(format!(
                "turn {turn}: {} answers of the server are not of the shape that was asked, so it did other work than ours",
                round.invalid
            ));
        }
        let their = peer_figures(&round);
        show(
            globals.json,
            &json!({"turn": turn, "ours": our, "theirs": their}),
            None,
        )?;
        ours.push(our);
        theirs.push(their);
    }
    let (ours, theirs) = (medians(&ours), medians(&theirs));
    let rate = |side: &Value| side["verdicts_per_minute"].as_f64().unwrap_or(0.0);
    let ratio = rate(&ours) / rate(&theirs).max(1e-9);
    let mut object = json!({
        "turns": args.repeat,
        "model": args.model,
        "mode": mode,
        "rows": asks.len(),
        "threads": threads,
        "against": url,
        "slots": against.slots,
        "cold": against.cold,
        "cache_prompt": cache,
    });
    merge(
        &mut object,
        json!({"ours": ours, "theirs": theirs, "ratio": rounded(ratio)}),
    );
    if let Some(profile) = &profile {
        object["profile"] = profile::object(profile);
    }
    show(globals.json, &object, Some(ratio))?;
    if let Some(profile) = &profile {
        profile::say(profile, console);
    }
    Ok(if failed > 0 { SOME_FAILED } else { 0 })
}

fn usage(error: PeerError) -> Fault {
    let whole = error.to_string();
    let (message, hint) = whole.split_once("\nhint: ").unwrap_or((&whole, ""));
    Fault::usage(message, hint)
}

/// A server that answers nothing at all is not measured.
fn answered(round: &PeerRound) -> Result<()> {
    match round.failures.first() {
        Some((_, error)) if round.valid + round.invalid == 0 => Err(error.clone().into()),
        _ => Ok(()),
    }
}

/// The rows with prompts that no other turn has, from their first token on.
fn marked(asks: &[Ask], turn: u32) -> Vec<Ask> {
    let mark = |ask: &Ask| {
        let mut ask = ask.clone();
        if let Prompt::Raw(prompt) = &mut ask.prompt {
            *prompt = format!("{turn:04}\n{prompt}");
        }
        ask
    };
    asks.iter().map(mark).collect()
}

fn peer_figures(round: &PeerRound) -> Value {
    let answers = round.valid + round.invalid;
    let rate = |count: u64| rounded(count as f64 / round.seconds.max(1e-9));
    json!({
        "seconds": rounded(round.seconds),
        "verdicts": answers,
        "invalid": round.invalid,
        "failed": round.failures.len(),
        "verdicts_per_minute": rounded(60.0 * answers as f64 / round.seconds.max(1e-9)),
        "prompt_tokens": round.prompt_tokens,
        "prompt_tokens_per_second": rate(round.prompt_tokens),
        "generated_tokens": round.generated_tokens,
        "generated_tokens_per_second": rate(round.generated_tokens),
    })
}

/// One turn, or with a ratio the end.
fn show(as_json: bool, object: &Value, ratio: Option<f64>) -> Result<()> {
    let mut out = stdout().lock();
    if as_json {
        writeln!(out, "{object}")?;
    } else {
        let name = match object["turn"].as_u64() {
            Some(turn) => format!("turn {turn}"),
            None => "median".into(),
        };
        writeln!(out, "{name}: ours    {}", bench::line(&object["ours"]))?;
        writeln!(out, "{name}: theirs  {}", peer_line(&object["theirs"]))?;
        if let Some(ratio) = ratio {
            writeln!(out, "ours is {ratio:.2} times as fast in verdicts a minute")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn peer_line(figures: &Value) -> String {
    let number = |name: &str| figures[name].as_f64().unwrap_or(0.0);
    format!(
        "{:.1} verdicts/min  {:.1} s  prompt {:.0} tokens/s  generated {:.1} tokens/s  invalid {:.0}  failed {:.0}",
        number("verdicts_per_minute"),
        number("seconds"),
        number("prompt_tokens_per_second"),
        number("generated_tokens_per_second"),
        number("invalid"),
        number("failed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::workload::{WorkloadMode, asks};

    #[test]
    fn turns_have_marks_of_one_length() {
        let row = r#"{"prompt":"p","json_schema":{}}"#;
        let asks = asks(row, WorkloadMode::Json).unwrap();
        let prompt = |turn| marked(&asks, turn)[0].prompt.clone();
        assert_eq!(prompt(3), Prompt::Raw("0003\np".into()));
        assert_eq!(prompt(12), Prompt::Raw("0012\np".into()));
    }

    #[test]
    fn a_server_that_answers_nothing_is_an_error() {
        let broken = PeerError::Broken("x".into());
        let mut round = PeerRound {
            failures: vec![(1, broken)],
            ..PeerRound::default()
        };
        assert!(answered(&round).is_err());
        round.valid = 1;
        assert!(answered(&round).is_ok());
    }
}
