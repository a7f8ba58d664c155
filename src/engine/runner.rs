//! The runner: one step is admit, schedule, run, consume.
//!
//! The only file of the engine that calls the model. A failure stays with the ask that it befell.

use crate::ask::{Answer, Ask, Failure, Progress, Ticket};
use crate::engine::EngineSettings;
use crate::engine::admit::{Limits, admit};
use crate::engine::frontend::Frontend;
use crate::engine::profile::{self, Consuming, Phase};
use crate::engine::scheduler::{Plan, Scheduler, Work};
use crate::engine::session::{Outcome, Session};
use crate::engine::shared::{Kept, Shared};
use crate::model::batch::{Batch, Forward, ForwardError, PAGE, PageId, Span};
use rayon::prelude::*;
use std::collections::VecDeque;

/// A settled ask.
pub type Settled = (Ticket, Result<Answer, Failure>);

/// What a pass has for one session.
enum Supply<'a> {
    /// It had no part in the pass.
    Idle,
    /// Its tokens were computed; the last row's logits, where they were wanted.
    Rows(Option<&'a [f32]>),
    /// Rows of its branches, by slot.
    Branches(Vec<(usize, &'a [f32])>),
}

/// All asks of an engine, and the model that answers them.
pub struct Runner {
    model: Box<dyn Forward>,
    frontend: Box<dyn Frontend>,
    settings: EngineSettings,
    limits: Limits,
    scheduler: Scheduler,
    /// Not looked at yet, in order.
    queue: VecDeque<(Ticket, Ask)>,
    /// Admitted, without pages: preempted, or waiting for room. Older than all in `queue`.
    parked: VecDeque<Session>,
    /// Oldest first.
    running: Vec<Session>,
    progress: Progress,
    shared: Shared,
}

impl Runner {
    /// A runner with nothing to do.
    pub fn new(
        model: Box<dyn Forward>,
        frontend: Box<dyn Frontend>,
        settings: EngineSettings,
    ) -> Self {
        let settings = EngineSettings {
            max_batch: settings.max_batch.max(1),
            max_batch_tokens: settings.max_batch_tokens.max(1),
            prefill_chunk: settings.prefill_chunk.max(1),
            ..settings
        };
        Runner {
            limits: Limits {
                context: model.context(),
                pages: model.pages(),
            },
            scheduler: Scheduler::new(settings, model.pages()),
            model,
            frontend,
            settings,
            queue: VecDeque::new(),
            parked: VecDeque::new(),
            running: Vec::new(),
            progress: Progress::default(),
            shared: Shared::default(),
        }
    }

    /// Queues an ask.
    pub fn submit(&mut self, ticket: Ticket, ask: Ask) {
        self.queue.push_back((ticket, ask));
    }

    /// Counters since the start.
    pub fn progress(&self) -> Progress {
        Progress {
            waiting: self.queue.len() + self.parked.len(),
            running: self.running.len(),
            ..self.progress
        }
    }

    /// The scheduler, to be looked at.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Bytes of a page; `None` where pages do not leave the model.
    pub fn page_bytes(&self) -> Option<usize> {
        self.model.page_bytes()
    }

    /// See [`crate::engine::Engine::export`].
    pub fn export(&self, most: u64) -> Result<Kept, ForwardError> {
        let mut kept = Kept::default();
        let page = self.model.page_bytes().unwrap_or(0).max(1);
        let limit = usize::try_from(most / page as u64).unwrap_or(usize::MAX);
        let shared = self.shared.tokens();
        for (tokens, page) in
            (shared.chunks_exact(PAGE)).zip(self.scheduler.prefix().cached(shared, limit))
        {
            self.model.read_page(page, &mut kept.bytes)?;
            kept.tokens.extend(tokens);
        }
        Ok(kept)
    }

    /// See [`crate::engine::Engine::import`].
    pub fn import(&mut self, kept: &Kept) -> Result<usize, ForwardError> {
        let page = self.model.page_bytes().unwrap_or(0);
        if kept.tokens.len() / PAGE * page != kept.bytes.len() {
            return Err(ForwardError("pages of another size".to_owned()));
        }
        if !self.settings.prefix_cache || page == 0 {
            return Ok(0);
        }
        let model = &mut self.model;
        let pages = self.scheduler.keep(&kept.tokens, |index, id| {
            model.write_page(id, &kept.bytes[index * page..(index + 1) * page])
        })?;
        Ok(pages * PAGE)
    }

    /// One pass at most. Answers with what it settled.
    pub fn step(&mut self) -> Vec<Settled> {
        let mut settled = Vec::new();
        let admitting = profile::span(Phase::Admit);
        self.fill(&mut settled);
        drop(admitting);
        let scheduling = profile::span(Phase::Schedule);
        let mut sequences: Vec<_> = self
            .running
            .iter_mut()
            .map(|session| &mut session.sequence)
            .collect();
        let plan = self.scheduler.plan(&mut sequences);
        self.progress.cached_tokens += plan.cached as u64;
        // The preempted ones are the youngest, so they leave from the end and keep their order at the head of the queue.
        let kept = self.running.len() - plan.preempted.len();
        for session in self.running.split_off(kept).into_iter().rev() {
            self.parked.push_front(session);
        }
        if plan.work.is_empty() {
            return settled;
        }
        let batch = self.batch(&plan);
        drop(scheduling);
        let forwarding = profile::span(Phase::Forward);
        let logits = self.forward(&plan, &batch);
        drop(forwarding);
        let supplies = self.settle_pages(plan, logits.as_deref().ok());
        let frontend = &*self.frontend;
        // Choosing a token takes a look at the whole vocabulary, and a mask some grammar work: all cores take part.
        // Each session's outcome depends on its own rows alone.
        let consuming = Consuming::begin();
        let outcomes: Vec<Outcome> = self
            .running
            .par_iter_mut()
            .zip(supplies)
            .map(|(session, supply)| {
                let _part = consuming.part(session.reads_labels());
                match (&logits, supply) {
                    (_, Supply::Idle) => None,
                    (Err(failure), _) => Some(Err(failure.clone())),
                    (Ok(_), Supply::Rows(None)) => None,
                    (Ok(_), Supply::Rows(Some(row))) => session.consume(row, frontend),
                    (Ok(_), Supply::Branches(rows)) => rows
                        .into_iter()
                        .find_map(|(slot, row)| session.consume_branch(slot, row, frontend)),
                }
            })
            .collect();
        consuming.end();
        if let Ok(logits) = logits {
            self.model.recycle(logits);
        }
        let mut outcomes = outcomes.into_iter();
        let scheduler = &mut self.scheduler;
        let progress = &mut self.progress;
        self.running
            .retain_mut(|session| match outcomes.next().flatten() {
                Some(outcome) => {
                    scheduler.release(&mut session.sequence);
                    settle(progress, session, outcome, &mut settled);
                    false
                }
                None => true,
            });
        settled
    }

    /// Notes what a pass has computed, gives back the pages of branches, and sorts the logits by running session. Without
    /// logits, after a failed pass, nothing was computed.
    fn settle_pages<'a>(&mut self, plan: Plan, logits: Option<&'a [f32]>) -> Vec<Supply<'a>> {
        let mut rows = logits
            .unwrap_or(&[])
            .chunks_exact(self.model.vocabulary().max(1));
        let mut supplies: Vec<Supply> = self.running.iter().map(|_| Supply::Idle).collect();
        for work in plan.work {
            match work {
                Work::Rows {
                    sequence: index,
                    rows: count,
                } => {
                    let session = &mut self.running[index];
                    let wanted = count == session.sequence.pending() && session.wants_row();
                    if logits.is_some() {
                        let new = self.scheduler.settle_rows(&mut session.sequence, count);
                        self.progress.prompt_tokens += new as u64;
                    }
                    supplies[index] = Supply::Rows(if wanted { rows.next() } else { None });
                }
                Work::Branch {
                    sequence: index,
                    slot,
                    fork,
                } => {
                    self.scheduler.settle_fork(fork);
                    let mut branches = match std::mem::replace(&mut supplies[index], Supply::Idle) {
                        Supply::Branches(branches) => branches,
                        Supply::Idle | Supply::Rows(_) => Vec::new(),
                    };
                    branches.extend(rows.next().map(|row| (slot, row)));
                    supplies[index] = Supply::Branches(branches);
                }
            }
        }
        supplies
    }

    /// Admits asks in order, as long as there is room.
    fn fill(&mut self, settled: &mut Vec<Settled>) {
        while self.running.len() < self.settings.max_batch {
            let session = match self.parked.pop_front() {
                Some(session) => session,
                None => {
                    let Some((ticket, ask)) = self.queue.pop_front() else {
                        return;
                    };
                    let bare = self.shared.bare(&ask.prompt);
                    let admitted = admit(ticket, ask, &*self.frontend, self.limits);
                    if let Ok(session) = &admitted {
                        let sequence = &session.sequence;
                        let prompt = &sequence.tokens()[..sequence.prompt()];
                        self.shared.meet(prompt, bare, &*self.frontend);
                    }
                    match admitted {
                        Ok(mut session) => match session.start(&*self.frontend) {
                            Some(outcome) => {
                                settle(&mut self.progress, &session, outcome, settled);
                                continue;
                            }
                            None => session,
                        },
                        Err(failure) => {
                            settled.push((ticket, Err(failure)));
                            continue;
                        }
                    }
                }
            };
            let running = self.running.iter().map(|session| &session.sequence);
            if !self.scheduler.has_room(&session.sequence, running) {
                self.parked.push_front(session);
                return;
            }
            self.running.push(session);
        }
    }

    /// Lays out the rows of a plan.
    fn batch(&self, plan: &Plan) -> Batch {
        let mut batch = Batch::default();
        for work in &plan.work {
            match work {
                Work::Rows { sequence, rows } => {
                    let session = &self.running[*sequence];
                    let sequence = &session.sequence;
                    let position = sequence.computed();
                    let tokens = &sequence.tokens()[position..position + rows];
                    let wanted = *rows == sequence.pending() && session.wants_row();
                    push(&mut batch, tokens, position, sequence.table(), wanted);
                }
                Work::Branch {
                    sequence,
                    slot,
                    fork,
                } => {
                    let sequence = &self.running[*sequence].sequence;
                    let branch = sequence.branches.iter().find(|branch| branch.slot == *slot);
                    let tokens = branch.map_or(&[][..], |branch| &branch.tokens);
                    push(&mut batch, tokens, sequence.computed(), &fork.table, true);
                }
            }
        }
        batch
    }

    fn forward(&mut self, plan: &Plan, batch: &Batch) -> Result<Vec<f32>, Failure> {
        let fault = |error: crate::model::batch::ForwardError| Failure::Engine(error.to_string());
        for work in &plan.work {
            if let Work::Branch { fork, .. } = work {
                for copy in &fork.copies {
                    self.model.copy_page(copy.from, copy.to).map_err(fault)?;
                }
            }
        }
        let logits = self.model.forward(batch).map_err(fault)?;
        let wanted = batch.outputs.len() * self.model.vocabulary();
        if logits.len() != wanted {
            return Err(Failure::Engine(format!(
                "the model gave {} logits instead of {wanted}",
                logits.len()
            )));
        }
        Ok(logits)
    }
}

/// Appends the rows of one sequence or branch, whose last row's logits may be wanted.
fn push(batch: &mut Batch, tokens: &[u32], position: usize, table: &[PageId], wanted: bool) {
    let pages = table[..(position + tokens.len()).div_ceil(PAGE)].to_vec();
    batch.spans.push(Span {
        first: batch.tokens.len(),
        rows: tokens.len(),
        position,
        pages,
    });
    batch.tokens.extend_from_slice(tokens);
    if wanted {
        batch.outputs.push(batch.tokens.len() - 1);
    }
}

fn settle(
    progress: &mut Progress,
    session: &Session,
    outcome: Result<Answer, Failure>,
    settled: &mut Vec<Settled>,
) {
    progress.forced_tokens += session.sequence.counts.forced as u64;
    progress.generated_tokens += session.sequence.counts.generated as u64;
    settled.push((session.ticket, outcome));
}
