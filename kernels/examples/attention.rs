//! How fast attention is here, as a share of what the machine's multiply-adds could do: prefill, decode over a prefix that all rows share, and
//! decode over pages of one's own.
//!
//! Rates are by the time that the threads ran, times their number, so that others on the machine disturb them little; `wall` is by the clock.
//!
//! `cargo run --release -p assize-kernels --no-default-features --example attention [threads..] [heads/kv_heads/dim..]`; `ASSIZE_ISA` chooses the instruction set.

use assize_kernels::scalar::attention::Scoring;
use assize_kernels::{Cache, PAGE, Sizes, Span, attention, isa};
use half::f16;
use std::hint::black_box;
use std::time::Instant;

/// Seconds that all threads have run, where Linux tells; the clock otherwise.
fn busy(since: Instant) -> f64 {
    let threads = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let nanoseconds: f64 = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<f64>().ok())
        .sum();
    match nanoseconds > 0.0 {
        true => nanoseconds / 1e9,
        false => since.elapsed().as_secs_f64(),
    }
}

/// Single-precision operations a second of one thread that does nothing but multiply and add in registers.
#[cfg(target_arch = "x86_64")]
fn peak() -> f64 {
    use std::arch::x86_64::*;
    const TURNS: usize = 6_000_000;
    #[target_feature(enable = "avx512f")]
    fn wide(x: f32) -> f32 {
        let mut sums = [_mm512_setzero_ps(); 16];
        let factor = _mm512_set1_ps(x);
        for _ in 0..TURNS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(factor, factor, *sum);
            }
        }
        sums.map(|sum| _mm512_cvtss_f32(sum)).iter().sum()
    }
    #[target_feature(enable = "avx2,fma")]
    fn narrow(x: f32) -> f32 {
        let mut sums = [_mm256_setzero_ps(); 12];
        let factor = _mm256_set1_ps(x);
        for _ in 0..TURNS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(factor, factor, *sum);
            }
        }
        sums.map(|sum| _mm256_cvtss_f32(sum)).iter().sum()
    }
    let begin = Instant::now();
    let rates = (0..2).map(|_| {
        let started = busy(begin);
        let (lanes, sum) = match isa().name() {
            // SAFETY: the kernels found these instructions here, or they would not have chosen them.
            "avx512" => (16 * 16, unsafe { wide(black_box(1.0)) }),
            // SAFETY: as above.
            "avx2" => (12 * 8, unsafe { narrow(black_box(1.0)) }),
            _ => (0, 0.0),
        };
        black_box(sum);
        (2 * lanes * TURNS) as f64 / (busy(begin) - started)
    });
    rates.fold(0.0, f64::max)
}

#[cfg(not(target_arch = "x86_64"))]
fn peak() -> f64 {
    f64::NAN
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut threads: Vec<usize> = wanted.iter().flat_map(|n| n.parse()).collect();
    let wanted: Vec<String> = wanted
        .into_iter()
        .filter(|name| name.contains('/'))
        .collect();
    if threads.is_empty() {
        threads = vec![1, 2];
    }
    println!("{}", isa().name());
    for (heads, kv_heads, dim) in [
        (12, 2, 128),
        (14, 2, 64),
        (9, 3, 64),
        (4, 1, 256),
        (40, 40, 128),
    ] {
        let name = format!("{heads}/{kv_heads}/{dim}");
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        println!("{name}");
        for threads in &threads {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(*threads)
                .build()
                .expect("threads");
            // Rows of a sequence, sequences, positions before them that all share, and those that each has for itself.
            let cases: &[[usize; 4]] = match heads == kv_heads {
                true => &[
                    [512, 1, 0, 0],
                    [1, 1, 0, 1024],
                    [1, 8, 0, 1024],
                    [1, 8, 1024, 64],
                    [1, 64, 1024, 64],
                ],
                false => &[
                    [512, 1, 0, 0],
                    [2048, 1, 0, 0],
                    [512, 1, 1536, 0],
                    [1, 1, 0, 2000],
                    [1, 8, 0, 2000],
                    [1, 8, 2000, 100],
                    [1, 64, 2000, 100],
                    [7, 16, 2000, 100],
                ],
            };
            for [rows, sequences, shared, own] in cases.iter().copied() {
                let prefix = shared / PAGE;
                let tail = (shared % PAGE + own + rows).div_ceil(PAGE);
                let pages = prefix + sequences * tail;
                let position = shared + own;
                let spans: Vec<Span> = (0..sequences)
                    .map(|i| {
                        let first = prefix + i * tail;
                        let pages = (0..prefix)
                            .chain(first..first + tail)
                            .map(|page| page as u32);
                        Span {
                            first: i * rows,
                            rows,
                            position,
                            pages: pages.collect(),
                        }
                    })
                    .collect();
                let mut state = 1u32;
                let mut number = || {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 8) as f32 / (1 << 23) as f32 - 1.0
                };
                let [keys, values] = [0, 1].map(|_| -> Vec<f16> {
                    (0..pages * PAGE * kv_heads * dim)
                        .map(|_| f16::from_f32(number()))
                        .collect()
                });
                let q: Vec<f32> = (0..sequences * rows * heads * dim)
                    .map(|_| 3.0 * number())
                    .collect();
                let mut out = vec![0f32; q.len()];
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
                let begin = Instant::now();
                let before = peak();
                let mut run = || {
                    let caches = [Cache::F16(&keys), Cache::F16(&values)];
                    pool.install(|| attention(isa(), &q, caches, sizes, &spans, scoring, &mut out))
                        .expect("attention");
                };
                // The system counts in steps of milliseconds, so that short runs are measured together.
                run();
                let clock = Instant::now();
                run();
                let runs = (0.03 / clock.elapsed().as_secs_f64()) as usize + 1;
                let mut times: Vec<(f64, f64)> = (0..5)
                    .map(|_| {
                        let (clock, started) = (Instant::now(), busy(begin));
                        (0..runs).for_each(|_| run());
                        let wall = clock.elapsed().as_secs_f64();
                        ((busy(begin) - started) / runs as f64, wall / runs as f64)
                    })
                    .collect();
                // The machine is not as fast at all times.
                let peak = (before + peak()) / 2.0;
                times.sort_by(|a, b| a.0.total_cmp(&b.0));
                let (ran, wall) = times[0];
                let pairs: usize = (position..position + rows)
                    .map(|p| sequences * (p + 1))
                    .sum();
                let operations = 4.0 * (pairs * heads * dim) as f64;
                let rate = operations / ran * *threads as f64;
                let read = 4.0 * (pages * PAGE * kv_heads * dim) as f64;
                println!(
                    "  {threads} threads, {sequences:2} x {rows:4} rows at {shared:4} + {own:4}: {:7.2} ms, {:6.1} GFLOP/s, {:4.1} % of {:.0}; wall {:7.2} ms, {:5.1} GB/s of pages",
                    ran / *threads as f64 * 1e3,
                    rate / 1e9,
                    100.0 * rate / peak / *threads as f64,
                    peak * *threads as f64 / 1e9,
                    wall * 1e3,
                    read / wall / 1e9,
                );
            }
        }
    }
}
