//! The products of a decoder's layers, one after the other as in a forward pass, with the rate of each: `cargo run --release -p assize-kernels
//! --example layers [threads] [rows]`. The shapes are those of Qwen2.5-1.5B.

use assize_kernels::{
    Activation, Activations, Isa, Matrix, Precision, Product, Quant, gated, matmul, matmul_many,
};
use std::time::Instant;

fn matrix(quant: Quant, outputs: usize, inputs: usize) -> Matrix {
    let mut state = 1u64;
    let mut bytes: Vec<u8> = (0..outputs * quant.row_bytes(inputs).expect("whole blocks"))
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect();
    for block in bytes.chunks_exact_mut(quant.block_bytes()) {
        let halves: &[usize] = if quant == Quant::Q6_K {
            &[208]
        } else {
            &[0, 2]
        };
        for at in halves {
            block[*at..at + 2].copy_from_slice(&[0x21, 0x05]);
        }
    }
    Matrix::new(quant, outputs, inputs, &bytes).expect("a matrix")
}

fn main() {
    let argument = |n: usize| std::env::args().nth(n).and_then(|n| n.parse().ok());
    let (threads, rows) = (argument(1).unwrap_or(2), argument(2).unwrap_or(512));
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .expect("a pool");
    let isa = Isa::from_environment().expect("an instruction set");
    let (hidden, inner, kv) = (1536, 8960, 256);
    let layers: Vec<[Matrix; 7]> = (0..12)
        .map(|i| {
            let better = if i % 2 == 0 { Quant::Q6_K } else { Quant::Q4_K };
            [
                matrix(Quant::Q4_K, hidden, hidden),
                matrix(Quant::Q4_K, kv, hidden),
                matrix(better, kv, hidden),
                matrix(Quant::Q4_K, hidden, hidden),
                matrix(Quant::Q4_K, inner, hidden),
                matrix(Quant::Q4_K, inner, hidden),
                matrix(better, hidden, inner),
            ]
        })
        .collect();
    let mut x: Vec<f32> = (0..rows * hidden)
        .map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0)
        .collect();
    let weight = vec![1f32; hidden];
    let mut times = [0f64; 5];
    let mut total = f64::INFINITY;
    for _ in 0..3 {
        times = [0.0; 5];
        let start = Instant::now();
        for [q, k, v, o, gate, up, down] in &layers {
            let mut clock = Instant::now();
            let mut lap = |i: usize| {
                times[i] += clock.elapsed().as_secs_f64();
                clock = Instant::now();
            };
            let normed = || {
                Activations::normed(isa, &x, rows, &weight, 1e-6, Precision::Quantized, false)
                    .expect("rows")
            };
            let a = normed();
            lap(0);
            let mut outs = [q, k, v].map(|w| vec![0f32; rows * w.outputs()]);
            let mut products: Vec<Product> = [q, k, v]
                .into_iter()
                .zip(&mut outs)
                .map(|(weights, out)| Product {
                    weights,
                    bias: None,
                    residual: None,
                    out,
                })
                .collect();
            matmul_many(isa, &a, &mut products).expect("products");
            lap(1);
            let a = Activations::new(isa, &outs[0], rows, hidden, Precision::Quantized, false)
                .expect("rows");
            let mut out = vec![0f32; rows * hidden];
            matmul(isa, &a, o, &mut out).expect("a product");
            lap(2);
            let a = normed();
            lap(0);
            let a = gated(isa, &a, gate, up, Activation::Silu, false).expect("a unit");
            lap(3);
            matmul(isa, &a, down, &mut out).expect("a product");
            lap(4);
            x.iter_mut()
                .zip(&out)
                .for_each(|(x, y)| *x = (*x + y * 1e-9).clamp(-1.0, 1.0));
        }
        total = total.min(start.elapsed().as_secs_f64());
    }
    let work =
        |outputs: usize, inputs: usize| 2.0 * (rows * outputs * inputs * layers.len()) as f64 / 1e9;
    let all = [
        0.0,
        work(hidden + 2 * kv, hidden),
        work(hidden, hidden),
        work(2 * inner, hidden),
        work(hidden, inner),
    ];
    println!(
        "{} threads={threads} rows={rows}: {:.0} GOPS, {:.0} rows/s of 28 layers",
        isa.name(),
        all.iter().sum::<f64>() / total,
        rows as f64 / total * layers.len() as f64 / 28.0
    );
    for ((name, time), work) in ["norm", "qkv", "o", "gated", "down"]
        .iter()
        .zip(times)
        .zip(all)
    {
        println!("  {name:6} {:7.1} ms {:5.0} GOPS", time * 1e3, work / time);
    }
}
