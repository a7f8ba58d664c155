//! The rules of a Lark grammar, as they are gathered piece by piece, and what comes of them.
//!
//! Knows how literal text, free text, quotes, choices and lists are written in Lark. Knows no shape and no tokens.

use super::labels::escaped;
use super::quotes::Quotes;
use super::walker::End;
use serde_json::Value;
use std::fmt::Write;

/// Longest text that a field may hold, in characters.
pub(super) const MOST_CHARACTERS: usize = 1 << 20;

/// What an object's text is made of.
#[derive(Debug, PartialEq)]
pub(super) struct Outline {
    /// The text that comes whatever the model thinks, or a grammar where it has a choice.
    pub(super) body: Body,
    /// What follows it.
    pub(super) end: End,
}

/// The text of an object up to its labels.
#[derive(Debug, PartialEq)]
pub(super) enum Body {
    /// There is nothing to choose.
    Literal(String),
    /// A Lark grammar.
    Lark(String),
}

/// The rules so far.
#[derive(Default)]
pub(super) struct Rules {
    /// Literal text that is not in `start` yet.
    pending: String,
    start: String,
    /// All rules but the first, and the terminals.
    others: String,
    count: usize,
}

/// A rule that was left for one within it.
pub(super) struct Outer(String);

impl Rules {
    /// Text that comes whatever the model thinks.
    pub(super) fn literal(&mut self, text: &str) {
        self.pending.push_str(text);
    }

    /// A JSON string, quotation marks included.
    pub(super) fn text(&mut self, longest: usize) {
        let name = self.name("TEXT");
        let _ = writeln!(
            self.others,
            r#"{name}: /"([^"\\\x00-\x1f\x7f]|\\["\\bfnrt]){{1,{longest}}}"/"#
        );
        self.start.push_str(&name);
    }

    /// A JSON array of one up to `most` quotes.
    pub(super) fn quotes(&mut self, quotes: &Quotes, most: usize) {
        self.literal("[");
        let name = self.quote(quotes);
        if most > 1 {
            let _ = write!(self.start, " (\",\" {name}){{0,{}}}", most - 1);
        }
        self.literal("]");
    }

    /// One quote as a JSON string; returns its terminal's name.
    pub(super) fn quote(&mut self, quotes: &Quotes) -> String {
        let name = self.name("QUOTE");
        self.others.push_str(&quotes.terminals(&name));
        self.start.push_str(&name);
        name
    }

    /// One of these texts as a JSON string.
    pub(super) fn choice(&mut self, texts: &[String]) {
        let strings: Vec<String> = texts
            .iter()
            .map(|text| format!("\"{}\"", escaped(text)))
            .collect();
        if let [only] = strings.as_slice() {
            return self.literal(only);
        }
        let name = self.name("CHOICE");
        let strings: Vec<String> = strings.iter().map(|string| quoted(string)).collect();
        let _ = writeln!(self.others, "{name}: {}", strings.join(" | "));
        self.start.push_str(&name);
    }

    /// Begins a rule within the one that is written, which [`Rules::list`] goes back to.
    pub(super) fn enter(&mut self) -> Outer {
        self.literal("[");
        self.flush();
        self.count += 1;
        Outer(std::mem::take(&mut self.start))
    }

    /// Ends the rule that was begun, and puts a JSON array of so many of it into the one around it.
    pub(super) fn list(&mut self, outer: Outer, fewest: usize, most: usize) {
        self.flush();
        let item = std::mem::replace(&mut self.start, outer.0);
        let name = format!("item_{}", self.count);
        let _ = writeln!(self.others, "{name}: {item}");
        let mut items = name.clone();
        if most > 1 {
            let least = fewest.saturating_sub(1);
            let _ = write!(items, " (\",\" {name}){{{least},{}}}", most - 1);
        }
        let _ = match fewest {
            0 => write!(self.start, " ({items})? "),
            _ => write!(self.start, " {items} "),
        };
        self.literal("]");
    }

    /// The body of all that was gathered.
    pub(super) fn finish(mut self) -> Body {
        if self.count == 0 {
            return Body::Literal(self.pending);
        }
        self.flush();
        Body::Lark(format!("start: {}\n{}", self.start, self.others))
    }

    /// A new terminal's name, after all literal text so far.
    fn name(&mut self, kind: &str) -> String {
        self.flush();
        self.count += 1;
        format!("{kind}_{}", self.count)
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let text = quoted(&std::mem::take(&mut self.pending));
            let _ = write!(self.start, " {text} ");
        }
    }
}

/// A text as Lark quotes it: as JSON does, but a delete character must be escaped too.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
