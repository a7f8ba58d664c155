//! Tokenizers and chat templates against reference results.
//!
//! The golden pairs are those of llama.cpp's tokenizer test: the texts of `.inp`, the token ids of `.out`. They and the
//! vocabularies lie in the shared data folder; a test whose files are absent says so and passes.

use assize::tokenizer::{Specials, Tokenizer};
use assize::weights::Store;
use std::path::{Path, PathBuf};

fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/tokenizers")
}

/// The models that assize has fetched.
fn cached_model(name: &str, file: &str) -> Option<PathBuf> {
    let cache = || {
        let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
    };
    let home = std::env::var_os("ASSIZE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(cache()?.join("assize")))?;
    Some(home.join("models").join(name).join(file)).filter(|path| path.is_file())
}

fn open(path: &Path) -> Tokenizer {
    let store = Store::open(path).expect("the file opens");
    Tokenizer::from_metadata(store.metadata())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn vocabulary(name: &str) -> Option<Tokenizer> {
    let path = shared().join(format!("ggml-vocab-{name}.gguf"));
    if !path.is_file() {
        println!(
            "skipped: the {name} vocabulary needs ../shared/data/tokenizers/ggml-vocab-{name}.gguf"
        );
        return None;
    }
    Some(open(&path))
}

/// The texts and ids of a golden pair.
fn golden(name: &str) -> Option<Vec<(String, Vec<u32>)>> {
    let [input, output] =
        ["inp", "out"].map(|end| shared().join(format!("ggml-vocab-{name}.gguf.{end}")));
    if !input.is_file() || !output.is_file() {
        println!("skipped: the {name} golden needs its .inp and .out in ../shared/data/tokenizers");
        return None;
    }
    let texts = std::fs::read_to_string(input).expect("the texts are UTF-8");
    let ids = std::fs::read_to_string(output).expect("the ids are UTF-8");
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    let ids: Vec<Vec<u32>> = ids
        .lines()
        .map(|line| {
            line.split_whitespace()
                .map(|id| id.parse().expect("an id"))
                .collect()
        })
        .collect();
    assert!(
        texts.len() >= ids.len() && ids.len() > 40,
        "{} texts, {} lines of ids",
        texts.len(),
        ids.len()
    );
    Some(texts.into_iter().map(str::to_owned).zip(ids).collect())
}

fn check_golden(tokenizer: &Tokenizer, name: &str) {
    let Some(pairs) = golden(name) else { return };
    let mut wrong = Vec::new();
    for (text, expected) in &pairs {
        let got = tokenizer.encode(text, Specials::Plain);
        if &got != expected {
            wrong.push(format!(
                "{text:?}\n  expected {expected:?}\n  got      {got:?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{name}: {} of {} texts\n{}",
        wrong.len(),
        pairs.len(),
        wrong.join("\n")
    );
}

macro_rules! goldens {
    ($($test:ident: $name:literal),* $(,)?) => {$(
        #[test]
        fn $test() {
            if let Some(tokenizer) = vocabulary($name) {
                check_golden(&tokenizer, $name);
            }
        }
    )*};
}

goldens! {
    golden_deepseek_coder: "deepseek-coder",
    golden_deepseek_llm: "deepseek-llm",
    golden_falcon: "falcon",
    golden_gpt_2: "gpt-2",
    golden_llama_spm: "llama-spm",
    golden_mpt: "mpt",
    golden_phi_3: "phi-3",
    golden_refact: "refact",
    golden_starcoder: "starcoder",
}

#[test]
fn golden_qwen2() {
    let names = [(
        "qwen2.5-coder-0.5b-instruct",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    )];
    for (name, file) in names {
        match cached_model(name, file) {
            Some(path) => {
                let tokenizer = open(&path);
                check_golden(&tokenizer, "qwen2");
                check_golden(&tokenizer, "deepseek-r1-qwen");
            }
            None => println!("skipped: golden_qwen2 needs the model {name} (assize fetch {name})"),
        }
    }
}
