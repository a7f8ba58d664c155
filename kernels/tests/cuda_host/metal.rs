//! The kernels for Metal, their source read as C++: near the truth, and a row by itself.

use crate::batch::{Batch, Heads, Sequence};
use crate::common::{Random, bits, difference};
use crate::library::{Answer, Launch, expect, function};
use assize_kernels::scalar::attention::Scoring;
use assize_kernels::{PAGE, Span};
use half::bf16;

#[repr(C)]
struct Shape {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    window: u32,
    scale: f32,
    soft_cap: f32,
}

type Attend = unsafe extern "C" fn(
    *const Launch,
    *const f32,
    *const u16,
    *const u16,
    *const [u32; 3],
    *const u32,
    *mut f32,
    *const Shape,
) -> Answer;

fn run(batch: &Batch, spans: &[Span], scoring: Scoring, order: u32) -> Vec<f32> {
    let (heads, kv_heads, dim) = batch.heads;
    let (mut rows, mut pages) = (Vec::new(), Vec::new());
    for span in spans {
        for row in 0..span.rows {
            rows.push([span.first + row, span.position + row, pages.len()].map(|x| x as u32));
        }
        pages.extend(&span.pages);
    }
    let shape = Shape {
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        dim: dim as u32,
        window: scoring.window.unwrap_or(0) as u32,
        scale: scoring.scale,
        soft_cap: scoring.soft_cap.unwrap_or(0.0),
    };
    let attend: Attend = function("host_metal_attend");
    let launch = Launch {
        order,
        ..Launch::new(rows.len(), heads, 128, 0)
    };
    let [keys, values] = batch.caches();
    let mut out = vec![f32::NAN; batch.q.len()];
    // SAFETY: the tables are of the batch's own spans and caches.
    expect(unsafe {
        attend(
            &launch,
            batch.q.as_ptr(),
            keys.as_ptr(),
            values.as_ptr(),
            rows.as_ptr(),
            pages.as_ptr(),
            out.as_mut_ptr(),
            &shape,
        )
    });
    out
}

#[test]
fn attention() {
    let mut random = Random(51);
    let sequence = |parent, shared_pages, length, rows| Sequence {
        parent,
        shared_pages,
        length,
        rows,
    };
    let sequences = [
        sequence(0, 0, 1, 1),
        sequence(0, 0, 140, 40),
        sequence(1, 8, 300, 2),
        sequence(0, 0, 128, 1),
    ];
    let cases: [(Heads, Option<usize>, Option<f32>); 6] = [
        ((2, 2, 64), None, None),
        ((6, 2, 80), None, Some(5.0)),
        ((4, 1, 128), Some(100), None),
        ((2, 1, 256), Some(128), None),
        ((3, 3, 8), Some(1), None),
        ((1, 1, 112), Some(1000), Some(30.0)),
    ];
    for (heads, window, soft_cap) in cases {
        let scoring = Scoring {
            scale: 1.0 / (heads.2 as f32).sqrt(),
            window,
            soft_cap,
        };
        let batch = Batch::new(heads, &sequences, 0.5, &mut random);
        let whole = run(&batch, &batch.spans, scoring, 0);
        let off = difference(&batch.truth(scoring), &whole);
        assert!(off < 1e-5, "{heads:?}, {scoring:?}: off by {off:e}");
        assert_eq!(bits(&run(&batch, &batch.spans, scoring, 3)), bits(&whole));
        let width = heads.0 * heads.2;
        for span in &batch.spans {
            let alone = run(&batch, std::slice::from_ref(span), scoring, 0);
            let own = span.first * width..(span.first + span.rows) * width;
            assert_eq!(bits(&alone[own.clone()]), bits(&whole[own]));
        }
    }
}

#[test]
fn writes() {
    let mut random = Random(52);
    let write: unsafe extern "C" fn(
        *const Launch,
        *mut u16,
        *const f32,
        *const u32,
        *const [u32; 4],
    ) -> Answer = function("host_metal_write_rows");
    let (heads, dim, pages) = (3, 80, 4);
    let slots = [17u32, 3, 64, 63, 0];
    let mut rows = random.normals(slots.len() * heads * dim);
    rows[..4].copy_from_slice(&[f32::INFINITY, -0.0, 1e-40, 3.4e38]);
    let mut cache = vec![0x1234u16; (pages + 1) * heads * PAGE * dim];
    let mut expected = cache.clone();
    for (row, slot) in slots.iter().enumerate().filter(|(_, slot)| **slot < 64) {
        for head in 0..heads {
            let to = ((*slot as usize / PAGE * heads + head) * PAGE + *slot as usize % PAGE) * dim;
            for d in 0..dim {
                expected[to + d] = bf16::from_f32(rows[(row * heads + head) * dim + d]).to_bits();
            }
        }
    }
    let shape = [heads, dim, pages * PAGE, rows.len()].map(|x| x as u32);
    let launch = Launch::new(rows.len().div_ceil(128), 1, 128, 0);
    // SAFETY: the cache has a page more than its end says, which must stay.
    expect(unsafe {
        write(
            &launch,
            cache.as_mut_ptr(),
            rows.as_ptr(),
            slots.as_ptr(),
            &shape,
        )
    });
    assert_eq!(cache, expected);
}
