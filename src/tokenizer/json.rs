//! Tokenizers from a Hugging Face `tokenizer.json`: byte-pair models, byte-level or of characters with byte fallback.
//!
//! The file's pipeline is read into the same parts that GGUF metadata gives, so that both encode alike: whatever step
//! of it is not understood is refused by name, never skipped. This file knows JSON, not algorithms.

use super::rank_merge::RankMerge;
use super::split::{self, Splitter};
use super::vocabulary::{BLANK_MARK, Kind, Spelling, Vocabulary, byte_of};
use super::{Merge, Parts, Tokenizer, TokenizerError};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Ids beyond this many times the number of pieces are taken for a fault, so that a false id can't fill the memory.
const MOST_GAPS: usize = 4;

/// Builds the tokenizer.
pub(super) fn build(json: &[u8]) -> Result<Tokenizer, TokenizerError> {
    let root: Value =
        serde_json::from_slice(json).map_err(|error| TokenizerError::Json(error.to_string()))?;
    let model = &root["model"];
    // Files from before the key existed have pieces with merges all the same.
    let kind = model["type"]
        .as_str()
        .unwrap_or(if model["merges"].is_array() {
            "BPE"
        } else {
            ""
        });
    if kind != "BPE" {
        return Err(TokenizerError::Model(kind.to_owned()));
    }
    for key in ["dropout", "continuing_subword_prefix", "end_of_word_suffix"] {
        if !(model[key].is_null() || model[key] == "") {
            return Err(TokenizerError::Refused(format!(
                "the model's {key} is not supported"
            )));
        }
    }
    let cut = Cut::read(&root)?;
    let spelling = if cut.patterns.is_some() {
        Spelling::ByteLevel
    } else {
        Spelling::BlankMark
    };
    let (vocabulary, absorbs) = vocabulary(&root, spelling)?;
    let ignore_merges = model["ignore_merges"].as_bool().unwrap_or(false);
    let merges = merges(&model["merges"])?;
    let mut fingerprint = Sha256::new_with_prefix("json bpe");
    let patterns = cut.patterns.iter().flatten().map(String::as_str);
    for text in patterns.chain(
        merges
            .iter()
            .flat_map(|(left, right)| [left.as_str(), right.as_str()]),
    ) {
        fingerprint.update((text.len() as u64).to_le_bytes());
        fingerprint.update(text);
    }
    fingerprint.update([u8::from(ignore_merges)]);
    let splitter = match &cut.patterns {
        Some(patterns) => Some(Splitter::new(patterns.iter().map(String::as_str))?),
        None => None,
    };
    let byte_level = splitter.is_some();
    let merge = RankMerge::new(&vocabulary, merges, splitter, ignore_merges)?;
    let (adds_bos, bos) = match first_special(&root["post_processor"]) {
        Some(piece) => (true, vocabulary.find(piece, |kind| kind == Kind::Control)),
        None => (
            false,
            ["<s>", "<bos>"]
                .iter()
                .find_map(|piece| vocabulary.find(piece, |kind| kind == Kind::Control)),
        ),
    };
    let eos = ["</s>", "<eos>"]
        .iter()
        .find_map(|piece| vocabulary.find(piece, |kind| kind == Kind::Control));
    let parts = Parts {
        merge: if byte_level {
            Merge::ByteLevel(merge)
        } else {
            Merge::BlankMark(merge)
        },
        dummy_blank: cut.dummy_blank,
        bos,
        adds_bos,
        eos,
        ends: Vec::new(),
        absorbs,
        fingerprint,
        vocabulary,
    };
    Tokenizer::assemble(parts)
}

/// How text is cut before merging.
struct Cut {
    /// The patterns of a byte-level vocabulary; none where blanks become `▁` and nothing is cut.
    patterns: Option<Vec<String>>,
    /// Whether a blank goes before the text.
    dummy_blank: bool,
}

