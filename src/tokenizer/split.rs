//! Pre-tokenizers: how byte-level vocabularies cut text into words before merging.
//!
//! A pre-tokenizer is a list of patterns; each cuts every stretch that the ones before it left, and both what matches
//! and what lies between becomes a stretch. The patterns run on an engine without backtracking, so that the time is
//! linear in the text whatever the text is, and nothing can fail. The one look-ahead that these patterns use, blanks
//! up to but not including the last one before a word, is done by hand. This file knows no vocabulary.

use super::TokenizerError;
use regex::Regex;

/// Blanks of which the last stays with the word that follows.
const BLANKS: &str = r"\s+(?!\S)";
/// The group that stands for [`BLANKS`] once the look-ahead is taken out.
const BLANKS_GROUP: &str = r"(?P<blanks>\s+)";

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const LLAMA3: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN2: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const DIGIT: &str = r"\p{N}";
const LINE_END: &str = r"[\r\n]";
const EAST_ASIAN: &str = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
/// The letters with case that DeepSeek LLM names one by one; close to `\p{L&}`, but not it.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}",
    r"\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}",
    r"\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}",
    r"\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}",
    r"\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}",
    r"\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}",
    r"\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}",
    r"\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}",
    r"\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}",
    r"\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}",
    r"\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}",
    r"\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+"
);
const DEEPSEEK_SIGNS: &str =
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";

/// A pre-tokenizer, ready to run.
pub(super) struct Splitter {
    rules: Vec<Rule>,
}

struct Rule {
    regex: Regex,
    /// Whether the pattern had the look-ahead that keeps the last blank for the next word.
    keeps_last_blank: bool,
}

/// What a pre-tokenizer's name in GGUF metadata stands for.
pub(super) struct Named {
    /// The patterns, in order.
    pub(super) patterns: &'static [&'static str],
    /// Whether a whole word that is a piece is taken as it is, without merging.
    pub(super) ignore_merges: bool,
    /// Whether prompts start with BOS where the file does not say.
    pub(super) adds_bos: bool,
}

/// The pre-tokenizer called `name` in `tokenizer.ggml.pre`, if it is known.
pub(super) fn named(name: &str) -> Option<Named> {
    let patterns: &'static [&'static str] = match name {
        "gpt-2" | "phi-2" | "mpt" | "olmo" => &[GPT2],
        "llama-bpe" | "llama3" | "llama-v3" | "dbrx" | "smaug-bpe" => &[LLAMA3],
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" => &[QWEN2],
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" => &[DIGIT, GPT2],
        "falcon" => &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
        "deepseek-llm" => &[
            LINE_END,
            DEEPSEEK_LETTERS,
            DEEPSEEK_SIGNS,
            r"\s+$",
            EAST_ASIAN,
            r"\p{N}+",
        ],
        "deepseek-coder" => &[LINE_END, r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, DIGIT],
        _ => return None,
    };
    let llama3 = matches!(name, "llama-bpe" | "llama3" | "llama-v3");
    Some(Named {
        patterns,
        ignore_merges: llama3,
        adds_bos: llama3,
    })
}

/// The pattern of the `ByteLevel` pre-tokenizer of `tokenizer.json`.
pub(super) const BYTE_LEVEL: &str = GPT2;

impl Splitter {
    /// Compiles the patterns. A pattern that needs backtracking is refused.
    pub(super) fn new<'a>(
        patterns: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, TokenizerError> {
        let rules = patterns
            .into_iter()
            .map(Rule::new)
            .collect::<Result<_, _>>()?;
        Ok(Splitter { rules })
    }

    /// Cuts the text into words, in order; together they are the text.
    pub(super) fn split<'a>(&self, text: &'a str, mut take: impl FnMut(&'a str)) {
        cut(&self.rules, text, &mut take);
    }
}

/// Cuts by the first rule and hands each stretch to the rest.
fn cut<'a>(rules: &[Rule], text: &'a str, take: &mut impl FnMut(&'a str)) {
    if text.is_empty() {
        return;
    }
    let Some((rule, rest)) = rules.split_first() else {
        take(text);
        return;
    };
    let mut done = 0;
    let mut at = 0;
    while let Some((start, end)) = rule.find(text, at) {
        if end == start {
            // An empty match cuts nothing; go on behind the next character.
            match text[end..].chars().next() {
                Some(character) => at = end + character.len_utf8(),
                None => break,
            }
            continue;
        }
        cut(rest, &text[done..start], take);
        cut(rest, &text[start..end], take);
        done = end;
        at = end;
    }
    cut(rest, &text[done..], take);
}

