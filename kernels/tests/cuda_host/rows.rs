//! Norm, rope, the write to the cache, gated units, sums, soft cap and dequantization beside the scalar truth, and each row's bits by itself.

use crate::common::{Random, bits, difference};
use crate::library::{Answer, Launch, expect, function};
use assize_kernels::cuda::shapes::{REDUCE_BYTES, THREADS, element_blocks};
use assize_kernels::scalar;
use assize_kernels::{Activation, PAGE, Quant, RopeStyle};
use half::bf16;
use std::ptr::null;

/// A launch over so many elements.
fn elements(count: usize) -> Launch {
    Launch::new(element_blocks(count).unwrap() as usize, 1, THREADS, 0)
}

fn rounded(x: &[f32]) -> Vec<u16> {
    x.iter().map(|x| bf16::from_f32(*x).to_bits()).collect()
}

type Norm = unsafe extern "C" fn(
    *const Launch,
    *const f32,
    *const u32,
    *const f32,
    *mut f32,
    *const f32,
    *mut u8,
    u32,
    f32,
    u32,
) -> Answer;

#[test]
fn norms() {
    let mut random = Random(31);
    let norm: Norm = function("host_rms_norm");
    for columns in [1, 7, 64, 255, 256, 257, 1500, 5120] {
        let rows = 3;
        let (x, other) = (
            random.normals(rows * columns),
            random.normals(rows * columns),
        );
        let (weight, eps) = (random.normals(columns), 1e-5);
        let sum: Vec<f32> = x.iter().zip(&other).map(|(a, b)| a + b).collect();
        for launch in Launch::new(rows, 1, THREADS, REDUCE_BYTES).ordered() {
            let mut out = vec![f32::NAN; rows * columns];
            let (at, to) = (x.as_ptr(), out.as_mut_ptr().cast());
            // SAFETY: the arguments are those of the kernel, and as large as `rows` and `columns` say.
            expect(unsafe {
                norm(
                    &launch,
                    at,
                    null(),
                    null(),
                    std::ptr::null_mut(),
                    weight.as_ptr(),
                    to,
                    columns as u32,
                    eps,
                    0,
                )
            });
            let off = difference(&scalar::norm::rms_norm(&x, &weight, eps), &out);
            assert!(off < 1e-6, "{columns}: off by {off:e}");

            let mut brief = vec![0xffffu16; rows * columns];
            let (mut summed, to) = (vec![f32::NAN; rows * columns], brief.as_mut_ptr().cast());
            // SAFETY: as above.
            expect(unsafe {
                norm(
                    &launch,
                    at,
                    null(),
                    other.as_ptr(),
                    summed.as_mut_ptr(),
                    weight.as_ptr(),
                    to,
                    columns as u32,
                    eps,
                    1,
                )
            });
            assert_eq!(bits(&summed), bits(&sum));
            // Some rows in another order, of what was summed.
            let order = [2u32, 0];
            let mut some = vec![f32::NAN; 2 * columns];
            let few = Launch { x: 2, ..launch };
            let to = some.as_mut_ptr().cast();
            // SAFETY: as above; both rows are there.
            expect(unsafe {
                norm(
                    &few,
                    sum.as_ptr(),
                    order.as_ptr(),
                    null(),
                    std::ptr::null_mut(),
                    weight.as_ptr(),
                    to,
                    columns as u32,
                    eps,
                    0,
                )
            });
            let whole = rounded(&some);
            for (i, row) in order.iter().enumerate() {
                let own = *row as usize * columns..(*row as usize + 1) * columns;
                assert_eq!(whole[i * columns..(i + 1) * columns], brief[own]);
            }
        }
    }
}

type Rope = unsafe extern "C" fn(
    *const Launch,
    *const f32,
    *const f32,
    *const f32,
    *mut f32,
    u32,
    u32,
    u32,
    u32,
    u64,
) -> Answer;
type Write = unsafe extern "C" fn(
    *const Launch,
    *mut u16,
    *const f32,
    *const u32,
    *const f32,
    *const f32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u64,
) -> Answer;

