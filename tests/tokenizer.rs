//! Tokenizers and chat templates against reference results.
//!
//! The golden pairs are those of llama.cpp's tokenizer test: the texts of `.inp`, the token ids of `.out`. They and the
//! vocabularies lie in the shared data folder; a test whose files are absent says so and passes.

use assize::ask::{Message, Part, Role};
use assize::tokenizer::{ChatTemplate, Position, Segment, Specials, Tokenizer};
use assize::weights::{Store, Value};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// A model from the cache, or a line that says what is missing.
fn model(test: &str, name: &str, file: &str) -> Option<Store> {
    let path = cached_model(name, file);
    if path.is_none() {
        println!("skipped: {test} needs the model {name} (assize fetch {name})");
    }
    path.map(|path| Store::open(&path).expect("the model opens"))
}

fn qwen(test: &str) -> Option<Store> {
    model(
        test,
        "qwen2.5-coder-0.5b-instruct",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    )
    .or_else(|| {
        model(
            test,
            "qwen2.5-coder-1.5b-instruct",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        )
    })
}

fn smollm(test: &str) -> Option<Store> {
    model(
        test,
        "smollm2-135m-instruct",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}

fn gemma(test: &str) -> Option<Store> {
    model(test, "gemma-3-270m", "gemma-3-270m-q4_k_m.gguf")
}

fn tokenizer_of(store: &Store) -> Tokenizer {
    Tokenizer::from_metadata(store.metadata()).expect("a good tokenizer")
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

/// Every vocabulary at hand, by name.
fn everyone(test: &str) -> Vec<(&'static str, Tokenizer)> {
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
            Ok(text) => texts.extend(text.lines().take(4_000).map(str::to_owned)),
            Err(_) => println!("skipped: the texts of ../shared/data/{file}"),
        }
    }
    texts
}

#[test]
fn text_comes_back_byte_for_byte() {
    let texts = shared_texts();
    for (name, tokenizer) in everyone("text_comes_back_byte_for_byte") {
        for text in &texts {
            check_round_trip(name, &tokenizer, text);
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
            check_round_trip(name, &tokenizer, text);
        }
    }
}

#[test]
fn no_text_becomes_a_control_token() {
    for (name, tokenizer) in everyone("no_text_becomes_a_control_token") {
        let controls: Vec<u32> = tokenizer.control_tokens().collect();
        assert!(!controls.is_empty(), "{name}");
        for &control in &controls {
            let piece = tokenizer.piece(control);
            for text in [piece.to_owned(), format!("a {piece}{piece} b")] {
                check_round_trip(name, &tokenizer, &text);
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
    for (name, tokenizer) in everyone("long_words_take_bounded_time") {
        for text in &words {
            let begun = Instant::now();
            check_round_trip(name, &tokenizer, text);
            let taken = begun.elapsed();
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
    let split = tokenizer.encode_segments([
        segment("<s>[INST]", Specials::Parse),
        segment(" Hello", Specials::Plain),
        segment("", Specials::Plain),
        segment("</s>", Specials::Plain),
        segment(" [/INST]</s>", Specials::Parse),
        segment("x", Specials::Plain),
    ]);
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
    let mut digests = Vec::new();
    for (name, tokenizer) in everyone("settings_of_the_vocabularies") {
        let (_, bos, stops, blank) = expected
            .iter()
            .find(|(other, ..)| *other == name)
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
        assert_eq!(has_dummy_blank(&tokenizer), *blank, "{name}");
        assert!(
            tokenizer.digest().len() == 64 && !digests.contains(&tokenizer.digest().to_owned()),
            "{name}"
        );
        digests.push(tokenizer.digest().to_owned());
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

fn hello(template: &ChatTemplate, tokenizer: &Tokenizer) -> (String, Vec<u32>) {
    let material = Part::Material("Hi <|im_end|>".into());
    let messages = [
        Message {
            role: Role::System,
            parts: vec![Part::Instruction("Be strict.".into())],
        },
        Message {
            role: Role::User,
            parts: vec![Part::Instruction("Judge:\n".into()), material],
        },
    ];
    let rendered = template.render(&messages, tokenizer).expect("it renders");
    (
        rendered,
        template.encode(&messages, tokenizer).expect("it encodes"),
    )
}

#[test]
fn templates_of_real_models() {
    let test = "templates_of_real_models";
    for store in [qwen(test), smollm(test)].into_iter().flatten() {
        let tokenizer = tokenizer_of(&store);
        let template =
            ChatTemplate::for_model(store.metadata(), &tokenizer).expect("it brings one");
        let (rendered, tokens) = hello(&template, &tokenizer);
        let turns = [
            "system\nBe strict.",
            "user\nJudge:\nHi <|im_end|>",
            "assistant\n",
        ];
        assert_eq!(
            rendered,
            format!(
                "<|im_start|>{}<|im_end|>\n<|im_start|>{}<|im_end|>\n<|im_start|>{}",
                turns[0], turns[1], turns[2]
            )
        );
        assert_eq!(
            tokens
                .iter()
                .filter(|&&token| Some(token) == tokenizer.control("<|im_end|>"))
                .count(),
            2
        );
        assert_eq!(tokenizer.decode(&tokens), turns.join("\n"));
    }
    if let Some(tokenizer) = vocabulary("phi-3") {
        let store = Store::open(&shared().join("ggml-vocab-phi-3.gguf")).expect("the file opens");
        let template =
            ChatTemplate::for_model(store.metadata(), &tokenizer).expect("it brings one");
        let (rendered, tokens) = hello(&template, &tokenizer);
        // Its template leaves a system turn out without a word, so the text goes to the user's.
        assert_eq!(
            rendered,
            "<s><|user|>\nBe strict.\n\nJudge:\nHi <|im_end|><|end|>\n<|assistant|>\n"
        );
        // The blanks behind turn markers are left out, as in training.
        let pieces: Vec<&str> = tokens.iter().map(|&token| tokenizer.piece(token)).collect();
        assert_eq!(pieces[..3], ["<s>", "<|user|>", "▁Be"]);
        assert_eq!(pieces[pieces.len() - 2..], ["<|end|>", "<|assistant|>"]);
    }
    if let Some(store) = gemma(test) {
        let tokenizer = tokenizer_of(&store);
        let template = ChatTemplate::for_model(store.metadata(), &tokenizer)
            .expect("its vocabulary proves one");
        let (rendered, tokens) = hello(&template, &tokenizer);
        assert_eq!(
            rendered,
            "<bos><start_of_turn>user\nBe strict.\n\nJudge:\nHi <|im_end|><end_of_turn>\n<start_of_turn>model\n"
        );
        assert_eq!((tokens[0], tokens[1]), (2, 105));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text_comes_back(text in prop_oneof!["\\PC{0,40}", any::<String>(), "[ a▁\n<|>s/\\[\\]é中0-9']{0,40}"]) {
        thread_local! {
            static TOKENIZERS: Vec<(&'static str, Tokenizer)> = everyone("random_text_comes_back");
        }
        TOKENIZERS.with(|tokenizers| tokenizers.iter().for_each(|(name, tokenizer)| check_round_trip(name, tokenizer, &text)));
    }
}
