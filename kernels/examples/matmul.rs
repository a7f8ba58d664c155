//! Rates of the products, by type and number of rows: `cargo run --release -p assize-kernels --example matmul [threads]`.

use assize_kernels::{Activations, Isa, Matrix, Precision, Quant, matmul};
use std::time::Instant;

fn main() {
    let threads = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .expect("a pool");
    let isa = Isa::from_environment().expect("an instruction set");
    println!("{} threads={threads}", isa.name());
    let only: Option<usize> = std::env::args().nth(2).and_then(|n| n.parse().ok());
    for quant in [
        Quant::Q4_K,
        Quant::Q6_K,
        Quant::Q5_0,
        Quant::Q8_0,
        Quant::Q4_1,
        Quant::F16,
    ] {
        let outputs = std::env::args()
            .nth(3)
            .and_then(|n| n.parse().ok())
            .unwrap_or(8960usize);
        let inputs = 1536usize;
        let mut state = 1u64;
        let mut bytes: Vec<u8> = (0..outputs * quant.row_bytes(inputs).unwrap())
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect();
        for block in bytes.chunks_exact_mut(quant.block_bytes()) {
            let halves: &[usize] = match quant {
                Quant::Q4_K | Quant::Q4_1 => &[0, 2],
                Quant::Q6_K => &[208],
                _ => &[0],
            };
            for at in halves {
                block[*at..at + 2].copy_from_slice(&[0x21, 0x1f]);
            }
        }
        let t = Instant::now();
        let w = Matrix::new(quant, outputs, inputs, &bytes).unwrap();
        let packed = t.elapsed().as_secs_f64();
        print!(
            "{quant:?}: {:.3} B/w, packs {:.0} MB/s;",
            w.memory() as f64 / (outputs * inputs) as f64,
            bytes.len() as f64 / packed / 1e6
        );
        // Several copies, so that one row reads memory, not the cache.
        let copies: Vec<Matrix> = (0..if outputs < 1000 || only.is_some_and(|only| only > 1) {
            1
        } else {
            24
        })
            .map(|_| Matrix::new(quant, outputs, inputs, &bytes).unwrap())
            .collect();
        for m in [1usize, 2, 3, 4, 6, 8, 12, 16, 64, 512] {
            let x: Vec<f32> = (0..m * inputs)
                .map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0)
                .collect();
            let mut out = vec![0f32; m * outputs];
            if only.is_some_and(|only| only != m) {
                continue;
            }
            let repeat = if outputs < 1000 {
                2000 / m
            } else if only.is_some() {
                4000 * 8960 / outputs / only.unwrap_or(1).max(8)
            } else {
                (48 / m).max(3)
            };
            let mut best = f64::INFINITY;
            for i in 0..repeat {
                let w = &copies[i % copies.len()];
                let t = Instant::now();
                let x = Activations::new(isa, &x, m, inputs, Precision::Quantized, w.is_fine())
                    .unwrap();
                matmul(isa, &x, w, &mut out).unwrap();
                best = best.min(t.elapsed().as_secs_f64());
            }
            print!(
                " m={m} {:.0} GOPS",
                2.0 * (m * outputs * inputs) as f64 / best / 1e9
            );
            if m == 1 {
                print!(" ({:.1} GB/s)", w.memory() as f64 / best / 1e9);
            }
        }
        println!();
    }
}
