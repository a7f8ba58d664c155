//! Text as evaluators write it: where its parts end, and how its label is read.

use crate::vocabularies::{fetched, real, small, table};
use crate::walks::{Dice, admitted, walk};
use crate::{NASTY, busy};
use assize::ask::{Labels, Segment, Shape};
use assize::constrain::{Compiler, ConstrainError, Next, Step, Vocabulary};
use std::time::Duration;

fn labels(names: &[&str]) -> Labels {
    Labels {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        quoted: false,
    }
}

fn literal(text: &str) -> Segment {
    Segment::Literal(text.to_owned())
}

fn text(max_chars: usize, until: &str) -> Segment {
    Segment::Text {
        max_chars,
        until: until.to_owned(),
    }
}

/// Feedback, a mark, and a score.
fn feedback(max_chars: usize) -> Vec<Segment> {
    vec![
        text(max_chars, "[RESULT]"),
        literal(" [RESULT] "),
        Segment::Labels(labels(&["1", "2", "3", "4", "5", "10"])),
    ]
}

/// Two tags, the second one around the score.
fn tags(max_chars: usize) -> Vec<Segment> {
    vec![
        literal("<feedback>\n"),
        text(max_chars, "</feedback>"),
        literal("\n</feedback>\n<score>\n"),
        Segment::Labels(labels(&["0", "1"])),
        literal("\n</score>"),
    ]
}

/// The vocabularies to walk with, small and real.
fn all(test: &str) -> Vec<(String, Vocabulary)> {
    let mut all = vec![("small".to_owned(), small())];
    for name in [
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
    ] {
        all.extend(real(test, name).map(|vocabulary| (name.to_owned(), vocabulary)));
    }
    for name in [
        "smollm2-135m-instruct",
        "qwen2.5-coder-0.5b-instruct",
        "gemma-3-270m",
    ] {
        all.extend(fetched(test, name).map(|vocabulary| (name.to_owned(), vocabulary)));
    }
    all
}

#[test]
fn every_walk_ends_in_its_label_and_holds_each_mark_once() {
    let mut dice = Dice(21);
    for (name, vocabulary) in all("every_walk_ends_in_its_label_and_holds_each_mark_once") {
        let compiler = Compiler::from_vocabulary(vocabulary).expect("the vocabulary serves");
        for max_chars in [1, 2, 7, 40] {
            for _ in 0..5 {
                let compiled = compiler.compile(&Shape::Written(feedback(max_chars)));
                let mut constraint = compiled.expect("the shape compiles");
                let walk = walk(compiler.vocabulary(), constraint.as_mut(), &mut dice, 2000);
                let written = String::from_utf8(walk.text).expect("the output is UTF-8");
                assert!(walk.complete, "{name}: {written}");
                let (words, label) = written.split_once(" [RESULT] ").expect("the mark");
                assert!(
                    (1..=max_chars).contains(&words.chars().count()),
                    "{written:?}"
                );
                assert!(
                    ["1", "2", "3", "4", "5", "10"].contains(&label),
                    "{written:?}"
                );
                assert_eq!(
                    written.matches("[RESULT]").count(),
                    1,
                    "{name}: {written:?}"
                );

                let compiled = compiler.compile(&Shape::Written(tags(max_chars)));
                let mut constraint = compiled.expect("the shape compiles");
                let tagged =
                    self::walk(compiler.vocabulary(), constraint.as_mut(), &mut dice, 2000);
                let written = String::from_utf8(tagged.text).expect("the output is UTF-8");
                assert!(tagged.complete, "{name}: {written}");
                let inner = written.strip_prefix("<feedback>\n").expect("the first tag");
                let (words, rest) = inner
                    .split_once("\n</feedback>\n<score>\n")
                    .expect("the tags");
                assert!(
                    (1..=max_chars).contains(&words.chars().count()),
                    "{written:?}"
                );
                assert!(
                    rest == "0\n</score>" || rest == "1\n</score>",
                    "{written:?}"
                );
                assert_eq!(written.matches("</feedback>").count(), 1, "{written:?}");
            }
        }
    }
}