impl Cut {
    fn read(root: &Value) -> Result<Self, TokenizerError> {
        let mut dummy_blank = false;
        let mut marks_blanks = false;
        for step in steps(&root["normalizer"], "normalizers") {
            match kind(step) {
                // Left out on purpose, see `Tokenizer::from_json`.
                "NFC" => {}
                "Prepend" if step["prepend"] == BLANK_MARK.to_string() => dummy_blank = true,
                "Replace"
                    if step["pattern"]["String"] == " "
                        && step["content"] == BLANK_MARK.to_string() =>
                {
                    marks_blanks = true;
                }
                other => {
                    return Err(TokenizerError::Refused(format!(
                        "the normalizer {other:?} is not supported"
                    )));
                }
            }
        }
        let mut patterns = Vec::new();
        let mut byte_level = false;
        for step in steps(&root["pre_tokenizer"], "pretokenizers") {
            let unknown = || TokenizerError::PreTokenizer(step.to_string());
            match kind(step) {
                "ByteLevel" => {
                    if step["add_prefix_space"] == true {
                        return Err(unknown());
                    }
                    byte_level = true;
                    if step["use_regex"] != false {
                        patterns.push(split::BYTE_LEVEL.to_owned());
                    }
                }
                "Split" if marks_blanks && !byte_level && step["pattern"]["String"] == " " => {
                    // All blanks are marked by now, so that this cuts nothing.
                }
                "Split" => patterns.push(split_pattern(step).ok_or_else(unknown)?),
                "Digits" if step["individual_digits"] == true => patterns.push(r"\p{N}".to_owned()),
                "Digits" => patterns.push(r"\p{N}+".to_owned()),
                "Punctuation" if step["behavior"] == "Contiguous" => {
                    patterns.push(r"[\p{P}\$\+<=>\^~\|`]+".to_owned());
                }
                "Metaspace"
                    if step["split"] == false && step["replacement"] == BLANK_MARK.to_string() =>
                {
                    marks_blanks = true;
                    dummy_blank =
                        step["prepend_scheme"] != "never" && step["add_prefix_space"] != false;
                }
                _ => return Err(unknown()),
            }
        }
        match (byte_level, marks_blanks) {
            (true, false) if !dummy_blank => Ok(Cut {
                patterns: Some(patterns),
                dummy_blank,
            }),
            (false, true) if patterns.is_empty() => Ok(Cut {
                patterns: None,
                dummy_blank,
            }),
            _ => Err(TokenizerError::PreTokenizer(
                root["pre_tokenizer"].to_string(),
            )),
        }
    }
}

/// The pattern of a `Split` step that keeps everything and cuts before and after each match.
fn split_pattern(step: &Value) -> Option<String> {
    let isolated = step["behavior"] == "Isolated";
    // The words are the matches, and what lies between is dropped: the patterns in use leave nothing between.
    let inverted = step["behavior"] == "Removed" && step["invert"] == true;
    if !isolated && !inverted {
        return None;
    }
    if let Some(text) = step["pattern"]["String"].as_str() {
        return Some(regex::escape(text));
    }
    step["pattern"]["Regex"].as_str().map(str::to_owned)
}

/// A step, or the steps of a sequence of them.
fn steps<'a>(value: &'a Value, list: &str) -> Vec<&'a Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Object(_) if kind(value) == "Sequence" => {
            value[list].as_array().into_iter().flatten().collect()
        }
        other => vec![other],
    }
}

fn kind(step: &Value) -> &str {
    step["type"].as_str().unwrap_or("")
}

/// The table of pieces, and the control tokens that take the blanks after them along.
fn vocabulary(root: &Value, spelling: Spelling) -> Result<(Vocabulary, Vec<u32>), TokenizerError> {
    let pieces = root["model"]["vocab"]
        .as_object()
        .ok_or_else(|| json_lacks("model.vocab"))?;
    let empty = Vec::new();
    let added = root["added_tokens"].as_array().unwrap_or(&empty);
    let mut entries: Vec<(usize, &str, Kind)> = Vec::with_capacity(pieces.len() + added.len());
    for (piece, id) in pieces {
        let byte = spelling == Spelling::BlankMark && byte_of(piece).is_some();
        let unknown = root["model"]["unk_token"] == piece.as_str();
        let kind = if byte {
            Kind::Byte
        } else if unknown {
            Kind::Unknown
        } else {
            Kind::Normal
        };
        entries.push((id_of(id)?, piece, kind));
    }
    let mut absorbs = Vec::new();
    for token in added {
        let id = id_of(&token["id"])?;
        let piece = token["content"]
            .as_str()
            .ok_or_else(|| json_lacks("added_tokens.content"))?;
        let special = token["special"] == true;
        if token["single_word"] == true
            || token["lstrip"] == true
            || (!special && token["rstrip"] == true)
        {
            return Err(TokenizerError::Refused(format!(
                "the way in which the added token {piece:?} is found is not supported"
            )));
        }
        if special && token["rstrip"] == true {
            absorbs.push(id as u32);
        }
        entries.push((
            id,
            piece,
            if special {
                Kind::Control
            } else {
                Kind::UserDefined
            },
        ));
    }
    let length = entries.iter().map(|(id, _, _)| id + 1).max().unwrap_or(0);
    if length > entries.len().saturating_mul(MOST_GAPS) {
        return Err(TokenizerError::Json(format!(
            "the token id {} is far beyond {} pieces",
            length - 1,
            entries.len()
        )));
    }
    let mut names = vec![String::new(); length];
    let mut kinds = vec![Kind::Unused; length];
    for (id, piece, kind) in entries {
        names[id] = piece.to_owned();
        kinds[id] = kind;
    }
    Ok((Vocabulary::new(names, kinds, spelling)?, absorbs))
}

fn id_of(value: &Value) -> Result<usize, TokenizerError> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.map(|id| id as usize)
        .ok_or_else(|| TokenizerError::Json(format!("{value} is no token id")))
}

