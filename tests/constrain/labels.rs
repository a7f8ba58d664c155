//! Label tries against brute force and against what is known of real vocabularies.

use crate::vocabularies::{real, table};
use assize::ask::Labels;
use assize::constrain::{Compiler, ConstrainError, LabelTrie, NodeId, Step, Vocabulary};

fn labels(names: &[&str], quoted: bool) -> Labels {
    Labels {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        quoted,
    }
}

/// The probability of `token` after `context`: any fixed distribution will do, but no two contexts share one.
fn probability(vocabulary: &Vocabulary, context: &[u32], token: u32) -> f64 {
    let weight = |token: u32| {
        let seed = context.iter().fold(97, |seed: u64, &token| {
            (seed ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = (seed ^ u64::from(token) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1.0 + (mixed >> 40) as f64
    };
    weight(token) / (0..vocabulary.size() as u32).map(weight).sum::<f64>()
}

/// The masses as an engine reads them off the trie.
fn read_out(trie: &LabelTrie, vocabulary: &Vocabulary) -> Vec<f64> {
    fn visit(
        trie: &LabelTrie,
        vocabulary: &Vocabulary,
        node: NodeId,
        path: &mut Vec<u32>,
        reached: f64,
        masses: &mut [f64],
    ) {
        let mut onward = 0.0;
        for &(token, step) in trie.edges(node) {
            let chance = probability(vocabulary, path, token);
            onward += chance;
            match step {
                Step::Complete(label) => masses[label] += reached * chance,
                Step::Continue(next) => {
                    path.push(token);
                    visit(trie, vocabulary, next, path, reached * chance, masses);
                    path.pop();
                }
            }
        }
        if let Some(label) = trie.label_at(node) {
            masses[label] += reached * (1.0 - onward);
        }
    }
    let mut masses = vec![0.0; trie.labels().len()];
    visit(
        trie,
        vocabulary,
        trie.root(),
        &mut Vec::new(),
        1.0,
        &mut masses,
    );
    masses
}

/// The mass of one label by its definition: every token path is tried, one token after the other.
fn brute_force(
    vocabulary: &Vocabulary,
    texts: &[&str],
    closing: &str,
    label: &str,
    path: &mut Vec<u32>,
) -> f64 {
    let spelled = vocabulary.spelled(path);
    let leads_to = |text: &[u8], whole: &str| {
        let whole = [whole.as_bytes(), closing.as_bytes()].concat();
        whole.starts_with(text)
    };
    let mut mass = 0.0;
    for token in 0..vocabulary.size() as u32 {
        if vocabulary.bytes(token).is_empty() {
            continue;
        }
        let text = [spelled.as_slice(), vocabulary.bytes(token)].concat();
        let chance = probability(vocabulary, path, token);
        path.push(token);
        let longer: Vec<&&str> = texts
            .iter()
            .filter(|other| other.starts_with(label) && **other != label)
            .collect();
        if text == label.as_bytes() && !longer.is_empty() {
            let goes_on = |next: u32| {
                let text = [text.as_slice(), vocabulary.bytes(next)].concat();
                text.len() > label.len() && longer.iter().any(|longer| leads_to(&text, longer))
            };
            let on: f64 = (0..vocabulary.size() as u32)
                .filter(|&next| goes_on(next))
                .map(|next| probability(vocabulary, path, next))
                .sum();
            mass += chance * (1.0 - on);
        } else if text.len() >= label.len() && leads_to(&text, label) {
            // A label, or a label and a beginning of what follows it.
            mass += chance;
        } else if label.as_bytes().starts_with(&text) {
            mass += chance * brute_force(vocabulary, texts, closing, label, path);
        }
        path.pop();
    }
    mass
}

#[test]
fn masses_equal_those_of_all_token_paths() {
    let digits: Vec<&[u8]> = vec![
        b"1", b"0", b"10", b"5", b"5", b"}", b"1}", b"0}", b"10}", b" 5", b"\n", b"9", b"100",
    ];
    let words: Vec<&[u8]> = vec![
        b"p", b"a", b"s", b"pa", b"as", b"ss", b"pass", b"fail", b"f", b"il", b"i", b"l", b"\"",
        b"\"}", b"l\"", b"ss\"}", b"x", b"fa", b"s\"", b"}", b"e", b"ed", b"d",
    ];
    let pieces: Vec<&[u8]> = vec![
        b"\xc3",
        b"\xa9",
        b"\xc3\xa9",
        b"\xa9\"",
        b"\\",
        b"\"",
        b"\\\"",
        b"a",
        b"n",
        b"\\n",
        b"\n",
    ];
    let check =
        |tokens: &[&[u8]], names: &[&str], quoted: bool, closing: &str, expected_texts: &[&str]| {
            let compiler = Compiler::from_vocabulary(table(tokens)).expect("the vocabulary serves");
            let vocabulary = compiler.vocabulary();
            let trie = compiler
                .label_trie(&labels(names, quoted), "", closing)
                .expect("the labels are right");
            assert_eq!(trie.labels(), names);
            let texts: Vec<&str> = (0..names.len()).map(|label| trie.text(label)).collect();
            assert_eq!(texts, expected_texts);
            let masses = read_out(&trie, vocabulary);
            assert!(masses.iter().sum::<f64>() <= 1.0 + 1e-12, "{masses:?}");
            for (text, mass) in texts.iter().zip(masses) {
                let expected = brute_force(vocabulary, &texts, closing, text, &mut Vec::new());
                assert!(
                    (mass - expected).abs() < 1e-12,
                    "{text:?} before {closing:?}: {mass} is not {expected}"
                );
                assert!(expected > 0.0);
            }
        };
    for closing in ["", "}"] {
        check(
            &digits,
            &["1", "5", "10"],
            false,
            closing,
            &["1", "5", "10"],
        );
        check(
            &digits,
            &["0", "1", "10", "100", "105"],
            false,
            closing,
            &["0", "1", "10", "100", "105"],
        );
    }
    check(&words, &["pass", "fail"], true, "\"}", &["pass", "fail"]);
    check(
        &words,
        &["pass", "fail", "passed"],
        true,
        "\"}",
        &["pass", "fail", "passed"],
    );
    check(&words, &["pass", "fail"], true, "", &["pass", "fail"]);
    check(
        &pieces,
        &["é", "\"", "a\n"],
        true,
        "\"}",
        &["é", "\\\"", "a\\n"],
    );
    check(&pieces, &["é", "\"", "a\n"], true, "", &["é", "\"", "a\n"]);
}

#[test]
fn a_label_of_a_sentencepiece_vocabulary_has_a_byte_path_too() {
    for name in ["llama-spm", "phi-3"] {
        let test = "a_label_of_a_sentencepiece_vocabulary_has_a_byte_path_too";
        let Some(vocabulary) = real(test, name) else {
            continue;
        };
        let compiler = Compiler::from_vocabulary(vocabulary).expect("the vocabulary serves");
        let trie = compiler
            .label_trie(&labels(&["5", "10"], false), "", "}")
            .expect("the labels are right");
        let vocabulary = compiler.vocabulary();
        // `5` is 29945 and `<0x35>` is 3 + 0x35 in both; `10` is no token, so it begins with a `1`.
        let fives: Vec<u32> = trie
            .edges(trie.root())
            .iter()
            .filter(|(_, step)| *step == Step::Complete(0))
            .map(|edge| edge.0)
            .collect();
        assert_eq!(fives, [3 + 0x35, 29945]);
        assert!(vocabulary.exactly(b"10").is_empty());
        let ones: Vec<(u32, Step)> = trie
            .edges(trie.root())
            .iter()
            .filter(|(_, step)| *step != Step::Complete(0))
            .copied()
            .collect();
        assert_eq!(
            ones.iter().map(|edge| edge.0).collect::<Vec<_>>(),
            vocabulary.exactly(b"1")
        );
        assert_eq!(ones.len(), 2);
        assert!(
            ones.iter().all(|edge| edge.1 == ones[0].1),
            "both lead to the same node"
        );
        let Step::Continue(node) = ones[0].1 else {
            panic!("a further row is needed")
        };
        assert_eq!(trie.label_at(node), None);
        assert!(
            trie.edges(node)
                .iter()
                .all(|edge| edge.1 == Step::Complete(1))
        );
        assert_eq!(
            trie.edges(node)
                .iter()
                .map(|edge| edge.0)
                .collect::<Vec<_>>(),
            vocabulary.exactly(b"0")
        );
    }
}

#[test]
fn a_label_of_a_byte_level_vocabulary_may_be_one_token() {
    let Some(vocabulary) = real(
        "a_label_of_a_byte_level_vocabulary_may_be_one_token",
        "gpt-2",
    ) else {
        return;
    };
    let compiler = Compiler::from_vocabulary(vocabulary).expect("the vocabulary serves");
    let trie = compiler
        .label_trie(&labels(&["1", "5", "10"], false), "", "}")
        .expect("the labels are right");
    let step = |text: &str| {
        let token = compiler.vocabulary().exactly(text.as_bytes())[0];
        trie.edges(trie.root())
            .iter()
            .find(|edge| edge.0 == token)
            .map(|edge| edge.1)
    };
    assert_eq!(step("5"), Some(Step::Complete(1)));
    assert_eq!(step("10"), Some(Step::Complete(2)));
    assert_eq!(step(" 5"), None);
    let Some(Step::Continue(node)) = step("1") else {
        panic!("`1` may go on to `10`")
    };
    assert_eq!(trie.label_at(node), Some(0));
    assert_eq!(
        trie.edges(node).len(),
        compiler.vocabulary().exactly(b"0").len()
    );
}

#[test]
fn tries_are_built_once_and_bad_labels_refused() {
    let compiler = Compiler::from_vocabulary(table(&[b"1", b"2"])).expect("the vocabulary serves");
    let first = compiler
        .label_trie(&labels(&["1", "2"], false), "", "}")
        .expect("the labels are right");
    let second = compiler
        .label_trie(&labels(&["1", "2"], false), "", "}")
        .expect("the labels are right");
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    let other = compiler
        .label_trie(&labels(&["2", "1"], false), "", "}")
        .expect("the labels are right");
    assert_eq!(other.labels(), ["2", "1"]);
    // No token spells it: it has no path, and so no mass.
    let absent = compiler
        .label_trie(&labels(&["3"], false), "", "}")
        .expect("the label is right");
    assert!(absent.edges(absent.root()).is_empty());
    let long = "a".repeat(20_000);
    for names in [&[][..], &[""], &["1", "1"], &[long.as_str()]] {
        assert!(matches!(
            compiler.label_trie(&labels(names, false), "", "}"),
            Err(ConstrainError::Compile(_))
        ));
    }
}