#[test]
fn any_text_can_be_written_and_ends_at_its_first_mark() {
    for (name, vocabulary) in all("any_text_can_be_written_and_ends_at_its_first_mark") {
        let compiler = Compiler::from_vocabulary(vocabulary).expect("the vocabulary serves");
        let check = |segments: &[Segment], text: &str, good: usize| {
            let compiled = compiler.compile(&Shape::Written(segments.to_vec()));
            let mut constraint = compiled.expect("the shape compiles");
            let found = admitted(compiler.vocabulary(), constraint.as_mut(), text);
            assert_eq!(found, good, "{name}: {text:?}");
            constraint.next().ok()
        };
        for nasty in NASTY {
            // Control characters other than line ends and tabs are no part of a text.
            let plain = |c: char| !c.is_ascii_control() || c == '\n' || c == '\t';
            let words: String = nasty.chars().filter(|&c| plain(c)).collect();
            if compiler
                .vocabulary()
                .spelled(&compiler.vocabulary().spell(words.as_bytes()))
                != words.as_bytes()
            {
                continue;
            }
            let endings = compiler.vocabulary().endings();
            if endings.iter().any(|ending| words.contains(ending.as_str())) {
                continue;
            }
            let whole = format!("{words} [RESULT]");
            let next = check(&feedback(200), &whole, whole.len());
            assert!(
                matches!(&next, Some(Next::Labels { opening, closing, .. }) if opening == " " && closing.is_empty()),
                "{name}: {next:?}"
            );
        }
        // What looks like the mark is not it, and what the mark lacks before it can't be left out.
        let almost = "so [RESULT [RESUL] [result] RESULT] [[ 5 [RESULT]";
        check(&feedback(200), almost, almost.len());
        check(&feedback(200), "so[RESULT]", "so[RESULT".len());
        check(
            &feedback(200),
            "so [RESULT] 5 [RESULT]",
            "so [RESULT]".len(),
        );
        // Behind as much text as there may be, only the mark goes on, all of it forced.
        check(&feedback(3), "abcd", 3);
        let next = check(&feedback(3), "abc [RESULT]", 12);
        assert!(
            matches!(next, Some(Next::Labels { .. })),
            "{name}: {next:?}"
        );
        check(&feedback(2), "東京 [RESULT]", "東京 [RESULT]".len());
        check(&feedback(2), "😀😀 [RESULT]", "😀😀 [RESULT]".len());
        check(&feedback(1), "😀😀", "😀".len());
        let tagged = "<feedback>\na </score> b </feedback\n> c\n</feedback>\n<score>\n";
        let next = check(&tags(60), tagged, tagged.len());
        assert!(
            matches!(&next, Some(Next::Labels { opening, closing, .. }) if opening.is_empty() && closing == "\n</score>"),
            "{name}: {next:?}"
        );
        check(
            &tags(60),
            "<feedback>\na</feedback>",
            "<feedback>\na</feedback".len(),
        );
    }
}

#[test]
fn no_text_holds_what_ends_an_answer() {
    let compiler = Compiler::from_vocabulary(small()).expect("the vocabulary serves");
    assert_eq!(compiler.vocabulary().endings(), ["<end>"]);
    let compiled = compiler.compile(&Shape::Written(feedback(60)));
    let mut constraint = compiled.expect("the shape compiles");
    let found = admitted(
        compiler.vocabulary(),
        constraint.as_mut(),
        "so <end> [RESULT]",
    );
    assert_eq!(found, "so <end".len());
    if let Some(vocabulary) = fetched("no_text_holds_what_ends_an_answer", "smollm2-135m-instruct")
    {
        assert!(vocabulary.endings().contains(&"<|im_end|>".to_owned()));
    }
}

