//! Packed weights on disk: a start that maps them gives the bits of one that packs, and whatever is wrong with the file, it is refused or
//! does no harm.

mod common;
#[path = "common/tiny.rs"]
mod tiny;

use assize::model::batch::{Batch, Forward, Span};
use assize::model::cache::KvType;
use assize::model::decoder::{Decoder, LoadOptions};
use assize::synth::file;
use assize::synth::mix::Mix;
use assize::synth::plan::Plan;
use assize::synth::shape::{Family, Shape, preset};
use assize::weights::layouts::{LayoutError, Layouts, Part, Place, Unwritten};
use assize::weights::writer::{Entry, Writer};
use assize::weights::{Metadata, Store, Value};
use assize_kernels::{Matrix, Precision, Quant};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::AtomicBool;

static GO_ON: AtomicBool = AtomicBool::new(false);

fn golden(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families");
    folder.join(format!("{name}.gguf"))
}

fn load(
    model: &Path,
    layouts: Option<&Layouts>,
    precision: Precision,
) -> (Decoder, Vec<Part>, usize) {
    let store = Store::open(model).unwrap();
    let options = LoadOptions {
        precision,
        cache: match precision {
            Precision::Exact => KvType::F32,
            _ => KvType::F16,
        },
        pages: 4,
        context: None,
        progress: None,
    };
    let (decoder, packing) = Decoder::load_with(&store, layouts, &options).unwrap();
    (decoder, packing.parts, packing.fresh)
}

/// The bits of the logits of a few rows, in a batch and one at a time.
fn logits(mut decoder: Decoder) -> Vec<u32> {
    let mut run = |tokens: &[u32], position: usize| {
        let span = Span {
            first: 0,
            rows: tokens.len(),
            position,
            pages: vec![1, 2],
        };
        let batch = Batch {
            tokens: tokens.to_vec(),
            spans: vec![span],
            outputs: (0..tokens.len()).collect(),
        };
        decoder.forward(&batch).unwrap()
    };
    let mut all = run(&[1, 5, 9, 2, 7, 40, 41, 3, 1, 1, 60, 11], 0);
    all.extend(run(&[8], 12));
    all.into_iter().map(f32::to_bits).collect()
}

fn place(home: &Path) -> Place {
    Place {
        home: home.into(),
        sha256: "ab".repeat(32),
    }
}

fn write(place: &Place, parts: Vec<Part>) -> Result<Option<u64>, LayoutError> {
    let place = place.clone();
    Unwritten { place, parts }.write(&GO_ON)
}

fn refusal(place: &Place) -> String {
    match Layouts::open(place) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    }
}

/// Packs, writes, maps, and compares the logits on both paths.
fn check(case: &str, model: &Path) {
    let home = tempfile::tempdir().unwrap();
    let place = place(home.path());
    assert!(refusal(&place).contains("not there"));
    let (packed, parts, fresh) = load(model, None, Precision::Quantized);
    assert!(fresh > 0 && fresh == parts.len(), "{case}");
    let bytes = write(&place, parts).unwrap().expect("a written file");
    assert_eq!(bytes, fs::metadata(place.path()).unwrap().len());
    // Checked, then believed.
    for _ in 0..2 {
        let layouts = Layouts::open(&place).unwrap();
        let (mapped, parts, fresh) = load(model, Some(&layouts), Precision::Quantized);
        assert_eq!(fresh, 0, "{case}");
        assert_eq!(mapped.weight_bytes(), packed.weight_bytes(), "{case}");
        assert!(
            write(&place, parts).unwrap().is_none(),
            "{case}: it is there"
        );
        let exact = load(model, Some(&layouts), Precision::Exact).0;
        drop(layouts);
        assert_eq!(
            logits(exact),
            logits(load(model, None, Precision::Exact).0),
            "{case}, exact"
        );
        assert_eq!(
            logits(mapped),
            logits(load(model, None, Precision::Quantized).0),
            "{case}"
        );
    }
    assert_eq!(files(&place), [file_name(&place)], "{case}");
}

