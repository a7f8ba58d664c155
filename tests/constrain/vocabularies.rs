//! Vocabularies to walk with: small ones made here, and real ones out of the data folder.

use assize::constrain::Vocabulary;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Longest-match spelling over a table of tokens: stands in for a tokenizer.
fn greedy(bytes: &[Vec<u8>], control: &[bool]) -> Arc<dyn Fn(&str) -> Vec<u32> + Send + Sync> {
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/data/tokenizers")
        .join(&file);
    let Ok(bytes) = std::fs::read(&path) else {
        println!("skipped: {test} needs {file}");
        return None;
    };
    Some(vocabulary(&Metadata::read(&bytes)))
}

/// The vocabulary that a GGUF file's metadata describes.
pub fn vocabulary(metadata: &Metadata) -> Vocabulary {
    let spaced = metadata.model == "llama";
    let back: HashMap<char, u8> = (0..=255u8).map(|byte| (shown(byte), byte)).collect();
    let mut bytes = Vec::new();
    let mut control = Vec::new();
    for (piece, &kind) in metadata.tokens.iter().zip(&metadata.kinds) {
        control.push(kind == 3);
        bytes.push(match kind {
            3 | 5 => Vec::new(),
            6 => vec![u8::from_str_radix(&piece[3..5], 16).expect("a byte token names its byte")],
            _ if spaced => piece.replace('\u{2581}', " ").into_bytes(),
            _ => piece
                .chars()
                .map(|c| back.get(&c).copied())
                .collect::<Option<_>>()
                .unwrap_or_default(),
        });
    }
    let encode = greedy(&bytes, &control);
    Vocabulary::new(bytes, &control, vec![metadata.stop], encode)
        .expect("the metadata is a vocabulary")
}

/// The character that stands for a byte in the pieces of byte-level vocabularies.
fn shown(byte: u8) -> char {
    let plain = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&byte| !plain(byte)).count() as u32;
    char::from_u32(256 + before).expect("a character")
}

/// The few entries of a GGUF file that make a vocabulary.
#[derive(Default)]
pub struct Metadata {
    model: String,
    tokens: Vec<String>,
    kinds: Vec<i32>,
    stop: u32,
}

impl Metadata {
    /// Reads them from the beginning of a file.
    pub fn read(bytes: &[u8]) -> Metadata {
        let mut reader = Reader(bytes);
        reader.take(4 + 4 + 8);
        let mut metadata = Metadata::default();
        for _ in 0..reader.number(8) {
            let key = reader.string();
            let kind = reader.number(4);
            match key.as_str() {
                "tokenizer.ggml.model" => metadata.model = reader.string(),
                "tokenizer.ggml.tokens" => metadata.tokens = reader.array(Reader::string),
                "tokenizer.ggml.token_type" => {
                    metadata.kinds = reader.array(|reader| reader.number(4) as i32)
                }
                "tokenizer.ggml.eos_token_id" => metadata.stop = reader.number(4) as u32,
                _ => reader.skip(kind),
            }
        }
        metadata
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn number(&mut self, width: usize) -> u64 {
        self.take(width)
            .iter()
            .rev()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn string(&mut self) -> String {
        let length = self.number(8) as usize;
        String::from_utf8_lossy(self.take(length)).into_owned()
    }

    fn array<T>(&mut self, read: impl Fn(&mut Self) -> T) -> Vec<T> {
        self.take(4);
        let count = self.number(8);
        (0..count).map(|_| read(self)).collect()
    }

    fn skip(&mut self, kind: u64) {
        match kind {
            0 | 1 | 7 => drop(self.take(1)),
            2 | 3 => drop(self.take(2)),
            4..=6 => drop(self.take(4)),
            8 => drop(self.string()),
            9 => {
                let kind = self.number(4);
                for _ in 0..self.number(8) {
                    self.skip(kind);
                }
            }
            _ => drop(self.take(8)),
        }
    }
}
