//! What this machine can do at most, measured: products of bytes in registers, and bytes read from memory. A kernel's rate
//! means little without the one that it can't exceed. Knows no kernel.

use crate::dispatch::{Isa, Operation};
use crate::vector::{LANES, Line, Vector};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Operations of one [`Vector::dot`]: in each lane four products, and four additions.
const DOT_OPERATIONS: f64 = (LANES * 4 * 2) as f64;

/// Dots of every accumulator between two looks at the operands.
const UNROLLED: usize = 8;

/// How long one measurement takes at least: so short that some of them fall between two disturbances.
const LONG_ENOUGH: Duration = Duration::from_millis(8);

/// Measurements, of which the best counts: whatever disturbs one only ever makes it slower.
const TRIES: usize = 25;

/// Numbers in the buffer that is read: 512 MiB, far more than any cache holds.
const BUFFER: usize = 128 << 20;

/// Streams that a thread reads side by side.
const STREAMS: usize = 8;

/// The most operations a second (a product and an addition are two) that the instruction set's dot product of bytes reaches on
/// so many threads, all its operands lying in registers.
pub fn dot_rate(isa: Isa, threads: usize) -> f64 {
    // Twelve accumulators hide the latency where there are 32 registers; where there are 16, and a vector takes two of
    // them, six are the most that fit.
    let twelve = rate(
        isa,
        threads,
        |isa, rounds| isa.run(Dots::<12> { rounds }),
        12,
    );
    let six = rate(isa, threads, |isa, rounds| isa.run(Dots::<6> { rounds }), 6);
    twelve.max(six)
}

/// The most bytes a second that so many threads read from memory, in several streams each.
pub fn read_rate(threads: usize) -> f64 {
    // Ones, since untouched zeros would all lie in one page.
    let buffer = vec![1f32; BUFFER];
    let (vectors, _) = buffer.as_chunks::<LANES>();
    let threads = threads.max(1);
    let parts: Vec<_> = vectors.chunks(vectors.len().div_ceil(threads)).collect();
    let isa = crate::isa();
    let best = (0..TRIES)
        .map(|_| {
            together(parts.len(), |thread| {
                isa.run(Sum {
                    part: parts[thread],
                })
            })
        })
        .min();
    let bytes = size_of_val(vectors) as f64;
    bytes / best.unwrap_or(Duration::MAX).as_secs_f64()
}

fn rate(
    isa: Isa,
    threads: usize,
    dots: impl Fn(Isa, usize) -> f32 + Sync,
    accumulators: usize,
) -> f64 {
    let threads = threads.max(1);
    let mut rounds = 1 << 10;
    let mut best = 0f64;
    let mut tries = 0;
    while tries < TRIES {
        let took = together(threads, |_| dots(isa, rounds));
        if took < LONG_ENOUGH {
            rounds *= 4;
            continue;
        }
        let each = (rounds * UNROLLED * accumulators) as f64 * DOT_OPERATIONS;
        best = best.max(each * threads as f64 / took.as_secs_f64());
        tries += 1;
    }
    best
}

/// Does the work on so many threads, which begin together. Returns the time from the first one's beginning to the last one's
/// end, by the threads' own clocks: whoever waits for them may wake up late.
fn together(threads: usize, work: impl Fn(usize) -> f32 + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    let (barrier, work) = (&barrier, &work);
    let times: Option<Vec<(Instant, Instant)>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    barrier.wait();
                    let began = Instant::now();
                    black_box(work(thread));
                    (began, Instant::now())
                })
            })
            .collect();
        // A thread that panicked has said so itself; the others' times would mean nothing.
        running
            .into_iter()
            .map(|thread| thread.join().ok())
            .collect()
    });
    let times = times.unwrap_or_default();
    let first = times.iter().map(|(began, _)| *began).min();
    let last = times.iter().map(|(_, ended)| *ended).max();
    match (first, last) {
        (Some(first), Some(last)) => last - first,
        _ => Duration::MAX,
    }
}

/// Dot products into `N` accumulators, again and again.
struct Dots<const N: usize> {
    rounds: usize,
}

impl<const N: usize> Operation for Dots<N> {
    type Output = f32;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> f32 {
        let codes = Line(std::array::from_fn(|i| 0x0102_0304 * (i % 5) as u32));
        let activations = Line(std::array::from_fn(|i| 0x0302_0501 * (i % 7) as u32));
        let mut sums = [v.splat_int(0); N];
        for _ in 0..self.rounds {
            // Seen anew in each round, so that no compiler adds up the rounds by one product.
            let codes = v.load_line(black_box(&codes));
            let activations = v.load_line(black_box(&activations));
            for _ in 0..UNROLLED {
                for sum in &mut sums {
                    *sum = v.dot(*sum, codes, activations);
                }
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += v.sum(v.to_float(sum));
        }
        total
    }
}

/// The sum of a part of the buffer, read in several streams.
struct Sum<'a> {
    part: &'a [[f32; LANES]],
}

impl Operation for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> f32 {
        let length = self.part.len() / STREAMS;
        let mut sums = [v.splat(0.0); STREAMS];
        for i in 0..length {
            for (stream, sum) in sums.iter_mut().enumerate() {
                *sum = v.add(*sum, v.load(&self.part[stream * length + i]));
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += v.sum(sum);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rates() {
        for isa in Isa::available() {
            let rate = dot_rate(isa, 1);
            // The slowest machine that is thought of, and a good way beyond the fastest.
            assert!((1e8..1e14).contains(&rate), "{}: {rate:e}", isa.name());
        }
        let rate = read_rate(2);
        assert!((1e8..1e13).contains(&rate), "{rate:e}");
    }
}