fn file_name(place: &Place) -> String {
    let path = place.path();
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// What lies in the folder, but for the lock.
fn files(place: &Place) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(Place::folder(&place.home))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != ".busy")
        .collect();
    names.sort();
    names
}

#[test]
fn every_family_maps_to_the_same_bits() {
    for name in [
        "llama",
        "llama-mixed",
        "mixtral-stacked",
        "mixtral-split",
        "qwen2",
        "phi3-longrope",
        "gemma3",
    ] {
        check(name, &golden(name));
    }
}

#[test]
fn every_type_maps_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape {
        family: Family::Llama,
        vocabulary: 96,
        context: 8192,
        ..preset("tiny").unwrap()
    };
    let plain = Quant::ALL.into_iter().map(Mix::Plain);
    for mix in plain.chain([Mix::Q4KM]) {
        let path = folder.path().join(mix.name());
        let plan = Plan::new(&shape, mix, None, None).unwrap();
        file::write(&path, &plan, 1, false, &mut |_| ()).unwrap();
        check(&mix.name(), &path);
    }
}

/// Writes the model as two files.
fn split(model: &Path, folder: &Path) -> PathBuf {
    let store = Store::open(model).unwrap();
    let all: Vec<_> = store.tensors().collect();
    let path = |number: usize| folder.join(format!("m-{number:05}-of-00002.gguf"));
    for (number, some) in all.chunks(all.len().div_ceil(2)).enumerate() {
        let mut metadata = match number {
            0 => store.metadata().clone(),
            _ => Metadata::default(),
        };
        metadata.insert("split.no", Value::Unsigned(number as u64));
        metadata.insert("split.count", Value::Unsigned(2));
        metadata.insert("split.tensors.count", Value::Unsigned(all.len() as u64));
        let entries: Vec<Entry> = some
            .iter()
            .map(|(name, view)| Entry {
                name: (*name).into(),
                quant: view.quant,
                shape: view.shape.to_vec(),
            })
            .collect();
        let mut writer = Writer::new(Vec::new(), &metadata, &entries).unwrap();
        some.iter()
            .for_each(|(_, view)| writer.write(view.bytes).unwrap());
        fs::write(path(number + 1), writer.finish().unwrap()).unwrap();
    }
    path(1)
}

#[test]
fn a_split_model_has_one_file() {
    let folder = tempfile::tempdir().unwrap();
    check("split", &split(&golden("llama-mixed"), folder.path()));
}

/// A written file, its bytes, and the logits that its model has. No record can be kept, so that it is checked each time.
fn written(model: &Path) -> (tempfile::TempDir, Place, Vec<u8>, Vec<u32>) {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("verified"), "no folder").unwrap();
    let place = place(home.path());
    let (decoder, parts, _) = load(model, None, Precision::Quantized);
    write(&place, parts).unwrap();
    let bytes = fs::read(place.path()).unwrap();
    (home, place, bytes, logits(decoder))
}

#[test]
fn a_mangled_file_is_refused() {
    let (_home, place, bytes, _) = written(&golden("llama-mixed"));
    let json = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let start = (48 + json).next_multiple_of(4096);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for round in 0..600 {
        let mut mangled = bytes.clone();
        match round % 4 {
            0 => mangled[next(48)] ^= 1 + next(255) as u8,
            1 => mangled[48 + next(json)] ^= 1 + next(255) as u8,
            2 => mangled[start + next(bytes.len() - start)] ^= 1 + next(255) as u8,
            _ if round % 8 == 3 => mangled.truncate(next(bytes.len())),
            _ => mangled.resize(bytes.len() + 1 + next(5000), 0),
        }
        fs::write(place.path(), &mangled).unwrap();
        refusal(&place);
    }
    fs::write(place.path(), &bytes).unwrap();
    assert!(Layouts::open(&place).is_ok());
}

