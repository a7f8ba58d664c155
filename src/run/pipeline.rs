//! The loop above the engine: items become evaluations, their asks go to the answerers, and what is settled is written.
//!
//! Each item is evaluated once under each rubric. A bounded window of evaluations is open at a time, so that batches stay full. What is kept of a settled item is its key and
//! its row of the table, not its text.
//! Knows no model and no terminal.

use super::feed::Fed;
use super::profile::{IDLE_TIME, JOURNAL_TIME};
use crate::ask::{Answer, Answerer, Failure, Progress, Ticket};
use crate::journal::{
    FailureKind, Journal, JournalError, Outcome, Record, RunDescription, VerdictCache,
};
use crate::judge::{Evaluation, Format, Posed, Step, Unjudged, Verdict, digest};
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
    /// The judges: question by question it is said which is asked.
    pub answerers: Vec<&'a mut dyn Answerer>,
    /// Pose and rule, in the order of the description's rubrics.
    pub formats: Vec<Arc<dyn Format>>,
    /// What is run: gives the keys.
    pub description: &'a RunDescription,
    /// Where it is written.
    pub journal: &'a mut Journal,
    /// Verdicts of other runs, if they are kept.
    pub cache: Option<&'a VerdictCache>,
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
    /// Of those, verdicts that another run had kept.
    pub cached: usize,
    /// Items that failed in this process.
    pub failed: usize,
    /// Items that were read and not settled.
    pub open: usize,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// The engines' counters.
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

/// An evaluation that owes answers.
struct Open {
    evaluation: Box<dyn Evaluation>,
    item: String,
    rubric: String,
    key: String,
}

