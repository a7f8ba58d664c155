//! Vocabularies to walk with: small ones made here, and real ones out of the data folder.

use assize::constrain::{Encode, Vocabulary};
use assize::tokenizer::Tokenizer;
use assize::weights::Store;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest-match spelling over a table of tokens: stands in for a tokenizer.
fn greedy(bytes: &[Vec<u8>], control: &[bool]) -> Encode {
    let mut ids: HashMap<Vec<u8>, u32> = HashMap::new();
    for (id, text) in bytes
        .iter()
        .enumerate()
        .filter(|&(id, text)| !control[id] && !text.is_empty())
    {
        ids.entry(text.clone()).or_insert(id as u32);
    }
    Arc::new(move |text| {
        let mut rest = text.as_bytes();
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let end = (1..=rest.len().min(64))
                .rev()
                .find(|&end| ids.contains_key(&rest[..end]));
            tokens.extend(end.map(|end| ids[&rest[..end]]));
            rest = &rest[end.unwrap_or(1)..];
        }
        tokens
    })
}

/// A vocabulary of these texts after a control token (0) and a stop token (1).
pub fn table(texts: &[&[u8]]) -> Vocabulary {
    let mut bytes = vec![b"<pad>".to_vec(), b"<end>".to_vec()];
    bytes.extend(texts.iter().map(|text| text.to_vec()));
    let control: Vec<bool> = (0..bytes.len()).map(|id| id < 2).collect();
    let encode = greedy(&bytes, &control);
    Vocabulary::new(bytes, &control, vec![1], encode).expect("the table is a vocabulary")
}

/// All bytes, some words, and tokens that span several parts of a JSON document.
pub fn small() -> Vocabulary {
    let bytes: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let words = [
        "the",
        " the",
        "quick",
        " quick",
        "10",
        "5",
        "\":\"",
        "\",\"",
        "{\"",
        "\"}",
        "\"]",
        "[\"",
        "\\n",
        "\\\"",
        "\":",
        "],\"",
        "東京",
        "\u{201c}",
        "rationale",
        "evidence",
        "score",
        "    ",
        "\\u00",
        "ab",
        "abc",
        "a b",
        "\"],\"",
    ];
    let texts: Vec<&[u8]> = bytes
        .iter()
        .map(Vec::as_slice)
        .chain(words.iter().map(|word| word.as_bytes()))
        .collect();
    table(&texts)
}

/// A real vocabulary by the name of its file in the data folder, or `None` (and a line that says so) where it is absent.
pub fn real(test: &str, name: &str) -> Option<Vocabulary> {
    let file = format!("ggml-vocab-{name}.gguf");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/tokenizers");
    read(&folder.join(&file)).or_else(|| {
        crate::common::skip(test, &format!("needs {file}"));
        None
    })
}

/// The vocabulary of a fetched model, or `None` (and a line that says so) where it wasn't fetched.
pub fn fetched(test: &str, model: &str) -> Option<Vocabulary> {
    let home = |name: &str, below: &str| Some(PathBuf::from(std::env::var_os(name)?).join(below));
    let cache = home("ASSIZE_HOME", "")
        .or_else(|| home("XDG_CACHE_HOME", "assize"))
        .or_else(|| home("HOME", ".cache/assize"))?;
    let files = std::fs::read_dir(cache.join("models").join(model))
        .into_iter()
        .flatten()
        .flatten();
    let file = files
        .map(|file| file.path())
        .find(|file| file.extension().is_some_and(|end| end == "gguf"));
    file.and_then(|file| read(&file)).or_else(|| {
        crate::common::skip(test, &format!("needs the model {model}"));
        None
    })
}

/// The vocabulary of a GGUF file, if there is one.
fn read(path: &Path) -> Option<Vocabulary> {
    if !path.exists() {
        return None;
    }
    let store = Store::open(path).expect("the file is a GGUF file");
    let tokenizer = Tokenizer::from_metadata(store.metadata()).expect("its vocabulary is known");
    Some(Vocabulary::from_tokenizer(&Arc::new(tokenizer)).expect("and serves constraints"))
}
