//! The bridge over candle tensors: each function against the slices' kernels or plain candle operations, and its refusals.
#![cfg(feature = "candle")]

mod common;

use assize_kernels::bridge::{self, Form, Pass, Scoring, Weight};
use assize_kernels::cache::Part;
use assize_kernels::{Activation, CacheType, Matrix, PAGE, Precision, Quant, RopeStyle, Span};
use candle_core::{DType, Device, Result, Tensor};
use common::Random;

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

fn plain(weight: &Weight) -> bridge::Linear<'_> {
    bridge::Linear { weight, bias: None }
}

#[test]
fn linear_embed_and_many_agree_with_candle() -> Result<()> {
    let mut random = Random(11);
    let bytes = random.blocks(Quant::Q4_K, 40 * 512);
    let w = Weight::from(Matrix::new(Quant::Q4_K, 40, 512, &bytes).unwrap());
    let x = tensor(&mut random, &[5, 512]);
    let product = |x: &Tensor, precision| bridge::linear(x, None, plain(&w), None, precision);
    let all = bridge::embed(&(0..40).collect::<Vec<u32>>(), &w)?;
    let truth = x.matmul(&all.t()?)?;
    assert_near(&product(&x, Precision::Exact)?, &truth, 1e-4);
    let layers = [plain(&w), plain(&w)];
    let [a, b] = &bridge::linear_many(&x, None, &layers, Precision::Quantized, None)?[..] else {
        panic!("two results")
    };
    assert_eq!(values(a), values(b));
    assert_eq!(values(a), values(&product(&x, Precision::Quantized)?));
    // A view that starts elsewhere, and its rows alone.
    let last = x.narrow(0, 3, 2)?;
    assert_eq!(
        values(&product(&last, Precision::Quantized)?),
        values(&a.narrow(0, 3, 2)?)
    );
    // A bias, then a residual, are added after the product.
    let (bias, residual) = (tensor(&mut random, &[40]), tensor(&mut random, &[5, 40]));
    let layer = bridge::Linear {
        weight: &w,
        bias: Some(&bias),
    };
    let summed = bridge::linear(&x, None, layer, Some(&residual), Precision::Quantized)?;
    let sum = (&residual + a.broadcast_add(&bias)?)?;
    assert_eq!(values(&summed), values(&sum));
    assert!(product(&x.narrow(1, 0, 256)?, Precision::Quantized).is_err());
    assert!(product(&x.to_dtype(DType::F64)?, Precision::Quantized).is_err());
    assert!(bridge::embed(&[40], &w).is_err());
    Ok(())
}

