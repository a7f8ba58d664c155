//! Models of random weights: every type and family loads and computes, the bytes depend on the seed alone, what no model
//! can have is refused before anything is written, and a tiny one judges from end to end.

mod common;

use assize::model::batch::{Batch, Forward, Span};
use assize::model::cache::KvType;
use assize::model::decoder::{Decoder, LoadOptions};
use assize::synth::file;
use assize::synth::mix::Mix;
use assize::synth::plan::Plan;
use assize::synth::shape::{Family, Shape, preset};
use assize::weights::Store;
use assize_kernels::{Precision, Quant};
use std::path::Path;
use std::process::Output;

/// The tiny preset with a small vocabulary.
fn tiny(family: Family) -> Shape {
    Shape {
        family,
        vocabulary: 96,
        context: 8192,
        ..preset("tiny").unwrap()
    }
}

fn write(path: &Path, shape: &Shape, mix: Mix, seed: u64) {
    let plan = Plan::new(shape, mix, None, None).unwrap();
    let mut told = 0;
    let bytes = file::write(path, &plan, seed, false, &mut |done| told = done).unwrap();
    assert_eq!(told, plan.bytes());
    assert_eq!(bytes, std::fs::metadata(path).unwrap().len());
}

/// Loads the file and runs a few tokens: the logits must be numbers, and neither all alike nor beyond reason.
fn check_runs(case: &str, path: &Path) {
    let store = Store::open(path).unwrap();
    let options = LoadOptions {
        precision: Precision::Quantized,
        cache: KvType::F16,
        pages: 4,
        context: None,
        progress: None,
    };
    let mut decoder = Decoder::load(&store, &options).unwrap_or_else(|e| panic!("{case}: {e}"));
    let batch = Batch {
        tokens: (1..20).collect(),
        spans: vec![Span {
            first: 0,
            rows: 19,
            position: 0,
            pages: vec![0, 1],
        }],
        outputs: vec![17, 18],
    };
    let logits = decoder.forward(&batch).unwrap();
    assert!(logits.iter().all(|x| x.is_finite()), "{case}: {logits:?}");
    let (before, last) = logits.split_at(decoder.vocabulary());
    let mean = last.iter().sum::<f32>() / last.len() as f32;
    let square = last.iter().map(|x| (x - mean).powi(2)).sum::<f32>();
    let deviation = (square / last.len() as f32).sqrt();
    assert!((0.3..30.0).contains(&deviation), "{case}: {deviation}");
    assert!(mean.abs() < deviation, "{case}: {mean} ± {deviation}");
    assert_ne!(before, last, "{case}: logits do not depend on the token");
}

#[test]
fn every_type_loads_and_computes() {
    let folder = tempfile::tempdir().unwrap();
    let plain = Quant::ALL.into_iter().map(Mix::Plain);
    for mix in plain.chain([Mix::Q4KM, Mix::Q5KM]) {
        let path = folder.path().join(mix.name());
        write(&path, &tiny(Family::Llama), mix, 1);
        check_runs(&mix.name(), &path);
    }
}

#[test]
fn every_family_loads_and_computes() {
    let folder = tempfile::tempdir().unwrap();
    for family in Family::ALL {
        let path = folder.path().join(family.name());
        write(&path, &tiny(family), Mix::Q4KM, 1);
        check_runs(family.name(), &path);
    }
    // Rows that are no whole blocks of 256, and heads of a width of their own.
    let narrow = Shape {
        hidden: 96,
        feed_forward: 160,
        heads: 3,
        kv_heads: 1,
        head_dim: Some(32),
        tied: false,
        ..tiny(Family::Qwen2)
    };
    let path = folder.path().join("narrow");
    write(&path, &narrow, Mix::Q4KM, 1);
    check_runs("narrow", &path);
}

#[test]
fn the_file_depends_on_the_seed_and_not_on_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, threads: usize, seed: u64| {
        let path = folder.path().join(name);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap()
            .install(|| write(&path, &tiny(Family::Llama), Mix::Q4KM, seed));
        std::fs::read(path).unwrap()
    };
    let first = written("a", 1, 5);
    assert!(first == written("b", 3, 5), "threads change the bytes");
    assert!(first != written("c", 1, 6), "the seed changes nothing");
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 3, "something unfinished was left behind");
}

fn synth(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = common::assize();
    command.current_dir(folder).arg("synth").args(arguments);
    command.output().unwrap()
}

#[test]
fn what_can_not_be_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let output = synth(folder.path(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert!(stderr.contains("\n\nhint: ") || code == 1, "{stderr}");
    };
    let out = ["--out", "x.gguf"];
    let with = |more: &[&'static str]| [&["tiny"], &out[..], more].concat();
    let heads = "3 heads don't divide a hidden width of 256";
    check(&with(&["--heads", "3"]), 2, heads);
    check(&with(&["--kv-heads", "3"]), 2, "3 key and value heads");
    let blocks = "rows of 128 are no whole blocks of 256, as Q6_K has them";
    check(&with(&["--hidden", "128", "-t", "q6_k"]), 2, blocks);
    let mix = "rows of 200 are no whole blocks of 32";
    check(&with(&["--hidden", "200"]), 2, mix);
    check(
        &with(&["--quant", "Q9"]),
        2,
        "no quantization is named `Q9`",
    );
    check(
        &with(&["--family", "mamba"]),
        2,
        "no family is named `mamba`",
    );
    check(
        &with(&["--tokenizer", "nobody"]),
        2,
        "no model is named `nobody`",
    );
    check(&["huge", "--out", "x.gguf"], 2, "no preset is named `huge`");
    check(
        &["tiny", "--out", "a/b.gguf"],
        1,
        "a/b.gguf: can't write beside it",
    );
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());

    std::fs::write(folder.path().join("x.gguf"), "mine").unwrap();
    check(&with(&[]), 2, "x.gguf is there already");
    assert_eq!(
        std::fs::read(folder.path().join("x.gguf")).unwrap(),
        b"mine"
    );
    let forced = synth(folder.path(), &with(&["--force", "--json"]));
    let object: serde_json::Value =
        serde_json::from_str(&common::stdout_of(&forced)).expect("one object");
    let bytes = std::fs::metadata(folder.path().join("x.gguf"))
        .unwrap()
        .len();
    assert_eq!(object["bytes"].as_u64(), Some(bytes));
}

#[test]
fn a_tiny_model_judges_from_end_to_end() {
    let Some(model) = common::test_model("a_tiny_model_judges_from_end_to_end") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = model.display().to_string();
    let arguments = ["tiny", "--out", "tiny.gguf", "--tokenizer", &tokenizer];
    common::stdout_of(&synth(folder.path(), &arguments));
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for mode in ["rationale", "score-only"] {
        let mut command = common::assize();
        command
            .current_dir(folder.path())
            .args(["judge", "--model", "tiny.gguf", "--json", "--limit", "4"])
            .args(["--mode", mode, "--out", mode, "--rubric"])
            .arg(examples.join("grounded.toml"))
            .arg(examples.join("support.jsonl"));
        let stdout = common::stdout_of(&command.output().unwrap());
        let lines: Vec<serde_json::Value> = stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 5, "{stdout}");
        assert_eq!(lines[4]["summary"]["judged"], 4, "{stdout}");
    }
}
