//! Attention on every instruction set, over ragged sequences on scattered pages: near the scalar truth, and equal to the last bit however the
//! rows are cut into spans and batches.

mod common;

use assize_kernels::cache::{CacheMut, Part, write_rows};
use assize_kernels::scalar::{self, attention::Scoring};
use assize_kernels::{Cache, Isa, PAGE, Sizes, Span, attention};
use common::{Random, bits, check_everywhere};
use half::f16;

struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    half: bool,
    scoring: Scoring,
    /// Size of the queries: scores that are large are rounded more coarsely, and so are their exponentials.
    size: f32,
}

/// Sequences of ragged lengths over scattered pages: whole, then cut into chunks, then each row alone in a batch of its own.
fn check_attention(case: Case, random: &mut Random) {
    let Case {
        heads,
        kv_heads,
        dim,
        half,
        scoring,
        size: query_size,
    } = case;
    let name = format!("{heads}/{kv_heads} heads of {dim}, half {half}, {scoring:?}");
    let lengths = [1usize, 16, 17, 40, 75, 150];
    let pages = 26;
    let mut order: Vec<u32> = (0..pages as u32).collect();
    for i in (1..pages).rev() {
        order.swap(i, (random.bits() % (i as u64 + 1)) as usize);
    }
    let size = pages * PAGE * kv_heads * dim;
    // What no position of a sequence has written must not show: it is poisoned.
    let (mut k, mut v) = (vec![f32::NAN; size], vec![f32::NAN; size]);
    let mut q = Vec::new();
    let mut truth = Vec::new();
    let mut spans = Vec::new();
    let (mut first, mut free) = (0, order.as_slice());
    for length in lengths {
        let (own, rest) = free.split_at(length.div_ceil(PAGE));
        free = rest;
        let round = |x: f32| if half { f16::from_f32(x).to_f32() } else { x };
        let keys: Vec<f32> = random
            .normals(length * kv_heads * dim)
            .into_iter()
            .map(round)
            .collect();
        let values: Vec<f32> = random
            .normals(length * kv_heads * dim)
            .into_iter()
            .map(round)
            .collect();
        let queries: Vec<f32> = random
            .normals(length * heads * dim)
            .into_iter()
            .map(|x| query_size * x)
            .collect();
        let slots: Vec<u32> = (0..length)
            .map(|p| own[p / PAGE] * PAGE as u32 + (p % PAGE) as u32)
            .collect();
        let shape = [kv_heads, dim];
        write_rows(CacheMut::F32(&mut k), Part::Keys, shape, &keys, &slots).unwrap();
        write_rows(CacheMut::F32(&mut v), Part::Values, shape, &values, &slots).unwrap();
        let of_head = |all: &[f32], kv: usize| -> Vec<f32> {
            all.chunks_exact(kv_heads * dim)
                .flat_map(|row| row[kv * dim..(kv + 1) * dim].to_vec())
                .collect()
        };
        for p in 0..length {
            for h in 0..heads {
                let kv = h / (heads / kv_heads);
                let query = &queries[(p * heads + h) * dim..][..dim];
                truth.extend(scalar::attention::attend(
                    query,
                    &of_head(&keys, kv),
                    &of_head(&values, kv),
                    p,
                    scoring,
                ));
            }
        }
        q.extend(queries);
        spans.push(Span {
            first,
            rows: length,
            position: 0,
            pages: own.to_vec(),
        });
        first += length;
    }
    let (k16, v16): (Vec<f16>, Vec<f16>) = k
        .iter()
        .zip(&v)
        .map(|(k, v)| (f16::from_f32(*k), f16::from_f32(*v)))
        .unzip();
    let run = |isa: Isa, q: &[f32], spans: &[Span], out: &mut [f32]| {
        let caches = if half {
            [Cache::F16(&k16), Cache::F16(&v16)]
        } else {
            [Cache::F32(&k), Cache::F32(&v)]
        };
        let sizes = Sizes {
            rows: q.len() / (heads * dim),
            heads,
            kv_heads,
            dim,
            pages,
        };
        attention(isa, q, caches, sizes, spans, scoring, out).unwrap();
    };
    let tolerance = 1e-5 * f64::from(query_size);
    let whole = check_everywhere(&name, &truth, tolerance, |isa, out| {
        run(isa, &q, &spans, out)
    });
    for chunk in [1, 7, 16, 70] {
        let mut parts = Vec::new();
        for span in &spans {
            for start in (0..span.rows).step_by(chunk) {
                let rows = chunk.min(span.rows - start);
                parts.push(Span {
                    first: span.first + start,
                    rows,
                    position: start,
                    pages: span.pages.clone(),
                });
            }
        }
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; q.len()];
            run(isa, &q, &parts, &mut out);
            assert_eq!(
                bits(&out),
                bits(&whole),
                "{name} on {} in chunks of {chunk}",
                isa.name()
            );
        }
    }
    for span in &spans {
        for row in 0..span.rows {
            let range = (span.first + row) * heads * dim..(span.first + row + 1) * heads * dim;
            let mut out = vec![f32::NAN; heads * dim];
            let alone = Span {
                first: 0,
                rows: 1,
                position: row,
                pages: span.pages.clone(),
            };
            // The portable vectors are slow, and are held to the same bits above.
            let isa = match row % 7 {
                0 => Isa::PORTABLE,
                _ => assize_kernels::isa(),
            };
            run(isa, &q[range.clone()], &[alone], &mut out);
            assert_eq!(bits(&out), bits(&whole[range]), "{name}: row {row} alone");
        }
    }
}

#[test]
fn attention_is_near_the_truth_and_the_same_everywhere() {
    let mut random = Random(7);
    let plain = |dim: usize| Scoring {
        scale: 1.0 / (dim as f32).sqrt(),
        window: None,
        soft_cap: None,
    };
    for (heads, kv_heads, dim) in [
        (1, 1, 1),
        (3, 1, 20),
        (4, 2, 64),
        (9, 3, 64),
        (2, 2, 80),
        (4, 1, 96),
        (6, 1, 128),
        (1, 1, 256),
    ] {
        for half in [false, true] {
            check_attention(
                Case {
                    heads,
                    kv_heads,
                    dim,
                    half,
                    scoring: plain(dim),
                    size: if half { 0.2 } else { 1.0 },
                },
                &mut random,
            );
        }
    }
    for window in [1, 5, 16, 17, 33, 500] {
        let scoring = Scoring {
            window: Some(window),
            ..plain(64)
        };
        check_attention(
            Case {
                heads: 4,
                kv_heads: 2,
                dim: 64,
                half: false,
                scoring,
                size: 0.2,
            },
            &mut random,
        );
    }
    let scoring = Scoring {
        soft_cap: Some(5.0),
        window: Some(20),
        scale: 0.3,
    };
    check_attention(
        Case {
            heads: 4,
            kv_heads: 2,
            dim: 32,
            half: true,
            scoring,
            size: 0.2,
        },
        &mut random,
    );
}
