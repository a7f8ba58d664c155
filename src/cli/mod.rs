//! The command line: one file a command, data on stdout and everything else on stderr.
//!
//! Exit codes: 0 all judged, 1 our fault, 2 bad usage or input, 3 some items failed, 130 interrupted.

pub mod bench;
pub mod devices;
pub mod engine;
pub mod fault;
pub mod fetch;
pub mod inspect;
pub mod interrupt;
pub mod judge;
pub mod jury;
pub mod layouts;
pub mod measure;
pub mod meter;
pub mod model;
pub mod models;
pub mod parity;
pub mod profile;
pub mod redteam;
pub mod review;
pub mod rubrics;
pub mod shots;
pub mod speed;
pub mod style;
pub mod synth;
pub mod verdicts;
pub mod versus;

use clap::{Parser, Subcommand};
use fault::Fault;
use std::process::ExitCode;
use style::Console;

/// Grade traces with a local evaluator model: under a schema, with exact scores.
#[derive(Debug, Parser)]
#[command(name = "assize", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  assize judge examples/support.jsonl --rubric examples/grounded.toml
  assize judge runs.csv --rubric helpful.toml --map answer=response --mode score-only
  assize measure runs/grounded-1a2b3c4d --labels labels.csv
  assize models
  assize inspect model.gguf

Exit codes: 0 all judged, 1 our fault, 2 bad usage or input, 3 some items failed, 130 interrupted.
No command sends anything to another machine but for fetching a model; --offline forbids that too.";

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Globals {
    /// Print JSON on stdout.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing on stderr but errors.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Say more on stderr; twice for still more.
    #[arg(short, long = "verbose", action = clap::ArgAction::Count, global = true, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Never touch the network.
    #[arg(long, global = true)]
    pub offline: bool,
    /// Threads; as many as there are cores by default.
    #[arg(long, global = true, value_name = "N")]
    pub threads: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Judge files of traces by a rubric.
    Judge(judge::Args),
    /// List the items of a run that a human should see.
    Review(review::Args),
    /// Measure verdicts against people's labels.
    Measure(measure::Args),
    /// Try to move the judge's score from within the answers.
    Redteam(redteam::Args),
    /// Fetch models by name.
    Fetch(fetch::Args),
    /// List the models that have a name.
    Models(models::Args),
    /// List what can compute, and why something can't.
    Devices,
    /// Show what a model file holds.
    Inspect(inspect::Args),
    /// Measure speed on a workload.
    Bench(bench::Args),
    /// Write a model of random weights, for measuring speed.
    Synth(synth::Args),
}

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are data and no error; clap knows which stream and code each takes.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let globals = &arguments.globals;
    let console = Console::new(globals.quiet);
    log(globals.verbose);
    let outcome = dispatch(&arguments, &console);
    match outcome {
        Ok(code) => ExitCode::from(code),
        // The reader of stdout has seen enough, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let fault = Fault::of(&error);
            console.error(&fault);
            ExitCode::from(fault.code)
        }
    }
}

fn dispatch(arguments: &Arguments, console: &Console) -> anyhow::Result<u8> {
    let globals = &arguments.globals;
    match &arguments.command {
        Command::Judge(args) => judge::run(args, globals, console),
        Command::Review(args) => review::run(args, globals, console).map(|()| 0),
        Command::Measure(args) => measure::run(args, globals, console),
        Command::Redteam(args) => redteam::run(args, globals, console),
        Command::Bench(args) => bench::run(args, globals, console),
        Command::Synth(args) => synth::run(args, globals, console).map(|()| 0),
        Command::Fetch(args) => {
            fetch::run(args, globals.json, globals.quiet, globals.offline).map(|()| 0)
        }
        Command::Models(args) => models::run(args, globals.json, console).map(|()| 0),
        Command::Devices => devices::run(globals.json).map(|()| 0),
        Command::Inspect(args) => inspect::run(args, globals.json, globals.quiet).map(|()| 0),
    }
}

impl Globals {
    /// Refuses an instruction set that this machine does not have, sets the number of threads, and returns it.
    pub fn prepare(&self) -> anyhow::Result<usize> {
        assize_kernels::Isa::from_environment().map_err(|error| {
            Fault::usage(
                error.to_string(),
                format!("unset {}", assize_kernels::ISA_VARIABLE),
            )
        })?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self.threads.unwrap_or(cores);
        if threads == 0 || threads > 4096 {
            return Err(Fault::usage(
                format!("--threads {threads}"),
                "use a number from 1 to 4096",
            )
            .into());
        }
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()?;
        Ok(threads)
    }
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "assize=info",
        _ => "assize=debug",
    };
    let filter = tracing_subscriber::EnvFilter::new(level);
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    // A second subscriber in one process is refused, which is no harm.
    let _ = subscriber.try_init();
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
