//! `assize bench --speed`: how fast a model prefills and decodes, and what share that is of what the machine can do at most.

use super::Globals;
use super::bench::{Args, rounded};
use super::devices;
use super::fault::Fault;
use super::model::find_model;
use super::style::Console;
use crate::model::batch::Forward as _;
use crate::model::cache::KvType;
use crate::run::ceilings;
use crate::run::devices::Place;
use crate::run::speed::{Cost, Opened, Test, TooLarge, open, run as run_test};
use anyhow::{Result, anyhow};
use assize_kernels::limits::{dot_rate, read_rate};
use serde_json::{Value, json};
use std::io::{Write as _, stdout};

/// Steps of a test that decodes.
const STEPS: usize = 64;

/// Most rows of a prompt in a pass, as the engine has them.
const CHUNK: usize = 512;

/// The same on a device.
const CHUNK_THERE: usize = 2048;

/// Side of the squares, and bytes of the copy, that a device's ceilings are measured with.
const CEILINGS: (usize, usize) = (8192, 1 << 30);

/// Arguments of `assize bench --speed`.
#[derive(Clone, Debug, clap::Args)]
pub struct SpeedArguments {
    /// Measure the model alone: prefill, and 64 steps of decoding, on random tokens.
    #[arg(long, conflicts_with_all = ["workload", "mode", "against"])]
    pub speed: bool,
    /// With --speed, tokens of the prompt.
    #[arg(long, default_value_t = 512, value_name = "N", requires = "speed", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub prompt: u32,
    /// With --speed, how many sequences are decoded together.
    #[arg(long, default_values_t = [1, 8, 16], value_delimiter = ',', value_name = "LIST", requires = "speed", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub batch: Vec<u32>,
    /// With --speed, how many tokens a decoded sequence has before.
    #[arg(long, default_value_t = 0, value_name = "N", requires = "speed", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub depth: u32,
}

/// What the machine can do at most, as found in this run.
#[derive(Clone, Copy)]
struct Limits {
    /// Operations a second: on bytes, or on a device in bf16.
    dot: f64,
    /// Bytes a second from memory, or on a device read and written by a copy.
    read: f64,
    /// Whether they are a device's.
    there: bool,
}

impl Limits {
    fn measure(threads: usize, place: &Place) -> Result<Limits> {
        let Some(there) = place.there.first() else {
            return Ok(Limits {
                dot: dot_rate(assize_kernels::isa(), threads),
                read: read_rate(threads),
                there: false,
            });
        };
        let (side, bytes) = CEILINGS;
        let found = ceilings::measure(&there.device, side, bytes)?;
        Ok(Limits {
            dot: found.products,
            read: found.copy,
            there: true,
        })
    }

    /// What they are called: that of products, and that of memory.
    fn names(self) -> [&'static str; 2] {
        match self.there {
            true => ["bf16 product", "copy"],
            false => ["int8 dot", "memory"],
        }
    }

    /// The greater of each: a disturbed measurement is only ever too low.
    fn or(self, other: Limits) -> Limits {
        Limits {
            dot: self.dot.max(other.dot),
            read: self.read.max(other.read),
            there: self.there,
        }
    }
}

