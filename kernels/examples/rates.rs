//! How fast the matrix products are here: billions of operations a second for many rows, bytes of packed weights a second for few.
//!
//! Rates are by the time that the threads ran, so with several threads they are those of one.
//!
//! `cargo run --release -p assize-kernels --example rates [threads]`; `ASSIZE_ISA` chooses the instruction set.

use assize_kernels::scalar::attention::Scoring;
use assize_kernels::{
    Activations, Cache, Matrix, PAGE, Precision, Quant, Sizes, Span, attention, isa, matmul,
};
use std::time::Instant;

/// Seconds that all threads have run, where Linux tells; the clock otherwise. On a shared machine this is the fair measure.
fn busy(since: Instant) -> f64 {
    let threads = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let nanoseconds: f64 = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<f64>().ok())
        .sum();
    if nanoseconds > 0.0 {
        nanoseconds / 1e9
    } else {
        since.elapsed().as_secs_f64()
    }
}

fn main() {
    let threads = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a pool of threads");
    println!("{} on {} threads", isa().name(), pool.current_num_threads());
    for quant in [Quant::Q4_K, Quant::Q6_K, Quant::Q8_0] {
        for (outputs, inputs) in [(8960, 1536), (1536, 8960)] {
            let mut bytes: Vec<u8> = (0..outputs * quant.row_bytes(inputs).expect("whole blocks"))
                .map(|i| (i * 31) as u8)
                .collect();
            for block in bytes.chunks_exact_mut(quant.block_bytes()) {
                let at = if quant == Quant::Q6_K { 208 } else { 0 };
                block[at..at + 2].copy_from_slice(&[0, 0x20]);
                if quant == Quant::Q4_K {
                    block[2..4].copy_from_slice(&[0, 0x20]);
                }
            }
            let started = Instant::now();
            let w = pool
                .install(|| Matrix::new(quant, outputs, inputs, &bytes))
                .expect("a matrix");
            let packed = started.elapsed();
            println!(
                "{quant:?} {outputs} x {inputs}: packed to {:.3} bytes a weight in {packed:.1?}",
                w.memory() as f64 / (outputs * inputs) as f64
            );
            for (rows, precision) in [
                (1, Precision::Quantized),
                (8, Precision::Quantized),
                (64, Precision::Quantized),
                (512, Precision::Quantized),
                (64, Precision::Exact),
            ] {
                let x: Vec<f32> = (0..rows * inputs).map(|i| (i % 61) as f32 - 30.0).collect();
                let mut out = vec![0f32; rows * outputs];
                let begin = Instant::now();
                let mut times: Vec<f64> = (0..if rows > 100 { 5 } else { 15 })
                    .map(|_| {
                        let started = busy(begin);
                        pool.install(|| {
                            let x = Activations::new(isa(), &x, rows, inputs, precision)
                                .expect("activations");
                            matmul(isa(), &x, &w, &mut out).expect("a product");
                        });
                        busy(begin) - started
                    })
                    .collect();
                times.sort_by(f64::total_cmp);
                let (best, median) = (times[0], times[times.len() / 2]);
                let operations = 2.0 * (rows * outputs * inputs) as f64;
                println!(
                    "  {rows:3} rows {precision:?}: best {:7.1} median {:7.1} GOPS, {:5.1} GB/s of weights",
                    operations / best / 1e9,
                    operations / median / 1e9,
                    w.memory() as f64 / best / 1e9
                );
            }
        }
    }
    let (heads, kv_heads, dim, pages) = (12, 2, 128, 64);
    let cache = vec![0.5f32; pages * PAGE * kv_heads * dim];
    for (rows, position) in [(512, 0), (512, 512), (1, 1000)] {
        let q = vec![0.1f32; rows * heads * dim];
        let mut out = q.clone();
        let span = Span {
            first: 0,
            rows,
            position,
            pages: (0..pages as u32).collect(),
        };
        let sizes = Sizes {
            rows,
            heads,
            kv_heads,
            dim,
            pages,
        };
        let scoring = Scoring {
            scale: 0.1,
            window: None,
            soft_cap: None,
        };
        let begin = Instant::now();
        let mut times: Vec<f64> = (0..9)
            .map(|_| {
                let started = busy(begin);
                pool.install(|| {
                    let caches = [Cache::F32(&cache), Cache::F32(&cache)];
                    attention(
                        isa(),
                        &q,
                        caches,
                        sizes,
                        std::slice::from_ref(&span),
                        scoring,
                        &mut out,
                    )
                })
                .expect("attention");
                busy(begin) - started
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let pairs: usize = (position..position + rows).map(|p| p + 1).sum();
        println!(
            "attention {heads}/{kv_heads} heads of {dim}, {rows} rows at {position}: best {:.2} ms, {:.1} GFLOP/s",
            times[0] * 1e3,
            4.0 * (pairs * heads * dim) as f64 / times[0] / 1e9
        );
    }
}
