//! Where a run's time went: the counters of kernels, engine and run, between a beginning and an end.

use crate::engine::profile::Phase as EnginePhase;
use assize_kernels::profile::{Counter, Phase as KernelPhase, switch};
use std::time::{Duration, Instant};

/// Time in which verdicts were written.
pub static JOURNAL_TIME: Counter = Counter::new();

/// Time in which there was nothing to do, for the source of items had none yet.
pub static IDLE_TIME: Counter = Counter::new();

/// The counters as they stood.
struct Reading {
    engine: [Duration; 5],
    kernels: [Duration; 3],
    journal: Duration,
    idle: Duration,
}

impl Reading {
    fn now() -> Reading {
        let engine = |phase: EnginePhase| phase.counter().time();
        Reading {
            engine: [
                engine(EnginePhase::Admit),
                engine(EnginePhase::Schedule),
                engine(EnginePhase::Forward),
                engine(EnginePhase::Choose),
                engine(EnginePhase::Readout),
            ],
            kernels: KernelPhase::ALL.map(|phase| phase.counter().time()),
            journal: JOURNAL_TIME.time(),
            idle: IDLE_TIME.time(),
        }
    }
}

/// A profile that is being taken. There is one at a time: the counters are the process's.
pub struct Profiling {
    before: Reading,
    began: Instant,
}

/// Where the time went.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Wall time in all, in seconds.
    pub total: f64,
    /// Each phase with its seconds, in the order of a step; they add up to the total.
    pub phases: Vec<(&'static str, f64)>,
}

impl Profiling {
    /// Begins, and switches the counters on.
    pub fn begin() -> Profiling {
        switch(true);
        Profiling {
            before: Reading::now(),
            began: Instant::now(),
        }
    }

    /// Ends, and switches the counters off.
    pub fn end(self) -> Profile {
        let total = self.began.elapsed();
        switch(false);
        profile(&self.before, &Reading::now(), total)
    }
}

fn profile(before: &Reading, after: &Reading, total: Duration) -> Profile {
    let spent = |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64();
    let engine = |at: usize| spent(before.engine[at], after.engine[at]);
    let kernel = |at: usize| spent(before.kernels[at], after.kernels[at]);
    let forward = engine(2);
    let known = kernel(0) + kernel(1) + kernel(2);
    let mut phases = vec![
        ("admit", engine(0)),
        ("schedule", engine(1)),
        ("forward_matmul", kernel(0)),
        ("forward_attention", kernel(1)),
        ("forward_rows", kernel(2)),
        ("forward_other", (forward - known).max(0.0)),
        ("masks_and_sampling", engine(3)),
        ("readout", engine(4)),
        ("journal", spent(before.journal, after.journal)),
        ("idle", spent(before.idle, after.idle)),
    ];
    let total = total.as_secs_f64();
    let counted: f64 = phases.iter().map(|(_, seconds)| seconds).sum();
    phases.push(("rest", (total - counted).max(0.0)));
    Profile { total, phases }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_to_the_total() {
        let seconds = Duration::from_secs;
        let reading = |engine: [u64; 5], kernels: [u64; 3], journal, idle| Reading {
            engine: engine.map(seconds),
            kernels: kernels.map(seconds),
            journal: seconds(journal),
            idle: seconds(idle),
        };
        let before = reading([1, 1, 1, 1, 1], [1, 0, 0], 1, 0);
        let after = reading([2, 2, 11, 3, 1], [7, 2, 1], 2, 3);
        let found = profile(&before, &after, seconds(20));
        let phase = |name: &str| found.phases.iter().find(|(found, _)| *found == name);
        assert_eq!(phase("forward_matmul"), Some(&("forward_matmul", 6.0)));
        assert_eq!(phase("forward_other"), Some(&("forward_other", 1.0)));
        assert_eq!(phase("rest"), Some(&("rest", 2.0)));
        let sum: f64 = found.phases.iter().map(|(_, seconds)| seconds).sum();
        assert_eq!(sum, found.total);
    }
}
