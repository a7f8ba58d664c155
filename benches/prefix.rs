//! The prefix tree under a judge's load: many prompts that share a rubric of 760 tokens and differ in 240 that follow.
//!
//! `cargo bench --bench prefix -- --quick`.

use assize::engine::pages::Pages;
use assize::engine::prefix::{PageTokens, Prefix, ROOT};
use assize::model::batch::PAGE;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

const SHARED: usize = 760;
const OWN: usize = 240;

fn prompt(index: u32) -> Vec<u32> {
    let own = (0..OWN as u32).map(|at| 1_000_000 + index * 1000 + at);
    (0..SHARED as u32).chain(own).collect()
}

/// Puts a prompt into the tree, as a sequence that was computed and has left.
fn put(prefix: &mut Prefix, pages: &mut Pages, tokens: &[u32]) {
    let mut node = ROOT;
    for page in tokens.chunks_exact(PAGE) {
        let page: &PageTokens = page.try_into().expect("a page");
        if let Some((child, _)) = prefix.child(node, page) {
            node = child;
            continue;
        }
        let free = match pages.allocate() {
            Some(free) => free,
            None => {
                assert!(prefix.evict(pages), "nothing can be dropped");
                pages.allocate().expect("a page")
            }
        };
        (node, _) = prefix.insert(pages, node, page, free);
        pages.release(free);
    }
}

fn tree(count: u32, capacity: usize) -> (Prefix, Pages) {
    let (mut prefix, mut pages) = (Prefix::default(), Pages::new(capacity));
    (0..count).for_each(|index| put(&mut prefix, &mut pages, &prompt(index)));
    (prefix, pages)
}

fn prefixes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prefix");
    for count in [8, 512] {
        let (prefix, _) = tree(count, 1 << 16);
        let wanted = prompt(count / 2);
        group.throughput(Throughput::Elements(wanted.len() as u64));
        group.bench_function(BenchmarkId::new("look up among", count), |bencher| {
            bencher.iter(|| prefix.cached(black_box(&wanted), usize::MAX).count());
        });
    }
    group.throughput(Throughput::Elements((SHARED + OWN) as u64));
    group.bench_function("put one more of 512", |bencher| {
        let new = prompt(9999);
        let full = || tree(512, 1 << 16);
        bencher.iter_batched(
            full,
            |(mut prefix, mut pages)| {
                put(&mut prefix, &mut pages, &new);
                (prefix, pages)
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("put one more, dropping others", |bencher| {
        // Room for about 64 tails: each new one drops the oldest.
        let (mut prefix, mut pages) = tree(512, 1024);
        let mut index = 1000;
        bencher.iter(|| {
            index = 1000 + (index + 1) % 3000;
            put(&mut prefix, &mut pages, &prompt(index));
        });
    });
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default().sample_size(10)
}

criterion_group!(name = benches; config = settings(); targets = prefixes);
criterion_main!(benches);