#[test]
fn literals_are_spelled_as_the_tokenizer_spells_them() {
    let test = "literals_are_spelled_as_the_tokenizer_spells_them";
    for (name, vocabulary) in all(test) {
        let compiler = Compiler::from_vocabulary(vocabulary).expect("the vocabulary serves");
        let vocabulary = compiler.vocabulary();
        let shape = Shape::Written(vec![
            literal("So the overall score is [RESULT] "),
            Segment::Labels(labels(&["1", "2"])),
        ]);
        let mut constraint = compiler.compile(&shape).expect("the shape compiles");
        let Ok(Next::Forced(tokens)) = constraint.next() else {
            panic!("the literal is forced")
        };
        assert_eq!(
            tokens,
            vocabulary.spell(b"So the overall score is [RESULT]"),
            "{name}"
        );
        // The tags behind a text are forced in the tokenizer's own way, too.
        let mut constraint = compiler
            .compile(&Shape::Written(tags(60)))
            .expect("compiles");
        let begun = "<feedback>\nfine\n</feedback>";
        let found = admitted(vocabulary, constraint.as_mut(), begun);
        assert_eq!(found, begun.len(), "{name}");
        let mut forced = Vec::new();
        while let Ok(Next::Forced(tokens)) = constraint.next() {
            constraint.advance(&tokens).expect("the forced tokens came");
            forced.extend(tokens);
        }
        assert_eq!(vocabulary.spelled(&forced), b"\n<score>\n", "{name}");
        if name != "small" {
            assert_eq!(forced, vocabulary.spell(b"\n<score>\n"), "{name}");
        }
        assert!(matches!(constraint.next(), Ok(Next::Labels { .. })));
    }
}

#[test]
fn a_label_is_read_with_and_without_the_blank_before_it() {
    let compiler = Compiler::from_vocabulary(table(&[b" ", b"4", b" 4", b"4\n", b" 40", b"0"]))
        .expect("serves");
    let vocabulary = compiler.vocabulary();
    let token = |text: &str| vocabulary.exactly(text.as_bytes())[0];
    let trie = compiler
        .label_trie(&labels(&["4", "40"]), " ", "\n")
        .expect("the labels are right");
    assert_eq!(trie.text(0), " 4");
    let step = |node, text: &str| {
        let edges = trie.edges(node);
        edges
            .iter()
            .find(|edge| edge.0 == token(text))
            .map(|edge| edge.1)
    };
    let root = trie.root();
    let go = |node, text: &str| match step(node, text) {
        Some(Step::Continue(next)) => next,
        other => panic!("{text:?} leads to {other:?}"),
    };
    assert_eq!(step(root, " 40"), Some(Step::Complete(1)));
    assert_eq!(step(root, "4\n"), Some(Step::Complete(0)));
    assert_eq!(trie.label_at(go(root, " 4")), Some(0));
    assert_eq!(trie.label_at(go(root, "4")), Some(0));
    assert_eq!(trie.label_at(go(root, " ")), None);
    assert_eq!(
        go(go(root, " "), "4"),
        go(root, " 4"),
        "one and the same text"
    );
    assert_eq!(step(go(root, "4"), "0"), Some(Step::Complete(1)));
    assert!(compiler.label_trie(&labels(&[" 4"]), " ", "").is_err());
    for (name, vocabulary) in all("a_label_is_read_with_and_without_the_blank_before_it") {
        let compiler = Compiler::from_vocabulary(vocabulary).expect("the vocabulary serves");
        let vocabulary = compiler.vocabulary();
        let trie = compiler
            .label_trie(&labels(&["1", "5"]), " ", "")
            .expect("labels");
        let edges = trie.edges(trie.root());
        for bytes in ["5", " 5"] {
            for token in vocabulary.exactly(bytes.as_bytes()) {
                assert!(
                    edges.contains(&(*token, Step::Complete(1))),
                    "{name}: {bytes:?}"
                );
            }
        }
        let blank = vocabulary.exactly(b" ");
        assert!(!blank.is_empty(), "{name}");
        for token in blank {
            let step = edges
                .iter()
                .find(|edge| edge.0 == *token)
                .map(|edge| edge.1);
            let Some(Step::Continue(node)) = step else {
                panic!("{name}: a blank leads to {step:?}")
            };
            let fives = vocabulary.exactly(b"5");
            assert!(
                fives
                    .iter()
                    .all(|five| trie.edges(node).contains(&(*five, Step::Complete(1))))
            );
        }
    }
}

