//! Which passages of a text may be quoted.
//!
//! A source is cut into chunks: words, blanks, marks, and single characters of scripts that put no blanks between
//! words. A quote is a run of whole chunks, so it is verbatim text that begins and ends where a reader would cut. The
//! chunks and their JSON escapes are all that goes to the grammar. Knows no tokens.

use super::ConstrainError;
use super::labels::escaped;

/// A shorter quote says too little to be evidence, in characters; it is admitted only where the source has none longer.
const SHORTEST: usize = 8;

/// A longer word is cut, in characters, so that text without blanks can be quoted in part.
const LONGEST_CHUNK: usize = 40;

/// Most text that can be quoted from, in bytes. Compiling 200 kB takes up to a second or so; this bounds time and memory.
const MOST_SOURCE: usize = 1 << 20;

/// One character as JSON writes it.
const CHARACTER: &str = r#"([^\\]|\\["\\bfnrt]|\\u00[01][0-9a-f])"#;

/// One character as JSON writes it, blanks left out.
const VISIBLE: &str = concat!(
    r"([^\\ \u{85}\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}]",
    r#"|\\["\\b]|\\u00(0[0-9ac-f]|1[0-9a-f]))"#
);

/// The terminals of one quote field.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Quotes {
    /// The chunks of the source, each escaped by itself.
    chunks: Vec<String>,
    shortest: usize,
    longest: usize,
}

impl Quotes {
    /// What can be quoted of `source` in at most `max_chars` characters, or `None` where it holds no word.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where no quote could be so short, or the source is too long to be searched.
    pub(super) fn of(source: &str, max_chars: usize) -> Result<Option<Quotes>, ConstrainError> {
        if source.len() > MOST_SOURCE {
            return Err(ConstrainError::Compile(format!(
                "the text to quote from has {} bytes, more than {MOST_SOURCE}",
                source.len()
            )));
        }
        if !source.chars().any(char::is_alphanumeric) {
            return Ok(None);
        }
        if max_chars == 0 {
            return Err(ConstrainError::Compile(
                "a quote of 0 characters can't quote anything".to_owned(),
            ));
        }
        let chunks = cut(source, max_chars.min(LONGEST_CHUNK));
        let shortest = longest_span(&chunks, max_chars).min(SHORTEST);
        let chunks = chunks.into_iter().map(escaped).collect();
        Ok(Some(Quotes {
            chunks,
            shortest,
            longest: max_chars,
        }))
    }

    /// The grammar's terminals for one quote, quotation marks included, under the name `name`.
    pub(super) fn terminals(&self, name: &str) -> String {
        // The source goes in as JSON, which the grammar's own reader parses: no text can become syntax.
        let chunks = serde_json::json!({ "substring_chunks": self.chunks });
        let Quotes {
            shortest, longest, ..
        } = self;
        format!(
            "{name}: \"\\\"\" ({name}_SOURCE & {name}_LENGTH & {name}_EDGES) \"\\\"\"\n\
             {name}_LENGTH: /{CHARACTER}{{{shortest},{longest}}}/\n\
             {name}_EDGES: /{VISIBLE}({CHARACTER}*{VISIBLE})?/\n\
             {name}_SOURCE: %regex {chunks}\n"
        )
    }
}

/// What a chunk is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blank,
    Word,
    /// A run of one and the same mark.
    Mark(char),
    /// A character of a script that puts no blanks between words.
    Alone,
}

impl Kind {
    fn of(character: char) -> Kind {
        if character.is_whitespace() {
            Kind::Blank
        } else if stands_alone(character) {
            Kind::Alone
        } else if character.is_alphanumeric() || character == '_' || is_indic(character) {
            Kind::Word
        } else {
            Kind::Mark(character)
        }
    }
}

/// Cuts a text into chunks of at most `longest` characters. Marks that combine with the character before them stay
/// with it, but for runs that no writing has.
fn cut(source: &str, longest: usize) -> Vec<&str> {
    let characters: Vec<(usize, char)> = source.char_indices().collect();
    let mut chunks = Vec::new();
    let (mut first, mut length, mut kind) = (0, 0, Kind::Blank);
    for (at, &(offset, character)) in characters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| characters[at].1);
        let after = characters.get(at + 1).map(|&(_, after)| after);
        let mut next = Kind::of(character);
        let attached =
            extends(character) || before == Some('\u{200d}') || joins(before, character, after);
        if attached {
            next = kind;
        }
        let same = attached || (next == kind && next != Kind::Alone);
        if at > 0 && (!same || length >= longest) {
            chunks.push(&source[first..offset]);
            (first, length) = (offset, 0);
        }
        length += 1;
        kind = next;
    }
    if first < source.len() {
        chunks.push(&source[first..]);
    }
    chunks
}

