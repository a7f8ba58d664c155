//! How fast attention is here, as a share of what the machine's multiply-adds could do: prefill, decode over a prefix that all rows share, and
//! decode over pages of one's own.
//!
//! `cargo run --release -p assize-kernels --no-default-features --example attention [threads] [part of a case's name]`; `ASSIZE_ISA` chooses the
//! instruction set.

use assize_kernels::scalar::attention::Scoring;
use assize_kernels::{Cache, PAGE, Sizes, Span, attention, isa};
use half::f16;
#[cfg(target_arch = "x86_64")]
use std::hint::black_box;
use std::time::Instant;

/// Seconds that all threads have run, where Linux tells, which it does to some milliseconds; the clock otherwise.
fn busy(since: Instant) -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter();
    let nanoseconds: f64 = threads
        .flat_map(|all| all.flatten())
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<f64>().ok())
        .sum();
    match nanoseconds > 0.0 {
        true => nanoseconds / 1e9,
        false => since.elapsed().as_secs_f64(),
    }
}

/// Seconds of a run where nobody else uses the machine: the shortest of many by the clock, or, where a run is too long to be left alone, by the time
/// that `threads` of them had.
fn best(threads: usize, mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    work();
    let short = begin.elapsed().as_secs_f64() < 3e-3;
    let mut best = f64::MAX;
    for turn in 0.. {
        let (clock, started) = (Instant::now(), busy(begin));
        let mut runs = 0.0;
        while runs == 0.0 || !short && clock.elapsed().as_secs_f64() < 0.15 {
            work();
            runs += 1.0;
        }
        let time = match short {
            true => clock.elapsed().as_secs_f64(),
            false => (busy(begin) - started) / threads as f64,
        };
        best = best.min(time / runs);
        if turn > 3 && begin.elapsed().as_secs_f64() > 0.3 {
            break;
        }
    }
    best
}

/// Single-precision operations a second of one thread that does nothing but multiply and add in registers.
fn peak() -> f64 {
    #[cfg(target_arch = "x86_64")]
    const TURNS: usize = 100_000;
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn wide(x: f32) -> f32 {
        use std::arch::x86_64::*;
        let mut sums = [_mm512_setzero_ps(); 16];
        let factor = _mm512_set1_ps(x);
        for _ in 0..TURNS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(factor, factor, *sum);
            }
        }
        sums.map(|sum| _mm512_cvtss_f32(sum)).iter().sum()
    }
    #[cfg(target_arch = "x86_64")]
    if isa().name() == "avx512" {
        let operations = (2 * 16 * 16 * TURNS) as f64;
        return operations
            / best(1, || {
                // SAFETY: the kernels found these instructions here, or they would not have chosen them.
                black_box(unsafe { wide(black_box(1.0)) });
            });
    }
    f64::NAN
}

/// Sizes of the heads; then rows of a sequence, sequences, positions before them that all share, and those that each has for itself.
fn measure(
    threads: usize,
    [heads, kv_heads, dim]: [usize; 3],
    [rows, sequences, shared, own]: [usize; 4],
) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.expect("threads");
    let prefix = shared / PAGE;
    let tail = (shared % PAGE + own + rows).div_ceil(PAGE);
    let pages = prefix + sequences * tail;
    let position = shared + own;
    let span = |i: usize| Span {
        first: i * rows,
        rows,
        position,
        pages: (0..prefix)
            .chain(prefix + i * tail..prefix + (i + 1) * tail)
            .map(|page| page as u32)
            .collect(),
    };
    let spans: Vec<Span> = (0..sequences).map(span).collect();
    let mut state = 1u32;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let size = pages * PAGE * kv_heads * dim;
    let [keys, values] =
        [0, 1].map(|_| -> Vec<f16> { (0..size).map(|_| f16::from_f32(number())).collect() });
    let sizes = Sizes {
        rows: rows * sequences,
        heads,
        kv_heads,
        dim,
        pages,
    };
    let scoring = Scoring {
        scale: 1.0 / (dim as f32).sqrt(),
        window: None,
        soft_cap: None,
    };
    let q: Vec<f32> = (0..sizes.rows * heads * dim)
        .map(|_| 3.0 * number())
        .collect();
    let mut out = vec![0f32; q.len()];
    let caches = [Cache::F16(&keys), Cache::F16(&values)];
    // The machine is not as fast at all times, so the peak is measured beside each case.
    let before = peak();
    let time = best(threads, || {
        pool.install(|| attention(isa(), &q, caches, sizes, &spans, scoring, &mut out))
            .expect("attention");
    });
    let peak = before.max(peak()) * threads as f64;
    let pairs: usize = (position..position + rows).map(|p| p + 1).sum();
    let rate = 4.0 * (sequences * pairs * heads * dim) as f64 / time;
    println!(
        "{:8.2} ms, {:6.1} GFLOP/s, {:4.1} % of {:.0}, {:5.1} GB/s of pages",
        time * 1e3,
        rate / 1e9,
        100.0 * rate / peak,
        peak / 1e9,
        4.0 * size as f64 / time / 1e9,
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let threads: Vec<usize> = wanted.iter().flat_map(|text| text.parse()).collect();
    for [heads, kv_heads, dim] in [
        [12, 2, 128],
        [14, 2, 64],
        [9, 3, 64],
        [4, 1, 256],
        [40, 40, 128],
    ] {
        for case in [
            [512, 1, 0, 0],
            [2048, 1, 0, 0],
            [512, 1, 1536, 0],
            [1, 1, 0, 2000],
            [1, 8, 0, 2000],
            [1, 8, 2000, 100],
            [1, 64, 2000, 100],
            [7, 16, 2000, 100],
        ] {
            let [rows, sequences, shared, own] = case;
            let name = format!("{heads}/{kv_heads}/{dim} {sequences}x{rows} at {shared}+{own}");
            let parts = wanted
                .iter()
                .filter(|part| !part.chars().all(|c| c.is_ascii_digit()));
            if !parts.clone().all(|part| name.contains(part.as_str())) {
                continue;
            }
            for threads in if threads.is_empty() {
                &[1, 2]
            } else {
                threads.as_slice()
            } {
                print!("{threads} threads, {name:28}");
                measure(*threads, [heads, kv_heads, dim], case);
            }
        }
    }
}