/// Merges are pairs, or lines of two pieces in older files.
fn merges(value: &Value) -> Result<Vec<(String, String)>, TokenizerError> {
    let list = value.as_array().ok_or_else(|| json_lacks("model.merges"))?;
    let pair = |merge: &Value| match merge {
        Value::String(line) => line
            .split_once(' ')
            .map(|(left, right)| (left.to_owned(), right.to_owned())),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(left), Value::String(right)] => Some((left.clone(), right.clone())),
            _ => None,
        },
        _ => None,
    };
    let read = |merge| {
        pair(merge)
            .ok_or_else(|| TokenizerError::Json(format!("{merge} is no merge of two pieces")))
    };
    list.iter().map(read).collect()
}

/// The special token with which the post-processor starts a single text.
fn first_special(value: &Value) -> Option<&str> {
    steps(value, "processors")
        .into_iter()
        .find_map(|step| step["single"][0]["SpecialToken"]["id"].as_str())
}

fn json_lacks(field: &str) -> TokenizerError {
    TokenizerError::Json(format!("no {field} of the right type"))
}

#[cfg(test)]
mod tests {
    use super::super::{Position, Specials, alphabet};
    use super::*;
    use serde_json::json;

    fn byte_level() -> Value {
        let mut pieces: serde_json::Map<String, Value> = alphabet::characters()
            .iter()
            .enumerate()
            .map(|(id, character)| (character.to_string(), json!(id)))
            .collect();
        pieces.insert("ab".into(), json!(256));
        json!({
            "added_tokens": [
                {"id": 257, "content": "<|im_end|>", "special": true},
                {"id": 258, "content": "<tool>", "special": false},
            ],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex": r"\p{N}|\s+(?!\S)|\s+"}},
                {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
            ]},
            "model": {"type": "BPE", "vocab": pieces, "merges": ["a b"]},
        })
    }

    fn marked() -> Value {
        let mut pieces: serde_json::Map<String, Value> = (0..256)
            .map(|byte| (format!("<0x{byte:02X}>"), json!(byte)))
            .collect();
        for (piece, id) in [("▁", 256), ("a", 257), ("▁a", 258), ("<unk>", 259)] {
            pieces.insert(piece.into(), json!(id));
        }
        json!({
            "added_tokens": [
                {"id": 260, "content": "<s>", "special": true},
                {"id": 261, "content": "</s>", "special": true, "rstrip": true},
            ],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ]},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            ]},
            "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": pieces, "merges": [["▁", "a"]]},
        })
    }

    fn open(json: &Value) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::from_json(json.to_string().as_bytes())
    }

    #[test]
    fn byte_level_files_are_read() {
        let tokenizer = open(&byte_level()).expect("a good file");
        assert_eq!(
            tokenizer.encode("ab1<tool><|im_end|>", Specials::Parse),
            [256, 49, 258, 257]
        );
        let plain = tokenizer.encode("<|im_end|>", Specials::Plain);
        assert_eq!(plain, b"<|im_end|>".map(u32::from));
        assert_eq!(tokenizer.bytes(256), b"ab");
        assert_eq!((tokenizer.bos(), tokenizer.stops()), (None, &[257][..]));
    }

    #[test]
    fn files_with_marked_blanks_are_read() {
        let tokenizer = open(&marked()).expect("a good file");
        assert_eq!(
            tokenizer.encode("a aé", Specials::Parse),
            [258, 258, 0xC3, 0xA9]
        );
        assert_eq!(
            tokenizer.encode_at("a", Specials::Plain, Position::Inside),
            [257]
        );
        assert_eq!(
            tokenizer.encode("</s> a<s>", Specials::Parse),
            [261, 258, 260]
        );
        assert_eq!(tokenizer.decode(&[260, 258, 0xC3, 0xA9, 259]), " aé");
        assert_eq!(
            (tokenizer.bos(), tokenizer.stops()),
            (Some(260), &[261][..])
        );
        assert_eq!(tokenizer.encode_raw("<s>a").ok(), Some(vec![260, 258]));
        assert_eq!(tokenizer.encode_raw("a").ok(), Some(vec![260, 258]));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let mut cases = vec![json!({}), json!({"model": {"type": "Unigram"}})];
        for (pointer, value) in [
            ("/normalizer", json!({"type": "Lowercase"})),
            ("/pre_tokenizer", json!({"type": "Whitespace"})),
            ("/pre_tokenizer", Value::Null),
            (
                "/pre_tokenizer/pretokenizers/0/pattern/Regex",
                json!("(?<=a)b"),
            ),
            ("/model/merges", json!(["a"])),
            ("/model/merges", json!(["a q"])),
            ("/model/vocab", json!({"a": 4_000_000_000u32})),
            ("/added_tokens/0/id", json!(4_000_000_000u32)),
            ("/added_tokens/0/id", json!(-1)),
            ("/added_tokens/0/content", json!("no end")),
        ] {
            let mut file = byte_level();
            *file.pointer_mut(pointer).expect("a field of the good file") = value;
            cases.push(file);
        }
        for file in cases {
            assert!(open(&file).is_err(), "{file}");
        }
        assert!(Tokenizer::from_json(b"{").is_err());
    }
}
