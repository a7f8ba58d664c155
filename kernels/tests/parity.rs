//! Every fast kernel, on every instruction set that this machine has, over ragged shapes: near the scalar truth, and equal to the last
//! bit to the portable vectors, to the same row computed alone, and to the same work on another number of threads.

mod common;

use assize_kernels::scalar::{self, attention::Scoring};
use assize_kernels::{
    Activation, Activations, Cache, Isa, Matrix, PAGE, Precision, Quant, RopeStyle, Sizes, Span,
    attention, matmul, rows,
};
use common::{Random, bits, check_everywhere, on_threads};

fn multiply(isa: Isa, x: &[f32], rows: usize, w: &Matrix, precision: Precision) -> Vec<f32> {
    let x = Activations::new(isa, x, rows, w.inputs(), precision, w.is_fine()).unwrap();
    let mut out = vec![f32::NAN; rows * w.outputs()];
    matmul(isa, &x, w, &mut out).unwrap();
    out
}

fn check_matmul(quant: Quant, rows: usize, outputs: usize, inputs: usize, random: &mut Random) {
    let bytes = random.blocks(quant, outputs * inputs);
    let x = random.normals(rows * inputs);
    let w = Matrix::new(quant, outputs, inputs, &bytes).unwrap();
    let mut weights = vec![0f32; outputs * inputs];
    scalar::quant::dequantize(quant, &bytes, &mut weights).unwrap();
    let absolute = |all: &[f32]| all.iter().map(|x| x.abs()).collect::<Vec<f32>>();
    // What a result could be at most: rounding errors are judged by it, as a sum near zero proves nothing.
    let bound = scalar::matmul::product(&absolute(&x), &absolute(&weights), inputs);
    for precision in [Precision::Exact, Precision::Quantized, Precision::Refined] {
        let case = format!("{quant:?} {rows}x{outputs}x{inputs} {precision:?}");
        let first = multiply(Isa::PORTABLE, &x, rows, &w, precision);
        let rounded = precision != Precision::Exact && quant.block() > 1;
        let group = if w.is_fine() { 32 } else { 64 };
        let mut seen = x.clone();
        if rounded {
            seen = scalar::matmul::rounded(&x, inputs, group);
        }
        if rounded && precision == Precision::Refined {
            let rest: Vec<f32> = x.iter().zip(&seen).map(|(x, seen)| x - seen).collect();
            let rest = scalar::matmul::rounded(&rest, inputs, group);
            seen.iter_mut()
                .zip(rest)
                .for_each(|(seen, rest)| *seen += rest);
        }
        let truth = scalar::matmul::product(&seen, &weights, inputs);
        for ((y, truth), bound) in first.iter().zip(&truth).zip(&bound) {
            let off = (f64::from(*y) - truth).abs() / bound;
            // A quantized product adds up to three rounded terms a group, which may be larger than their sum.
            let tolerance = if rounded { 2e-6 } else { 1e-6 };
            assert!(
                off <= tolerance,
                "{case}: {y} for {truth}, off by {off:e} of {bound}"
            );
        }
        for isa in Isa::available() {
            for threads in [1, 2, 3] {
                let all = on_threads(threads, || multiply(isa, &x, rows, &w, precision));
                assert_eq!(
                    bits(&all),
                    bits(&first),
                    "{case} on {} with {threads} threads",
                    isa.name()
                );
            }
            for (row, x) in x.chunks_exact(inputs).enumerate() {
                let alone = multiply(isa, x, 1, &w, precision);
                let there = &first[row * outputs..(row + 1) * outputs];
                assert_eq!(
                    bits(&alone),
                    bits(there),
                    "{case} on {}: row {row} alone",
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn matmul_is_near_the_truth_and_the_same_everywhere() {
    let mut random = Random(1);
    for quant in Quant::ALL {
        for (rows, outputs, blocks) in [
            (1, 1, 1),
            (2, 31, 2),
            (3, 32, 1),
            (5, 33, 3),
            (4, 64, 2),
            (7, 70, 1),
            (8, 40, 3),
            (9, 130, 2),
            (29, 65, 9),
        ] {
            let inputs = if quant.block() == 1 {
                37 * blocks
            } else {
                quant.block() * blocks
            };
            check_matmul(quant, rows, outputs, inputs, &mut random);
        }
        check_matmul(quant, 6, 200, 1024, &mut random);
    }
}

#[test]
fn rows_of_a_matrix_are_dequantized_to_the_last_bit() {
    let mut random = Random(2);
    for quant in Quant::ALL {
        let (outputs, inputs) = (45, 512);
        let bytes = random.blocks(quant, outputs * inputs);
        let w = Matrix::new(quant, outputs, inputs, &bytes).unwrap();
        let mut truth = vec![0f32; outputs * inputs];
        scalar::quant::dequantize(quant, &bytes, &mut truth).unwrap();
        let mut row = vec![f32::NAN; inputs];
        for (index, truth) in truth.chunks_exact(inputs).enumerate() {
            w.row(index, &mut row).unwrap();
            assert_eq!(bits(&row), bits(truth), "{quant:?} row {index}");
        }
        assert!(w.row(outputs, &mut row).is_err());
    }
}

#[test]
fn norms_are_near_the_truth_and_the_same_everywhere() {
    let mut random = Random(3);
    for (rows, columns) in [(1, 1), (3, 15), (2, 64), (5, 67), (4, 128), (40, 1536)] {
        let x = random.normals(rows * columns);
        let weight = random.normals(columns);
        let truth = scalar::norm::rms_norm(&x, &weight, 1e-6);
        let case = format!("rms_norm {rows}x{columns}");
        let all = check_everywhere(&case, &truth, 1e-6, |isa, out| {
            rows::rms_norm(isa, &x, &weight, 1e-6, out).unwrap()
        });
        let mut alone = vec![f32::NAN; columns];
        for (x, all) in x.chunks_exact(columns).zip(all.chunks_exact(columns)) {
            rows::rms_norm(Isa::PORTABLE, x, &weight, 1e-6, &mut alone).unwrap();
            assert_eq!(bits(&alone), bits(all), "{case}");
        }
    }
}

#[test]
fn rope_is_near_the_truth_and_the_same_everywhere() {
    let mut random = Random(4);
    for (rows, heads, dim, pairs) in [
        (1, 1, 2, 1),
        (2, 3, 64, 32),
        (3, 2, 80, 16),
        (5, 4, 96, 24),
        (70, 2, 128, 64),
        (2, 2, 8, 0),
    ] {
        let x = random.normals(rows * heads * dim);
        let angles: Vec<f32> = (0..rows * pairs).map(|_| 100.0 * random.unit()).collect();
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles
            .iter()
            .map(|angle| (angle.cos(), angle.sin()))
            .unzip();
        for style in [RopeStyle::Neox, RopeStyle::Normal] {
            let shape = rows::Heads {
                rows,
                heads,
                dim,
                pairs,
            };
            let truth = scalar::rope::rope(&x, heads, dim, &cos, &sin, pairs, style);
            check_everywhere(&format!("{shape:?} {style:?}"), &truth, 1e-6, |isa, out| {
                rows::rope(isa, &x, &cos, &sin, shape, style, out).unwrap();
            });
        }
    }
}

#[test]
fn single_numbers_are_near_the_truth_and_the_same_everywhere() {
    let mut random = Random(5);
    let mut x: Vec<f32> = (0..2000).map(|i| (i as f32 - 1000.0) / 50.0).collect();
    x.extend([
        0.0, -0.0, 1e-20, -1e-20, 85.0, -85.0, 87.5, -87.5, 100.0, 3e4,
    ]);
    x.extend(random.normals(40_001));
    let up: Vec<f32> = x.iter().map(|_| 1.0).collect();
    for activation in [Activation::Silu, Activation::GeluTanh] {
        let truth: Vec<f64> = x
            .iter()
            .map(|x| scalar::unit::activate(f64::from(*x), activation))
            .collect();
        let all = check_everywhere(&format!("{activation:?}"), &truth, 1e-6, |isa, out| {
            rows::gated(isa, &x, &up, activation, out).unwrap();
        });
        for ((x, truth), y) in x.iter().zip(&truth).zip(&all) {
            let off = (truth - f64::from(*y)).abs();
            assert!(
                off <= 1e-6 * truth.abs().max(1.0),
                "{activation:?} of {x}: {y} for {truth}"
            );
        }
    }
    for cap in [0.5, 30.0, 50.0] {
        let truth: Vec<f64> = x
            .iter()
            .map(|x| scalar::unit::soft_cap(f64::from(*x), f64::from(cap)))
            .collect();
        let all = check_everywhere(&format!("cap {cap}"), &truth, 1e-6, |isa, out| {
            rows::soft_cap(isa, &x, cap, out).unwrap();
        });
        for ((x, truth), y) in x.iter().zip(&truth).zip(&all) {
            let off = (truth - f64::from(*y)).abs();
            assert!(
                off <= 1e-6 * truth.abs(),
                "cap {cap} of {x}: {y} for {truth}"
            );
        }
    }
}

#[test]
fn what_is_not_finite_stays_visible() {
    for isa in Isa::available() {
        let mut out = [0f32; 3];
        rows::soft_cap(
            isa,
            &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY],
            30.0,
            &mut out,
        )
        .unwrap();
        assert!(
            out[0].is_nan() && out[1] == 30.0 && out[2] == -30.0,
            "{out:?}"
        );
        rows::gated(
            isa,
            &[f32::NAN, f32::INFINITY, 1.0],
            &[1.0, 1.0, f32::NAN],
            Activation::Silu,
            &mut out,
        )
        .unwrap();
        assert!(
            out[0].is_nan() && out[1] == f32::INFINITY && out[2].is_nan(),
            "{out:?}"
        );
        for poison in [f32::NAN, f32::INFINITY] {
            for quant in [Quant::Q4_K, Quant::Q6_K, Quant::F16] {
                let w = Matrix::new(quant, 3, 256, &Random(6).blocks(quant, 3 * 256)).unwrap();
                let mut x = vec![1f32; 512];
                x[300] = poison;
                for precision in [Precision::Exact, Precision::Quantized] {
                    let y = multiply(isa, &x, 2, &w, precision);
                    assert!(
                        y[..3].iter().all(|y| y.is_finite())
                            && y[3..].iter().all(|y| !y.is_finite()),
                        "{y:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn logits_are_read_safely() {
    assert_eq!(rows::argmax(&[]), None);
    assert_eq!(rows::argmax(&[f32::NAN, f32::NAN]), None);
    assert_eq!(rows::argmax(&[f32::NAN, -1.0, 3.0, f32::NAN, 3.0]), Some(2));
    assert_eq!(rows::argmax(&[f32::NEG_INFINITY]), Some(0));
    assert_eq!(rows::log_sum_exp(&[]), f64::NEG_INFINITY);
    assert_eq!(
        rows::log_sum_exp(&[f32::NEG_INFINITY; 2]),
        f64::NEG_INFINITY
    );
    assert!(rows::log_sum_exp(&[1.0, f32::NAN]).is_nan());
    assert!(
        (rows::log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + std::f64::consts::LN_2)).abs() < 1e-12
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let isa = Isa::PORTABLE;
    assert!(Matrix::new(Quant::Q4_K, 2, 128, &[0; 144]).is_err());
    assert!(Matrix::new(Quant::Q4_K, 2, 256, &[0; 144]).is_err());
    assert!(Matrix::new(Quant::Q8_0, usize::MAX, 32, &[0; 34]).is_err());
    assert!(Matrix::new(Quant::F32, usize::MAX / 2, usize::MAX / 2, &[]).is_err());
    let w = Matrix::new(Quant::Q8_0, 2, 32, &[0; 68]).unwrap();
    assert!(Activations::new(isa, &[0.0; 33], 1, 32, Precision::Exact, false).is_err());
    let x = Activations::new(isa, &[0.0; 64], 1, 64, Precision::Quantized, false).unwrap();
    assert!(matmul(isa, &x, &w, &mut [0.0; 2]).is_err());
    let x = Activations::new(isa, &[0.0; 32], 1, 32, Precision::Quantized, false).unwrap();
    assert!(matmul(isa, &x, &w, &mut [0.0; 3]).is_err());
    assert!(rows::rms_norm(isa, &[0.0; 5], &[1.0; 2], 0.0, &mut [0.0; 5]).is_err());
    assert!(rows::rms_norm(isa, &[], &[], 0.0, &mut []).is_err());
    let shape = rows::Heads {
        rows: 1,
        heads: 1,
        dim: 4,
        pairs: 3,
    };
    assert!(
        rows::rope(
            isa,
            &[0.0; 4],
            &[0.0; 3],
            &[0.0; 3],
            shape,
            RopeStyle::Neox,
            &mut [0.0; 4]
        )
        .is_err()
    );
    let scoring = Scoring {
        scale: 1.0,
        window: None,
        soft_cap: None,
    };
    let cache = [0f32; 2 * PAGE * 4];
    let attend = |spans: &[Span], window: Option<usize>, kv_heads: usize| {
        let sizes = Sizes {
            rows: 3,
            heads: 2,
            kv_heads,
            dim: 4 / kv_heads.max(1),
            pages: 2,
        };
        let scoring = Scoring { window, ..scoring };
        let q = vec![0f32; 3 * 2 * sizes.dim];
        let mut out = q.clone();
        attention(
            isa,
            &q,
            [Cache::F32(&cache), Cache::F32(&cache)],
            sizes,
            spans,
            scoring,
            &mut out,
        )
    };
    let span = |first: usize, rows: usize, position: usize, pages: &[u32]| Span {
        first,
        rows,
        position,
        pages: pages.to_vec(),
    };
    assert!(attend(&[span(0, 3, 13, &[1])], None, 2).is_ok());
    assert!(attend(&[span(0, 3, 14, &[1])], None, 2).is_err());
    assert!(attend(&[span(0, 3, 0, &[2])], None, 2).is_err());
    assert!(attend(&[span(1, 3, 0, &[0])], None, 2).is_err());
    assert!(attend(&[span(0, 2, 0, &[0]), span(1, 1, 0, &[1])], None, 2).is_err());
    assert!(attend(&[span(0, 1, usize::MAX, &[0])], None, 2).is_err());
    assert!(attend(&[span(0, 1, 0, &[0])], Some(0), 2).is_err());
    assert!(attend(&[span(0, 1, 0, &[0])], None, 0).is_err());
    assert!(Isa::named("mmx").is_err());
    assert_eq!(Isa::named("portable").unwrap().name(), "portable");
}