/// What is fused has the bits of the same steps one by one, for weights of one kind and for a mixture that is prepared twice.
#[test]
fn a_fused_norm_and_a_fused_unit_change_no_bit() -> Result<()> {
    let mut random = Random(14);
    let x = tensor(&mut random, &[7, 256]);
    let weight = tensor(&mut random, &[256]);
    let norm = bridge::Norm {
        weight: &weight,
        eps: 1e-6,
    };
    let normed = bridge::rms_norm(&x, &weight, 1e-6)?;
    let matrix = |random: &mut Random, quant, outputs, inputs| {
        let bytes = random.blocks(quant, outputs * inputs);
        Weight::from(Matrix::new(quant, outputs, inputs, &bytes).unwrap())
    };
    use Quant::{F16, Q4_K, Q6_K, Q8_0};
    for precision in [Precision::Quantized, Precision::Refined, Precision::Exact] {
        for kinds in [
            [Q4_K, Q4_K, Q6_K],
            [Q8_0; 3],
            [Q4_K, Q8_0, Q4_K],
            [F16, Q4_K, Q8_0],
        ] {
            let gate = matrix(&mut random, kinds[0], 512, 256);
            let up = matrix(&mut random, kinds[1], 512, 256);
            let down = matrix(&mut random, kinds[2], 256, 512);
            let [gate, up, down] = [&gate, &up, &down].map(plain);
            let both = bridge::linear_many(&x, Some(norm), &[gate, up], precision, None)?;
            let apart = bridge::linear_many(&normed, None, &[gate, up], precision, None)?;
            for (both, apart) in both.iter().zip(&apart) {
                assert_eq!(values(both), values(apart), "{kinds:?} {precision:?}");
            }
            let inner = bridge::gated(&both[0], &both[1], Activation::Silu)?;
            let steps = bridge::linear(&inner, None, down, Some(&x), precision)?;
            let layers = [gate, up, down];
            let fused = bridge::mlp(
                &x,
                Some(norm),
                layers,
                Activation::Silu,
                Some(&x),
                precision,
            )?;
            assert_eq!(values(&fused), values(&steps), "{kinds:?} {precision:?}");
            let mut into = vec![f32::NAN; 3];
            bridge::linear_into(&x, norm, gate, precision, None, &mut into)?;
            assert_eq!(into, values(&both[0]));
        }
    }
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
    let mut bent = values(&x);
    bridge::soft_cap_in_place(&mut bent, 3.0)?;
    let bent = Tensor::from_vec(bent, x.dims(), &Device::Cpu)?;
    assert_near(&bent, &(((&x / 3.0)?.tanh())? * 3.0)?, 1e-5);
    assert_eq!(values(&bridge::add(&x, &y)?), values(&(&x + &y)?));
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
    for kind in [CacheType::F32, CacheType::F16, CacheType::Q8] {
        let (heads, kv_heads, dim, length) = (4, 2, 40, 20);
        let parts = [Part::Keys, Part::Values];
        let caches = parts
            .map(|part| bridge::new_cache(kind, part, [4, kv_heads, dim], &Device::Cpu).unwrap());
        let near = match kind {
            CacheType::F32 | CacheType::F16 => 1e-3,
            CacheType::Q8 => 0.2,
            CacheType::Bf16 => 1e-2,
        };
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
            let copy = match (kind, part) {
                (CacheType::Q8, _) => None,
                (_, Part::Keys) => Some(cache.get(3)?.permute((2, 0, 1))?),
                (_, Part::Values) => Some(cache.get(3)?.transpose(0, 1)?),
            };
            if let Some(copy) = copy {
                assert_near(&copy.narrow(0, 0, 4)?, &rows.narrow(0, 16, 4)?, 1e-3);
            }
            let narrow = row_of(rows, [length, kv_heads, dim / 2])?;
            assert!(bridge::write_rows(cache, part, &narrow, &slots).is_err());
            let row = rows.narrow(0, 0, 1)?;
            assert!(bridge::write_rows(cache, part, &row, &[4 * PAGE as u32]).is_err());
            assert!(bridge::write_rows(cache, part, rows, &slots[1..]).is_err());
            assert!(bridge::copy_page(cache, 0, 4).is_err());
        }
        let q = tensor(&mut random, &[length, heads, dim]);
        let [k, v] = &caches;
        let attend = |q: &Tensor, span: Span| {
            let pass = Pass::new(&Device::Cpu, vec![span], Vec::new())?;
            bridge::attention(q, [k, v], &pass, SCORING, DType::F32)
        };
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
        assert_near(&all.get(0)?.narrow(0, 0, dim)?, &own, near);
        assert!(attend(&q, span(length, 0, [2, 9])).is_err());
        // Keys for values, and another width.
        let nothing = Pass::new(&Device::Cpu, Vec::new(), Vec::new())?;
        let attend = |q: &Tensor, caches: [&Tensor; 2]| {
            bridge::attention(q, caches, &nothing, SCORING, DType::F32)
        };
        assert!(attend(&q, [v, &k.narrow(0, 0, 3)?]).is_err());
        let narrow = row_of(&q, [length, heads, dim / 2])?;
        assert!(attend(&narrow, [k, v]).is_err());
    }
    Ok(())
}

const SCORING: Scoring = Scoring {
    scale: 0.3,
    window: None,
    soft_cap: None,
};