#[test]
fn segments_that_can_not_be_are_refused_before_the_first_token() {
    let compiler = Compiler::from_vocabulary(small()).expect("the vocabulary serves");
    let score = || Segment::Labels(labels(&["1", "2"]));
    for segments in [
        vec![text(9, "[RESULT]")],
        vec![text(9, "[RESULT]"), score()],
        vec![text(9, "[RESULT]"), text(9, "x"), literal("x")],
        vec![text(9, "[RESULT]"), literal("[RESULT")],
        vec![text(9, ""), literal("[RESULT] "), score()],
        vec![text(0, "x"), literal("x"), score()],
        vec![text(usize::MAX, "x"), literal("x"), score()],
        vec![literal("x"), score(), score()],
        vec![literal("x"), score(), literal("y"), literal("z")],
        vec![score(), text(9, "x"), literal("x")],
        vec![literal("x "), Segment::Labels(labels(&["1", " 2"]))],
        vec![literal("x"), Segment::Labels(labels(&[]))],
        vec![literal("x"), Segment::Labels(labels(&["1", "1"]))],
    ] {
        match compiler.compile(&Shape::Written(segments.clone())).err() {
            Some(ConstrainError::Compile(reason)) => assert!(!reason.is_empty()),
            other => panic!("{segments:?}: {other:?}"),
        }
    }
    // Nothing at all, a literal, and a blank alone are shapes, if dull ones.
    let mut nothing = compiler
        .compile(&Shape::Written(Vec::new()))
        .expect("compiles");
    assert_eq!(nothing.next(), Ok(Next::Done));
    let shape = Shape::Written(vec![literal(" "), score(), literal("!")]);
    let next = compiler.compile(&shape).expect("compiles").next();
    assert!(
        matches!(next, Ok(Next::Labels { opening, closing, .. }) if opening == " " && closing == "!")
    );
    // A mark that begins as it ends is over where it first stands.
    let shape = Shape::Written(vec![text(9, "\n\n"), literal("\n\n"), score()]);
    let mut constraint = compiler.compile(&shape).expect("compiles");
    assert_eq!(
        admitted(compiler.vocabulary(), constraint.as_mut(), "a\n\n\n"),
        3
    );
    assert!(matches!(constraint.next(), Ok(Next::Labels { .. })));
}

/// Prints what long texts cost, in processor time of a thread.
#[test]
fn long_texts_are_walked_in_bounded_time() {
    let test = "long_texts_are_walked_in_bounded_time";
    let mut vocabularies = vec![small()];
    vocabularies.extend(fetched(test, "qwen2.5-coder-0.5b-instruct"));
    for vocabulary in vocabularies {
        let compiler = Compiler::from_vocabulary(vocabulary).expect("the vocabulary serves");
        for max_chars in [400, 4000, 100_000] {
            let start = busy();
            let compiled = compiler.compile(&Shape::Written(feedback(max_chars)));
            let mut constraint = compiled.expect("the shape compiles");
            let compiled = busy() - start;
            let words = NASTY[0].repeat(max_chars / NASTY[0].len());
            let tokens = compiler
                .vocabulary()
                .spell(format!("{words} [RESULT]").as_bytes());
            let (mut spent, mut steps) = (Duration::ZERO, 0);
            for token in tokens {
                let start = busy();
                match constraint.next().expect("the text goes on") {
                    Next::Choose(mask) => assert!(mask.allows(token)),
                    other => panic!("{other:?}"),
                }
                constraint
                    .advance(&[token])
                    .expect("what was allowed is taken");
                spent += busy() - start;
                steps += 1;
            }
            assert!(matches!(constraint.next(), Ok(Next::Labels { .. })));
            println!(
                "{} tokens, {max_chars} characters: compiled in {compiled:?}, {:?} a step",
                compiler.vocabulary().size(),
                spent / steps
            );
            assert!(spent / steps < Duration::from_millis(20), "{spent:?}");
        }
    }
}
