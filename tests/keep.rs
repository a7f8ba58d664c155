//! Prefixes that are kept from one run to the next: no verdict changes, no judged text is in them, and whatever else lies in their place is refused.

mod common;

use assize::engine::shared::Kept;
use assize::model::batch::{Batch, Forward, PAGE, Span};
use assize::model::cache::KvType;
use assize::model::decoder::{Decoder, LoadOptions};
use assize::run::snapshot::{self, Refused};
use assize::weights::Store;
use assize_kernels::{ARITHMETIC, Precision};
use common::{assize, stdout_of, timeless};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "common/tiny.rs"]
mod tiny;

/// Judges with the tiny model. Returns the verdicts without timings, and the prompt tokens that the first item found in the cache.
fn judge(folder: &Path, name: &str, keep: &[&str]) -> (Vec<String>, u64) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = folder.join(name);
    let output = assize()
        .arg("judge")
        .arg(root.join("examples/support.jsonl"))
        .args(["--rubric", "examples/grounded.toml", "--mode", "score-only"])
        .args(["--cache-memory", "64", "--offline", "--model"])
        .arg(folder.join("tiny.gguf"))
        .args(keep)
        .arg("--out")
        .arg(&out)
        .current_dir(root)
        .output()
        .expect("a run");
    stdout_of(&output);
    let text = fs::read_to_string(out.join("verdicts.jsonl")).expect("verdicts");
    let first: serde_json::Value =
        serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let cached = first["tokens"]["cached"].as_u64().expect("a number");
    (text.lines().map(timeless).collect(), cached)
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn a_kept_prefix_changes_no_verdict_and_holds_no_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    tiny::write(folder);
    let kept = folder.join("kept");
    let keep = ["--keep-prefix", kept.to_str().expect("UTF-8")];
    let (expected, cold) = judge(folder, "plain", &[]);
    assert_eq!(cold, 0);
    let (first, cold) = judge(folder, "first", &keep);
    assert_eq!((&first, cold), (&expected, 0));
    let file = only_file(&kept);
    let bytes = fs::read(&file).expect("a file");
    let (second, warm) = judge(folder, "second", &keep);
    assert_eq!(second, expected);
    assert!(warm >= 256, "only {warm} tokens were kept");
    assert_eq!(fs::read(&file).expect("a file"), bytes, "written anew");

    // The tiny model's tokens are bytes: what is kept can be read.
    let count = u64::from_le_bytes(bytes[48..56].try_into().expect("eight bytes")) as usize;
    let tokens = bytes[64..64 + 4 * count].as_chunks::<4>().0;
    let text: Vec<u8> = tokens
        .iter()
        .filter_map(|token| u8::try_from(u32::from_le_bytes(*token)).ok())
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let traces = fs::read_to_string(root.join("examples/support.jsonl")).expect("traces");
    for line in traces.lines() {
        let item: serde_json::Value = serde_json::from_str(line).expect("JSON");
        for field in ["input", "context", "answer"] {
            let judged = item[field].to_string();
            for window in judged.as_bytes().windows(24) {
                assert!(!text.windows(24).any(|kept| kept == window), "{field}");
            }
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    // Other settings keep another file; what is broken is not used, and is put right.
    let q8 = [&keep[..], &["--kv-type", "q8"]].concat();
    let (eight, cold) = judge(folder, "eight", &q8);
    assert_eq!(cold, 0);
    assert_eq!(fs::read_dir(&kept).expect("a folder").count(), 2);
    let (again, warm) = judge(folder, "eight-again", &q8);
    assert_eq!(again, eight);
    assert!(warm >= 256);
    for (name, broken) in [
        ("flipped", {
            let mut broken = bytes.clone();
            broken[bytes.len() / 2] ^= 1;
            broken
        }),
        ("short", bytes[..bytes.len() - 1].to_vec()),
        ("empty", Vec::new()),
    ] {
        fs::write(&file, broken).expect("a file");
        assert_eq!(judge(folder, name, &keep), (expected.clone(), 0), "{name}");
        assert_eq!(fs::read(&file).expect("a file"), bytes, "{name}");
    }
    // What a single item begins with is not known to be shared by others.
    let lonely = folder.join("lonely");
    let one = [
        "--keep-prefix",
        lonely.to_str().expect("UTF-8"),
        "--limit",
        "1",
    ];
    judge(folder, "one", &one);
    let held = fs::read_dir(&lonely).map_or(0, Iterator::count);
    assert_eq!(held, 0);
    // A folder that can't be: one warning, and the run goes on.
    let nowhere = folder.join("tiny.gguf").join("kept");
    let nowhere = ["--keep-prefix", nowhere.to_str().expect("UTF-8")];
    assert_eq!(judge(folder, "nowhere", &nowhere), (expected, 0));
}

#[test]
fn what_is_not_a_kept_prefix_is_refused() {
    let (key, page) = ([7; 32], 24);
    let kept = Kept {
        tokens: (0..3 * PAGE as u32).collect(),
        bytes: (0..3 * page as u8).collect(),
    };
    let mut whole = Vec::new();
    snapshot::write(&mut whole, &key, &kept, page).expect("memory");
    let read = |bytes: &[u8], key: &[u8; 32], page: usize| {
        snapshot::read(&mut &*bytes, bytes.len() as u64, key, page)
    };
    assert_eq!(read(&whole, &key, page).expect("whole"), kept);
    assert!(matches!(read(&whole, &[8; 32], page), Err(Refused::Key)));
    assert!(matches!(read(&whole, &key, 25), Err(Refused::Sizes { .. })));
    for length in 0..whole.len() {
        assert!(read(&whole[..length], &key, page).is_err(), "{length}");
    }
    let sign = |bytes: &mut Vec<u8>| {
        let end = bytes.len().saturating_sub(32);
        let digest = Sha256::digest(&bytes[..end]);
        bytes.truncate(end);
        bytes.extend(&digest[..]);
    };
    // Blows, some of them signed anew, and counts beyond reason.
    let mut state = 5u64;
    let mut next = move |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % limit
    };
    let mut signed = 0;
    for round in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + next(3) {
            let at = next(bytes.len());
            bytes[at] ^= 1 << next(8);
        }
        if round % 3 == 0 {
            let wild = [0, 1, 16, 1 << 31, u64::MAX, u64::MAX / 4, 1 << 60][next(7)];
            let at = 48 + 8 * next(2);
            bytes[at..at + 8].copy_from_slice(&wild.to_le_bytes());
        }
        if round % 5 == 0 {
            bytes.truncate(next(bytes.len()));
        }
        if round % 2 == 0 {
            sign(&mut bytes);
        }
        match read(&bytes, &key, page) {
            // Signed anew, only what it says can differ, not how much.
            Ok(found) => {
                signed += usize::from(round % 2 == 0);
                assert_eq!(found.bytes.len() / page, found.tokens.len() / PAGE);
                assert!(round % 2 == 0 || found == kept);
            }
            Err(refused) => assert!(!refused.to_string().is_empty()),
        }
    }
    assert!(signed > 100, "the blows show nothing");
    // A length that lies about the file.
    assert!(snapshot::read(&mut &whole[..80], whole.len() as u64, &key, page).is_err());
}

