//! The loop above the engine: items become evaluations, their asks go to the answerer, and what is settled is written.
//!
//! A bounded window of evaluations is open at a time, so that batches stay full. What is kept of a settled item is its key and
//! its row of the table, not its text.
//! Knows no model and no terminal.

use super::feed::Fed;
use super::profile::{IDLE_TIME, JOURNAL_TIME};
use crate::ask::{Answer, Answerer, Failure, Progress, Ticket};
use crate::journal::{FailureKind, Journal, JournalError, Outcome, Record, RunDescription};
use crate::judge::{Evaluation, Pointwise, Step, Verdict, digest};
use crate::trace::{Item, ItemError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why a run stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The run folder failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A bad line, and the run is strict.
    #[error("{message}")]
    Strict {
        /// What is wrong with which line.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// The engine has nothing to do and yet owes answers.
    #[error("the engine lost {0} asks")]
    Lost(usize),
}

/// What a run needs besides its items.
pub struct Pipeline<'a> {
    /// Answers the asks.
    pub answerer: &'a mut dyn Answerer,
    /// Poses and rules.
    pub format: Arc<Pointwise>,
    /// What is run: gives the keys.
    pub description: &'a RunDescription,
    /// Where it is written.
    pub journal: &'a mut Journal,
    /// Most evaluations that are open at a time, at least 1.
    pub window: usize,
    /// Whether the first bad line stops the run.
    pub strict: bool,
    /// Set from outside to stop: what is running may settle within `grace`, and nothing new begins.
    pub interrupt: &'a AtomicBool,
    /// How long running asks may take after an interrupt.
    pub grace: Duration,
}

/// How a run stands, or ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Keys of the items read so far, in their order.
    pub keys: Vec<String>,
    /// Items that an earlier process had settled.
    pub resumed: usize,
    /// Items judged by this process.
    pub judged: usize,
    /// Items that failed in this process.
    pub failed: usize,
    /// Items that were read and not settled.
    pub open: usize,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// The engine's counters.
    pub progress: Progress,
}

impl Run {
    /// Items settled by this process or before it.
    pub fn settled(&self) -> usize {
        self.resumed + self.judged + self.failed
    }
}

/// How long a run that has nothing to do waits for its source.
const IDLE: Duration = Duration::from_millis(10);

struct Open {
    evaluation: Evaluation,
    key: String,
}

