//! Tokenizers from GGUF metadata: vocabularies of the kinds `llama` (SPM) and `gpt2` (byte-level BPE).
//!
//! Defaults that the file does not state are those of the vocabulary's kind. A pre-tokenizer that is not known is
//! refused by name: every other one would cut words wrongly without a sign. This file knows keys, not algorithms.

use super::rank_merge::RankMerge;
use super::score_merge::ScoreMerge;
use super::split::{self, Splitter};
use super::vocabulary::{Kind, Spelling, Vocabulary};
use super::{Merge, Parts, Tokenizer, TokenizerError};
use crate::weights::{Metadata, Value};
use sha2::{Digest, Sha256};

/// Builds the tokenizer.
pub(super) fn build(metadata: &Metadata) -> Result<Tokenizer, TokenizerError> {
    let model = metadata
        .string("tokenizer.ggml.model")
        .ok_or_else(|| missing("tokenizer.ggml.model"))?;
    match model {
        "llama" => by_score(metadata),
        "gpt2" => byte_level(metadata),
        other => Err(TokenizerError::Model(other.to_owned())),
    }
}

fn by_score(metadata: &Metadata) -> Result<Tokenizer, TokenizerError> {
    if metadata.boolean("tokenizer.ggml.remove_extra_whitespaces") == Some(true) {
        return Err(TokenizerError::Refused(
            "the vocabulary drops blanks (tokenizer.ggml.remove_extra_whitespaces), so text would not stay what it is".into(),
        ));
    }
    let vocabulary = vocabulary(metadata, Spelling::BlankMark)?;
    let scores = metadata
        .floats("tokenizer.ggml.scores")
        .ok_or_else(|| missing("tokenizer.ggml.scores"))?;
    let scores: Vec<f32> = scores.into_iter().map(|score| score as f32).collect();
    let merge = ScoreMerge::new(&vocabulary, &scores)?;
    let mut fingerprint = Sha256::new_with_prefix("gguf llama");
    scores
        .iter()
        .for_each(|score| fingerprint.update(score.to_le_bytes()));
    let bos = match token(metadata, "tokenizer.ggml.bos_token_id", &vocabulary)? {
        Some(token) => Some(token),
        None => vocabulary.find("<s>", |kind| kind == Kind::Control),
    };
    let absorbs = blank_absorbing(metadata, &vocabulary);
    let parts = Parts {
        merge: Merge::Score(merge),
        dummy_blank: metadata
            .boolean("tokenizer.ggml.add_space_prefix")
            .unwrap_or(true),
        bos,
        adds_bos: metadata
            .boolean("tokenizer.ggml.add_bos_token")
            .unwrap_or(bos.is_some()),
        eos: token(metadata, "tokenizer.ggml.eos_token_id", &vocabulary)?,
        ends: ends(metadata, &vocabulary)?,
        absorbs,
        fingerprint,
        vocabulary,
    };
    Tokenizer::assemble(parts)
}

fn byte_level(metadata: &Metadata) -> Result<Tokenizer, TokenizerError> {
    let name = pre_tokenizer(metadata)?;
    let named = split::named(name).ok_or_else(|| TokenizerError::PreTokenizer(name.to_owned()))?;
    let vocabulary = vocabulary(metadata, Spelling::ByteLevel)?;
    let lines = metadata
        .strings("tokenizer.ggml.merges")
        .ok_or_else(|| missing("tokenizer.ggml.merges"))?;
    let mut fingerprint = Sha256::new_with_prefix("gguf gpt2");
    for text in named
        .patterns
        .iter()
        .copied()
        .chain(lines.iter().map(String::as_str))
    {
        fingerprint.update((text.len() as u64).to_le_bytes());
        fingerprint.update(text);
    }
    fingerprint.update([u8::from(named.ignore_merges)]);
    let merges = lines
        .iter()
        .enumerate()
        .map(|(rank, line)| merge_of(rank, line))
        .collect::<Result<_, _>>()?;
    let splitter = Splitter::new(named.patterns.iter().copied())?;
    let merge = RankMerge::new(&vocabulary, merges, Some(splitter), named.ignore_merges)?;
    let parts = Parts {
        merge: Merge::ByteLevel(merge),
        dummy_blank: false,
        bos: token(metadata, "tokenizer.ggml.bos_token_id", &vocabulary)?,
        adds_bos: metadata
            .boolean("tokenizer.ggml.add_bos_token")
            .unwrap_or(named.adds_bos),
        eos: token(metadata, "tokenizer.ggml.eos_token_id", &vocabulary)?,
        ends: ends(metadata, &vocabulary)?,
        absorbs: Vec::new(),
        fingerprint,
        vocabulary,
    };
    Tokenizer::assemble(parts)
}