/// Runs the tests in turns, so that a disturbance falls on all of them, and prints what they reached.
///
/// # Errors
/// Whatever keeps the model from running.
pub fn run(args: &Args, globals: &Globals, console: &Console) -> Result<()> {
    let place = devices::place(&args.engine, console)?;
    let threads = globals.prepare()?;
    let located = find_model(&args.model, globals, console)?;
    // Before there is a model, since the cards that it just fits have no room for both.
    let before = Limits::measure(threads, &place)?;
    let mut tests = vec![Test::Prefill {
        tokens: args.speed.prompt as usize,
        chunk: match place.there.is_empty() {
            true => CHUNK,
            false => CHUNK_THERE,
        },
    }];
    tests.extend(args.speed.batch.iter().map(|batch| Test::Decode {
        batch: *batch as usize,
        steps: STEPS,
        depth: args.speed.depth as usize,
    }));
    let settings = args.engine.settings(false);
    let opened = open(located.path(), &settings, &tests, &place);
    let Opened {
        mut model,
        cost,
        plan,
    } = opened.map_err(|error| match error.downcast_ref::<TooLarge>() {
        Some(large) => Fault::usage(
            large.to_string(),
            "give a smaller --prompt, --batch or --depth",
        )
        .into(),
        None => error.context(located.path().display().to_string()),
    })?;
    if let Some(test) = tests.iter().find(|test| test.longest() > model.context()) {
        let (longest, context) = (test.longest(), model.context());
        return Err(Fault::usage(
            format!("a sequence of {longest} tokens is beyond the context of {context}"),
            "give a smaller --prompt, or a larger --context",
        )
        .into());
    }
    console.say(format!(
        "{}, {threads} threads, {}{}",
        model.describe(),
        devices::about(&place),
        plan.map_or(String::new(), |plan| format!(", plan {}", plan.name())),
    ));
    let mut seconds = vec![Vec::new(); tests.len()];
    // The first turn warms caches and pages up, and does not count.
    for turn in 0..=u64::from(args.repeat) {
        for (test, seconds) in tests.iter().zip(&mut seconds) {
            let took = run_test(&mut model, *test, turn).map_err(|error| anyhow!("{error}"))?;
            if turn > 0 {
                seconds.push(took);
            }
        }
    }
    let limits = match before.there {
        true => before,
        false => before.or(Limits::measure(threads, &place)?),
    };
    let kv_type = match plan {
        Some(_) => KvType::Bf16,
        None => settings.kv_type(),
    };
    let figures: Vec<Value> = tests
        .iter()
        .zip(&seconds)
        .map(|(test, seconds)| figures(*test, seconds, &cost, limits))
        .collect();
    let mut out = stdout().lock();
    if globals.json {
        let object = json!({
            "model": args.model,
            "threads": threads,
            "instruction_set": devices::about(&place),
            "plan": plan.map(|plan| plan.name()),
            "exact": args.engine.exact,
            "kv_type": kv_type.name(),
            "dot_operations_per_second": limits.dot.round(),
            "read_bytes_per_second": limits.read.round(),
            "tests": figures,
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(
            out,
            "limits of this machine: {:.0} GOPS of {}s, {:.1} GB/s of {}",
            limits.dot / 1e9,
            limits.names()[0],
            limits.read / 1e9,
            limits.names()[1],
        )?;
        let heads = ["test", "tokens/s", "min", "max", "share of limit"];
        let [test, median, least, most, share] = heads;
        writeln!(out, "{test:<16}{median:>10}{least:>10}{most:>10}   {share}")?;
        for figures in &figures {
            writeln!(out, "{}", line(figures))?;
        }
    }
    Ok(())
}

fn figures(test: Test, seconds: &[f64], cost: &Cost, limits: Limits) -> Value {
    let mut rates: Vec<f64> = seconds
        .iter()
        .map(|seconds| test.tokens() as f64 / seconds.max(1e-9))
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = (rates[(rates.len() - 1) / 2] + rates[rates.len() / 2]) / 2.0;
    let took = test.tokens() as f64 / median.max(1e-9);
    // A single sequence reads every weight for each token; several share what is read, and are held against products.
    let (limit, share) = match test {
        Test::Decode {
            batch: 1, steps, ..
        } => {
            let bytes = cost.bytes as f64 * steps as f64;
            (limits.names()[1], bytes / took / limits.read)
        }
        _ => (limits.names()[0], cost.operations(test) / took / limits.dot),
    };
    let mut object = match test {
        Test::Prefill { tokens, .. } => json!({"test": "prefill", "tokens": tokens}),
        Test::Decode {
            batch,
            steps,
            depth,
        } => json!({"test": "decode", "batch": batch, "tokens": steps, "depth": depth}),
    };
    object["tokens_per_second"] = json!(rounded(median));
    object["min"] = json!(rounded(rates[0]));
    object["max"] = json!(rounded(rates[rates.len() - 1]));
    object["limit"] = json!(limit);
    object["share"] = json!(rounded(share));
    object
}

fn line(figures: &Value) -> String {
    let number = |name: &str| figures[name].as_f64().unwrap_or(0.0);
    let name = match figures["batch"].as_u64() {
        Some(batch) => format!("decode {} × {batch}", number("tokens")),
        None => format!("prefill {}", number("tokens")),
    };
    format!(
        "{name:<16}{:>10.1}{:>10.1}{:>10.1}   {:.1} % of {}",
        number("tokens_per_second"),
        number("min"),
        number("max"),
        100.0 * number("share"),
        figures["limit"].as_str().unwrap_or("nothing"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_limit_that_binds() {
        let cost = Cost {
            weights: 900,
            head: 100,
            bytes: 500,
        };
        let limits = Limits {
            dot: 1e6,
            read: 1e5,
            there: false,
        };
        let prefill = Test::Prefill {
            tokens: 10,
            chunk: 512,
        };
        // 2 (900 · 10 + 100) operations in 0.1 s.
        let found = figures(prefill, &[0.2, 0.1, 0.1], &cost, limits);
        assert_eq!(found["tokens_per_second"], 100.0);
        assert_eq!(
            (&found["min"], &found["share"]),
            (&json!(50.0), &json!(0.182))
        );
        let alone = Test::Decode {
            batch: 1,
            steps: 4,
            depth: 0,
        };
        let found = figures(alone, &[0.1], &cost, limits);
        assert_eq!(
            (&found["limit"], &found["share"]),
            (&json!("memory"), &json!(0.2))
        );
        assert_eq!(
            line(&found),
            "decode 4 × 1          40.0      40.0      40.0   20.0 % of memory"
        );
        let together = Test::Decode {
            batch: 2,
            steps: 4,
            depth: 0,
        };
        let found = figures(together, &[0.1], &cost, limits);
        assert_eq!(
            (&found["limit"], &found["share"]),
            (&json!("int8 dot"), &json!(0.16))
        );
    }
}
