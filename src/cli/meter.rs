//! The progress of a run on stderr: a bar on a terminal, else a plain line now and then.

use super::style::{duration, line_of_stderr};
use crate::run::Run;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// How often a plain line is written.
const PLAIN_EVERY: Duration = Duration::from_secs(15);

/// Draws a run.
pub struct Meter {
    bar: Option<ProgressBar>,
    plain: bool,
    total: Option<usize>,
    began: Instant,
    said: Instant,
}

impl Meter {
    /// A meter over `total` items, where that is known.
    pub fn new(total: Option<usize>, quiet: bool) -> Meter {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let bar = match total {
                Some(total) => ProgressBar::new(total as u64),
                None => ProgressBar::new_spinner(),
            };
            let template = if total.is_some() {
                "{wide_bar} {pos}/{len} {msg}"
            } else {
                "{spinner} {pos} {msg}"
            };
            // The templates are constants; the default style stands in should one ever not parse.
            bar.set_style(
                ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        let now = Instant::now();
        Meter {
            bar,
            plain: !terminal && !quiet,
            total,
            began: now,
            said: now,
        }
    }

    /// Shows how the run stands.
    pub fn show(&mut self, run: &Run) {
        if let Some(bar) = &self.bar {
            bar.set_position(run.settled() as u64);
            bar.set_message(self.line(run));
        } else if self.plain && self.said.elapsed() >= PLAIN_EVERY {
            self.said = Instant::now();
            let of = self
                .total
                .map(|total| format!("/{total}"))
                .unwrap_or_default();
            line_of_stderr(format!("{}{of} items  {}", run.settled(), self.line(run)));
        }
    }

    /// Takes the bar away and returns what it last said.
    pub fn finish(self, run: &Run) -> String {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let elapsed = duration(self.began.elapsed().as_secs_f64());
        format!(
            "{} settled in {elapsed}: {}",
            run.judged + run.failed,
            self.line(run)
        )
    }

    fn line(&self, run: &Run) -> String {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-3);
        let settled = (run.judged + run.failed) as f64;
        let progress = &run.progress;
        let computed = progress.prompt_tokens + progress.forced_tokens + progress.generated_tokens;
        let prompts = progress.prompt_tokens + progress.cached_tokens;
        let hits = if prompts == 0 {
            0.0
        } else {
            100.0 * progress.cached_tokens as f64 / prompts as f64
        };
        let mut line = format!(
            "{:.1} verdicts/min  {:.0} tokens/s  prefix hits {hits:.0} %",
            settled / seconds * 60.0,
            computed as f64 / seconds,
        );
        let left = self
            .total
            .map(|total| total.saturating_sub(run.settled()))
            .filter(|left| *left > 0);
        if let (Some(left), true) = (left, settled > 0.0) {
            line.push_str(&format!(
                "  ETA {}",
                duration(left as f64 * seconds / settled)
            ));
        }
        line
    }
}
