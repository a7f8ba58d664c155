//! Sequences that share the pages of a prefix: they are served together, and no bit may tell. And what stands in a cache where a row may not look.

mod common;

use assize_kernels::scalar::attention::Scoring;
use assize_kernels::{Cache, Isa, PAGE, Sizes, Span, attention};
use common::{Random, bits, on_threads};
use half::f16;

/// A cache of keys and values, and how it is asked.
struct World {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    pages: usize,
    keys: Vec<f16>,
    values: Vec<f16>,
    scoring: Scoring,
}

impl World {
    fn new([heads, kv_heads, dim]: [usize; 3], pages: usize, random: &mut Random) -> World {
        let mut numbers = || -> Vec<f16> {
            let all = random.normals(pages * PAGE * kv_heads * dim);
            all.into_iter().map(f16::from_f32).collect()
        };
        World {
            heads,
            kv_heads,
            dim,
            pages,
            keys: numbers(),
            values: numbers(),
            scoring: Scoring {
                scale: 0.3 / (dim as f32).sqrt(),
                window: None,
                soft_cap: None,
            },
        }
    }

    fn width(&self) -> usize {
        self.heads * self.dim
    }

    /// Elements of a page.
    fn page(&self) -> usize {
        PAGE * self.kv_heads * self.dim
    }

    fn attend(&self, isa: Isa, q: &[f32], spans: &[Span], out: &mut [f32]) {
        let sizes = Sizes {
            rows: q.len() / self.width(),
            heads: self.heads,
            kv_heads: self.kv_heads,
            dim: self.dim,
            pages: self.pages,
        };
        let caches = [Cache::F16(&self.keys), Cache::F16(&self.values)];
        attention(isa, q, caches, sizes, spans, self.scoring, out).unwrap();
    }

    /// Each span in a batch of its own.
    fn alone(&self, isa: Isa, q: &[f32], spans: &[Span]) -> Vec<f32> {
        let mut out = vec![7.0; q.len()];
        for span in spans {
            let range = span.first * self.width()..(span.first + span.rows) * self.width();
            let span = Span {
                first: 0,
                ..span.clone()
            };
            self.attend(isa, &q[range.clone()], &[span], &mut out[range]);
        }
        out
    }
}

/// Spans of `rows` rows each, one row apart, whose first `shared` pages are the same and the others their own.
fn family(lengths: &[(usize, usize)], shared: usize, window: Option<usize>, sizes: [usize; 3]) {
    let mut random = Random(21);
    let mut next = shared as u32;
    let mut first = 1;
    let mut spans = Vec::new();
    for (position, rows) in lengths.iter().copied() {
        let own = (position + rows).div_ceil(PAGE).saturating_sub(shared) as u32;
        spans.push(Span {
            first,
            rows,
            position,
            pages: (0..shared as u32).chain(next..next + own).collect(),
        });
        next += own;
        first += rows + 1;
    }
    // Behind the pages of the spans there is a copy of the prefix for each.
    let copies = next;
    let pages = next as usize + shared * spans.len();
    let mut world = World::new(sizes, pages, &mut random);
    world.scoring.window = window;
    let page = world.page();
    let mut apart = spans.clone();
    for (i, span) in apart.iter_mut().enumerate() {
        for at in 0..shared.min(span.pages.len()) {
            let copy = copies as usize + i * shared + at;
            span.pages[at] = copy as u32;
            for all in [&mut world.keys, &mut world.values] {
                all.copy_within(at * page..(at + 1) * page, copy * page);
            }
        }
    }
    let q = random.normals(first * world.width());
    let expected = world.alone(Isa::PORTABLE, &q, &apart);
    for isa in Isa::available() {
        for threads in [1, 2, 5] {
            for (how, spans) in [("together", &spans), ("apart", &apart)] {
                let mut out = vec![7.0; q.len()];
                on_threads(threads, || world.attend(isa, &q, spans, &mut out));
                assert_eq!(
                    bits(&out),
                    bits(&expected),
                    "{sizes:?} {lengths:?} after {shared} pages, window {window:?}, {how} on {} with {threads} threads",
                    isa.name()
                );
            }
        }
        assert_eq!(bits(&world.alone(isa, &q, &spans)), bits(&expected));
    }
}

#[test]
fn a_shared_prefix_leaves_no_trace() {
    let decode: Vec<(usize, usize)> = (0..23).map(|i| (170 + 7 * (i % 11), 1)).collect();
    let groups = [
        [12, 2, 16],
        [7, 1, 64],
        [9, 3, 32],
        [4, 1, 256],
        [3, 3, 128],
        [5, 1, 80],
        [2, 1, 20],
    ];
    for sizes in groups {
        for shared in [4, 6, 10] {
            family(&decode, shared, None, sizes);
        }
    }
    for window in [1, 40, 64, 100] {
        family(&decode, 10, Some(window), [6, 2, 32]);
    }
    // Rows that decode beside chunks, and sequences that are shorter than what the others share.
    let mixed = [
        (96, 40),
        (120, 1),
        (100, 3),
        (160, 70),
        (70, 1),
        (0, 9),
        (300, 1),
    ];
    for shared in [1, 5, 6, 8] {
        for sizes in [[6, 1, 48], [4, 2, 64], [3, 3, 16]] {
            family(&mixed, shared, None, sizes);
            family(&mixed, shared, Some(70), sizes);
        }
    }
}

#[test]
fn a_row_is_untouched_by_what_it_does_not_see() {
    let mut random = Random(22);
    for sizes in [[4, 2, 64], [7, 1, 32], [1, 1, 20], [2, 2, 128]] {
        for window in [None, Some(30)] {
            let mut world = World::new(sizes, 12, &mut random);
            world.scoring.window = window;
            let (rows, [_, kv_heads, dim]) = (150, sizes);
            let span = Span {
                first: 0,
                rows,
                position: 0,
                pages: (1..11).collect(),
            };
            let q = random.normals(rows * world.width());
            let clean = world.alone(Isa::PORTABLE, &q, std::slice::from_ref(&span));
            for (at, poison) in [(40, f16::NAN), (63, f16::INFINITY), (128, f16::NAN)] {
                let width = world.page() / kv_heads;
                let start = (1 + at / PAGE) * kv_heads * width;
                let places = [start + 3 * PAGE + at % PAGE, start + at % PAGE * dim + 3];
                for (part, place) in places.into_iter().enumerate() {
                    let all = [&mut world.keys, &mut world.values].into_iter().nth(part);
                    let before = std::mem::replace(&mut all.unwrap()[place], poison);
                    for isa in Isa::available() {
                        let mut out = vec![7.0; q.len()];
                        world.attend(isa, &q, std::slice::from_ref(&span), &mut out);
                        for row in 0..rows {
                            let range = row * world.width()..(row + 1) * world.width();
                            let (out, clean) = (&out[range.clone()], &clean[range]);
                            let sees = row >= at && window.is_none_or(|window| at + window > row);
                            let name = format!("{sizes:?} {window:?} row {row}, {poison} at {at}");
                            if !sees {
                                assert_eq!(bits(out), bits(clean), "{name} on {}", isa.name());
                            } else if part == 1 {
                                assert!(
                                    !out[3].is_finite() && out[4].is_finite(),
                                    "{name}: {out:?}"
                                );
                            } else if poison.is_nan() {
                                assert!(out[..dim].iter().all(|x| x.is_nan()), "{name}: {out:?}");
                            }
                        }
                    }
                    let all = [&mut world.keys, &mut world.values].into_iter().nth(part);
                    all.unwrap()[place] = before;
                }
            }
        }
    }
}
