//! Tables: every row sees each of its splits once, and shared pages are met once.

use crate::common::Random;
use assize_kernels::cuda::shapes::SPLIT;
use assize_kernels::cuda::tables::{Geometry, Item, check, tables};
use assize_kernels::{KernelError, PAGE, Span};

const GEOMETRY: Geometry = Geometry {
    shared_by: 4,
    kv_heads: 2,
    wide: 128,
    narrow: 16,
    processors: 1,
};

fn span(first: usize, rows: usize, position: usize, pages: &[u32]) -> Span {
    Span {
        first,
        rows,
        position,
        pages: pages.to_vec(),
    }
}

/// Each query of each row meets each of its splits once, with its own pages, and its partial results are distinct and all of those that are merged.
fn check_cover(spans: &[Span], geometry: Geometry) {
    let made = tables(spans, geometry).unwrap();
    let rows = spans
        .iter()
        .map(|span| span.first + span.rows)
        .max()
        .unwrap_or(0);
    let splits = spans
        .iter()
        .map(|span| (span.position + span.rows).div_ceil(SPLIT))
        .max()
        .unwrap_or(0);
    let mut met = vec![0; rows * geometry.shared_by * splits];
    let mut results = vec![0; made.partials * geometry.shared_by];
    let mut direct = vec![0; rows * geometry.shared_by];
    for (items, most) in [(&made.wide, geometry.wide), (&made.narrow, geometry.narrow)] {
        for item in items {
            assert!(
                item.queries > 0
                    && item.queries as usize <= most
                    && item.first_split < item.end_split
            );
            assert!(item.folded == 0 || item.first_split == 0);
            for query in item.first_query..item.first_query + item.queries {
                let query = query as usize;
                let entry = made.entries[item.rows as usize + query / geometry.shared_by];
                let head = query % geometry.shared_by;
                let row = entry.row as usize;
                let span = spans
                    .iter()
                    .find(|span| (span.first..span.first + span.rows).contains(&row))
                    .unwrap();
                assert_eq!(entry.position as usize, span.position + row - span.first);
                assert!(item.lowest <= entry.position && entry.position <= item.highest);
                for split in item.first_split as usize..item.end_split as usize {
                    met[(row * geometry.shared_by + head) * splits + split] += 1;
                    let pages = split * SPLIT / PAGE
                        ..((split + 1) * SPLIT)
                            .min(entry.position as usize + 1)
                            .div_ceil(PAGE);
                    for page in pages {
                        assert_eq!(made.pages[item.pages as usize + page], span.pages[page]);
                    }
                }
                if entry.partial == u32::MAX {
                    assert_eq!(item.folded, 1);
                    direct[row * geometry.shared_by + head] += 1;
                } else {
                    let count = if item.folded == 1 {
                        1
                    } else {
                        item.end_split - item.first_split
                    };
                    for partial in entry.partial..entry.partial + count {
                        results[partial as usize * geometry.shared_by + head] += 1;
                    }
                }
            }
        }
    }
    assert!(results.iter().all(|count| *count == 1));
    for span in spans {
        for row in span.first..span.first + span.rows {
            let merged = made
                .merges
                .iter()
                .filter(|merge| merge.row as usize == row)
                .count();
            for query in row * geometry.shared_by..(row + 1) * geometry.shared_by {
                assert_eq!(direct[query] + merged, 1, "row {row} goes out once");
                let needed = (span.position + row - span.first + 1).div_ceil(SPLIT);
                assert!(
                    met[query * splits..][..needed]
                        .iter()
                        .all(|count| *count == 1),
                    "row {row}"
                );
            }
        }
    }
    let mut next = 0;
    for merge in &made.merges {
        assert_eq!(merge.partial, next, "partial results lie row after row");
        next += merge.count;
    }
    assert_eq!(next as usize, made.partials);
}

