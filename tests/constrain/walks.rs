//! Walks: random choices under a constraint, and given texts against one.

use assize::ask::{Field, FieldValue, Labels, Shape};
use assize::constrain::{Constraint, Mask, Next, Vocabulary};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A small generator of pseudo-random numbers.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) % sides as u64) as usize
    }
}

/// The tokens of a mask.
pub fn allowed(mask: &Mask) -> Vec<u32> {
    (0..mask.words.len() as u32 * 32)
        .filter(|&token| mask.allows(token))
        .collect()
}

/// How a walk went.
#[derive(Default)]
pub struct Walk {
    pub text: Vec<u8>,
    pub tokens: Vec<u32>,
    pub complete: bool,
    pub masks: Vec<Duration>,
}

/// Takes random allowed tokens to the end of the output, or until there are `most`.
pub fn walk(
    vocabulary: &Vocabulary,
    constraint: &mut dyn Constraint,
    dice: &mut Dice,
    most: usize,
) -> Walk {
    let mut walk = Walk::default();
    while walk.tokens.len() < most {
        let start = Instant::now();
        let next = constraint.next().expect("the constraint goes on");
        walk.masks.push(start.elapsed());
        assert_eq!(constraint.next().expect("and says so twice"), next);
        let tokens = match next {
            Next::Done => {
                walk.complete = true;
                return walk;
            }
            Next::Forced(tokens) => {
                assert!(!tokens.is_empty());
                tokens
            }
            Next::Choose(mask) => {
                let tokens = allowed(&mask);
                assert!(tokens.len() > 1, "a single token is forced");
                let ends = |token: u32| vocabulary.stops().contains(&token);
                assert!(
                    tokens
                        .iter()
                        .all(|&token| ends(token) || !vocabulary.bytes(token).is_empty())
                );
                // Ways out are few among many tokens: now and then one is taken where there is one.
                let closes = |token: u32| {
                    ends(token)
                        || vocabulary
                            .bytes(token)
                            .iter()
                            .any(|byte| b"\"[<".contains(byte))
                };
                let closing: Vec<u32> = tokens
                    .iter()
                    .copied()
                    .filter(|&token| closes(token))
                    .collect();
                let pool = if !closing.is_empty() && dice.roll(4) == 0 {
                    closing
                } else {
                    tokens
                };
                vec![pool[dice.roll(pool.len())]]
            }
            Next::Labels {
                labels,
                opening,
                closing,
            } => {
                let label =
                    Value::from(labels.names[dice.roll(labels.names.len())].as_str()).to_string();
                let label = &label[1..label.len() - 1];
                vocabulary.spell(format!("{opening}{label}{closing}").as_bytes())
            }
        };
        walk.text.extend(vocabulary.spelled(&tokens));
        constraint
            .advance(&tokens)
            .expect("what was allowed is taken");
        walk.tokens.extend(tokens);
    }
    walk
}

/// Spells `text` as far as the constraint admits it and returns how many bytes that is.
pub fn admitted(vocabulary: &Vocabulary, constraint: &mut dyn Constraint, text: &str) -> usize {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let tokens = match constraint.next().expect("the constraint goes on") {
            Next::Forced(tokens) => {
                let forced = vocabulary.spelled(&tokens);
                if !rest.starts_with(&forced) {
                    let same = forced
                        .iter()
                        .zip(rest)
                        .take_while(|(forced, wanted)| forced == wanted)
                        .count();
                    return text.len() - rest.len() + same;
                }
                tokens
            }
            Next::Choose(mask) => {
                let fits = |end: &usize| {
                    vocabulary
                        .exactly(&rest[..*end])
                        .iter()
                        .find(|&&token| mask.allows(token))
                };
                match (1..=rest.len().min(32)).rev().find_map(|end| fits(&end)) {
                    Some(&token) => vec![token],
                    None => break,
                }
            }
            _ => break,
        };
        constraint
            .advance(&tokens)
            .expect("what was allowed is taken");
        rest = &rest[vocabulary.spelled(&tokens).len()..];
    }
    text.len() - rest.len()
}

/// The shape of a judgement with quotes and labels.
pub fn judgement(
    source: &str,
    max_items: usize,
    max_chars: usize,
    names: &[&str],
    quoted: bool,
) -> Shape {
    let labels = Labels {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        quoted,
    };
    let field = |name: &str, value| Field {
        name: name.to_owned(),
        value,
    };
    Shape::Object(vec![
        field("rationale", FieldValue::Text { max_chars: 24 }),
        field(
            "evidence",
            FieldValue::Quotes {
                source: source.to_owned(),
                max_items,
                max_chars,
            },
        ),
        field("score", FieldValue::Labels(labels)),
    ])
}

/// Checks one judgement's text against its shape.
pub fn check_judgement(text: &[u8], source: &str, max_items: usize, max_chars: usize) {
    let text = std::str::from_utf8(text).expect("the output is UTF-8");
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let object = value.as_object().expect("an object");
    assert_eq!(
        object.keys().collect::<Vec<_>>(),
        ["rationale", "evidence", "score"]
    );
    assert!(
        (1..=24).contains(&value["rationale"].as_str().expect("a text").chars().count()),
        "{text}"
    );
    let quotes = value["evidence"].as_array().expect("an array");
    let has_word = source.chars().any(char::is_alphanumeric);
    assert!(
        quotes.len() <= max_items && (has_word || quotes.is_empty()),
        "{text}"
    );
    assert!(!quotes.is_empty() || !has_word || max_items == 0, "{text}");
    for quote in quotes {
        let quote = quote.as_str().expect("a text");
        assert!(source.contains(quote), "{quote:?} is not in {source:?}");
        assert!(
            (1..=max_chars).contains(&quote.chars().count()),
            "{quote:?}"
        );
        assert_eq!(quote.trim(), quote);
        assert!(
            source.trim().chars().count() < 30 || max_chars < 20 || quote.chars().count() >= 8,
            "{quote:?} is short"
        );
    }
}
