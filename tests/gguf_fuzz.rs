//! The GGUF reader against honest, odd and hostile files: each is read right or refused with a typed error, in bounded
//! memory, and never by a panic.

mod gguf_writer;

use assize::weights::{Array, Store, Value, WeightsError, gguf};
use assize_kernels::Quant;
use gguf_writer::{Writer, sample, string};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

/// Counts what the thread under test allocates, so that a count out of a hostile file can't be believed unnoticed.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system's allocator unchanged; the counter is a plain thread-local integer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|count| count.set(count.get() + layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn parse(bytes: &[u8]) -> Result<gguf::Gguf, WeightsError> {
    gguf::parse(bytes, Path::new("test.gguf"))
}

/// Parses, and checks what holds of any bytes: bounded memory, and tensors that lie inside the file.
fn survive(bytes: &[u8]) -> bool {
    ALLOCATED.set(0);
    let outcome = parse(bytes);
    let allocated = ALLOCATED.get();
    // Strings and small vectors cost a few words each; the shortest take 8 bytes in the file.
    assert!(
        allocated <= 64 * bytes.len() + 4096,
        "{allocated} bytes allocated for a file of {}",
        bytes.len()
    );
    match outcome {
        Ok(header) => {
            for tensor in &header.tensors {
                assert!(tensor.range.end <= bytes.len());
                let weights: usize = tensor.shape.iter().product();
                assert_eq!(
                    tensor.range.len(),
                    weights / tensor.quant.block() * tensor.quant.block_bytes()
                );
            }
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert!(
                text.starts_with("test.gguf: ") && text.contains("\nhint: "),
                "{text}"
            );
            false
        }
    }
}

/// A small deterministic generator (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

