//! Attention on every instruction set, over ragged sequences on scattered pages: near the scalar truth, and equal to the last bit however the
//! rows are cut into spans and batches.

mod common;

use assize_kernels::cache::{CacheMut, Part, write_rows};
use assize_kernels::scalar::{self, attention::Scoring};
use assize_kernels::{Cache, CacheType, Isa, PAGE, Sizes, Span, attention};
use common::{Random, bits, check_everywhere};
use half::f16;

struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    kind: CacheType,
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
        kind,
        scoring,
        size: query_size,
    } = case;
    let name = format!("{heads}/{kv_heads} heads of {dim}, {kind:?}, {scoring:?}");
    let lengths = [1usize, 16, 17, 40, 75, 150];
    let pages = 26;
    let mut order: Vec<u32> = (0..pages as u32).collect();
    for i in (1..pages).rev() {
        order.swap(i, (random.bits() % (i as u64 + 1)) as usize);
    }
    let size = pages * PAGE * kv_heads * dim;
    // What no position of a sequence has written must not show: it is poisoned.
    let (mut k, mut v) = (vec![f32::NAN; size], vec![f32::NAN; size]);
    // Words of ones are scales of NaN.
    let bytes = CacheType::Q8.head_bytes(dim).unwrap();
    let words = vec![u32::MAX; pages * kv_heads * bytes / 4];
    let (mut k8, mut v8) = (words.clone(), words);
    let mut q = Vec::new();
    let mut truth = Vec::new();
    let mut spans = Vec::new();
    let (mut first, mut free) = (0, order.as_slice());
    for length in lengths {
        let (own, rest) = free.split_at(length.div_ceil(PAGE));
        free = rest;
        let round = |part: usize, rows: &[f32]| -> Vec<f32> {
            let keys = |row: &[f32]| {
                let mixed = scalar::codes::mixed(row);
                scalar::codes::mixed(&scalar::codes::written(&mixed))
            };
            match kind {
                CacheType::Q8 if part == 0 => rows.chunks_exact(dim).flat_map(keys).collect(),
                CacheType::F32 => rows.to_vec(),
                CacheType::F16 => rows.iter().map(|x| f16::from_f32(*x).to_f32()).collect(),
                CacheType::Q8 => rows
                    .chunks_exact(dim)
                    .flat_map(scalar::codes::written)
                    .collect(),
                CacheType::Bf16 => unreachable!("bf16 is for devices"),
            }
        };
        let written = [0, 1].map(|_| random.normals(length * kv_heads * dim));
        let [keys, values] = [0, 1].map(|i| round(i, &written[i]));
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
        let [keys8, values8] = &written;
        write_rows(CacheMut::Q8(&mut k8), Part::Keys, shape, keys8, &slots).unwrap();
        write_rows(CacheMut::Q8(&mut v8), Part::Values, shape, values8, &slots).unwrap();
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
        let caches = match kind {
            CacheType::F32 => [Cache::F32(&k), Cache::F32(&v)],
            CacheType::F16 => [Cache::F16(&k16), Cache::F16(&v16)],
            CacheType::Q8 => [Cache::Q8(&k8), Cache::Q8(&v8)],
            CacheType::Bf16 => unreachable!("bf16 is for devices"),
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
        for kind in [CacheType::F32, CacheType::F16, CacheType::Q8] {
            // Codes differ from halves in how they are read, not in what is made of them.
            if kind == CacheType::Q8 && heads > 4 {
                continue;
            }
            check_attention(
                Case {
                    heads,
                    kv_heads,
                    dim,
                    kind,
                    scoring: plain(dim),
                    size: match kind {
                        CacheType::F32 => 1.0,
                        _ => 0.2,
                    },
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
                kind: CacheType::F32,
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
    for kind in [CacheType::F16, CacheType::Q8] {
        check_attention(
            Case {
                heads: 4,
                kv_heads: 2,
                dim: 32,
                kind,
                scoring,
                size: 0.2,
            },
            &mut random,
        );
    }
}

/// Each position's codes come from its own row, in whichever order rows are written, and over whatever stood there.
#[test]
fn eight_bits_of_a_position_are_its_own() {
    let mut random = Random(8);
    for (heads, dim) in [
        (1, 1),
        (2, 20),
        (3, 32),
        (1, 48),
        (2, 64),
        (1, 80),
        (2, 256),
    ] {
        let (length, pages) = (40, 3);
        let mut rows = random.normals(length * heads * dim);
        rows[..dim].fill(0.0);
        rows[heads * dim..][..dim].fill(1e-9);
        for x in &mut rows[2 * heads * dim..][..dim] {
            *x *= 1e-4;
        }
        for (i, x) in rows[3 * heads * dim..][..dim].iter_mut().enumerate() {
            // Ties, and the largest number on both sides.
            *x = [127.0, -127.0, 0.5, 1.5, -0.5, -2.5][i % 6];
        }
        rows[4 * heads * dim] = f32::NAN;
        rows[5 * heads * dim] = f32::INFINITY;
        rows[6 * heads * dim] = 1e30;
        let bytes = CacheType::Q8.head_bytes(dim).unwrap();
        for part in [Part::Keys, Part::Values] {
            let write = |order: &[usize], dirt: u32| {
                let mut words = vec![dirt; pages * heads * bytes / 4];
                for position in order {
                    let row = &rows[position * heads * dim..][..heads * dim];
                    let cache = CacheMut::Q8(&mut words);
                    write_rows(cache, part, [heads, dim], row, &[*position as u32]).unwrap();
                }
                words
            };
            let forward: Vec<usize> = (0..length).collect();
            let backward: Vec<usize> = (0..length).rev().chain([3, 9]).collect();
            let (words, dirty) = (write(&forward, 0), write(&backward, u32::MAX));
            for position in 0..length {
                for head in 0..heads {
                    let row = &rows[(position * heads + head) * dim..][..dim];
                    let truth = match part {
                        Part::Keys => scalar::codes::written(&scalar::codes::mixed(row)),
                        Part::Values => scalar::codes::written(row),
                    };
                    for words in [&words, &dirty] {
                        let page = position / PAGE * heads + head;
                        let words = &words[page * bytes / 4..][..bytes / 4];
                        let read = read(words, part, position % PAGE, dim);
                        let name = format!("{heads} heads of {dim}, {part:?}, {position}");
                        if head > 0 || !(4..=6).contains(&position) {
                            assert_eq!(bits(&read), bits(&truth), "{name}");
                        } else {
                            assert!(read.iter().take(32).all(|x| !x.is_finite()), "{name}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn mixing_is_a_turn() {
    let mut random = Random(9);
    for dim in [1usize, 2, 20, 64, 80, 128] {
        let (a, b) = (random.normals(dim), random.normals(dim));
        let (turned, other) = (scalar::codes::mixed(&a), scalar::codes::mixed(&b));
        let size = 1 << dim.trailing_zeros();
        for (i, turned) in turned.iter().enumerate() {
            let (block, row) = (i / size * size, i % size);
            let sum: f64 = (0..size)
                .map(|j| match (row & j).count_ones() % 2 {
                    0 => f64::from(a[block + j]),
                    _ => -f64::from(a[block + j]),
                })
                .sum();
            let off = f64::from(*turned) - sum / (size as f64).sqrt();
            assert!(off.abs() < 1e-5, "{dim}: {off:e}");
        }
        let dot = |a: &[f32], b: &[f32]| scalar::matmul::dot(a, b);
        assert!((dot(&turned, &other) - dot(&a, &b)).abs() < 1e-4, "{dim}");
    }
}

/// One position of a head of a page, read plainly.
fn read(words: &[u32], part: Part, offset: usize, dim: usize) -> Vec<f32> {
    let wide = dim.next_multiple_of(16);
    let code = |at: usize| (words[at / 4] >> (at % 4 * 8)) as i8;
    let scales = &words[wide * PAGE / 4..];
    let scale = |at: usize| f16::from_bits((scales[at / 2] >> (at % 2 * 16)) as u16).to_f32();
    (0..dim)
        .map(|d| {
            let at = match part {
                Part::Keys => d * PAGE + offset,
                Part::Values => offset * wide + d,
            };
            f32::from(code(at)) * scale(d / 32 * PAGE + offset)
        })
        .collect()
}
