//! The engine: sequences over shared pages, a batch that stays full, exact readout.
//!
//! Answers asks by running a model, through [`Forward`] alone. An answer's text and its readout are the same bits
//! whatever else runs, however prompts are cut into chunks, and whether a prefix came from the cache: a row's bits
//! depend on its own sequence, and all that is decided on them is decided per session. Knows no rubric and no tensor.

pub mod frontend;

pub mod admit;

pub mod session;

pub mod sequence;

pub mod pages;

pub mod prefix;

pub mod shared;

pub mod scheduler;

pub mod runner;

pub mod sampler;

pub mod readout;

pub mod profile;

use crate::ask::{Answer, Answerer, Ask, Failure, Progress, Ticket};
use crate::model::batch::{Forward, ForwardError};
use frontend::Frontend;
use runner::Runner;
use shared::Kept;

/// How an engine fills its batches. No setting changes an answer. Zeros are taken as ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Most asks in flight.
    pub max_batch: usize,
    /// Most rows in a pass.
    pub max_batch_tokens: usize,
    /// Most rows of one sequence in a pass.
    pub prefill_chunk: usize,
    /// Whether prompts share the pages of their common beginnings.
    pub prefix_cache: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            max_batch: 8,
            max_batch_tokens: 512,
            prefill_chunk: 256,
            prefix_cache: true,
        }
    }
}

/// The engine. Use it through [`Answerer`].
pub struct Engine {
    runner: Runner,
}

impl Engine {
    /// An engine over a model and its front end.
    pub fn new(
        model: Box<dyn Forward>,
        frontend: Box<dyn Frontend>,
        settings: EngineSettings,
    ) -> Self {
        Engine {
            runner: Runner::new(model, frontend, settings),
        }
    }

    /// Bytes of a page; `None` where pages do not leave the model.
    pub fn page_bytes(&self) -> Option<usize> {
        self.runner.page_bytes()
    }

    /// What all prompts so far begin with, before any judged text, and its pages, as far as they are in the cache: `most` bytes at most. Nothing as
    /// long as no two prompts differed.
    ///
    /// # Errors
    /// What the model says.
    pub fn export(&self, most: u64) -> Result<Kept, ForwardError> {
        self.runner.export(most)
    }

    /// Puts what an earlier engine of the same model and kernels gave into the cache, as far as there is room. Answers with the number of tokens that
    /// are there now. No answer changes by it.
    ///
    /// # Errors
    /// What the model says; what was put there before stays, and is sound.
    pub fn import(&mut self, kept: &Kept) -> Result<usize, ForwardError> {
        self.runner.import(kept)
    }

    /// The engine's inside, to be looked at by tests and tools.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }
}

impl Answerer for Engine {
    fn submit(&mut self, ticket: Ticket, ask: Ask) {
        self.runner.submit(ticket, ask);
    }

    fn step(&mut self) -> Vec<(Ticket, Result<Answer, Failure>)> {
        self.runner.step()
    }

    fn progress(&self) -> Progress {
        self.runner.progress()
    }
}