#[test]
fn ropes_and_writes() {
    let mut random = Random(32);
    let (rope, write): (Rope, Write) = (function("host_rope"), function("host_write_rows"));
    for (heads, dim, pairs) in [
        (1, 8, 4),
        (3, 80, 16),
        (2, 64, 32),
        (5, 128, 64),
        (4, 256, 32),
    ] {
        for style in [RopeStyle::Neox, RopeStyle::Normal] {
            let rows = 11;
            let count = rows * heads * dim;
            let x = random.normals(count);
            let angles: Vec<f32> = (0..rows * pairs).map(|_| random.unit() * 7.0).collect();
            let (sin, cos): (Vec<f32>, Vec<f32>) =
                angles.iter().map(|angle| angle.sin_cos()).unzip();
            let neox = u32::from(style == RopeStyle::Neox);
            let [h, d, p] = [heads as u32, dim as u32, pairs as u32];
            let mut out = vec![f32::NAN; count];
            for launch in elements(count).ordered() {
                // SAFETY: the arguments are those of the kernel, and as large as the sizes say.
                expect(unsafe {
                    rope(
                        &launch,
                        x.as_ptr(),
                        cos.as_ptr(),
                        sin.as_ptr(),
                        out.as_mut_ptr(),
                        h,
                        d,
                        p,
                        neox,
                        count as u64,
                    )
                });
                let truth = scalar::rope::rope(&x, heads, dim, &cos, &sin, pairs, style);
                assert!(difference(&truth, &out) < 1e-6);
            }

            // Scattered slots, one of them beyond the cache.
            let pages = 4;
            let mut slots: Vec<u32> = (0..rows as u32)
                .map(|row| row * 5 % (pages * PAGE) as u32)
                .collect();
            slots[4] = (pages * PAGE) as u32;
            for turned in [false, true] {
                let mut cache = vec![0x7fffu16; (pages + 1) * heads * PAGE * dim];
                let (pairs, rows_written) = if turned { (p, &out) } else { (0, &x) };
                // SAFETY: as above; the cache has a page more than its end says, which must stay.
                expect(unsafe {
                    write(
                        &elements(count),
                        cache.as_mut_ptr(),
                        x.as_ptr(),
                        slots.as_ptr(),
                        cos.as_ptr(),
                        sin.as_ptr(),
                        h,
                        d,
                        pairs,
                        neox,
                        (pages * PAGE) as u32,
                        count as u64,
                    )
                });
                let mut expected = vec![0x7fffu16; cache.len()];
                for (row, slot) in slots
                    .iter()
                    .enumerate()
                    .filter(|(_, slot)| (**slot as usize) < pages * PAGE)
                {
                    for head in 0..heads {
                        let (page, offset) = (*slot as usize / PAGE, *slot as usize % PAGE);
                        let to = ((page * heads + head) * PAGE + offset) * dim;
                        let from = &rows_written[(row * heads + head) * dim..][..dim];
                        expected[to..to + dim].copy_from_slice(&rounded(from));
                    }
                }
                assert_eq!(cache, expected, "{heads} heads of {dim}, turned: {turned}");
            }
        }
    }
}

type Gated = unsafe extern "C" fn(
    *const Launch,
    *const f32,
    *const f32,
    *mut u8,
    u32,
    u32,
    u32,
    u32,
    u64,
) -> Answer;