/// The pre-tokenizer's name. Files from before the key existed are understood where the architecture leaves no choice.
fn pre_tokenizer(metadata: &Metadata) -> Result<&str, TokenizerError> {
    match (
        metadata.get("tokenizer.ggml.pre"),
        metadata.string("general.architecture"),
    ) {
        (Some(Value::String(name)), _) => Ok(name),
        // Both were trained with the plain GPT-2 cut.
        (None, Some("gpt2" | "gptneox")) => Ok("gpt-2"),
        _ => Err(missing("tokenizer.ggml.pre")),
    }
}

/// A merge is a line of two pieces with a blank between them; a piece may begin with a blank.
fn merge_of(rank: usize, line: &str) -> Result<(String, String), TokenizerError> {
    let first = line.chars().next().map_or(0, char::len_utf8);
    match line[first..].split_once(' ') {
        Some((rest, right)) => Ok((format!("{}{rest}", &line[..first]), right.to_owned())),
        None => Err(TokenizerError::Refused(format!(
            "merge {rank} is not two pieces: {line:?}"
        ))),
    }
}

fn vocabulary(metadata: &Metadata, spelling: Spelling) -> Result<Vocabulary, TokenizerError> {
    let pieces = metadata
        .strings("tokenizer.ggml.tokens")
        .ok_or_else(|| missing("tokenizer.ggml.tokens"))?;
    let mut kinds = match metadata.integers("tokenizer.ggml.token_type") {
        Some(types) => types
            .into_iter()
            .enumerate()
            .map(|(id, kind)| kind_of(id, kind))
            .collect::<Result<_, _>>()?,
        None => vec![Kind::Normal; pieces.len()],
    };
    // What begins or ends a sequence steers the model, whatever its type says.
    for key in BOUNDARIES {
        let token = metadata
            .integer(key)
            .and_then(|token| usize::try_from(token).ok());
        if let Some(kind) = token.and_then(|token| kinds.get_mut(token)) {
            *kind = Kind::Control;
        }
    }
    Vocabulary::new(pieces.to_vec(), kinds, spelling)
}

/// Keys that name a token which begins or ends something.
const BOUNDARIES: [&str; 4] = [
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
];

fn kind_of(id: usize, kind: i64) -> Result<Kind, TokenizerError> {
    Ok(match kind {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        // Type 0 is "undefined": nothing may make it.
        0 | 5 => Kind::Unused,
        6 => Kind::Byte,
        other => {
            return Err(TokenizerError::Refused(format!(
                "token {id} has the unknown type {other}"
            )));
        }
    })
}

/// A token that the metadata names, checked against the vocabulary. Converters write −1, of either width, for none.
fn token(
    metadata: &Metadata,
    key: &str,
    vocabulary: &Vocabulary,
) -> Result<Option<u32>, TokenizerError> {
    match metadata.get(key) {
        None | Some(Value::Signed(-1)) => Ok(None),
        Some(&Value::Unsigned(token)) if token == u64::from(u32::MAX) => Ok(None),
        Some(_) => match metadata.integer(key) {
            Some(token) if token < vocabulary.len() as u64 => Ok(Some(token as u32)),
            Some(token) => Err(TokenizerError::Refused(format!(
                "{key} is {token}, outside the vocabulary of {}",
                vocabulary.len()
            ))),
            None => Err(missing(key)),
        },
    }
}

fn ends(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Vec<u32>, TokenizerError> {
    let keys = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
    let named = keys.into_iter().map(|key| token(metadata, key, vocabulary));
    Ok(named
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// Phi-3 was trained with the blanks behind its turn markers left out, which GGUF metadata has no key for.
fn blank_absorbing(metadata: &Metadata, vocabulary: &Vocabulary) -> Vec<u32> {
    if metadata.string("general.architecture") != Some("phi3") {
        return Vec::new();
    }
    let turn = |piece: &str| !matches!(piece, "<unk>" | "<s>" | "<|endoftext|>");
    vocabulary
        .iter()
        .filter(|(_, piece, kind)| *kind == Kind::Control && turn(piece))
        .map(|(id, _, _)| id)
        .collect()
}

fn missing(key: &str) -> TokenizerError {
    TokenizerError::Refused(format!("the metadata has no {key} of the right type"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_are_two_pieces() {
        let check = |line: &str, left: &str, right: &str| {
            assert_eq!(
                merge_of(0, line).expect("two pieces"),
                (left.to_owned(), right.to_owned())
            );
        };
        check("Ġ t", "Ġ", "t");
        check("  a", " ", "a");
        check("é x", "é", "x");
        for line in ["", "a", " "] {
            assert!(merge_of(3, line).is_err(), "{line:?}");
        }
    }
}