/// The same rows, written and attended to in a device's cache, as in one in single precision: on shared and ragged pages, with several heads to a
/// cached one, a window and a soft cap.
#[test]
fn a_device_cache_is_attended_to_as_the_processors_own() -> Result<()> {
    let mut random = Random(17);
    let (heads, kv_heads, dim, pages) = (6, 2, 48, 9);
    let device = Device::Cpu;
    let caches = |kind| {
        [Part::Keys, Part::Values]
            .map(|part| bridge::new_cache(kind, part, [pages, kv_heads, dim], &device).unwrap())
    };
    let (there, here) = (caches(CacheType::Bf16), caches(CacheType::F32));
    // Numbers that bf16 holds, so that both caches hold the same.
    let rows = |random: &mut Random, count: usize, heads: usize| {
        let rows = tensor(random, &[count, heads, dim]);
        rows.to_dtype(DType::BF16)
            .unwrap()
            .to_dtype(DType::F32)
            .unwrap()
    };
    let span = |first, rows, position, pages: &[u32]| Span {
        first,
        rows,
        position,
        pages: pages.to_vec(),
    };
    let prefix: Vec<Span> = vec![span(0, 35, 0, &[4, 1, 7])];
    let after = vec![
        span(0, 5, 35, &[4, 1, 7]),
        span(5, 1, 32, &[4, 1, 0]),
        span(6, 20, 0, &[8, 2]),
        span(26, 3, 32, &[4, 1, 5]),
    ];
    let slots = |spans: &[Span]| -> Vec<u32> {
        let of = |span: &Span| {
            let pages = span.pages.clone();
            (span.position..span.position + span.rows)
                .map(move |at| pages[at / PAGE] * PAGE as u32 + (at % PAGE) as u32)
        };
        spans.iter().flat_map(of).collect()
    };
    for spans in [prefix, after] {
        let pass = Pass::new(&device, spans.clone(), slots(&spans))?;
        let count = pass_rows(&spans);
        let new = [(); 2].map(|()| rows(&mut random, count, kv_heads));
        for [keys, values] in [&there, &here] {
            bridge::write_both([keys, values], [&new[0], &new[1]], &pass)?;
        }
        let q = rows(&mut random, count, heads);
        for (window, soft_cap) in [
            (None, None),
            (Some(7), None),
            (Some(20), Some(3.0)),
            (None, Some(1.5)),
        ] {
            let scoring = Scoring {
                scale: 0.2,
                window,
                soft_cap,
            };
            let of = |[keys, values]: &[Tensor; 2], out| {
                bridge::attention(&q, [keys, values], &pass, scoring, out)
            };
            let expected = of(&here, DType::F32)?;
            assert_near(&of(&there, DType::F32)?, &expected, 1e-5);
            let rounded = of(&there, DType::BF16)?;
            assert_eq!(rounded.dtype(), DType::BF16);
            assert_near(&rounded, &expected, 1e-2);
        }
    }
    bridge::copy_page(&there[0], 4, 3)?;
    assert_eq!(values(&there[0].get(3)?), values(&there[0].get(4)?));
    let lost = Pass::new(&device, vec![span(0, 1, 0, &[9])], vec![9 * PAGE as u32])?;
    let row = rows(&mut random, 1, kv_heads);
    assert!(bridge::write_both([&there[0], &there[1]], [&row, &row], &lost).is_err());
    Ok(())
}

fn pass_rows(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.rows).sum()
}

