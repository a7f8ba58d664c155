//! Sequences over a paged cache of bf16, some beginning with the pages of others, and their attention by the kernels on the host.

use crate::common::Random;
use crate::library::{HostAttend, HostMerge, Launch, Shape, expect, function};
use assize_kernels::cuda::shapes::{Attend, Card, QUERIES, merge_threads};
use assize_kernels::cuda::tables::{Geometry, check, tables};
use assize_kernels::scalar::{self, attention::Scoring};
use assize_kernels::{PAGE, Span};
use half::bf16;

/// A sequence: it begins with so many pages of an earlier one, has so many positions, and its last rows are asked for.
#[derive(Clone, Copy)]
pub struct Sequence {
    pub parent: usize,
    pub shared_pages: usize,
    pub length: usize,
    pub rows: usize,
}

/// Heads, heads of the cache, dimensions.
pub type Heads = (usize, usize, usize);

/// Sequences with their queries.
pub struct Batch {
    pub heads: Heads,
    pub spans: Vec<Span>,
    pub q: Vec<f32>,
    keys: Vec<u16>,
    values: Vec<u16>,
}

/// How a batch is run.
#[derive(Clone, Copy)]
pub struct How {
    pub warps: usize,
    pub stages: usize,
    pub processors: usize,
    pub order: u32,
    pub brief: bool,
}

/// One way of running it.
pub const PLAIN: How = How {
    warps: 4,
    stages: 2,
    processors: 1,
    order: 0,
    brief: false,
};

const POISON: u16 = 0x7fff;

impl Batch {
    /// Pages are scattered, and whatever no position has written is NaN.
    pub fn new(heads: Heads, sequences: &[Sequence], size: f32, random: &mut Random) -> Batch {
        let (query_heads, kv_heads, dim) = heads;
        let needed: usize = sequences.iter().map(|s| s.length.div_ceil(PAGE)).sum();
        let pages = needed + 3;
        let mut order: Vec<u32> = (0..pages as u32).collect();
        for i in (1..pages).rev() {
            order.swap(i, (random.bits() % (i as u64 + 1)) as usize);
        }
        let mut keys = vec![POISON; pages * PAGE * kv_heads * dim];
        let mut values = keys.clone();
        let mut spans: Vec<Span> = Vec::new();
        let mut first = 0;
        for sequence in sequences {
            let mut own: Vec<u32> = match sequence.shared_pages {
                0 => Vec::new(),
                shared => spans[sequence.parent].pages[..shared].to_vec(),
            };
            let begin = own.len() * PAGE;
            while own.len() * PAGE < sequence.length {
                own.push(order.pop().unwrap());
            }
            for position in begin..sequence.length {
                for head in 0..kv_heads {
                    let at = place(&own, position, head, heads);
                    for cache in [&mut keys, &mut values] {
                        for (x, from) in cache[at..at + dim].iter_mut().zip(random.normals(dim)) {
                            *x = bf16::from_f32(from).to_bits();
                        }
                    }
                }
            }
            spans.push(Span {
                first,
                rows: sequence.rows,
                position: sequence.length - sequence.rows,
                pages: own,
            });
            first += sequence.rows;
        }
        let q = random
            .normals(first * query_heads * dim)
            .iter()
            .map(|x| x * size)
            .collect();
        Batch {
            heads,
            spans,
            q,
            keys,
            values,
        }
    }

    /// Fills a page with NaN.
    pub fn poison(&mut self, page: u32) {
        let each = PAGE * self.heads.1 * self.heads.2;
        let range = page as usize * each..(page as usize + 1) * each;
        self.keys[range.clone()].fill(POISON);
        self.values[range].fill(POISON);
    }

    /// Keys and values.
    pub fn caches(&self) -> [&[u16]; 2] {
        [&self.keys, &self.values]
    }

