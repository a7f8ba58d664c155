//! What the tests of the model share: golden files, models in the cache, and ways to run a sequence.
//!
//! The golden files' format is described in `tests/golden/README.md`.
#![allow(dead_code)] // Each test binary uses its own part.

use assize::model::batch::{Batch, Forward, PAGE, PageId, Span};
use assize::model::cache::KvType;
use assize::model::config::Config;
use assize::model::decoder::{Decoder, LoadOptions};
use assize::weights::Store;
use assize::weights::fetch::{self, FetchOptions};
use assize::weights::progress::Silent;
use assize_kernels::Precision;
use std::collections::HashMap;
use std::io::Read;
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

/// The divergence of the distribution of `found` from that of `expected`, in nats.
pub fn divergence(expected: &[f32], found: &[f32]) -> f64 {
    let total = |logits: &[f32]| {
        logits
            .iter()
            .map(|logit| f64::from(*logit).exp())
            .sum::<f64>()
            .ln()
    };
    let (all_expected, all_found) = (total(expected), total(found));
    let nats = |(p, q): (&f32, &f32)| {
        let (p, q) = (f64::from(*p) - all_expected, f64::from(*q) - all_found);
        p.exp() * (p - q)
    };
    expected.iter().zip(found).map(nats).sum()
}

/// The whole rows of a reference, where `ASSIZE_REFERENCE_DIR` names a folder that has them.
pub struct Rows {
    file: std::fs::File,
    width: usize,
}

impl Rows {
    /// Opens `<folder>/<golden>.f32`.
    pub fn open(golden: &str, width: usize) -> Option<Rows> {
        let folder = PathBuf::from(std::env::var_os("ASSIZE_REFERENCE_DIR")?);
        let file = std::fs::File::open(folder.join(format!("{golden}.f32"))).ok()?;
        Some(Rows { file, width })
    }

