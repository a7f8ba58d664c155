//! From asks to answers on a tiny model of random weights: what engine, grammar and readout cost where the model is small.
//!
//! `cargo bench --bench end_to_end -- --quick`. For real models there is `assize bench`.

#[path = "../tests/common/tiny.rs"]
mod tiny;

use assize::ask::{Answerer as _, Ask, Decoding, Field, FieldValue, Labels, Prompt, Shape};
use assize::engine::Engine;
use assize::run::{JudgeSettings, ModelFile};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::path::Path;
use std::time::Duration;

/// Asks of a round.
const ASKS: u64 = 16;

fn engine(path: &Path, prefix_cache: bool) -> Engine {
    let settings = JudgeSettings {
        prefix_cache,
        cache_bytes: Some(64 << 20),
        ..JudgeSettings::default()
    };
    let file = ModelFile::open(path, None).expect("a model");
    let memory = file.plan(&settings).expect("memory");
    file.load(&settings, &memory, None)
        .expect("an engine")
        .engine
}

fn labels() -> Labels {
    Labels {
        names: (1..=5).map(|score| score.to_string()).collect(),
        quoted: false,
    }
}

fn ask(index: u64, shape: Shape) -> Ask {
    let rubric = "Is the answer grounded in what was given? Say so from 1 to 5. ".repeat(12);
    Ask {
        prompt: Prompt::Raw(format!(
            "{rubric}\nAnswer {index}: it may hang in a bathroom.\n"
        )),
        shape,
        decoding: Decoding::default(),
    }
}

/// A rationale, and a score under it.
fn judgement() -> Shape {
    let field = |name: &str, value| Field {
        name: name.into(),
        value,
    };
    Shape::Object(vec![
        field("rationale", FieldValue::Text { max_chars: 40 }),
        field("score", FieldValue::Labels(labels())),
    ])
}

fn round(engine: &mut Engine, shape: &Shape) {
    (0..ASKS).for_each(|index| engine.submit(index, ask(index, shape.clone())));
    let mut settled = 0;
    while settled < ASKS {
        for (ticket, answer) in engine.step() {
            answer.unwrap_or_else(|failure| panic!("ask {ticket}: {failure}"));
            settled += 1;
        }
    }
}

fn answers(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = tiny::write(folder.path());
    let mut group = criterion.benchmark_group("answers");
    group.throughput(Throughput::Elements(ASKS));
    for (name, prefix_cache) in [("cold", false), ("warm", true)] {
        let mut engine = engine(&path, prefix_cache);
        group.bench_function(format!("labels alone, {name}"), |bencher| {
            let shape = Shape::Labels(labels());
            bencher.iter(|| round(&mut engine, &shape));
        });
        group.bench_function(format!("rationale and label, {name}"), |bencher| {
            let shape = judgement();
            bencher.iter(|| round(&mut engine, &shape));
        });
    }
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(3))
}

criterion_group!(name = benches; config = settings(); targets = answers);
criterion_main!(benches);
