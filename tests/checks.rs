//! Checks of an answer without a model: what passes, what breaks and why, and what can't be declared.

use assize::judge::checks::{Broken, Check, CheckKind, Unit, first_broken};

fn check(kind: CheckKind, passages: usize, cases: &[(&str, Option<&str>)]) {
    let check = Check::new("c", kind).unwrap();
    for (answer, want) in cases {
        let found = check.run(answer, passages);
        let want = want.map(|reason| Broken {
            check: "c".into(),
            reason: reason.into(),
        });
        assert_eq!(found, want, "{answer:?}");
    }
}

#[test]
fn lengths() {
    let kind = |unit, min, max| CheckKind::Length { unit, min, max };
    check(
        kind(Unit::Characters, Some(2), Some(3)),
        0,
        &[
            ("日本", None),
            ("日本語", None),
            (
                "日",
                Some("the answer has 1 characters, and 2 are the least"),
            ),
            (
                "abcd",
                Some("the answer has 4 characters, and 3 are the most"),
            ),
        ],
    );
    check(
        kind(Unit::Words, Some(1), None),
        0,
        &[
            ("a", None),
            (
                " \n\u{a0}",
                Some("the answer has 0 words, and 1 are the least"),
            ),
        ],
    );
    check(
        kind(Unit::Words, None, Some(0)),
        0,
        &[("", None), ("  ", None)],
    );
}

#[test]
fn patterns() {
    check(
        CheckKind::Matches(r"^\d{4}-\d\d$".into()),
        0,
        &[
            ("2024-05", None),
            (
                "in 2024-05",
                Some(r"the answer does not match the pattern ^\d{4}-\d\d$"),
            ),
        ],
    );
    check(
        CheckKind::MatchesNot("(?i)as an ai".into()),
        0,
        &[
            ("plain", None),
            (
                "As an AI,",
                Some("the answer matches the pattern (?i)as an ai"),
            ),
        ],
    );
}

#[test]
fn json_values_and_keys() {
    let json = |keys: &[&str]| CheckKind::Json {
        required: keys.iter().map(|key| (*key).to_string()).collect(),
    };
    let bad = Some("the answer is not valid JSON");
    let deep = "[".repeat(100_000);
    check(
        json(&[]),
        0,
        &[
            (" {\"a\":1}\n", None),
            ("3", None),
            ("```json\n{}\n```", bad),
            ("{} {}", bad),
            ("", bad),
            (&deep, bad),
        ],
    );
    check(
        json(&["a", "b"]),
        0,
        &[
            ("{\"b\":null,\"a\":{}}", None),
            ("{\"a\":1}", Some("the answer's JSON has no key \"b\"")),
            ("[1]", Some("the answer's JSON is no object")),
            ("{\"a\":", bad),
        ],
    );
}

#[test]
fn banned_phrases_are_whole_words() {
    let banned = |reason| Some(reason);
    check(
        CheckKind::Banned(vec!["as an AI".into(), "C++".into(), "straße".into()]),
        0,
        &[
            (
                "AS  AN\nai model",
                banned("the answer holds the banned phrase \"as an AI\""),
            ),
            ("was an aid; has an AI", None),
            (
                "has an ai, as an ai",
                banned("the answer holds the banned phrase \"as an AI\""),
            ),
            (
                "I like c++!",
                banned("the answer holds the banned phrase \"C++\""),
            ),
            ("ABC++", None),
            (
                "C++20",
                banned("the answer holds the banned phrase \"C++\""),
            ),
            (
                "die STRAßE",
                banned("the answer holds the banned phrase \"straße\""),
            ),
            ("Straßen", None),
        ],
    );
    check(
        CheckKind::Banned(vec!["aa".into()]),
        0,
        &[
            ("xaa aaa", None),
            (
                "aaa aa",
                banned("the answer holds the banned phrase \"aa\""),
            ),
        ],
    );
}

#[test]
fn citations() {
    let none = Some("the answer cites none of the context's 3 passages");
    check(
        CheckKind::Cites { only: false },
        3,
        &[
            ("so [2].", None),
            ("so [ 1 , 3 ].", None),
            ("so [0] and [4] and [x] and 2", none),
            ("so [99999999999999999999]", none),
            ("so [9], but [3]", None),
        ],
    );
    check(
        CheckKind::Cites { only: true },
        3,
        &[
            ("so [2].", None),
            (
                "so [2, 9] [7]",
                Some("the answer cites 2 passages that are not among the context's 3"),
            ),
            ("so", none),
        ],
    );
    check(
        CheckKind::Cites { only: false },
        0,
        &[(
            "so [1]",
            Some("the answer cites none of the context's 0 passages"),
        )],
    );
}

#[test]
fn the_first_broken_check_is_told() {
    let length = CheckKind::Length {
        unit: Unit::Words,
        min: None,
        max: Some(2),
    };
    let checks = [
        Check::new("json", CheckKind::Json { required: vec![] }).unwrap(),
        Check::new("short", length).unwrap(),
    ];
    let broken = |answer| first_broken(&checks, answer, 0).map(|broken| broken.check);
    assert_eq!(broken("a b c"), Some("json".into()));
    assert_eq!(broken("[1, 2, 3]"), Some("short".into()));
    assert_eq!(broken("[1, 2]"), None);
}

#[test]
fn checks_that_can_not_be_made() {
    let refused = |kind: CheckKind, problem: &str| {
        let error = Check::new("c", kind).unwrap_err();
        assert_eq!(error.to_string(), problem);
        assert!(!error.mend.is_empty() && !error.mend.ends_with('.'));
    };
    let length = |min, max| CheckKind::Length {
        unit: Unit::Words,
        min,
        max,
    };
    refused(length(None, None), "a length without a bound");
    refused(
        length(Some(3), Some(2)),
        "a length of at least 3 and at most 2",
    );
    refused(
        length(Some(0), None),
        "a length of at least 0, which every answer has",
    );
    refused(CheckKind::Matches(String::new()), "a pattern of 0 bytes");
    refused(
        CheckKind::Matches("(a".into()),
        "it is no pattern: unclosed group",
    );
    refused(
        CheckKind::MatchesNot(r"(\w{100}){100}".into()),
        "a pattern that takes over 1048576 bytes",
    );
    refused(CheckKind::Banned(vec![]), "0 banned phrases");
    refused(
        CheckKind::Banned(vec![" ".into()]),
        "a banned phrase that is empty",
    );
    assert!(Check::new(" ", length(Some(1), None)).is_err());
}