/// What is in flight.
#[derive(Default)]
struct Flight {
    /// Evaluations by number.
    open: HashMap<u64, Open>,
    /// The question of each ticket: evaluation and slot.
    asked: HashMap<Ticket, (u64, usize)>,
    evaluations: u64,
    tickets: Ticket,
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
        let mut flight = Flight::default();
        let mut keys = HashSet::new();
        let (mut ended, mut refused, mut deadline) = (false, None, None);
        loop {
            if deadline.is_none() && self.interrupt.load(Ordering::SeqCst) {
                deadline = Some(Instant::now() + self.grace);
                run.interrupted = true;
            }
            while !ended
                && deadline.is_none()
                && refused.is_none()
                && flight.open.len() < self.window.max(1)
            {
                let item = match items.next() {
                    Some(Fed::Item(item)) => item,
                    Some(Fed::Later) => break,
                    None => {
                        ended = true;
                        break;
                    }
                };
                refused = self.take(item, &mut keys, &mut flight, &mut run)?;
            }
            let nothing = flight.open.is_empty();
            if nothing && (ended || refused.is_some() || deadline.is_some())
                || deadline.is_some_and(|end| Instant::now() >= end)
            {
                break;
            }
            if nothing {
                let _span = IDLE_TIME.span();
                std::thread::sleep(IDLE);
                continue;
            }
            self.step(&mut flight, &mut run)?;
            run.open = flight.open.len();
            watch(&run);
        }
        run.open = flight.open.len();
        if let Some(error) = refused {
            return Err(error);
        }
        if !run.interrupted || ended && flight.open.is_empty() {
            run.interrupted = false;
            let _span = JOURNAL_TIME.span();
            self.journal.finish(&run.keys)?;
        }
        Ok(run)
    }

    /// Lets every judge do one unit of work.
    fn step(&mut self, flight: &mut Flight, run: &mut Run) -> Result<(), PipelineError> {
        let mut progress = Progress::default();
        let mut all = Vec::new();
        for answerer in &mut self.answerers {
            all.extend(answerer.step());
            add(&mut progress, answerer.progress());
        }
        run.progress = progress;
        if all.is_empty() && progress.waiting + progress.running == 0 {
            return Err(PipelineError::Lost(flight.open.len()));
        }
        for (ticket, result) in all {
            self.settle(ticket, result, flight, run)?;
        }
        Ok(())
    }

    /// A bad line stops a strict run even where an earlier, lenient run has written it down.
    fn strict_failure(&self, item: &Result<Item, ItemError>) -> bool {
        self.strict && item.is_err()
    }

    /// Takes an item in: opens its evaluations, or settles them at once. Returns what stops a strict run.
    fn take(
        &mut self,
        item: Result<Item, ItemError>,
        keys: &mut HashSet<String>,
        flight: &mut Flight,
        run: &mut Run,
    ) -> Result<Option<PipelineError>, PipelineError> {
        // Whether the key is new; where an earlier process has settled it, that is all there is to do.
        let mut fresh = |key: &String, pipeline: &Self, run: &mut Run, strict: bool| {
            if !keys.insert(key.clone()) {
                return false;
            }
            run.keys.push(key.clone());
            let settled = pipeline.journal.settled(key) && !strict;
            run.resumed += usize::from(settled);
            !settled
        };
        let strict = self.strict_failure(&item);
        let item = match item {
            Ok(item) => Arc::new(item),
            Err(error) => {
                let key = self.description.line_key(&digest::bad_line(&error));
                return match fresh(&key, self, run, strict) {
                    true => self.bad_line(error, key, run),
                    false => Ok(None),
                };
            }
        };
        let digest = digest::item(&item);
        for (format, rubric) in self
            .formats
            .clone()
            .into_iter()
            .zip(&self.description.rubrics)
        {
            let key = self.description.key(rubric, &digest);
            if !fresh(&key, self, run, strict) {
                continue;
            }
            if let Some((line, row)) = self.cache.and_then(|cache| cache.find(&key)) {
                self.journal.append_line(&line, row)?;
                run.judged += 1;
                run.cached += 1;
                continue;
            }
            let rubric = rubric.id.clone();
            let (evaluation, step) = format.begin(item.clone());
            let open = Open {
                evaluation,
                item: item.name.clone(),
                rubric,
                key,
            };
            match step {
                Step::Ask(posed) => {
                    flight.evaluations += 1;
                    let number = flight.evaluations;
                    flight.open.insert(number, open);
                    self.submit(number, posed, flight);
                }
                Step::Settled(outcome) => {
                    if let (true, Err(unjudged)) = (self.strict, outcome.as_ref()) {
                        let hint = "give the item what the rubric shows, or map it with --map";
                        return Ok(Some(PipelineError::Strict {
                            message: unjudged.to_string(),
                            hint: hint.to_string(),
                        }));
                    }
                    self.record(open, *outcome, run)?;
                }
            }
        }
        Ok(None)
    }

    fn bad_line(
        &mut self,
        error: ItemError,
        key: String,
        run: &mut Run,
    ) -> Result<Option<PipelineError>, PipelineError> {
        if self.strict {
            return Ok(Some(PipelineError::Strict {
                message: error.to_string(),
                hint: error.hint(),
            }));
        }
        let reason = format!("{error}; {}", error.hint());
        let record = Record {
            item: error.name,
            rubric: None,
            key,
            outcome: Outcome::Failure {
                kind: FailureKind::Input,
                reason,
            },
        };
        self.write(record, run)?;
        Ok(None)
    }

    fn submit(&mut self, evaluation: u64, posed: Vec<Posed>, flight: &mut Flight) {
        let last = self.answerers.len().saturating_sub(1);
        for Posed { slot, judge, ask } in posed {
            flight.tickets += 1;
            flight.asked.insert(flight.tickets, (evaluation, slot));
            if let Some(answerer) = self.answerers.get_mut(judge.min(last)) {
                answerer.submit(flight.tickets, ask);
            }
        }
    }

    fn settle(
        &mut self,
        ticket: Ticket,
        result: Result<Answer, Failure>,
        flight: &mut Flight,
        run: &mut Run,
    ) -> Result<(), PipelineError> {
        let Some((number, slot)) = flight.asked.remove(&ticket) else {
            return Ok(());
        };
        let Some(open) = flight.open.get_mut(&number) else {
            // Its evaluation was settled without it.
            return Ok(());
        };
        match open.evaluation.answer(slot, result) {
            Step::Ask(posed) => {
                self.submit(number, posed, flight);
                Ok(())
            }
            Step::Settled(outcome) => match flight.open.remove(&number) {
                Some(open) => self.record(open, *outcome, run),
                None => Ok(()),
            },
        }
    }

    fn record(
        &mut self,
        open: Open,
        outcome: Result<Verdict, Unjudged>,
        run: &mut Run,
    ) -> Result<(), PipelineError> {
        let outcome = match outcome {
            Ok(verdict) => Outcome::Verdict(Box::new(verdict)),
            Err(unjudged) => match FailureKind::of(&unjudged) {
                Some(kind) => Outcome::Failure {
                    kind,
                    reason: unjudged.to_string(),
                },
                // An interrupted item is as if it had not been asked.
                None => return Ok(()),
            },
        };
        let record = Record {
            item: open.item,
            rubric: Some(open.rubric),
            key: open.key,
            outcome,
        };
        self.write(record, run)
    }

    fn write(&mut self, record: Record, run: &mut Run) -> Result<(), PipelineError> {
        let span = JOURNAL_TIME.span();
        let line = self.journal.append(&record)?;
        drop(span);
        match record.outcome {
            Outcome::Verdict(_) => {
                run.judged += 1;
                if let Some(cache) = self.cache {
                    cache.keep(&record.key, &line);
                }
            }
            Outcome::Failure { .. } => run.failed += 1,
        }
        Ok(())
    }
}

fn add(sum: &mut Progress, more: Progress) {
    sum.waiting += more.waiting;
    sum.running += more.running;
    sum.prompt_tokens += more.prompt_tokens;
    sum.cached_tokens += more.cached_tokens;
    sum.forced_tokens += more.forced_tokens;
    sum.generated_tokens += more.generated_tokens;
}