/// Products with weights as they lie on a device, of every type and in every form, against exact ones.
#[test]
fn weights_on_a_device_give_the_products_of_packed_ones() -> Result<()> {
    let mut random = Random(18);
    let (outputs, inputs) = (48, 512);
    let x = tensor(&mut random, &[9, inputs]);
    let residual = tensor(&mut random, &[9, outputs]);
    let (bias, gain) = (
        tensor(&mut random, &[outputs]),
        tensor(&mut random, &[inputs]),
    );
    let norm = bridge::Norm {
        weight: &gain,
        eps: 1e-5,
    };
    for quant in Quant::ALL {
        let bytes = random.blocks(quant, outputs * inputs);
        let packed = Weight::from(Matrix::new(quant, outputs, inputs, &bytes).unwrap());
        let product = |weight: &Weight| {
            let layer = bridge::Linear {
                weight,
                bias: Some(&bias),
            };
            bridge::linear(&x, Some(norm), layer, Some(&residual), Precision::Exact)
        };
        let exact = product(&packed)?;
        let size = exact.abs()?.max_all()?.to_scalar::<f32>()?;
        for form in [Form::Blocks, Form::Dense, Form::Half, Form::Single] {
            let shape = [outputs, inputs];
            let there = Weight::on_device(shape, quant, &bytes, &Device::Cpu, form)?;
            assert_eq!([there.outputs(), there.inputs()], shape);
            let expected = form.bytes(quant, (outputs * inputs) as u64);
            assert_eq!(there.memory() as u64, expected, "{quant:?} {form:?}");
            let error = (product(&there)? - &exact)?
                .abs()?
                .max_all()?
                .to_scalar::<f32>()?;
            // Of blocks, activations are in 8 bits, too.
            let bound = match form {
                Form::Single => 1e-5,
                Form::Dense => 1e-2,
                Form::Half => 2e-3,
                Form::Blocks => 5e-2,
            };
            assert!(
                error <= bound * size,
                "{quant:?} {form:?}: {error} of {size}"
            );
            let bare =
                bridge::linear_many(&x, Some(norm), &[plain(&there)], Precision::Exact, None)?;
            let added = (&residual + bare[0].broadcast_add(&bias)?)?;
            assert_eq!(values(&product(&there)?), values(&added), "{quant:?}");
            let ids = [3u32, 47, 3];
            let (there, here) = (bridge::embed(&ids, &there)?, bridge::embed(&ids, &packed)?);
            let rounding = match (form, quant) {
                (Form::Dense, _) | (Form::Blocks, Quant::F16) => 4e-3,
                (Form::Half, _) => 5e-4,
                _ => 1e-6,
            };
            assert_near(&there, &here, rounding);
        }
        let short = &bytes[1..];
        assert!(
            Weight::on_device([outputs, inputs], quant, short, &Device::Cpu, Form::Dense).is_err()
        );
        // At an address that no number may have.
        let shifted = [&[0], bytes.as_slice()].concat();
        Weight::on_device(
            [outputs, inputs],
            quant,
            &shifted[1..],
            &Device::Cpu,
            Form::Blocks,
        )?;
    }
    Ok(())
}

/// What serves devices that have no kernels of ours, against the processor's kernels.
#[test]
fn plain_operations_are_those_of_the_kernels() -> Result<()> {
    let mut random = Random(19);
    let x = tensor(&mut random, &[5, 4, 32]);
    let y = tensor(&mut random, &[5, 4, 32]);
    let gain = tensor(&mut random, &[32]);
    let plainly = bridge::plain::rms_norm(&x, &gain, 1e-5)?;
    assert_near(&plainly, &bridge::rms_norm(&x, &gain, 1e-5)?, 1e-5);
    for activation in [Activation::Silu, Activation::GeluTanh] {
        let plainly = bridge::plain::gated(&x, &y, activation)?;
        assert_near(&plainly, &bridge::gated(&x, &y, activation)?, 1e-5);
    }
    let mut bent = values(&x);
    bridge::soft_cap_in_place(&mut bent, 2.0)?;
    let bent = Tensor::from_vec(bent, x.dims(), &Device::Cpu)?;
    assert_near(&bridge::plain::soft_cap(&x, 2.0)?, &bent, 1e-5);
    for pairs in [0, 5, 16] {
        let angles = tensor(&mut random, &[5, pairs]);
        let (cos, sin) = (angles.cos()?, angles.sin()?);
        for style in [RopeStyle::Neox, RopeStyle::Normal] {
            let plainly = bridge::plain::rope(&x, &cos, &sin, style)?;
            assert_near(&plainly, &bridge::rope(&x, &cos, &sin, style)?, 1e-5);
        }
    }
    Ok(())
}

/// The corner of a tensor, contiguous.
fn row_of(x: &Tensor, [a, b, c]: [usize; 3]) -> Result<Tensor> {
    x.narrow(0, 0, a)?
        .narrow(1, 0, b)?
        .narrow(2, 0, c)?
        .contiguous()
}