    /// The logits of the next position.
    pub fn read(&mut self) -> Vec<f32> {
        let mut bytes = vec![0; 4 * self.width];
        self.file
            .read_exact(&mut bytes)
            .expect("a row for each position");
        bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")))
            .collect()
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
    /// The divergence of `logits` from this distribution in nats, as far as head and buckets show it, and whether the
    /// top token is the same.
    pub fn compare(&self, logits: &[f32]) -> (f64, bool) {
        let (top, highest) =
            (0u32..)
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

/// The file of a model in assize's cache. SmolLM2, which is small, is fetched where it is not there; of any other, and
/// without a network, `None` with a line that says what was skipped.
pub fn cached_model(test: &str, name: &str) -> Option<PathBuf> {
    if let Some(file) = fetch::cached(name) {
        return Some(file);
    }
    if name != "smollm2-135m-instruct" {
        crate::common::skip(test, &format!("{name} is not here (assize fetch {name})"));
        return None;
    }
    let fetched = FetchOptions::from_environment(false, &Silent)
        .and_then(|options| fetch::locate(name, &options));
    match fetched {
        Ok(located) => Some(located.path().to_owned()),
        Err(error) => {
            crate::common::skip(test, &format!("{name} could not be fetched: {error}"));
            None
        }
    }
}

/// A decoder of the file, with a cache of `pages`.
pub fn load(
    file: &Path,
    precision: Precision,
    cache: KvType,
    pages: usize,
    context: Option<usize>,
) -> Decoder {
    let store = Store::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let options = LoadOptions {
        precision,
        cache,
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

/// A sequence, or the rest of one, to be run.
#[derive(Clone)]
pub struct Job<'a> {
    /// Its tokens, those before `start` included.
    pub tokens: &'a [u32],
    /// The first position to compute; what lies before is in the pages already.
    pub start: usize,
    /// Rows a pass.
    pub chunk: usize,
    /// Its pages.
    pub pages: Vec<PageId>,
}

/// Runs the jobs side by side, each at its own pace, and hands out job, position and logits.
pub fn together(decoder: &mut Decoder, jobs: &[Job], mut each: impl FnMut(usize, usize, &[f32])) {
    let mut next: Vec<usize> = jobs.iter().map(|job| job.start).collect();
    loop {
        let mut batch = Batch::default();
        let mut owners = Vec::new();
        for (index, job) in jobs.iter().enumerate() {
            let rows = job.chunk.min(job.tokens.len() - next[index]);
            if rows == 0 {
                continue;
            }
            let (first, position) = (batch.tokens.len(), next[index]);
            batch.tokens.extend(&job.tokens[position..position + rows]);
            batch.spans.push(Span {
                first,
                rows,
                position,
                pages: job.pages.clone(),
            });
            owners.extend((position..position + rows).map(|position| (index, position)));
            next[index] += rows;
        }
        if owners.is_empty() {
            return;
        }
        batch.outputs = (0..owners.len()).collect();
        let logits = decoder.forward(&batch).expect("a sound batch");
        for ((job, position), logits) in owners
            .into_iter()
            .zip(logits.chunks_exact(decoder.vocabulary()))
        {
            each(job, position, logits);
        }
    }
}

/// The bits of a job's logits, position by position, run beside others.
fn bits(decoder: &mut Decoder, jobs: &[Job], wanted: usize) -> Vec<Vec<u32>> {
    let mut result = Vec::new();
    together(decoder, jobs, |job, _, logits| {
        if job == wanted {
            result.push(logits.iter().map(|logit| logit.to_bits()).collect());
        }
    });
    result
}

/// Holds the bits of a sequence's logits to those that it has alone and in one pass: in chunks, on other pages, beside
/// `others`, behind a shared prefix, behind a copied page, with one thread and with two, and with fewer outputs.
pub fn check_invariance(
    name: &str,
    file: &Path,
    tokens: &[u32],
    others: &[&[u32]],
    precision: Precision,
    cache: KvType,
) {
    let own = pages_of(tokens.len());
    let longest = others
        .iter()
        .map(|tokens| pages_of(tokens.len()))
        .max()
        .unwrap_or(0);
    let total = 3 * own + others.len() * longest;
    let store = Store::open(file).expect("a model file");
    let config = Config::from_metadata(store.metadata()).expect("a configuration");
    let mut decoder = load(file, precision, cache, total, Some(config.context));
    let pages = |first: usize, count: usize| {
        (first as PageId..(first + count) as PageId).collect::<Vec<_>>()
    };
    let whole = Job {
        tokens,
        start: 0,
        chunk: tokens.len(),
        pages: pages(0, own),
    };
    let alone = bits(&mut decoder, std::slice::from_ref(&whole), 0);
    assert_eq!(alone.len(), tokens.len());
    let mut same = |what: &str, jobs: &[Job], wanted: usize| {
        let found = bits(&mut decoder, jobs, wanted);
        assert!(
            found == alone[jobs[wanted].start..],
            "{name}, {precision:?}, {cache:?}: other logits {what}"
        );
    };

    for chunk in [1, 7, 16, 64] {
        same(
            &format!("in chunks of {chunk}"),
            &[Job {
                chunk,
                ..whole.clone()
            }],
            0,
        );
    }
    let reversed: Vec<PageId> = pages(own, own).into_iter().rev().collect();
    same(
        "on other pages",
        &[Job {
            pages: reversed,
            ..whole.clone()
        }],
        0,
    );

    let mut crowd: Vec<Job> = others
        .iter()
        .enumerate()
        .map(|(index, tokens)| {
            let pages = pages(3 * own + index * longest, longest);
            Job {
                tokens,
                start: 0,
                chunk: [11, 1, 40][index % 3],
                pages,
            }
        })
        .collect();
    for (place, chunk) in [(0, 5), (crowd.len() / 2, 1), (crowd.len(), 33)] {
        crowd.insert(
            place,
            Job {
                chunk,
                ..whole.clone()
            },
        );
        same(
            &format!("in place {place} of {}", crowd.len()),
            &crowd,
            place,
        );
        for threads in [1, 2] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("a pool");
            pool.install(|| same(&format!("with {threads} threads"), &crowd, place));
        }
        crowd.remove(place);
    }

    // The first page is shared with the run before; then the sequence goes on, on pages of its own.
    let mut shared = pages(2 * own, own);
    shared[0] = 0;
    let rest = Job {
        start: PAGE,
        chunk: 9,
        pages: shared.clone(),
        ..whole.clone()
    };
    same(
        "before the prefix is shared",
        std::slice::from_ref(&whole),
        0,
    );
    same("behind a shared prefix", std::slice::from_ref(&rest), 0);
    // The second page is copied half way through.
    decoder.copy_page(1, shared[1]).expect("a sound copy");
    let found = bits(
        &mut decoder,
        &[Job {
            start: PAGE + 5,
            ..rest
        }],
        0,
    );
    assert!(
        found == alone[PAGE + 5..],
        "{name}, {precision:?}, {cache:?}: other logits behind a copied page"
    );

    let last = tokens.len() - 1;
    for outputs in [vec![last], vec![0, 3, 4, last], Vec::new()] {
        let batch = Batch {
            tokens: tokens.to_vec(),
            spans: vec![Span {
                first: 0,
                rows: tokens.len(),
                position: 0,
                pages: whole.pages.clone(),
            }],
            outputs,
        };
        let logits: Vec<u32> = decoder
            .forward(&batch)
            .expect("a sound batch")
            .iter()
            .map(|x| x.to_bits())
            .collect();
        let expected: Vec<u32> = batch
            .outputs
            .iter()
            .flat_map(|row| alone[*row].clone())
            .collect();
        assert!(
            logits == expected,
            "{name}, {precision:?}, {cache:?}: other logits for the outputs {:?}",
            batch.outputs
        );
    }
}
