//! Lists of objects, single quotes and choices within JSON.

use crate::NASTY;
use crate::vocabularies::{real, small};
use crate::walks::{Dice, admitted, walk};
use assize::ask::{Field, FieldValue, Labels, Shape};
use assize::constrain::{Compiler, ConstrainError, Next};
use serde_json::Value;

fn field(name: &str, value: FieldValue) -> Field {
    Field {
        name: name.to_owned(),
        value,
    }
}

fn choice(texts: &[&str]) -> FieldValue {
    FieldValue::Choice(texts.iter().map(|&text| text.to_owned()).collect())
}

/// An answer split into claims, each with its span.
fn claims(source: &str, min_items: usize, max_items: usize) -> Shape {
    let source = source.to_owned();
    let fields = vec![
        field("claim", FieldValue::Text { max_chars: 12 }),
        field(
            "span",
            FieldValue::Quote {
                source: source.clone(),
                max_chars: 30,
            },
        ),
        field("kind", choice(&["a fact", "an \"opinion\"", "a fact too"])),
        field(
            "more",
            FieldValue::Quotes {
                source,
                max_items: 2,
                max_chars: 20,
            },
        ),
    ];
    let list = FieldValue::List {
        fields,
        min_items,
        max_items,
    };
    Shape::Object(vec![field("claims", list)])
}

fn check_claims(text: &[u8], source: &str, bounds: (usize, usize)) -> usize {
    let text = std::str::from_utf8(text).expect("the output is UTF-8");
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let claims = value["claims"].as_array().expect("an array");
    assert!((bounds.0..=bounds.1).contains(&claims.len()), "{text}");
    let has_word = source.chars().any(char::is_alphanumeric);
    for claim in claims {
        let keys: Vec<&String> = claim.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["claim", "span", "kind", "more"]);
        let length = claim["claim"].as_str().expect("a text").chars().count();
        assert!((1..=12).contains(&length), "{text}");
        let span = claim["span"].as_str().expect("a text");
        assert!(
            source.contains(span) && span.chars().count() <= 30,
            "{span:?}"
        );
        assert_eq!(span.is_empty(), !has_word, "{span:?} of {source:?}");
        let kinds = ["a fact", "an \"opinion\"", "a fact too"];
        assert!(kinds.contains(&claim["kind"].as_str().expect("a text")));
        for quote in claim["more"].as_array().expect("an array") {
            assert!(source.contains(quote.as_str().expect("a text")), "{text}");
        }
    }
    claims.len()
}

#[test]
fn every_walk_ends_in_a_list_within_its_bounds() {
    let mut dice = Dice(11);
    let mut vocabularies = vec![small()];
    for name in ["llama-spm", "phi-3", "gpt-2"] {
        vocabularies.extend(real("every_walk_ends_in_a_list_within_its_bounds", name));
    }
    for (index, vocabulary) in vocabularies.into_iter().enumerate() {
        let compiler = Compiler::from_vocabulary(vocabulary).expect("the vocabulary serves");
        let mut lengths = [0; 4];
        for source in NASTY.iter().chain(&["", "?!"]) {
            for bounds in [(0, 3), (2, 3), (1, 1), (0, 1)] {
                if index > 0 && bounds != (0, 3) {
                    continue;
                }
                let shape = claims(source, bounds.0, bounds.1);
                let mut constraint = compiler.compile(&shape).expect("the shape compiles");
                let walk = walk(compiler.vocabulary(), constraint.as_mut(), &mut dice, 4000);
                assert!(walk.complete, "{}", String::from_utf8_lossy(&walk.text));
                lengths[check_claims(&walk.text, source, bounds)] += 1;
            }
        }
        assert!(lengths[1] > 0, "{lengths:?}");
    }
}

#[test]
fn lists_begin_and_end_where_their_bounds_say() {
    let compiler = Compiler::from_vocabulary(small()).expect("the vocabulary serves");
    let check = |shape: &Shape, text: &str, good: usize| {
        let mut constraint = compiler.compile(shape).expect("the shape compiles");
        let found = admitted(compiler.vocabulary(), constraint.as_mut(), text);
        assert_eq!(found, good, "{text}");
        (found == text.len()).then(|| constraint.next())
    };
    let item =
        "{\"claim\":\"so\",\"span\":\"quick brown\",\"kind\":\"a fact\",\"more\":[\"brown fox\"]}";
    let fox = NASTY[0];
    let list = |count: usize| format!("{{\"claims\":[{}]}}", vec![item; count].join(","));
    let whole = |count: usize| list(count).len();
    let done = Some(Ok(Next::Done));
    assert_eq!(check(&claims(fox, 0, 3), &list(0), whole(0)), done);
    assert_eq!(check(&claims(fox, 0, 3), &list(3), whole(3)), done);
    assert_eq!(check(&claims(fox, 2, 2), &list(2), whole(2)), done);
    check(&claims(fox, 0, 3), &list(4), whole(3) - 2);
    check(&claims(fox, 1, 3), &list(0), "{\"claims\":[".len());
    check(&claims(fox, 2, 3), &list(1), whole(1) - 2);
    // A span that the answer doesn't hold is refused at its first wrong character.
    let forged = "{\"claims\":[{\"claim\":\"so\",\"span\":\"quick green";
    check(&claims(fox, 0, 3), forged, forged.len() - "green".len());
    let forged = "{\"claims\":[{\"claim\":\"so\",\"span\":\"quick brown\",\"kind\":\"a lie";
    check(&claims(fox, 0, 3), forged, forged.len() - "lie".len());
}

#[test]
fn choices_and_lists_stand_before_labels() {
    let compiler = Compiler::from_vocabulary(small()).expect("the vocabulary serves");
    let labels = Labels {
        names: vec!["1".to_owned(), "2".to_owned()],
        quoted: false,
    };
    let shape = Shape::Object(vec![
        field("agent", choice(&["ab", "abc", "東京"])),
        field(
            "steps",
            FieldValue::List {
                fields: vec![field("step", choice(&["the"]))],
                min_items: 0,
                max_items: 2,
            },
        ),
        field("score", FieldValue::Labels(labels.clone())),
    ]);
    for agent in ["ab", "abc", "東京"] {
        for steps in ["", "{\"step\":\"the\"},{\"step\":\"the\"}"] {
            let text = format!("{{\"agent\":\"{agent}\",\"steps\":[{steps}],\"score\":");
            let mut constraint = compiler.compile(&shape).expect("the shape compiles");
            let found = admitted(compiler.vocabulary(), constraint.as_mut(), &text);
            assert_eq!(found, text.len(), "{text}");
            let next = constraint.next().expect("labels come");
            let closing = "}".to_owned();
            let opening = String::new();
            assert_eq!(
                next,
                Next::Labels {
                    labels: labels.clone(),
                    opening,
                    closing
                }
            );
        }
    }
    let nested = Shape::Object(vec![field(
        "l",
        FieldValue::List {
            fields: vec![field("score", FieldValue::Labels(labels))],
            min_items: 0,
            max_items: 2,
        },
    )]);
    match compiler.compile(&nested).err() {
        Some(ConstrainError::Compile(reason)) => {
            assert!(
                reason.contains("\"l\"") && reason.contains("\"score\""),
                "{reason}"
            )
        }
        other => panic!("{other:?}"),
    }
}
