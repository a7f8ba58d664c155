//! Tokenizers against reference results.
//!
//! The golden pairs are those of llama.cpp's tokenizer test: the texts of `.inp`, the token ids of `.out`. They and the
//! vocabularies lie in the shared data folder; a test whose files are absent says so and passes.

use assize::tokenizer::{Position, Segment, Specials, Tokenizer};
use assize::weights::{Store, Value};
use proptest::prelude::*;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use vocabularies::{gemma, qwen, shared, smollm, tokenizer_of, vocabulary};

mod common;
mod vocabularies;

/// The texts and ids of a golden pair.
fn golden(name: &str) -> Option<Vec<(String, Vec<u32>)>> {
    let [input, output] =
        ["inp", "out"].map(|end| shared().join(format!("ggml-vocab-{name}.gguf.{end}")));
    if !input.is_file() || !output.is_file() {
        common::skip(
            name,
            "its .inp and .out are not in ../shared/data/tokenizers",
        );
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
    if let Some(store) = qwen("golden_qwen2") {
        check_golden(&tokenizer_of(&store), "qwen2");
        check_golden(&tokenizer_of(&store), "deepseek-r1-qwen");
    }
}

const VOCABULARIES: [&str; 11] = [
    "baichuan",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gpt-2",
    "gpt-neox",
    "llama-spm",
    "mpt",
    "phi-3",
    "refact",
    "starcoder",
];

/// Every vocabulary at hand, by name; opened once for all tests.
fn everyone() -> &'static [(&'static str, Tokenizer)] {
    static EVERYONE: LazyLock<Vec<(&str, Tokenizer)>> = LazyLock::new(|| {
        let test = "every test over all vocabularies";
        let files = VOCABULARIES
            .into_iter()
            .filter_map(|name| Some((name, vocabulary(name)?)));
        let models = [
            ("qwen2", qwen(test)),
            ("smollm", smollm(test)),
            ("gemma", gemma(test)),
        ];
        let models = models
            .into_iter()
            .filter_map(|(name, store)| Some((name, tokenizer_of(&store?))));
        files.chain(models).collect()
    });
    &EVERYONE
}

/// Whether the vocabulary puts a blank before the text.
fn has_dummy_blank(tokenizer: &Tokenizer) -> bool {
    tokenizer.decode(&tokenizer.encode("a", Specials::Plain)) == " a"
}

/// Text that the vocabulary can spell comes back byte for byte, at the start and inside, without control tokens.
fn check_round_trip(name: &str, tokenizer: &Tokenizer, text: &str) {
    // `▁` is how sentencepiece writes a blank, so that it reads one as a blank.
    if tokenizer.unspellable(text).is_some()
        || (tokenizer.decode(&tokenizer.encode("▁", Specials::Plain)) != "▁" && text.contains('▁'))
    {
        return;
    }
    let inside = tokenizer.encode_at(text, Specials::Plain, Position::Inside);
    let bytes: Vec<u8> = inside
        .iter()
        .flat_map(|&token| tokenizer.bytes(token))
        .copied()
        .collect();
    assert!(
        bytes == text.as_bytes(),
        "{name} changed {text:?} to {:?}",
        String::from_utf8_lossy(&bytes)
    );
    assert!(
        !inside.iter().any(|&token| tokenizer.is_control(token)),
        "{name} made a control token of {text:?}"
    );
    let start = tokenizer.decode(&tokenizer.encode(text, Specials::Plain));
    assert!(
        start == text || start.strip_prefix(' ') == Some(text),
        "{name} changed {text:?} to {start:?}"
    );
}

/// Judged text of many kinds from the shared data, and the texts of the goldens.
fn shared_texts() -> Vec<String> {
    let mut texts: Vec<String> = golden("gpt-2")
        .unwrap_or_default()
        .into_iter()
        .map(|(text, _)| text)
        .collect();
    for file in [
        "llmbar/Natural.json",
        "pandalm/testset-v1-even.json",
        "halueval/general-800.jsonl",
    ] {
        match std::fs::read_to_string(shared().join("..").join(file)) {
            Ok(text) => texts.extend(text.lines().take(1_000).map(str::to_owned)),
            Err(_) => common::skip("round trips", &format!("../shared/data/{file} is not here")),
        }
    }
    texts
}

