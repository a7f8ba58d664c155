//! Vocabularies for tests: those of the shared data folder, and those of the models that assize has fetched. What is
//! absent is skipped with a line that says so.

// Each test file uses its own share of these.
#![allow(dead_code)]

use assize::tokenizer::Tokenizer;
use assize::weights::Store;
use std::path::{Path, PathBuf};

/// The folder of the golden pairs and vocabularies.
pub fn shared() -> PathBuf {
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

/// Opens a vocabulary that must be good.
pub fn open(path: &Path) -> Tokenizer {
    let store = Store::open(path).expect("the file opens");
    Tokenizer::from_metadata(store.metadata())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A vocabulary from the shared data, or a line that says what is missing.
pub fn vocabulary(name: &str) -> Option<Tokenizer> {
    let path = shared().join(format!("ggml-vocab-{name}.gguf"));
    if !path.is_file() {
        println!(
            "skipped: the {name} vocabulary needs ../shared/data/tokenizers/ggml-vocab-{name}.gguf"
        );
        return None;
    }
    Some(open(&path))
}

/// A model from the cache, or a line that says what is missing.
pub fn model(test: &str, name: &str, file: &str) -> Option<Store> {
    let path = cached_model(name, file);
    if path.is_none() {
        crate::common::skip(test, &format!("{name} is not here (assize fetch {name})"));
    }
    path.map(|path| Store::open(&path).expect("the model opens"))
}

/// A Qwen2.5 model, whichever is at hand.
pub fn qwen(test: &str) -> Option<Store> {
    let (small, file) = (
        "qwen2.5-coder-0.5b-instruct",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    );
    match cached_model(small, file) {
        Some(_) => model(test, small, file),
        None => model(
            test,
            "qwen2.5-coder-1.5b-instruct",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        ),
    }
}

/// The SmolLM2 model.
pub fn smollm(test: &str) -> Option<Store> {
    model(
        test,
        "smollm2-135m-instruct",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}

/// The Gemma 3 model.
pub fn gemma(test: &str) -> Option<Store> {
    model(test, "gemma-3-270m", "gemma-3-270m-q4_k_m.gguf")
}

/// The tokenizer of a model.
pub fn tokenizer_of(store: &Store) -> Tokenizer {
    Tokenizer::from_metadata(store.metadata()).expect("a good tokenizer")
}
