//! Several answerers behind one queue: each works on a thread of its own and takes the next ask when it has room, so that none waits while another
//! has work. Knows no model.
//!
//! An answer depends on its ask alone, and so not on which of them gave it.

use super::judges::JudgeSettings;
use crate::ask::{Answer, Answerer, Ask, Failure, Progress, Ticket};
use crate::engine::Engine;
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a step waits for an answer before the caller may look at something else, such as an interrupt.
const PATIENCE: Duration = Duration::from_millis(50);

/// One engine, or several as one.
pub enum Answering {
    /// Stepped by whoever asks.
    One(Box<Engine>),
    /// Each on a thread of its own.
    Several(Replicas),
}

impl Answering {
    /// Puts the engines to work, each with so much of the queue as keeps its batches full.
    pub fn new(engine: Engine, others: Vec<Engine>, settings: &JudgeSettings) -> Answering {
        if others.is_empty() {
            return Answering::One(Box::new(engine));
        }
        let all = std::iter::once(engine).chain(others);
        let boxed = all.map(|engine| Box::new(engine) as Box<dyn Answerer + Send>);
        Answering::Several(Replicas::new(
            boxed.collect(),
            settings.max_batch.saturating_mul(2),
        ))
    }

    /// Who answers.
    pub fn answerer(&mut self) -> &mut dyn Answerer {
        match self {
            Answering::One(engine) => &mut **engine,
            Answering::Several(replicas) => replicas,
        }
    }

    /// The same, given away.
    pub fn boxed(self) -> Box<dyn Answerer> {
        match self {
            Answering::One(engine) => engine,
            Answering::Several(replicas) => Box::new(replicas),
        }
    }

    /// The engine, where it is one.
    pub fn alone(&mut self) -> Option<&mut Engine> {
        match self {
            Answering::One(engine) => Some(engine),
            Answering::Several(_) => None,
        }
    }
}

type Settled = (Ticket, Result<Answer, Failure>);

/// Several answerers as one.
pub struct Replicas {
    shared: Arc<Shared>,
    settled: Receiver<Settled>,
    /// Asks that were not settled yet, waiting ones included.
    owed: HashSet<Ticket>,
    workers: Vec<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Of each answerer, its counters after its last step.
    progress: Mutex<Vec<Progress>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Ticket, Ask)>,
    closed: bool,
}

/// The value, whoever panicked while holding it: what it guards is whole between any two statements that change it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replicas {
    /// Sets each answerer to work. None of them takes more than `room` asks at once.
    pub fn new(answerers: Vec<Box<dyn Answerer + Send>>, room: usize) -> Replicas {
        let shared = Arc::new(Shared::default());
        *lock(&shared.progress) = vec![Progress::default(); answerers.len()];
        let (sender, settled) = channel();
        let workers = answerers
            .into_iter()
            .enumerate()
            .map(|(index, answerer)| {
                let worker = Worker {
                    index,
                    room: room.max(1),
                    shared: shared.clone(),
                    settled: sender.clone(),
                };
                std::thread::spawn(move || worker.run(answerer))
            })
            .collect();
        Replicas {
            shared,
            settled,
            owed: HashSet::new(),
            workers,
        }
    }
}

impl Answerer for Replicas {
    fn submit(&mut self, ticket: Ticket, ask: Ask) {
        self.owed.insert(ticket);
        lock(&self.shared.queue).waiting.push_back((ticket, ask));
        self.shared.changed.notify_one();
    }

    fn step(&mut self) -> Vec<Settled> {
        if self.owed.is_empty() {
            return Vec::new();
        }
        let mut settled: Vec<Settled> = Vec::new();
        match self.settled.recv_timeout(PATIENCE) {
            Ok(first) => settled.push(first),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody is left to answer: all of them came to an end.
            Err(RecvTimeoutError::Disconnected) => {
                lock(&self.shared.queue).waiting.clear();
                let lost = Failure::Engine("no replica is left to answer".into());
                let mut owed: Vec<Ticket> = self.owed.drain().collect();
                owed.sort_unstable();
                return owed
                    .into_iter()
                    .map(|ticket| (ticket, Err(lost.clone())))
                    .collect();
            }
        }
        settled.extend(self.settled.try_iter());
        for (ticket, _) in &settled {
            self.owed.remove(ticket);
        }
        settled
    }

    fn progress(&self) -> Progress {
        let waiting = lock(&self.shared.queue).waiting.len();
        let sum = Progress {
            waiting,
            running: self.owed.len().saturating_sub(waiting),
            ..Progress::default()
        };
        lock(&self.shared.progress)
            .iter()
            .fold(sum, |sum, each| Progress {
                prompt_tokens: sum.prompt_tokens + each.prompt_tokens,
                cached_tokens: sum.cached_tokens + each.cached_tokens,
                forced_tokens: sum.forced_tokens + each.forced_tokens,
                generated_tokens: sum.generated_tokens + each.generated_tokens,
                ..sum
            })
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            // What it ended with was settled already.
            drop(worker.join());
        }
    }
}

/// One answerer's thread.
struct Worker {
    index: usize,
    room: usize,
    shared: Arc<Shared>,
    settled: Sender<Settled>,
}

impl Worker {
    fn run(self, mut answerer: Box<dyn Answerer + Send>) {
        let mut mine = HashSet::new();
        while self.take(&mut *answerer, &mut mine) {
            let stepped = catch_unwind(AssertUnwindSafe(|| (answerer.step(), answerer.progress())));
            let Ok((settled, progress)) = stepped else {
                // What it held is lost with it; the others go on with the rest.
                for ticket in mine {
                    let failure = Failure::Engine(format!("replica {} came to an end", self.index));
                    drop(self.settled.send((ticket, Err(failure))));
                }
                return;
            };
            lock(&self.shared.progress)[self.index] = progress;
            if settled.is_empty() && progress.waiting + progress.running == 0 {
                for ticket in mine.drain() {
                    let failure = Failure::Engine(format!("replica {} lost the ask", self.index));
                    drop(self.settled.send((ticket, Err(failure))));
                }
            }
            for (ticket, result) in settled {
                mine.remove(&ticket);
                if self.settled.send((ticket, result)).is_err() {
                    return;
                }
            }
        }
    }

    /// Takes asks as long as there is room for them; waits for one where there is nothing else to do. False where the end has come.
    fn take(&self, answerer: &mut dyn Answerer, mine: &mut HashSet<Ticket>) -> bool {
        let mut queue = lock(&self.shared.queue);
        loop {
            if queue.closed {
                return false;
            }
            while mine.len() < self.room
                && let Some((ticket, ask)) = queue.waiting.pop_front()
            {
                mine.insert(ticket);
                answerer.submit(ticket, ask);
            }
            if !mine.is_empty() {
                return true;
            }
            queue = (self.shared.changed)
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
