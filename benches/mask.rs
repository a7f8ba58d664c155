//! What a grammar costs: compiling the shape of a judgement, and the masks of a walk through it.
//!
//! `cargo bench --bench mask -- --quick`. The vocabulary is made up: all bytes, and 32,000 words of them.

use assize::ask::{Field, FieldValue, Labels, Shape};
use assize::constrain::{Compiler, Constraint, Next, Vocabulary};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;

const WORDS: usize = 32_000;

/// A vocabulary of all bytes, words of two to nine letters with and without a blank before them, and a token that ends.
fn vocabulary() -> Vocabulary {
    let mut bytes: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let mut state = 1u64;
    let mut next = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % limit
    };
    for index in 0..WORDS {
        let mut word = if index % 2 == 0 {
            vec![b' ']
        } else {
            Vec::new()
        };
        word.extend((0..2 + next(8)).map(|_| b'a' + next(26) as u8));
        bytes.push(word);
    }
    bytes.push(Vec::new());
    let stop = bytes.len() as u32 - 1;
    let control: Vec<bool> = bytes.iter().map(Vec::is_empty).collect();
    let encode = Arc::new(|text: &str| text.bytes().map(u32::from).collect());
    Vocabulary::new(bytes, &control, vec![stop], encode).expect("a vocabulary")
}

/// A rationale, two quotes of an answer of about 1,500 characters, and a score.
fn judgement() -> Shape {
    let source = "The lamp is waterproof to IP44, so it may hang in a bathroom. ".repeat(24);
    let field = |name: &str, value| Field {
        name: name.into(),
        value,
    };
    let quotes = FieldValue::Quotes {
        source,
        max_items: 2,
        max_chars: 200,
    };
    let labels = Labels {
        names: (1..=5).map(|score| score.to_string()).collect(),
        quoted: false,
    };
    Shape::Object(vec![
        field("rationale", FieldValue::Text { max_chars: 240 }),
        field("evidence", quotes),
        field("score", FieldValue::Labels(labels)),
    ])
}

/// Walks until the label, always by the token in the mask that a fixed sequence picks. Returns the masks on the way.
fn walk(mut constraint: Box<dyn Constraint>, size: usize) -> usize {
    let (mut masks, mut state) = (0usize, 7u64);
    loop {
        match constraint.next().expect("the next") {
            Next::Forced(tokens) => constraint.advance(&tokens).expect("an advance"),
            Next::Choose(mask) => {
                masks += 1;
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let start = (state >> 33) as usize % size;
                let around = (start..size).chain(0..start).map(|token| token as u32);
                let Some(token) = around.into_iter().find(|token| mask.allows(*token)) else {
                    return masks;
                };
                if constraint.advance(&[token]).is_err() {
                    return masks;
                }
            }
            Next::Labels { .. } | Next::Done => return masks,
        }
    }
}

fn masks(criterion: &mut Criterion) {
    let compiler = Compiler::from_vocabulary(vocabulary()).expect("a compiler");
    let size = compiler.vocabulary().size();
    let shape = judgement();
    criterion.bench_function("compile a judgement", |bencher| {
        bencher.iter(|| compiler.compile(black_box(&shape)).expect("a constraint"));
    });
    let count = walk(compiler.compile(&shape).expect("a constraint"), size);
    println!("a walk has {count} masks over {size} tokens");
    let compiled = || compiler.compile(&shape).expect("a constraint");
    criterion.bench_function("walk a judgement", |bencher| {
        bencher.iter_batched(
            compiled,
            |constraint| walk(constraint, size),
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("first mask", |bencher| {
        let first = |mut constraint: Box<dyn Constraint>| loop {
            match constraint.next().expect("the next") {
                Next::Forced(tokens) => constraint.advance(&tokens).expect("an advance"),
                next => return next,
            }
        };
        bencher.iter_batched(compiled, first, BatchSize::SmallInput);
    });
}

fn settings() -> Criterion {
    Criterion::default().sample_size(20)
}

criterion_group!(name = benches; config = settings(); targets = masks);
criterion_main!(benches);