#[test]
fn every_split_is_met_once() {
    let mut random = Random(21);
    for round in 0..200 {
        let mut spans: Vec<Span> = Vec::new();
        let mut first = 0;
        let mut fresh = 0;
        for _ in 0..random.bits() % 12 {
            let mut pages = Vec::new();
            if !spans.is_empty() && !random.bits().is_multiple_of(3) {
                let parent: &Span = &spans[random.bits() as usize % spans.len()];
                let shared = random.bits() as usize % (parent.pages.len() + 1);
                pages.extend(&parent.pages[..shared]);
            }
            let rows = [0, 1, 1, 1, 3, 40, 200][random.bits() as usize % 7];
            let position = pages.len() * PAGE + random.bits() as usize % 300;
            while pages.len() * PAGE < position + rows {
                pages.push(fresh);
                fresh += 1;
            }
            first += random.bits() as usize % 2;
            spans.push(span(first, rows, position, &pages));
            first += rows;
        }
        check(&spans).unwrap();
        for (shared_by, wide, processors) in [(1, 128, 1), (4, 64, 10), (9, 16, 200), (71, 128, 3)]
        {
            check_cover(
                &spans,
                Geometry {
                    shared_by,
                    wide,
                    processors,
                    ..GEOMETRY
                },
            );
        }
        assert!(round < 200);
    }
}

#[test]
fn a_shared_prefix_is_met_once() {
    // 40 rows: 20 pages in common, of which the first 16 are whole splits, then their own.
    let common: Vec<u32> = (0..20).collect();
    let spans: Vec<Span> = (0..40)
        .map(|row| {
            let mut pages = common.clone();
            pages.extend([100 + 2 * row as u32, 101 + 2 * row as u32]);
            span(row, 1, 340, &pages)
        })
        .collect();
    let made = tables(&spans, GEOMETRY).unwrap();
    let of_prefix: Vec<&Item> = made
        .wide
        .iter()
        .filter(|item| item.first_split == 0)
        .collect();
    // 160 queries in blocks of 128: none of the rows meets the prefix by itself.
    assert_eq!(
        of_prefix
            .iter()
            .map(|item| item.queries)
            .collect::<Vec<_>>(),
        [128, 32]
    );
    assert!(of_prefix.iter().all(|item| item.end_split == 2));
    assert_eq!(made.narrow.len(), 40);
    assert!(
        made.narrow
            .iter()
            .all(|item| item.first_split == 2 && item.end_split == 3 && item.queries == 4)
    );
    assert_eq!((made.partials, made.merges.len()), (80, 40));

    // A second group of other pages beside it, and a prompt, keep to themselves.
    let mut more = spans.clone();
    for row in 40..50 {
        let pages: Vec<u32> = (200..208).chain([300 + row as u32]).collect();
        more.push(span(row, 1, 130, &pages));
    }
    let prompt: Vec<u32> = (0..22).collect();
    more.push(span(50, 100, 240, &prompt));
    let made = tables(&more, GEOMETRY).unwrap();
    let count = |first_split: u32, queries: u32| {
        let all = made.wide.iter().chain(&made.narrow);
        all.filter(|item| item.first_split == first_split && item.queries == queries)
            .count()
    };
    assert_eq!(count(0, 40), 1);
    assert_eq!(count(0, 32), 1);
    assert_eq!(made.merges.len(), 50, "the prompt's rows go out whole");
    check_cover(&more, GEOMETRY);
}

#[test]
fn spans_that_do_not_fit_are_refused() {
    let wrong = [
        vec![span(0, 2, 0, &[0]), span(1, 1, 0, &[1])],
        vec![span(0, 17, 0, &[0])],
        vec![span(usize::MAX, 1, 0, &[0])],
        vec![span(0, 1, usize::MAX, &[0])],
        vec![span(1 << 31, 1, 0, &[0])],
    ];
    for spans in wrong {
        assert!(check(&spans).is_err(), "{spans:?}");
    }
    assert_eq!(check(&[span(3, 2, 14, &[7])]), Ok((5, 8)));
    let error: Result<_, KernelError> = check(&[]);
    assert_eq!(error, Ok((0, 0)));
}
