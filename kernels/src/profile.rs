//! Where time goes: counters of nanoseconds that spans add to. They are always compiled in and off by default: a span then
//! costs one relaxed load. Times are of the wall, so spans of one phase must not overlap; counts are of a whole process, since
//! a process has one engine. Knows no kernel.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static ON: AtomicBool = AtomicBool::new(false);

/// Begins or ends counting, in the whole process.
pub fn switch(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Whether spans are counted.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The phases of a forward pass that the kernels know; the rest of it is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Products with weights, the quantization of their activations included.
    Matmul,
    /// Attention over the cache.
    Attention,
    /// What is done to each row by itself: norms, rotation, gated units, sums.
    Rows,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 3] = [Phase::Matmul, Phase::Attention, Phase::Rows];

    /// Its counter.
    pub fn counter(self) -> &'static Counter {
        static COUNTERS: [Counter; 3] = [const { Counter::new() }; 3];
        &COUNTERS[self as usize]
    }
}

/// Counts the time until the guard is dropped, where counting is on.
#[inline]
#[must_use = "the span ends where it is dropped"]
pub fn span(phase: Phase) -> Span {
    phase.counter().span()
}

/// The time of a phase.
#[derive(Debug, Default)]
pub struct Counter {
    nanoseconds: AtomicU64,
}

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Counter {
        Counter {
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// Counts the time until the guard is dropped, where counting is on.
    #[inline]
    #[must_use = "the span ends where it is dropped"]
    pub fn span(&'static self) -> Span {
        Span(is_on().then(|| (self, Instant::now())))
    }

    /// Adds a time that was measured otherwise.
    pub fn add(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The time so far.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}

/// A span of time that is being counted.
#[derive(Debug)]
pub struct Span(Option<(&'static Counter, Instant)>);

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some((counter, began)) = self.0 {
            counter.add(began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_count_only_while_switched_on() {
        let counter = Phase::Attention.counter();
        let wait = || {
            let _span = span(Phase::Attention);
            std::thread::sleep(Duration::from_millis(2));
        };
        wait();
        assert_eq!(counter.time(), Duration::ZERO);
        switch(true);
        wait();
        switch(false);
        let first = counter.time();
        assert!(first >= Duration::from_millis(2), "{first:?}");
        wait();
        assert_eq!(counter.time(), first);
        assert_eq!(Phase::Rows.counter().time(), Duration::ZERO);
    }
}