#[test]
fn single_numbers() {
    let mut random = Random(33);
    let gated: Gated = function("host_gated");
    let add: unsafe extern "C" fn(*const Launch, *const f32, *const f32, *mut f32, u64) -> Answer =
        function("host_add");
    let cap: unsafe extern "C" fn(*const Launch, *const f32, *mut f32, f32, u64) -> Answer =
        function("host_soft_cap");
    for (rows, columns) in [(1, 1), (3, 341), (1, 1024), (5, 1025)] {
        let count = rows * columns;
        let (a, b) = (random.normals(count), random.normals(count));
        let interleaved: Vec<f32> = a
            .chunks(columns)
            .zip(b.chunks(columns))
            .flat_map(|(a, b)| [a, b].concat())
            .collect();
        for launch in elements(count).ordered() {
            for (gelu, activation) in [(0, Activation::Silu), (1, Activation::GeluTanh)] {
                let (mut out, mut halves) = (vec![f32::NAN; count], vec![0xffffu16; count]);
                let (c, n) = (columns as u32, count as u64);
                let (to, brief) = (out.as_mut_ptr().cast(), halves.as_mut_ptr().cast());
                // SAFETY: the arguments are those of the kernel, and as large as the sizes say.
                expect(unsafe { gated(&launch, a.as_ptr(), b.as_ptr(), to, 0, 0, gelu, 0, n) });
                // SAFETY: as above; the second half of the last row ends where the rows do.
                expect(unsafe {
                    gated(
                        &launch,
                        interleaved.as_ptr(),
                        interleaved[columns..].as_ptr(),
                        brief,
                        c,
                        2 * c,
                        gelu,
                        1,
                        n,
                    )
                });
                let truth: Vec<f64> = a
                    .iter()
                    .zip(&b)
                    .map(|(a, b)| scalar::unit::activate(f64::from(*a), activation) * f64::from(*b))
                    .collect();
                assert!(difference(&truth, &out) < 1e-6);
                assert_eq!(halves, rounded(&out));
            }
            let mut out = vec![f32::NAN; count];
            // SAFETY: as above.
            expect(unsafe {
                add(
                    &launch,
                    a.as_ptr(),
                    b.as_ptr(),
                    out.as_mut_ptr(),
                    count as u64,
                )
            });
            assert!(
                out.iter()
                    .zip(a.iter().zip(&b))
                    .all(|(sum, (a, b))| *sum == a + b)
            );
            let mut out = vec![f32::NAN; count];
            // SAFETY: as above.
            expect(unsafe { cap(&launch, a.as_ptr(), out.as_mut_ptr(), 2.5, count as u64) });
            let truth: Vec<f64> = a
                .iter()
                .map(|x| scalar::unit::soft_cap(f64::from(*x), 2.5))
                .collect();
            assert!(difference(&truth, &out) < 1e-6);
        }
    }
}

#[test]
fn weights_of_every_type() {
    let mut random = Random(34);
    let dequantize: unsafe extern "C" fn(
        *const Launch,
        *const u8,
        *mut u8,
        u32,
        u32,
        u32,
        u32,
        u64,
    ) -> Answer = function("host_dequantize");
    for quant in Quant::ALL {
        let count = 256 * 7;
        let mut bytes = random.blocks(quant, count);
        if quant == Quant::F16 {
            // Numbers below the smallest normal one, infinity and zero.
            for (at, special) in [0x0001u16, 0x83ff, 0x7c00, 0x8000].into_iter().enumerate() {
                bytes[2 * at..2 * at + 2].copy_from_slice(&special.to_le_bytes());
            }
        }
        let mut truth = vec![0f32; count];
        scalar::quant::dequantize(quant, &bytes, &mut truth).unwrap();
        let kind = (0..64)
            .find(|id| Quant::from_ggml(*id) == Some(quant))
            .unwrap();
        let [block, size] = [quant.block() as u32, quant.block_bytes() as u32];
        let (mut out, mut brief) = (vec![f32::NAN; count], vec![0xffffu16; count]);
        for (to, is_brief) in [(out.as_mut_ptr().cast(), 0), (brief.as_mut_ptr().cast(), 1)] {
            // SAFETY: the arguments are those of the kernel; the bytes are whole blocks of the type.
            expect(unsafe {
                dequantize(
                    &elements(count),
                    bytes.as_ptr(),
                    to,
                    kind,
                    block,
                    size,
                    is_brief,
                    count as u64,
                )
            });
        }
        assert_eq!(bits(&out), bits(&truth), "{quant:?}");
        assert_eq!(brief, rounded(&truth), "{quant:?} in bf16");
    }
}