impl Pipeline<'_> {
    /// Judges all items. `watch` is told how the run stands after every step.
    ///
    /// # Errors
    /// What is settled by then is in the journal, and running again goes on from there.
    pub fn run(
        mut self,
        items: impl Iterator<Item = Fed>,
        watch: &mut dyn FnMut(&Run),
    ) -> Result<Run, PipelineError> {
        let mut items = items.fuse();
        let mut run = Run::default();
        let mut open: HashMap<Ticket, Open> = HashMap::new();
        let mut keys = HashSet::new();
        let mut ticket: Ticket = 0;
        let (mut ended, mut refused, mut deadline) = (false, None, None);
        loop {
            if deadline.is_none() && self.interrupt.load(Ordering::SeqCst) {
                deadline = Some(Instant::now() + self.grace);
                run.interrupted = true;
            }
            while !ended
                && deadline.is_none()
                && refused.is_none()
                && open.len() < self.window.max(1)
            {
                let item = match items.next() {
                    Some(Fed::Item(item)) => item,
                    Some(Fed::Later) => break,
                    None => {
                        ended = true;
                        break;
                    }
                };
                let key = self.description.key(&match &item {
                    Ok(item) => digest::item(item),
                    Err(error) => digest::bad_line(error),
                });
                if !keys.insert(key.clone()) {
                    continue;
                }
                run.keys.push(key.clone());
                if self.journal.settled(&key) && !self.strict_failure(&item) {
                    run.resumed += 1;
                    continue;
                }
                refused = self.begin(item, key, &mut ticket, &mut open, &mut run)?;
            }
            if open.is_empty() && (ended || refused.is_some())
                || deadline.is_some_and(|end| Instant::now() >= end)
            {
                break;
            }
            if open.is_empty() && deadline.is_some() {
                break;
            }
            if open.is_empty() {
                let _span = IDLE_TIME.span();
                std::thread::sleep(IDLE);
                continue;
            }
            let settled = self.answerer.step();
            run.progress = self.answerer.progress();
            if settled.is_empty()
                && !open.is_empty()
                && run.progress.waiting + run.progress.running == 0
            {
                return Err(PipelineError::Lost(open.len()));
            }
            for (ticket, result) in settled {
                self.settle(ticket, result, &mut open, &mut run)?;
            }
            run.open = open.len();
            watch(&run);
        }
        run.open = open.len();
        if let Some(error) = refused {
            return Err(error);
        }
        if !run.interrupted || ended && open.is_empty() {
            run.interrupted = false;
            let _span = JOURNAL_TIME.span();
            self.journal.finish(&run.keys)?;
        }
        Ok(run)
    }

    /// A bad line stops a strict run even where an earlier, lenient run has written it down.
    fn strict_failure(&self, item: &Result<Item, ItemError>) -> bool {
        self.strict && item.is_err()
    }

    /// Opens an evaluation, or settles it at once. Returns what stops a strict run.
    fn begin(
        &mut self,
        item: Result<Item, ItemError>,
        key: String,
        ticket: &mut Ticket,
        open: &mut HashMap<Ticket, Open>,
        run: &mut Run,
    ) -> Result<Option<PipelineError>, PipelineError> {
        let item = match item {
            Ok(item) => item,
            Err(error) if self.strict => {
                return Ok(Some(PipelineError::Strict {
                    message: error.to_string(),
                    hint: error.hint(),
                }));
            }
            Err(error) => {
                let reason = format!("{error}; {}", error.hint());
                let outcome = Outcome::Failure {
                    kind: FailureKind::Input,
                    reason,
                };
                self.write(
                    Record {
                        item: error.name,
                        key,
                        outcome,
                    },
                    run,
                )?;
                return Ok(None);
            }
        };
        let (evaluation, step) = Evaluation::begin(self.format.clone(), item);
        match step {
            Step::Ask(ask) => {
                *ticket += 1;
                open.insert(*ticket, Open { evaluation, key });
                self.answerer.submit(*ticket, *ask);
            }
            Step::Settled(outcome) => {
                if let (true, Err(failure)) = (self.strict, outcome.as_ref()) {
                    let hint =
                        "give the item what the rubric shows, or map it with --map".to_string();
                    return Ok(Some(PipelineError::Strict {
                        message: failure.to_string(),
                        hint,
                    }));
                }
                self.record(evaluation.item().name.clone(), key, *outcome, run)?;
            }
        }
        Ok(None)
    }

    fn settle(
        &mut self,
        ticket: Ticket,
        result: Result<Answer, Failure>,
        open: &mut HashMap<Ticket, Open>,
        run: &mut Run,
    ) -> Result<(), PipelineError> {
        let Some(mut entry) = open.remove(&ticket) else {
            return Ok(());
        };
        match entry.evaluation.answer(result) {
            Step::Ask(ask) => {
                self.answerer.submit(ticket, *ask);
                open.insert(ticket, entry);
                Ok(())
            }
            Step::Settled(outcome) => self.record(
                entry.evaluation.item().name.clone(),
                entry.key,
                *outcome,
                run,
            ),
        }
    }

    fn record(
        &mut self,
        item: String,
        key: String,
        outcome: Result<Verdict, Failure>,
        run: &mut Run,
    ) -> Result<(), PipelineError> {
        let outcome = match outcome {
            Ok(verdict) => Outcome::Verdict(Box::new(verdict)),
            Err(failure) => match FailureKind::of(&failure) {
                Some(kind) => Outcome::Failure {
                    kind,
                    reason: failure.to_string(),
                },
                // An interrupted item is as if it had not been asked.
                None => return Ok(()),
            },
        };
        self.write(Record { item, key, outcome }, run)
    }

    fn write(&mut self, record: Record, run: &mut Run) -> Result<(), PipelineError> {
        let span = JOURNAL_TIME.span();
        self.journal.append(&record)?;
        drop(span);
        match record.outcome {
            Outcome::Verdict(_) => run.judged += 1,
            Outcome::Failure { .. } => run.failed += 1,
        }
        Ok(())
    }
}