/// The file with a head that was changed and has its digest nonetheless.
fn with_head(bytes: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let json = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let panels = &bytes[(48 + json).next_multiple_of(4096)..];
    let mut head: serde_json::Value = serde_json::from_slice(&bytes[48..48 + json]).unwrap();
    change(&mut head);
    let json = serde_json::to_vec(&head).unwrap();
    let mut file = bytes[..8].to_vec();
    file.extend((json.len() as u64).to_le_bytes());
    file.extend(Sha256::digest(&json));
    file.extend(json);
    file.resize(file.len().next_multiple_of(4096), 0);
    file.extend(panels);
    file
}

#[test]
fn a_head_that_lies_does_no_harm() {
    let model = golden("llama-mixed");
    let (_home, place, bytes, expected) = written(&model);
    let refused = |change: fn(&mut serde_json::Value), expect: &str| {
        fs::write(place.path(), with_head(&bytes, change)).unwrap();
        let reason = refusal(&place);
        assert!(reason.contains(expect), "{reason}\nshould say: {expect}");
    };
    refused(|head| head["layout"] = 0.into(), "layout 0");
    refused(
        |head| head["source"] = "cd".repeat(32).into(),
        "another model",
    );
    refused(|head| head["bytes"] = 5.into(), "5 bytes of panels");
    refused(
        |head| head["bytes"] = u64::MAX.into(),
        "can't be in a file of",
    );
    refused(
        |head| head["chunks"] = serde_json::json!([]),
        "number of digests",
    );
    refused(|head| head["more"] = 1.into(), "unknown field");
    refused(|head| head["matrices"] = 1.into(), "invalid type");
    // A matrix that is not where, or what, it should be is packed.
    for (field, value) in [
        ("at", serde_json::json!(usize::MAX)),
        ("at", serde_json::json!(usize::MAX - 4095)),
        ("at", serde_json::json!(bytes.len())),
        ("at", serde_json::json!(1)),
        ("outputs", serde_json::json!(usize::MAX)),
        ("inputs", serde_json::json!(0)),
        ("quant", serde_json::json!("Q9_K")),
        ("name", serde_json::json!("none")),
        ("first", serde_json::json!(1)),
    ] {
        let file = with_head(&bytes, |head| head["matrices"][3][field] = value.clone());
        fs::write(place.path(), file).unwrap();
        let layouts = Layouts::open(&place).unwrap();
        let (decoder, parts, fresh) = load(&model, Some(&layouts), Precision::Quantized);
        assert_eq!(fresh, 1, "{field}: {value}");
        assert_eq!(logits(decoder), expected, "{field}: {value}");
        // And written again, whole.
        assert!(write(&place, parts).unwrap().is_some());
        assert_eq!(fs::read(place.path()).unwrap(), bytes);
    }
}

#[test]
fn a_record_stands_for_the_digests_until_the_file_changes() {
    let home = tempfile::tempdir().unwrap();
    let place = place(home.path());
    let (_, parts, _) = load(&golden("llama"), None, Precision::Quantized);
    write(&place, parts).unwrap();
    assert!(Layouts::open(&place).is_ok());
    let mut bytes = fs::read(place.path()).unwrap();
    let modified = fs::metadata(place.path()).unwrap().modified().unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(place.path(), &bytes).unwrap();
    let file = fs::File::options().append(true).open(place.path()).unwrap();
    file.set_modified(modified + std::time::Duration::from_secs(1))
        .unwrap();
    assert!(refusal(&place).contains("digest"));
    // What is refused is not recorded, so it stays refused.
    assert!(refusal(&place).contains("digest"));
}

#[test]
fn one_of_several_writers_writes() {
    let home = tempfile::tempdir().unwrap();
    let place = place(home.path());
    let (_, parts, _) = load(&golden("llama-mixed"), None, Precision::Quantized);
    let written: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| write(&place, parts.clone()).unwrap()))
            .collect();
        let results = writers.into_iter().map(|writer| writer.join().unwrap());
        results.flatten().count()
    });
    assert_eq!(written, 1);
    assert!(Layouts::open(&place).is_ok());
    assert_eq!(files(&place), [file_name(&place)]);
}