impl Rule {
    fn new(pattern: &str) -> Result<Self, TokenizerError> {
        // `\s+(?!\S)|\s+` and `\s+(?!\S)` alone differ only in whether a single blank is a match or lies between two.
        let stem = pattern.strip_suffix(r"|\s+").unwrap_or(pattern);
        let (pattern, keeps_last_blank) = match stem.strip_suffix(BLANKS) {
            Some(stem) => (format!("{stem}{BLANKS_GROUP}"), true),
            None => (pattern.to_owned(), false),
        };
        let regex = Regex::new(&pattern).map_err(|error| {
            TokenizerError::Refused(format!(
                "the pre-tokenizer's pattern can't be used: {error}"
            ))
        })?;
        Ok(Rule {
            regex,
            keeps_last_blank,
        })
    }

    /// The next match from `at` on, as a range of `text`.
    fn find(&self, text: &str, at: usize) -> Option<(usize, usize)> {
        let found = self.regex.find_at(text, at)?;
        let (start, end) = (found.start(), found.end());
        let last = found.as_str().chars().next_back();
        if !self.keeps_last_blank || end == text.len() || !last.is_some_and(char::is_whitespace) {
            return Some((start, end));
        }
        // Only now is it worth asking which alternative matched.
        let blanks = self
            .regex
            .captures_at(text, start)
            .and_then(|groups| groups.name("blanks"));
        let last = last.map_or(0, char::len_utf8);
        if blanks.is_some() && end - start > last {
            return Some((start, end - last));
        }
        Some((start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        let splitter = Splitter::new(named(name).expect("a known name").patterns.iter().copied())
            .expect("patterns");
        let mut words = Vec::new();
        splitter.split(text, |word| words.push(word));
        assert_eq!(words, expected, "{name}: {text:?}");
    }

    #[test]
    fn words_are_cut_as_each_pre_tokenizer_has_it() {
        check("gpt-2", "", &[]);
        check(
            "gpt-2",
            "it's  me\n\n  now",
            &["it", "'s", " ", " me", "\n\n ", " now"],
        );
        check("gpt-2", "a\tb  ", &["a", "\t", "b", "  "]);
        check(
            "llama-bpe",
            "It'S  12345 x",
            &["It", "'S", " ", " ", "123", "45", " x"],
        );
        check(
            "llama-bpe",
            "a!?\n\n  b\n \n",
            &["a", "!?\n\n", " ", " b", "\n \n"],
        );
        check("llama-bpe", "\tif(x)  {", &["\tif", "(x", ")", " ", " {"]);
        check("llama-bpe", "   ", &["   "]);
        check("qwen2", "x 12", &["x", " ", "1", "2"]);
        check(
            "smollm",
            "x 12\u{a0}\u{a0}y",
            &["x", " ", "1", "2", "\u{a0}", "\u{a0}", "y"],
        );
        check("falcon", "a1234, b", &["a", "123", "4", ",", " b"]);
        check(
            "deepseek-llm",
            "ab 12\n中文 ",
            &["ab", " ", "12", "\n", "中文", " "],
        );
        check("deepseek-coder", "ab 12", &["ab", " ", "1", "2"]);
    }

    #[test]
    fn unknown_names_and_backtracking_patterns_are_refused() {
        assert!(named("default").is_none());
        assert!(Splitter::new([r"(?<=a)b"]).is_err());
    }

    #[test]
    fn long_blanks_take_linear_time() {
        let text = format!("{}x", " ".repeat(200_000));
        for name in [
            "gpt-2",
            "llama-bpe",
            "falcon",
            "deepseek-llm",
            "deepseek-coder",
            "smollm",
            "qwen2",
        ] {
            let patterns = named(name).expect("a known name").patterns.iter().copied();
            let mut count = 0;
            Splitter::new(patterns)
                .expect("patterns")
                .split(&text, |_| count += 1);
            assert!((2..=3).contains(&count), "{name} cut {count} words");
        }
    }
}
