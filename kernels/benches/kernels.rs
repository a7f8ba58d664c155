//! Every kernel beside the scalar truth, and products beside the limit of the machine.
//!
//! `cargo bench -p assize-kernels --bench kernels -- --quick`; a filter such as `matmul/Q4_K` picks some. `ASSIZE_ISA` and
//! `RAYON_NUM_THREADS` choose instruction set and threads. Rates in elements a second are operations for products, and
//! numbers for all else. The share of the limit is of the best of a few runs, since noise only ever slows down.

#[path = "../tests/common/mod.rs"]
mod common;

use assize_kernels::limits::dot_rate;
use assize_kernels::rows::{self, Heads};
use assize_kernels::scalar::attention::Scoring;
use assize_kernels::{
    Activation, Activations, Cache, Matrix, PAGE, Precision, Quant, RopeStyle, Sizes, Span,
    attention, isa, matmul, scalar,
};
use common::Random;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Outputs and inputs of the matrix.
const MATRIX: [usize; 2] = [1024, 2048];

fn products(criterion: &mut Criterion) {
    let threads = rayon::current_num_threads();
    let limit = dot_rate(isa(), threads);
    let [outputs, inputs] = MATRIX;
    println!("int8 dot on {threads} threads: {:.0} GOPS", limit / 1e9);
    let mut random = Random(1);
    for quant in Quant::ALL {
        let bytes = random.blocks(quant, outputs * inputs);
        let w = Matrix::new(quant, outputs, inputs, &bytes).expect("a matrix");
        let mut group = criterion.benchmark_group(format!("matmul/{quant:?}"));
        let few = outputs / 32;
        let some = &bytes[..bytes.len() / outputs * few];
        let row = random.normals(inputs);
        group.throughput(Throughput::Elements((2 * few * inputs) as u64));
        group.bench_function("scalar", |bencher| {
            bencher.iter(|| scalar::matmul::matmul(&row, quant, few, inputs, black_box(some)));
        });
        for m in [1, 8, 64, 512] {
            let x = random.normals(m * inputs);
            let mut out = vec![0f32; m * outputs];
            let operations = 2 * m * outputs * inputs;
            let mut work = || {
                let x = Activations::new(
                    isa(),
                    black_box(&x),
                    m,
                    inputs,
                    Precision::Quantized,
                    w.is_fine(),
                )
                .expect("activations");
                matmul(isa(), &x, &w, &mut out).expect("a product");
            };
            group.throughput(Throughput::Elements(operations as u64));
            group.bench_function(BenchmarkId::from_parameter(m), |bencher| {
                bencher.iter(&mut work);
            });
            let rate = operations as f64 / best(&mut work).as_secs_f64();
            println!(
                "matmul/{quant:?}/{m}: {:.0} GOPS, {:.1} % of int8 dot",
                rate / 1e9,
                100.0 * rate / limit
            );
        }
        group.finish();
    }
}

/// The shortest of a few runs.
fn best(work: &mut dyn FnMut()) -> Duration {
    let (began, mut best) = (Instant::now(), Duration::MAX);
    while best == Duration::MAX || began.elapsed() < Duration::from_millis(60) {
        let run = Instant::now();
        work();
        best = best.min(run.elapsed());
    }
    best
}

fn attend(criterion: &mut Criterion) {
    let (heads, kv_heads, dim, context) = (12, 2, 128, 1024);
    let pages = context / PAGE;
    let mut random = Random(2);
    let numbers = pages * PAGE * kv_heads * dim;
    let mut cache = || -> Vec<f16> {
        let numbers = random.normals(numbers);
        numbers.into_iter().map(f16::from_f32).collect()
    };
    let (keys, values) = (cache(), cache());
    let scoring = Scoring {
        scale: 0.088,
        window: None,
        soft_cap: None,
    };
    let mut group = criterion.benchmark_group("attention");
    for rows in [1, 64, 512] {
        let q = random.normals(rows * heads * dim);
        let mut out = vec![0f32; q.len()];
        let sizes = Sizes {
            rows,
            heads,
            kv_heads,
            dim,
            pages,
        };
        let span = Span {
            first: 0,
            rows,
            position: context - rows,
            pages: (0..pages as u32).collect(),
        };
        group.throughput(Throughput::Elements(q.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(rows), |bencher| {
            bencher.iter(|| {
                let caches = [Cache::F16(&keys), Cache::F16(&values)];
                let spans = std::slice::from_ref(&span);
                attention(
                    isa(),
                    black_box(&q),
                    caches,
                    sizes,
                    spans,
                    scoring,
                    &mut out,
                )
                .expect("attention");
            });
        });
    }
    let (query, all) = (random.normals(dim), random.normals(context * dim));
    group.throughput(Throughput::Elements(dim as u64));
    group.bench_function("scalar, one head of one row", |bencher| {
        bencher.iter(|| {
            let position = context - 1;
            scalar::attention::attend(black_box(&query), &all, &all, position, scoring)
        });
    });
    group.finish();
}

fn by_rows(criterion: &mut Criterion) {
    let (count, width) = (512, 1536);
    let mut random = Random(3);
    let (x, other) = (random.normals(count * width), random.normals(count * width));
    let weight = random.normals(width);
    let mut out = vec![0f32; x.len()];
    let mut group = criterion.benchmark_group("rows");
    group.throughput(Throughput::Elements(x.len() as u64));
    group.bench_function("rms_norm", |bencher| {
        bencher.iter(|| rows::rms_norm(isa(), black_box(&x), &weight, 1e-5, &mut out));
    });
    group.bench_function("rms_norm, scalar", |bencher| {
        bencher.iter(|| scalar::norm::rms_norm(black_box(&x), &weight, 1e-5));
    });
    let (heads, dim) = (12, 128);
    let shape = Heads {
        rows: count,
        heads,
        dim,
        pairs: dim / 2,
    };
    let angles = random.normals(count * dim / 2);
    let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|x| (x.cos(), x.sin())).unzip();
    for style in [RopeStyle::Neox, RopeStyle::Normal] {
        group.bench_function(format!("rope {style:?}"), |bencher| {
            bencher.iter(|| rows::rope(isa(), black_box(&x), &cos, &sin, shape, style, &mut out));
        });
    }
    group.bench_function("rope, scalar", |bencher| {
        let style = RopeStyle::Neox;
        bencher.iter(|| scalar::rope::rope(black_box(&x), heads, dim, &cos, &sin, dim / 2, style));
    });
    for activation in [Activation::Silu, Activation::GeluTanh] {
        group.bench_function(format!("gated {activation:?}"), |bencher| {
            bencher.iter(|| rows::gated(isa(), black_box(&x), &other, activation, &mut out));
        });
        group.bench_function(format!("gated {activation:?}, scalar"), |bencher| {
            let gated = |(x, up): (&f32, &f32)| {
                scalar::unit::activate(f64::from(*x), activation) * f64::from(*up)
            };
            bencher.iter(|| black_box(&x).iter().zip(&other).map(gated).sum::<f64>());
        });
    }
    group.bench_function("soft_cap", |bencher| {
        bencher.iter(|| rows::soft_cap(isa(), black_box(&x), 30.0, &mut out));
    });
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
}

criterion_group!(name = kernels; config = settings(); targets = products, attend, by_rows);
criterion_main!(kernels);