#[test]
fn nothing_is_left_of_what_was_given_up_or_is_old() {
    let home = tempfile::tempdir().unwrap();
    let place = place(home.path());
    let (_, parts, _) = load(&golden("llama"), None, Precision::Quantized);
    let unwritten = Unwritten {
        place: place.clone(),
        parts,
    };
    let folder = Place::folder(home.path());
    fs::create_dir_all(&folder).unwrap();
    let named = |version: u32| format!("{}-v{version}.panels", place.sha256);
    for name in [named(0), named(Matrix::LAYOUT + 1), "notes".into()] {
        fs::write(folder.join(name), "").unwrap();
    }
    assert!(unwritten.write(&AtomicBool::new(true)).unwrap().is_none());
    assert_eq!(files(&place).len(), 3);
    // What a process that died has left is overwritten.
    fs::write(place.path().with_extension("partial"), vec![1; 10_000_000]).unwrap();
    assert!(unwritten.write(&GO_ON).unwrap().is_some());
    let expected = [file_name(&place), named(Matrix::LAYOUT + 1), "notes".into()];
    assert_eq!(files(&place), expected);
    assert!(Layouts::open(&place).is_ok());
}

/// Judges the example with the tiny model.
fn judge(folder: &Path, home: &Path, out: &str, more: &[&str]) -> Output {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut command = common::assize();
    command
        .current_dir(folder)
        .env("ASSIZE_HOME", home)
        .env_remove("ASSIZE_LAYOUT_CACHE")
        .arg("judge")
        .arg(examples.join("support.jsonl"))
        .arg("--rubric")
        .arg(examples.join("grounded.toml"))
        .args([
            "--model",
            "tiny.gguf",
            "--mode",
            "score-only",
            "--limit",
            "2",
        ])
        .args(["--cache-memory", "64", "--threads", "2", "--out", out])
        .args(more);
    command.output().unwrap()
}

#[test]
fn the_second_start_maps_and_judges_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    tiny::write(path);
    let home = path.join("home");
    let run = |out: &str, home: &Path, more: &[&str], says: &[&str], not: &str| {
        let output = judge(path, home, out, more);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{out}: {stderr}");
        for says in says {
            assert!(stderr.contains(says), "{out} should say {says}: {stderr}");
        }
        assert!(!stderr.contains(not), "{out} says {not}: {stderr}");
        let verdicts = fs::read_to_string(path.join(out).join("verdicts.jsonl")).unwrap();
        let verdicts: Vec<String> = verdicts.lines().map(common::timeless).collect();
        assert_eq!(verdicts.len(), 2);
        verdicts
    };
    let on = ["--layout-cache", "on"];
    let expected = run("auto", &home, &[], &["model read"], "kept");
    assert!(!home.join("layouts").exists(), "a small file is not kept");
    let off = ["--layout-cache", "off"];
    assert_eq!(run("off", &home, &off, &["model read"], "kept"), expected);
    let first = run(
        "first",
        &home,
        &on,
        &["model read", "packed weights kept"],
        "warning",
    );
    assert_eq!(first, expected);
    assert_eq!(
        run("second", &home, &on, &["model mapped"], "kept"),
        expected
    );
    let exact = run(
        "exact",
        &home,
        &[on[0], on[1], "--exact"],
        &["model mapped"],
        "kept",
    );
    let plain = run("plain", &home, &["--exact"], &["model read"], "kept");
    assert_eq!(exact, plain);
    // A home that can't be written to costs a warning. For root no folder is read-only, but a file is no folder for anybody.
    let broken = path.join("file");
    fs::write(&broken, "").unwrap();
    let warning = ["model read", "warning: packed weights are not kept"];
    assert_eq!(run("broken", &broken, &on, &warning, "panic"), expected);
}