#[test]
fn text_comes_back_byte_for_byte() {
    let texts = shared_texts();
    for (name, tokenizer) in everyone() {
        for text in &texts {
            check_round_trip(name, tokenizer, text);
        }
        for text in [
            "",
            " ",
            "  ",
            "\0",
            "a\0b",
            "\u{feff}",
            "\u{feff}\u{feff}x",
            "\r\n\r",
            "\u{10ffff}",
            "e\u{301}",
            "\u{85}",
        ] {
            check_round_trip(name, tokenizer, text);
        }
    }
}

#[test]
fn no_text_becomes_a_control_token() {
    for (name, tokenizer) in everyone() {
        let controls: Vec<u32> = tokenizer.control_tokens().collect();
        assert!(!controls.is_empty(), "{name}");
        for &control in &controls {
            let piece = tokenizer.piece(control);
            for text in [piece.to_owned(), format!("a {piece}{piece} b")] {
                check_round_trip(name, tokenizer, &text);
            }
            let parsed = tokenizer.encode(piece, Specials::Parse);
            assert!(
                piece.is_empty() || parsed == [control],
                "{name}: {piece:?} parsed to {parsed:?}"
            );
            assert!(
                tokenizer.bytes(control).is_empty(),
                "{name}: {piece:?} adds bytes"
            );
        }
        assert!(
            tokenizer
                .stops()
                .iter()
                .all(|&token| tokenizer.is_control(token)),
            "{name}: {:?}",
            tokenizer.stops()
        );
    }
}

#[test]
fn long_words_take_bounded_time() {
    let words = [
        "a".repeat(200_000),
        " ".repeat(200_000),
        "\n".repeat(200_000),
        "ab".repeat(100_000),
        "é".repeat(100_000),
    ];
    for (name, tokenizer) in everyone() {
        for text in &words {
            let begun = Instant::now();
            let tokens = tokenizer.encode_at(text, Specials::Plain, Position::Inside);
            let taken = begun.elapsed();
            assert!(
                tokenizer.decode(&tokens) == *text,
                "{name} changed {:?}...",
                &text[..2]
            );
            // A quadratic merge of this length takes minutes; this allows for a busy machine.
            assert!(
                taken < Duration::from_secs(20),
                "{name}: {taken:?} for {:?}...",
                &text[..2]
            );
        }
    }
}

#[test]
fn segments_know_what_goes_before_them() {
    let Some(tokenizer) = vocabulary("llama-spm") else {
        return;
    };
    assert!(has_dummy_blank(&tokenizer));
    let segment = |text, specials| Segment { text, specials };
    let split = tokenizer
        .encode_segments([
            segment("<s>[INST]", Specials::Parse),
            segment(" Hello", Specials::Plain),
            segment("", Specials::Plain),
            segment("</s>", Specials::Plain),
            segment(" [/INST]</s>", Specials::Parse),
            segment("x", Specials::Plain),
        ])
        .expect("all of it can be spelled");
    let pieces: Vec<&str> = split.iter().map(|&token| tokenizer.piece(token)).collect();
    let expected = [
        "<s>", "▁[", "INST", "]", "▁Hello", "</", "s", ">", "▁[", "/", "INST", "]", "</s>", "▁x",
    ];
    assert_eq!(pieces, expected);
    let raw = tokenizer
        .encode_raw("<s>[INST] Hello")
        .expect("it can be spelled");
    assert_eq!(raw, split[..5]);
    assert_eq!(
        tokenizer
            .encode_raw("[INST] Hello")
            .expect("it can be spelled"),
        split[..5]
    );
}