#[test]
fn mutations_never_panic() {
    let honest = sample().bytes();
    assert!(survive(&honest));
    let (mut refused, mut accepted) = (0, 0);
    let mut count = |fine| if fine { accepted += 1 } else { refused += 1 };
    for length in 0..honest.len() {
        count(survive(&honest[..length]));
    }
    for at in 0..honest.len() {
        for bit in 0..8 {
            let mut bytes = honest.clone();
            bytes[at] ^= 1 << bit;
            count(survive(&bytes));
        }
    }
    let extremes = [
        0,
        1,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 40,
        i64::MAX as u64,
        1 << 63,
        u64::MAX - 7,
        u64::MAX,
    ];
    for at in 0..honest.len() - 8 {
        for extreme in extremes {
            let mut bytes = honest.clone();
            bytes[at..at + 8].copy_from_slice(&extreme.to_le_bytes());
            count(survive(&bytes));
        }
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let mut bytes = honest.clone();
        for _ in 0..1 + random.below(6) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = random.below(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => {
                    let end = (at + 1 + random.below(16)).min(bytes.len());
                    bytes.drain(at..end);
                    bytes.push(0);
                }
                _ => {
                    let piece = bytes[at..(at + random.below(24)).min(bytes.len())].to_vec();
                    let to = random.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
        }
        count(survive(&bytes));
    }
    assert!(accepted + refused > 30_000);
    // Both must happen often, or the mutations test nothing: data bytes may hold anything, headers may not.
    assert!(
        refused > 10_000 && accepted > 1_000,
        "{refused} refused, {accepted} accepted"
    );
}

#[test]
fn a_file_reads_back_as_written() {
    for version in [2, 3] {
        let file = Writer {
            version,
            ..sample()
        }
        .bytes();
        let header = parse(&file).expect("an honest file");
        assert_eq!(header.version, version);
        let metadata = &header.metadata;
        let integer = |width: &str| metadata.integer(&format!("width.{width}"));
        assert_eq!(integer("u8"), Some(200));
        assert_eq!(integer("i8"), None, "-128 is no u64");
        assert_eq!(metadata.get("width.i8"), Some(&Value::Signed(-128)));
        assert_eq!(integer("u16"), Some(60_000));
        assert_eq!(metadata.get("width.i16"), Some(&Value::Signed(-5)));
        assert_eq!(integer("u32"), Some(4_000_000_000));
        assert_eq!(integer("i32"), Some(77));
        assert_eq!(integer("u64"), Some(u64::MAX));
        assert_eq!(metadata.get("width.i64"), Some(&Value::Signed(i64::MIN)));
        assert_eq!(metadata.float("width.f32"), Some(0.5));
        assert_eq!(metadata.float("width.f64"), Some(-0.25));
        assert_eq!(metadata.boolean("width.bool"), Some(true));
        assert_eq!(metadata.string("general.architecture"), Some("llama"));
        assert_eq!(metadata.integers("array.numbers"), Some((0..12).collect()));
        let words = metadata.strings("array.words").expect("strings");
        assert_eq!(words, ["<s>", "a", "Ġb", "日本"]);
        assert_eq!(metadata.strings("array.empty"), Some(&[][..]));
        let Some(Value::Array(Array::Nested(nested))) = metadata.get("array.nested") else {
            panic!("nested arrays")
        };
        assert_eq!(nested.len(), 2);

        let tensor = |name: &str| {
            header
                .tensors
                .iter()
                .find(|tensor| tensor.name == name)
                .expect("a tensor")
        };
        let embedding = tensor("token_embd.weight");
        assert_eq!(
            (embedding.quant, &embedding.shape[..]),
            (Quant::Q4_0, &[4, 32][..])
        );
        let ramp: Vec<u8> = (0..=255).collect();
        assert_eq!(file[embedding.range.clone()], ramp[..72]);
        assert_eq!(
            file[tensor("blk.0.ffn_up.weight").range.clone()],
            ramp[..144]
        );
        assert_eq!(tensor("scalar").range.len(), 4);
    }
}

#[test]
fn refusals_name_what_is_wrong() {
    let check = |file: Vec<u8>, expect: &str| {
        let text = parse(&file).map(|_| ()).expect_err(expect).to_string();
        assert!(text.contains(expect), "{text}\nshould say: {expect}");
    };
    let floats = [0; 64];
    let one = || Writer::default();
    check(
        Vec::new(),
        "the opening `GGUF` takes 4 bytes but the file has 0 more",
    );
    check(b"PK\x03\x04 a zip file".to_vec(), "not a GGUF file");
    check(
        Writer {
            version: 1,
            ..one()
        }
        .bytes(),
        "GGUF version 1",
    );
    check(
        Writer {
            version: 9,
            ..one()
        }
        .bytes(),
        "GGUF version 9",
    );
    check(
        Writer {
            version: 3u32.swap_bytes(),
            ..one()
        }
        .bytes(),
        "big-endian",
    );
    check(
        one().u32("a", 1).u32("a", 2).bytes(),
        "metadata key `a` appears twice",
    );
    check(
        one().pair("a", 13, &[0; 8]).bytes(),
        "value of `a` has unknown type 13",
    );
    check(
        one().array("a", 77, &[]).bytes(),
        "array `a` has elements of unknown type 77",
    );
    check(
        one().pair("a", 8, &u64::MAX.to_le_bytes()).bytes(),
        "value of `a` takes 18446744073709551615 bytes",
    );
    check(
        one().pair("a", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]).bytes(),
        "value of `a` is not UTF-8",
    );
    let huge = [&4u32.to_le_bytes()[..], &(1u64 << 62).to_le_bytes()].concat();
    check(
        one().pair("a", 9, &huge).bytes(),
        "4611686018427387904 numbers can't lie in",
    );
    let deep = (0..2000)
        .flat_map(|_| [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat())
        .collect::<Vec<u8>>();
    check(
        one().pair("a", 9, &deep).bytes(),
        "array `a` nests deeper than 4",
    );
    for bad in [0, 3, 1 << 21] {
        check(
            one().u32("general.alignment", bad).bytes(),
            "general.alignment is not a power of two",
        );
    }
    check(
        one().text("general.alignment", "32").bytes(),
        "general.alignment is not a power of two",
    );
    let twice = one()
        .tensor("t", &[4], 0, &floats[..16])
        .tensor("t", &[4], 0, &floats[..16]);
    check(twice.bytes(), "tensor `t` appears twice");
    check(
        one().tensor("t", &[1; 5], 0, &floats[..4]).bytes(),
        "tensor `t` has 5 dimensions",
    );
    check(
        one().tensor("t", &[0, 4], 0, &[]).bytes(),
        "tensor `t` has a dimension of 0",
    );
    check(
        one().tensor("t", &[33], 2, &floats).bytes(),
        "whole blocks of 32",
    );
    check(
        one().tensor("t", &[1 << 33, 1 << 33], 0, &floats).bytes(),
        "tensor `t` of type F32 can't have shape",
    );
    check(
        one().tensor("t", &[1 << 40], 0, &floats).bytes(),
        "beyond the end of the file",
    );
    check(
        one()
            .tensor_at("t", &[4], 0, &floats, u64::MAX - 31)
            .bytes(),
        "beyond the end of the file",
    );
    check(
        one().tensor_at("t", &[4], 0, &floats, 8).bytes(),
        "off the alignment of 32",
    );
    let both = one()
        .tensor("t", &[16], 0, &floats)
        .tensor_at("u", &[4], 0, &floats[..16], 32);
    check(both.bytes(), "tensors `t` and `u` overlap");
    let quants = one()
        .tensor("t", &[32], 20, &floats[..18])
        .tensor("u", &[256], 39, &floats);
    check(
        quants.bytes(),
        "tensor `t` has type IQ4_NL (number 20), which assize does not read, nor",
    );
    check(
        one()
            .text("\u{1b}[31m", "a")
            .text("\u{1b}[31m", "b")
            .bytes(),
        r"metadata key `\u{1b}[31m` appears twice",
    );
}

#[test]
fn an_alignment_of_the_files_own() {
    let file = Writer {
        alignment: 64,
        ..Writer::default()
    }
    .u32("general.alignment", 64)
    .tensor("a", &[3], 0, &[1; 12])
    .tensor("b", &[2], 0, &[2; 8]);
    let bytes = file.bytes();
    let header = parse(&bytes).expect("an honest file");
    assert_eq!(bytes[header.tensors[1].range.clone()], [2; 8]);
    assert_eq!(header.tensors[1].range.start % 64, 0);
}

#[test]
fn split_files_open_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let part = |number: u16, tensors: &[&str]| {
        let mut file = Writer::default()
            .u16("split.no", number)
            .u16("split.count", 2);
        if number == 0 {
            file = file.text("general.architecture", "llama").pair(
                "split.tensors.count",
                5,
                &3i32.to_le_bytes(),
            );
        }
        tensors
            .iter()
            .fold(file, |file, name| {
                file.tensor(name, &[2], 0, &[number as u8 + 1; 8])
            })
            .bytes()
    };
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(path(name), bytes).expect("a file");
    let (first, second) = ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf");
    let refused = |expect: &str| {
        let text = Store::open(&path(first))
            .map(|_| ())
            .expect_err(expect)
            .to_string();
        assert!(text.contains(expect), "{text}\nshould say: {expect}");
    };

    write(first, part(0, &["a", "b"]));
    refused("m-00002-of-00002.gguf is missing");
    write(second, part(1, &["c"]));
    // Whichever of the files is named, the model is the same.
    for name in [first, second] {
        let store = Store::open(&path(name)).expect("a split model");
        assert_eq!(
            store.tensors().map(|(name, _)| name).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        assert_eq!(
            store.tensor("c").map(|tensor| tensor.bytes),
            Some(&[2; 8][..])
        );
        assert_eq!(
            store.metadata().string("general.architecture"),
            Some("llama")
        );
        assert_eq!(store.files(), [path(first), path(second)]);
        assert_eq!(
            store.byte_len(),
            (part(0, &["a", "b"]).len() + part(1, &["c"]).len()) as u64
        );
    }
    write(second, part(1, &["b"]));
    refused("tensor `b` is in an earlier file too");
    write(second, part(0, &["c"]));
    refused("named as file 2 of the model, but it says it is file 1");
    write(second, part(1, &["c", "d"]));
    refused("the model says it has 3 tensors, but its files hold 4");

    write("alone.gguf", part(0, &["a", "b"]));
    let text = Store::open(&path("alone.gguf"))
        .map(|_| ())
        .expect_err("half a model")
        .to_string();
    assert!(
        text.contains("one of 2 files of a split model, but 1 lie here"),
        "{text}"
    );
}

#[test]
fn a_store_refuses_what_is_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |path: &Path, expect: &str| {
        let text = Store::open(path).map(|_| ()).expect_err(expect).to_string();
        assert!(
            text.starts_with(&path.display().to_string()) && text.contains(expect),
            "{text}"
        );
    };
    check(&folder.path().join("absent.gguf"), "can't open the file");
    check(folder.path(), "not a regular file");
    let empty = folder.path().join("empty.gguf");
    std::fs::write(&empty, b"").expect("a file");
    check(&empty, "the file is empty");
    let strings = folder.path().join("strings.gguf");
    std::fs::write(&strings, string("no model")).expect("a file");
    check(&strings, "not a GGUF file");
}
