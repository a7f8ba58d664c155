//! What the tests of the model share: golden files, models in the cache, and ways to run a sequence.
//!
//! The golden files' format is described in `tests/golden/README.md`.
#![allow(dead_code)] // Each test binary uses its own part.

use assize::model::batch::{Batch, Forward, PAGE, PageId, Span};
use assize::model::decoder::{Decoder, LoadOptions};
use assize::weights::Store;
use assize_kernels::Precision;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A golden file.
pub struct Golden {
    /// The `# key: value` lines.
    pub origin: HashMap<String, String>,
    /// Its sequences.
    pub sequences: Vec<Sequence>,
}

/// A sequence with what the reference says about each position.
pub struct Sequence {
    /// Its name.
    pub name: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Of whole vocabularies: every logit of each position.
    pub logits: Vec<Vec<f32>>,
    /// Of real models: the distribution after each position.
    pub distributions: Vec<Distribution>,
}

/// A next-token distribution: the head token by token, the rest in buckets of `id % buckets`.
pub struct Distribution {
    /// Token and natural log of its probability, falling.
    pub head: Vec<(u32, f64)>,
    /// Natural log of the probability of each bucket.
    pub tail: Vec<f64>,
}

impl Golden {
    /// Reads `tests/golden/<name>`, or `None` where there is no such file.
    pub fn read(name: &str) -> Option<Golden> {
        let path = golden(name);
        let text = std::fs::read_to_string(&path).ok()?;
        let mut golden = Golden {
            origin: HashMap::new(),
            sequences: Vec::new(),
        };
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let fields = || rest.split(' ');
            match kind {
                "#" => {
                    let (key, value) = rest.split_once(": ").expect("an origin line");
                    golden.origin.insert(key.to_owned(), value.to_owned());
                }
                "sequence" => golden.sequences.push(Sequence {
                    name: fields().nth(1).expect("a name").to_owned(),
                    tokens: Vec::new(),
                    logits: Vec::new(),
                    distributions: Vec::new(),
                }),
                _ => {
                    let sequence = golden.sequences.last_mut().expect("a sequence line first");
                    match kind {
                        "tokens" => sequence.tokens = fields().map(number).collect(),
                        "l" => sequence.logits.push(fields().skip(1).map(number).collect()),
                        "p" => sequence.distributions.push(distribution(rest)),
                        other => panic!("{}: unknown record {other:?}", path.display()),
                    }
                }
            }
        }
        Some(golden)
    }
}

/// A file of `tests/golden`.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn distribution(record: &str) -> Distribution {
    let (head, tail) = record.split_once(" | ").expect("head and tail");
    let pair = |field: &str| {
        let (id, log) = field.split_once(':').expect("id:logprob");
        (number(id), number(log))
    };
    Distribution {
        head: head.split(' ').skip(2).map(pair).collect(),
        tail: tail.split(' ').map(number).collect(),
    }
}

impl Distribution {
    /// The divergence of `logits` from this distribution in nats, and whether the top token is the same.
    pub fn compare(&self, logits: &[f32]) -> (f64, bool) {
        let (top, highest) = (0u32..)
            .zip(logits)
            .fold((0, f32::NEG_INFINITY), |best, (id, logit)| {
                if *logit > best.1 { (id, *logit) } else { best }
            });
        let mass = |logit: f32| (f64::from(logit) - f64::from(highest)).exp();
        let total: f64 = logits.iter().map(|logit| mass(*logit)).sum();
        let mut buckets = vec![0f64; self.tail.len()];
        for (id, logit) in logits.iter().enumerate() {
            buckets[id % self.tail.len()] += mass(*logit);
        }
        let mut divergence = 0.0;
        for (id, log) in &self.head {
            let mass = mass(logits[*id as usize]);
            buckets[*id as usize % self.tail.len()] -= mass;
            divergence += log.exp() * (log - (mass / total).ln());
        }
        for (log, mass) in self.tail.iter().zip(buckets) {
            if log.is_finite() {
                divergence += log.exp() * (log - (mass.max(f64::MIN_POSITIVE) / total).ln());
            }
        }
        (divergence, top == self.head[0].0)
    }
}

/// The file of a model in assize's cache, or `None` with a line that says what was skipped.
pub fn cached_model(test: &str, name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("ASSIZE_HOME")
        .map(PathBuf::from)
        .or_else(|| {
            let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            let cache =
                cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
            Some(cache.join("assize"))
        });
    let file = home.and_then(|home| {
        let mut files = std::fs::read_dir(home.join("models").join(name))
            .ok()?
            .flatten();
        files.find_map(|file| {
            file.path()
                .extension()
                .is_some_and(|kind| kind == "gguf")
                .then(|| file.path())
        })
    });
    if file.is_none() {
        println!("skipped: {test} needs the model {name} (`assize fetch {name}`)");
    }
    file
}

/// A decoder of the file, with a cache of `pages`.
pub fn load(file: &Path, precision: Precision, pages: usize, context: Option<usize>) -> Decoder {
    let store = Store::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let options = LoadOptions {
        precision,
        pages,
        context,
        progress: None,
    };
    Decoder::load(&store, &options).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Pages that a sequence of `tokens` takes.
pub fn pages_of(tokens: usize) -> usize {
    tokens.div_ceil(PAGE)
}

/// Feeds a sequence alone, `chunk` rows at a time, and hands out each position's logits.
pub fn feed(
    decoder: &mut Decoder,
    tokens: &[u32],
    chunk: usize,
    pages: &[PageId],
    mut each: impl FnMut(usize, &[f32]),
) {
    for (index, rows) in tokens.chunks(chunk).enumerate() {
        let position = index * chunk;
        let batch = Batch {
            tokens: rows.to_vec(),
            spans: vec![Span {
                first: 0,
                rows: rows.len(),
                position,
                pages: pages.to_vec(),
            }],
            outputs: (0..rows.len()).collect(),
        };
        let logits = decoder.forward(&batch).expect("a sound batch");
        for (row, logits) in logits.chunks_exact(decoder.vocabulary()).enumerate() {
            each(position + row, logits);
        }
    }
}