/// The pages of a small model, bit for bit as they were when `ARITHMETIC` was raised last. If this fails, something computes other bits than before:
/// raise the version, and write the new digests down.
#[test]
fn the_version_of_the_arithmetic_is_raised_with_it() {
    let digest = |cache: KvType| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = root.join("tests/golden/families/qwen3.gguf");
        let store = Store::open(&path).expect("a model");
        let options = LoadOptions {
            precision: Precision::Quantized,
            cache,
            pages: 2,
            context: None,
            progress: None,
        };
        let mut model = Decoder::load(&store, &options).expect("a model");
        let span = Span {
            first: 0,
            rows: 2 * PAGE,
            position: 0,
            pages: vec![1, 0],
        };
        let batch = Batch {
            tokens: (0..2 * PAGE as u32).collect(),
            spans: vec![span],
            outputs: vec![],
        };
        model.forward(&batch).expect("a pass");
        let mut bytes = Vec::new();
        model.read_page(0, &mut bytes).expect("a page");
        model.read_page(1, &mut bytes).expect("a page");
        let page = model.page_bytes().expect("pages");
        assert_eq!(bytes.len(), 2 * page);
        // What was read comes back as it was, wherever it is put.
        model.write_page(1, &bytes[..page]).expect("a page");
        let mut again = Vec::new();
        model.read_page(1, &mut again).expect("a page");
        assert!(again == bytes[..page]);
        assert!(model.write_page(2, &bytes[..page]).is_err());
        assert!(model.write_page(1, &bytes[..page - 1]).is_err());
        assert!(model.write_page(1, &bytes[..page + 1]).is_err());
        let hex: Vec<String> = Sha256::digest(&bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        hex.concat()[..16].to_string()
    };
    let found = (ARITHMETIC, digest(KvType::F16), digest(KvType::Q8));
    assert_eq!(
        found,
        (1, "d89e8115efc730f3".into(), "70c9f12293594f80".into())
    );
}