    /// What each row should be.
    pub fn truth(&self, scoring: Scoring) -> Vec<f64> {
        let (heads, kv_heads, dim) = self.heads;
        let mut truth = Vec::new();
        for span in &self.spans {
            let read = |cache: &[u16], head: usize| -> Vec<f32> {
                (0..span.position + span.rows)
                    .flat_map(|position| {
                        let at = place(&span.pages, position, head, self.heads);
                        cache[at..at + dim]
                            .iter()
                            .map(|x| bf16::from_bits(*x).to_f32())
                    })
                    .collect()
            };
            let cache: Vec<[Vec<f32>; 2]> = (0..kv_heads)
                .map(|head| [read(&self.keys, head), read(&self.values, head)])
                .collect();
            for row in 0..span.rows {
                for head in 0..heads {
                    let query = &self.q[((span.first + row) * heads + head) * dim..][..dim];
                    let [keys, values] = &cache[head / (heads / kv_heads)];
                    truth.extend(scalar::attention::attend(
                        query,
                        keys,
                        values,
                        span.position + row,
                        scoring,
                    ));
                }
            }
        }
        truth
    }

    /// Attention of these spans' rows; where no span has a row, what stood there before: NaN.
    pub fn run(&self, spans: &[Span], scoring: Scoring, how: How) -> Vec<f32> {
        let (heads, kv_heads, dim) = self.heads;
        let card = Card {
            processors: how.processors,
            shared_bytes: usize::MAX,
        };
        let wide = Attend {
            warps: how.warps,
            stages: how.stages,
            ..Attend::wide(dim, card).unwrap()
        };
        let narrow = Attend::narrow(dim, card).unwrap();
        let geometry = Geometry {
            shared_by: heads / kv_heads,
            kv_heads,
            wide: wide.queries(),
            narrow: narrow.queries(),
            processors: how.processors,
        };
        assert_eq!(narrow.queries(), QUERIES);
        check(spans).unwrap();
        let tables = tables(spans, geometry).unwrap();
        // Guards after the results and poison in all of them.
        let mut sums = vec![f32::NAN; tables.partials * heads * dim];
        let mut tops = vec![[f32::NAN; 2]; tables.partials * heads];
        let guard = 64;
        let mut out = vec![f32::NAN; self.q.len() + guard];
        let mut shape = Shape {
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            dim: dim as u32,
            window: scoring.window.unwrap_or(0) as u32,
            scale: scoring.scale,
            soft_cap: scoring.soft_cap.unwrap_or(0.0),
            brief: u32::from(how.brief),
            stages: 0,
        };
        let attend: HostAttend = function("host_attend");
        for (block, items) in [(wide, &tables.wide), (narrow, &tables.narrow)] {
            if items.is_empty() {
                continue;
            }
            shape.stages = block.stages as u32;
            let mut launch = Launch::attend(block, items.len(), kv_heads);
            launch.order = how.order;
            // SAFETY: the tables are of these spans, whose pages the caches have, and the results are as large as the tables ask for.
            expect(unsafe {
                attend(
                    &launch,
                    block.width as u32,
                    self.q.as_ptr(),
                    self.keys.as_ptr(),
                    self.values.as_ptr(),
                    items.as_ptr(),
                    tables.entries.as_ptr(),
                    tables.pages.as_ptr(),
                    sums.as_mut_ptr(),
                    tops.as_mut_ptr(),
                    out.as_mut_ptr().cast(),
                    &shape,
                )
            });
        }
        if !tables.merges.is_empty() {
            let merge: HostMerge = function("host_merge");
            let mut launch = Launch::new(tables.merges.len(), heads, merge_threads(dim), 0);
            launch.order = how.order;
            // SAFETY: as above.
            expect(unsafe {
                merge(
                    &launch,
                    tables.merges.as_ptr(),
                    sums.as_ptr(),
                    tops.as_ptr(),
                    out.as_mut_ptr().cast(),
                    &shape,
                )
            });
        }
        let count = self.q.len();
        assert!(out[count..].iter().all(|x| x.is_nan()), "the guard");
        if how.brief {
            // Half as many bytes.
            assert!(out[count / 2..].iter().all(|x| x.is_nan()), "the guard");
            let halves = out[..count / 2].iter().flat_map(|x| {
                let bits = x.to_bits();
                [bits as u16, (bits >> 16) as u16]
            });
            return halves.map(|x| bf16::from_bits(x).to_f32()).collect();
        }
        out.truncate(count);
        out
    }
}

fn place(pages: &[u32], position: usize, head: usize, (_, kv_heads, dim): Heads) -> usize {
    ((pages[position / PAGE] as usize * kv_heads + head) * PAGE + position % PAGE) * dim
}