/// The most characters, up to `most` (and not counted beyond [`SHORTEST`]), of a run of whole chunks that neither
/// begins nor ends with a blank.
fn longest_span(chunks: &[&str], most: usize) -> usize {
    let mut starts = Vec::with_capacity(chunks.len() + 1);
    starts.push(0);
    for chunk in chunks {
        starts.push(starts[starts.len() - 1] + chunk.chars().count());
    }
    let mut longest = 0;
    for (first, chunk) in chunks.iter().enumerate() {
        if chunk.starts_with(char::is_whitespace) {
            continue;
        }
        for (last, chunk) in chunks.iter().enumerate().skip(first) {
            let length = starts[last + 1] - starts[first];
            if length > most || longest >= SHORTEST {
                break;
            }
            if !chunk.ends_with(char::is_whitespace) {
                longest = longest.max(length);
            }
        }
    }
    longest
}

/// Whether an apostrophe stands inside a word, or a point inside a number.
fn joins(before: Option<char>, character: char, after: Option<char>) -> bool {
    let both = |holds: fn(char) -> bool| before.is_some_and(holds) && after.is_some_and(holds);
    match character {
        '\'' | '\u{2019}' => both(|c| c.is_alphabetic() && !stands_alone(c)),
        '.' | ',' => both(|c| c.is_ascii_digit()),
        _ => false,
    }
}

/// Marks that combine with the character before them, joiners, variation selectors and skin tones.
fn extends(character: char) -> bool {
    matches!(u32::from(character),
        0x0300..=0x036f | 0x0483..=0x0489 | 0x0591..=0x05bd | 0x0610..=0x061a | 0x064b..=0x065f
        | 0x0e31 | 0x0e34..=0x0e3a | 0x0e47..=0x0e4e | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff
        | 0x200c..=0x200d | 0x20d0..=0x20ff | 0x3099..=0x309a | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f
        | 0x1f3fb..=0x1f3ff | 0xe0020..=0xe007f | 0xe0100..=0xe01ef)
}

/// Scripts that put no blanks between words: Thai, Lao, Myanmar, Khmer, kana, Han and their neighbours.
fn stands_alone(character: char) -> bool {
    matches!(u32::from(character),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x2e80..=0x2fdf | 0x3003..=0x3007
        | 0x3021..=0x303c | 0x3040..=0x30ff | 0x3105..=0x312f | 0x31a0..=0x31ff | 0x3400..=0x4dbf
        | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0xff66..=0xff9f | 0x20000..=0x3ffff)
}

/// Letters and signs of the scripts of India, whose vowel signs and viramas are no letters by themselves.
fn is_indic(character: char) -> bool {
    matches!(u32::from(character), 0x0900..=0x0dff)
        && !matches!(character, '\u{964}' | '\u{965}' | '\u{970}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_cut_where_a_reader_would() {
        let check = |source: &str, expected: &[&str]| {
            let chunks = cut(source, 12);
            assert_eq!(chunks, expected);
            assert_eq!(chunks.concat(), source);
        };
        check("", &[]);
        check(
            "Don't pay 3.14, ok?",
            &["Don't", " ", "pay", " ", "3.14", ",", " ", "ok", "?"],
        );
        check("a  \n\tb", &["a", "  \n\t", "b"]);
        check("wait... \"so\"", &["wait", "...", " ", "\"", "so", "\""]);
        check("東京は 晴れ。", &["東", "京", "は", " ", "晴", "れ", "。"]);
        check(
            "e\u{301}te\u{301} \u{301}x",
            &["e\u{301}te\u{301}", " \u{301}", "x"],
        );
        check("\u{301}\u{301}a", &["\u{301}\u{301}", "a"]);
        check("👨\u{200d}👩\u{200d}👧!", &["👨\u{200d}👩\u{200d}👧", "!"]);
        check("नमस्ते दुनिया।", &["नमस्ते", " ", "दुनिया", "।"]);
        check("aaaaaaaaaaaaaaaaaa", &["aaaaaaaaaaaa", "aaaaaa"]);
        check("\0\0{}", &["\0\0", "{", "}"]);
        check("‘it’s’", &["‘", "it’s", "’"]);
    }

    #[test]
    fn the_shortest_quote_is_one_that_the_source_has() {
        let check = |source: &str, most: usize, expected: Option<usize>| {
            let quotes = Quotes::of(source, most).expect("the source is short enough");
            assert_eq!(quotes.map(|quotes| quotes.shortest), expected, "{source:?}");
        };
        check("", 200, None);
        check(" \n\t", 200, None);
        check("?! 😀", 200, None);
        check("a", 200, Some(1));
        check("  ab  ", 200, Some(2));
        check("ab cd", 200, Some(5));
        check("ab cd", 4, Some(2));
        check("the answer is short", 200, Some(8));
        check("一二三四五六七八九", 5, Some(5));
        check("aaaaaaaaaaaaaaaaaaaaaaaaa", 3, Some(3));
    }

    #[test]
    fn quotes_that_can_not_be_are_refused() {
        assert!(matches!(
            Quotes::of("a", 0),
            Err(ConstrainError::Compile(_))
        ));
        assert!(matches!(
            Quotes::of(&"a".repeat(MOST_SOURCE + 1), 9),
            Err(ConstrainError::Compile(_))
        ));
    }
}