#[test]
fn settings_of_the_vocabularies() {
    // Name, BOS that prompts start with, stops, whether a blank goes before the text.
    let expected: [(&str, Option<&str>, &[&str], bool); 14] = [
        ("baichuan", Some("<s>"), &["</s>"], true),
        (
            "deepseek-coder",
            Some("<｜begin▁of▁sentence｜>"),
            &["<｜end▁of▁sentence｜>", "<|EOT|>"],
            false,
        ),
        (
            "deepseek-llm",
            Some("<｜begin▁of▁sentence｜>"),
            &["<｜end▁of▁sentence｜>"],
            false,
        ),
        ("falcon", None, &["<|endoftext|>"], false),
        ("gpt-2", None, &["<|endoftext|>"], false),
        ("gpt-neox", None, &["<|endoftext|>"], false),
        ("llama-spm", Some("<s>"), &["</s>"], true),
        ("mpt", None, &["<|endoftext|>"], false),
        (
            "phi-3",
            Some("<s>"),
            &["</s>", "<|endoftext|>", "<|end|>"],
            true,
        ),
        ("refact", None, &["<|endoftext|>"], false),
        ("starcoder", None, &["<|endoftext|>"], false),
        ("qwen2", None, &["<|endoftext|>", "<|im_end|>"], false),
        ("smollm", None, &["<|endoftext|>", "<|im_end|>"], false),
        ("gemma", Some("<bos>"), &["<eos>", "<end_of_turn>"], false),
    ];
    let mut digests = std::collections::HashSet::new();
    for (name, tokenizer) in everyone() {
        let (_, bos, stops, blank) = expected
            .iter()
            .find(|(other, ..)| other == name)
            .expect("a row for each");
        assert_eq!(
            tokenizer.bos().map(|token| tokenizer.piece(token)),
            *bos,
            "{name}"
        );
        let found: Vec<&str> = tokenizer
            .stops()
            .iter()
            .map(|&token| tokenizer.piece(token))
            .collect();
        assert_eq!(&found, stops, "{name}");
        assert_eq!(has_dummy_blank(tokenizer), *blank, "{name}");
        assert_eq!(tokenizer.digest().len(), 64, "{name}");
        // MPT took the vocabulary of GPT-NeoX as it was.
        assert!(
            digests.insert(tokenizer.digest()) || matches!(*name, "mpt" | "gpt-neox"),
            "{name}"
        );
    }
}

#[test]
fn vocabularies_that_would_be_wrong_are_refused() {
    let path = shared().join("ggml-vocab-gpt-2.gguf");
    if !path.is_file() {
        println!(
            "skipped: vocabularies_that_would_be_wrong_are_refused needs ../shared/data/tokenizers/ggml-vocab-gpt-2.gguf"
        );
        return;
    }
    let store = Store::open(&path).expect("the file opens");
    let check = |key: &str, value: Value, reason: &str| {
        let mut metadata = store.metadata().clone();
        metadata.insert(key, value);
        let error = Tokenizer::from_metadata(&metadata)
            .err()
            .unwrap_or_else(|| panic!("{key} was taken"))
            .to_string();
        assert!(error.contains(reason), "{key}: {error}");
    };
    check(
        "tokenizer.ggml.pre",
        Value::String("some-new-one".into()),
        "some-new-one",
    );
    check(
        "tokenizer.ggml.pre",
        Value::Unsigned(3),
        "tokenizer.ggml.pre",
    );
    check("tokenizer.ggml.model", Value::String("bert".into()), "bert");
    check(
        "tokenizer.ggml.model",
        Value::String("llama".into()),
        "tokenizer.ggml.scores",
    );
    check(
        "tokenizer.ggml.eos_token_id",
        Value::Unsigned(60_000),
        "60000",
    );
    check(
        "tokenizer.ggml.bos_token_id",
        Value::Unsigned(u64::MAX),
        "outside",
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text_comes_back(text in prop_oneof!["\\PC{0,40}", any::<String>(), "[ a▁\n<|>s/\\[\\]é中0-9']{0,40}"]) {
        for (name, tokenizer) in everyone() {
            check_round_trip(name, tokenizer, &text);
        }
    }
}
