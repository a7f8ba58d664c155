//! Where the engine's time goes, phase by phase: counters of its own beside those of the kernels, on and off with them.

use assize_kernels::profile::{Counter, Span, is_on};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The phases of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Tokenizing prompts and compiling grammars.
    Admit,
    /// Planning a batch and laying it out.
    Schedule,
    /// The pass through the model.
    Forward,
    /// Masks, and tokens chosen under them.
    Choose,
    /// Labels' probabilities.
    Readout,
}

impl Phase {
    /// Its counter.
    pub fn counter(self) -> &'static Counter {
        static COUNTERS: [Counter; 5] = [const { Counter::new() }; 5];
        &COUNTERS[self as usize]
    }
}

/// Counts the time until the guard is dropped, where counting is on.
#[inline]
#[must_use = "the span ends where it is dropped"]
pub fn span(phase: Phase) -> Span {
    phase.counter().span()
}

/// The time in which all sessions consume their rows side by side. Its phases overlap on several threads, so the wall time
/// of the whole is divided as the threads' times were spent.
pub struct Consuming {
    began: Option<Instant>,
    choose: AtomicU64,
    readout: AtomicU64,
}

impl Consuming {
    /// Begins.
    pub fn begin() -> Consuming {
        Consuming {
            began: is_on().then(Instant::now),
            choose: AtomicU64::new(0),
            readout: AtomicU64::new(0),
        }
    }

    /// One session's part, until the guard is dropped.
    #[must_use = "the part ends where it is dropped"]
    pub fn part(&self, reads_labels: bool) -> Part<'_> {
        let spent = if reads_labels {
            &self.readout
        } else {
            &self.choose
        };
        Part(self.began.map(|_| (spent, Instant::now())))
    }

    /// Ends, and adds to [`Phase::Choose`] and [`Phase::Readout`].
    pub fn end(self) {
        let Some(began) = self.began else { return };
        let wall = began.elapsed();
        let (choose, readout) = (self.choose.into_inner(), self.readout.into_inner());
        let share = readout as f64 / (choose + readout).max(1) as f64;
        let readout = wall.mul_f64(share.clamp(0.0, 1.0)).min(wall);
        Phase::Readout.counter().add(readout);
        Phase::Choose.counter().add(wall - readout);
    }
}

/// A session's part of [`Consuming`].
pub struct Part<'a>(Option<(&'a AtomicU64, Instant)>);

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if let Some((spent, began)) = self.0 {
            spent.fetch_add(nanoseconds(began.elapsed()), Ordering::Relaxed);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
