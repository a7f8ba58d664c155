//! Attention: near the truth, and the same bits however rows are batched, cut, grouped and scheduled.

use crate::batch::{Batch, Heads, How, PLAIN, Sequence};
use crate::common::{Random, bits, difference};
use crate::library::function;
use assize_kernels::cuda::shapes::{BLOCK, QUERIES, SPLIT, WARP};
use assize_kernels::cuda::tables::{Entry, Item, Merge};
use assize_kernels::scalar::attention::Scoring;
use assize_kernels::{PAGE, Span};
use half::bf16;

const fn sequence(parent: usize, shared_pages: usize, length: usize, rows: usize) -> Sequence {
    Sequence {
        parent,
        shared_pages,
        length,
        rows,
    }
}

/// Whole prompts, a late chunk, single rows, two groups that share prefixes of their own, forks that share all but the last page, and one that
/// shares a part of a split.
const SEQUENCES: [Sequence; 12] = [
    sequence(0, 0, 1, 1),
    sequence(0, 0, 70, 70),
    sequence(0, 0, 300, 1),
    sequence(2, 16, 290, 3),
    sequence(2, 16, 257, 1),
    sequence(3, 18, 289, 1),
    sequence(0, 0, 150, 2),
    sequence(6, 8, 140, 1),
    sequence(6, 8, 129, 1),
    sequence(6, 5, 200, 1),
    sequence(0, 0, 150, 20),
    sequence(0, 0, 128, 1),
];

fn check(heads: Heads, scoring: Scoring, size: f32, random: &mut Random) {
    let name = format!("{heads:?}, {scoring:?}");
    let batch = Batch::new(heads, &SEQUENCES, size, random);
    let truth = batch.truth(scoring);
    let whole = batch.run(&batch.spans, scoring, PLAIN);
    let off = difference(&truth, &whole);
    // Queries and weights have 16 bits, so that a score of 10 is rounded by 1e-4, and the many that are smaller by less.
    assert!(off <= 5e-5, "{name}: off by {off:e}");

    for how in [
        How {
            warps: 1,
            stages: 1,
            order: 2,
            ..PLAIN
        },
        How {
            warps: 8,
            stages: 2,
            order: 3,
            ..PLAIN
        },
        How {
            warps: 3,
            stages: 1,
            processors: 100,
            ..PLAIN
        },
        How {
            processors: 4,
            order: 1,
            ..PLAIN
        },
    ] {
        let again = batch.run(&batch.spans, scoring, how);
        assert_eq!(bits(&again), bits(&whole), "{name}: {} warps", how.warps);
    }

    let brief = batch.run(
        &batch.spans,
        scoring,
        How {
            brief: true,
            ..PLAIN
        },
    );
    let rounded: Vec<f32> = whole.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
    assert_eq!(bits(&brief), bits(&rounded), "{name} in bf16");

    let width = heads.0 * heads.2;
    for (index, span) in batch.spans.iter().enumerate() {
        // The first, the last, and one between.
        for row in [0, span.rows / 2, span.rows - 1] {
            let alone = Span {
                first: span.first + row,
                rows: 1,
                position: span.position + row,
                pages: span.pages.clone(),
            };
            let out = batch.run(
                &[alone],
                scoring,
                How {
                    processors: 1 + 40 * (index % 2),
                    ..PLAIN
                },
            );
            let own = (span.first + row) * width..(span.first + row + 1) * width;
            assert_eq!(
                bits(&out[own.clone()]),
                bits(&whole[own.clone()]),
                "{name}: row {row} of {index} alone"
            );
            assert!(
                out[..own.start]
                    .iter()
                    .chain(&out[own.end..])
                    .all(|x| x.is_nan())
            );
        }
    }
}

fn plain(dim: usize) -> Scoring {
    Scoring {
        scale: 1.0 / (dim as f32).sqrt(),
        window: None,
        soft_cap: None,
    }
}

#[test]
fn heads_of_every_kind() {
    let mut random = Random(11);
    for heads in [
        (2, 2, 64),
        (8, 1, 64),
        (6, 2, 80),
        (3, 1, 96),
        (2, 1, 112),
        (4, 2, 128),
        (2, 1, 256),
    ] {
        check(heads, plain(heads.2), 0.5, &mut random);
    }
    // More queries to a head than a block has, and the narrowest head.
    check((80, 1, 8), plain(8), 0.5, &mut random);
}

#[test]
fn windows() {
    let mut random = Random(12);
    for window in [1, 17, 64, 100, 128, 200, 1000] {
        check(
            (4, 2, 64),
            Scoring {
                window: Some(window),
                ..plain(64)
            },
            0.5,
            &mut random,
        );
    }
}

#[test]
fn soft_caps() {
    let mut random = Random(13);
    check(
        (4, 2, 64),
        Scoring {
            soft_cap: Some(5.0),
            ..plain(64)
        },
        1.0,
        &mut random,
    );
    check(
        (2, 2, 64),
        Scoring {
            scale: 0.3,
            soft_cap: Some(30.0),
            window: Some(90),
        },
        1.0,
        &mut random,
    );
}

/// Pages that a window has left behind may hold anything.
#[test]
fn what_a_window_has_passed_is_not_read() {
    let mut random = Random(14);
    let mut batch = Batch::new(
        (2, 1, 64),
        &[sequence(0, 0, 300, 4), sequence(0, 0, 40, 40)],
        0.5,
        &mut random,
    );
    let scoring = Scoring {
        window: Some(100),
        ..plain(64)
    };
    let whole = batch.run(&batch.spans, scoring, PLAIN);
    // Row 296 sees from position 197 on: pages 0 to 11 are behind.
    let poisoned = batch.spans[1].clone();
    let page = batch.spans[0].pages[12];
    for at in 0..12 {
        batch.poison(batch.spans[0].pages[at]);
    }
    assert_ne!(page, batch.spans[0].pages[11]);
    let again = batch.run(&batch.spans, scoring, PLAIN);
    assert_eq!(bits(&again), bits(&whole));
    for at in poisoned.pages {
        batch.poison(at);
    }
    let again = batch.run(&batch.spans, scoring, PLAIN);
    assert_eq!(bits(&again[..4 * 128]), bits(&whole[..4 * 128]));
    assert!(
        again[4 * 128..].iter().all(|x| x.is_nan()),
        "a NaN that is seen shows"
    );
}

#[test]
fn both_languages_agree_about_constants() {
    let constants: unsafe extern "C" fn(*mut u32) = function("host_constants");
    let mut all = [0u32; 10];
    // SAFETY: the function writes ten numbers.
    unsafe { constants(all.as_mut_ptr()) };
    let sizes = [
        size_of::<Item>(),
        size_of::<Entry>(),
        size_of::<Merge>(),
        size_of::<crate::library::Shape>(),
    ];
    let expected = [
        [PAGE, BLOCK, SPLIT, QUERIES, WARP, u32::MAX as usize].as_slice(),
        &sizes,
    ]
    .concat();
    assert_eq!(all.map(|x| x as usize).to_vec(), expected);
}
