//! The bridge over candle tensors: each function against the slices' kernels or plain candle operations, and its refusals.
#![cfg(feature = "candle")]

mod common;

use assize_kernels::bridge;
use assize_kernels::cache::Part;
use assize_kernels::{Activation, Matrix, PAGE, Precision, Quant, RopeStyle, Span};
use candle_core::{DType, Device, Result, Tensor};
use common::Random;
use std::sync::Arc;

fn tensor(random: &mut Random, shape: &[usize]) -> Tensor {
    let values = random.normals(shape.iter().product());
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn values(x: &Tensor) -> Vec<f32> {
    x.to_dtype(DType::F32)
        .unwrap()
        .flatten_all()
        .unwrap()
        .to_vec1()
        .unwrap()
}

fn assert_near(a: &Tensor, b: &Tensor, tolerance: f32) {
    assert_eq!(a.dims(), b.dims());
    for (a, b) in values(a).iter().zip(values(b)) {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{a} and {b}");
    }
}

#[test]
fn linear_embed_and_many_agree_with_candle() -> Result<()> {
    let mut random = Random(11);
    let bytes = random.blocks(Quant::Q4_K, 40 * 512);
    let w = Arc::new(Matrix::new(Quant::Q4_K, 40, 512, &bytes).unwrap());
    let x = tensor(&mut random, &[5, 512]);
    let all = bridge::embed(&(0..40).collect::<Vec<u32>>(), &w)?;
    let truth = x.matmul(&all.t()?)?;
    assert_near(&bridge::linear(&x, &w, Precision::Exact)?, &truth, 1e-4);
    let [a, b] = &bridge::linear_many(&x, &[&w, &w], Precision::Quantized)?[..] else {
        panic!("two results")
    };
    assert_eq!(values(a), values(b));
    assert_eq!(
        values(a),
        values(&bridge::linear(&x, &w, Precision::Quantized)?)
    );
    // A view that starts elsewhere, and its rows alone.
    let last = x.narrow(0, 3, 2)?;
    assert_eq!(
        values(&bridge::linear(&last, &w, Precision::Quantized)?),
        values(&a.narrow(0, 3, 2)?)
    );
    assert!(bridge::linear(&x.narrow(1, 0, 256)?, &w, Precision::Quantized).is_err());
    assert!(bridge::linear(&x.to_dtype(DType::F64)?, &w, Precision::Quantized).is_err());
    assert!(bridge::embed(&[40], &w).is_err());
    Ok(())
}

#[test]
fn rows_and_elements_agree_with_candle() -> Result<()> {
    let mut random = Random(12);
    let (x, y) = (
        tensor(&mut random, &[3, 4, 32]),
        tensor(&mut random, &[3, 4, 32]),
    );
    let weight = tensor(&mut random, &[32]);
    let scale = ((x.sqr()?.mean_keepdim(2)? + 1e-5)?).sqrt()?;
    assert_near(
        &bridge::rms_norm(&x, &weight, 1e-5)?,
        &x.broadcast_div(&scale)?.broadcast_mul(&weight)?,
        1e-5,
    );
    assert_near(
        &bridge::gated(&x, &y, Activation::Silu)?,
        &(x.silu()? * &y)?,
        1e-5,
    );
    assert_near(
        &bridge::gated(&x, &y, Activation::GeluTanh)?,
        &(x.gelu()? * &y)?,
        1e-5,
    );
    assert_near(
        &bridge::soft_cap(&x, 3.0)?,
        &(((&x / 3.0)?.tanh())? * 3.0)?,
        1e-5,
    );
    assert_eq!(values(&bridge::add(&x, &y)?), values(&(&x + &y)?));
    let (rows, bias) = (tensor(&mut random, &[6, 32]), &weight);
    assert_eq!(
        values(&bridge::add_bias(&rows, bias)?),
        values(&rows.broadcast_add(bias)?)
    );
    let angles = tensor(&mut random, &[3, 16]);
    let turned = bridge::rope(&x, &angles.cos()?, &angles.sin()?, RopeStyle::Neox)?;
    let (low, high) = (x.narrow(2, 0, 16)?, x.narrow(2, 16, 16)?);
    let (cos, sin) = (angles.cos()?.unsqueeze(1)?, angles.sin()?.unsqueeze(1)?);
    let low_turned = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
    let high_turned = (high.broadcast_mul(&cos)? + low.broadcast_mul(&sin)?)?;
    assert_near(&turned, &Tensor::cat(&[low_turned, high_turned], 2)?, 1e-5);
    assert!(bridge::add(&x, &weight).is_err());
    assert!(bridge::rms_norm(&x, &tensor(&mut random, &[16]), 1e-5).is_err());
    assert!(bridge::rms_norm(&x.transpose(1, 2)?, &tensor(&mut random, &[4]), 1e-5).is_err());
    Ok(())
}

#[test]
fn attention_reads_what_was_written_and_copied() -> Result<()> {
    let mut random = Random(13);
    for dtype in [DType::F32, DType::F16] {
        let (heads, kv_heads, dim, length) = (4, 2, 8, 20);
        let zeros = |shape: [usize; 4]| Tensor::zeros(&shape, dtype, &Device::Cpu).unwrap();
        let caches = [
            zeros([4, kv_heads, dim, PAGE]),
            zeros([4, kv_heads, PAGE, dim]),
        ];
        let rows = [0, 1].map(|_| tensor(&mut random, &[length, kv_heads, dim]));
        let pages = [2u32, 0];
        let slots: Vec<u32> = (0..length)
            .map(|p| pages[p / PAGE] * PAGE as u32 + (p % PAGE) as u32)
            .collect();
        for ((cache, rows), part) in caches.iter().zip(&rows).zip([Part::Keys, Part::Values]) {
            bridge::write_rows(cache, part, rows, &slots)?;
            // The second page's first positions, then copied to where nothing was written.
            bridge::copy_page(cache, 0, 3)?;
            // The copy as `[PAGE, kv_heads, dim]`.
            let copy = match part {
                Part::Keys => cache.get(3)?.permute((2, 0, 1))?,
                Part::Values => cache.get(3)?.transpose(0, 1)?,
            };
            assert_near(&copy.narrow(0, 0, 4)?, &rows.narrow(0, 16, 4)?, 1e-3);
            let row = rows.narrow(0, 0, 1)?;
            assert!(bridge::write_rows(cache, part, &row, &[4 * PAGE as u32]).is_err());
            assert!(bridge::write_rows(cache, part, rows, &slots[1..]).is_err());
            assert!(bridge::copy_page(cache, 0, 4).is_err());
        }
        let q = tensor(&mut random, &[length, heads, dim]);
        let [k, v] = &caches;
        let attend = |q: &Tensor, span: Span| bridge::attention(q, k, v, &[span], 0.3, None, None);
        let span = |rows: usize, position: usize, pages: [u32; 2]| Span {
            first: 0,
            rows,
            position,
            pages: pages.to_vec(),
        };
        let all = attend(&q, span(length, 0, [2, 0]))?;
        assert_eq!(all.dims(), [length, heads * dim]);
        let last = attend(&q.narrow(0, 18, 2)?, span(2, 18, [2, 3]))?;
        assert_eq!(values(&last), values(&all.narrow(0, 18, 2)?));
        // The first row sees one position only: its own value.
        let own = rows[1].get(0)?.narrow(0, 0, 1)?.squeeze(0)?;
        assert_near(&all.get(0)?.narrow(0, 0, dim)?, &own, 1e-3);
        assert!(attend(&q, span(length, 0, [2, 9])).is_err());
    }
    Ok(())
}
