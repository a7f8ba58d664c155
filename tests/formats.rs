//! Every format over a judge that a script plays: what is posed, what is ruled, and how each fails.

mod script;

use assize::ask::{Ask, Failure};
use assize::journal::FailureKind;
use assize::judge::contracts::Contract;
use assize::judge::{Details, Manner, Mode, Unjudged, formats};
use assize::trace::Item;
use script::{all, answer, drive, format, judge_with, text, texts};

/// Prefers the longer answer, and whatever stands first by as much as three letters.
fn leaning(ask: &Ask, labels: &[String]) -> Vec<f64> {
    assert_eq!(labels[..2], ["A", "B"]);
    let length = |name| text(ask, name).chars().count() as f64;
    let odds = length("ANSWER A") - length("ANSWER B") + 3.0;
    let a = 1.0 / (1.0 + (-odds).exp());
    let mut masses = vec![0.9 * a, 0.9 * (1.0 - a)];
    masses.resize(labels.len(), 0.05);
    masses
}

fn pair(a: &str, b: &str) -> Item {
    Item {
        input: Some("q".into()),
        answer_b: Some(b.into()),
        ..Item::answered("1", a)
    }
}

#[test]
fn a_pair_is_won_whatever_its_answers_are_called() {
    let check = |rules: &str, a: &str, b: &str, want: &str, flipped: Option<bool>| {
        let format = format(&format!("format = \"pairwise\"\n[pairwise]\n{rules}\n"));
        let there = judge_with(&format, pair(a, b), &leaning).unwrap();
        let back = judge_with(&format, pair(b, a), &leaning).unwrap();
        let turned = match want {
            "A" => "B",
            "B" => "A",
            tie => tie,
        };
        assert_eq!(
            (there.label.as_str(), back.label.as_str()),
            (want, turned),
            "{rules} {a} {b}"
        );
        let (Some(Details::Pairwise(there)), Some(Details::Pairwise(back))) =
            (there.details, back.details)
        else {
            panic!("a pair has orders")
        };
        assert_eq!((there.flipped, back.flipped), (flipped, flipped));
        assert_eq!(
            there.log_odds.to_bits(),
            (0.0 - back.log_odds).to_bits(),
            "{rules} {a} {b}"
        );
        assert_eq!(there.orders.len(), if flipped.is_some() { 2 } else { 1 });
    };
    // Five letters beat the place; one letter does not.
    check("decide = \"strict\"", "aaaaaa", "b", "A", Some(false));
    check("decide = \"strict\"", "aa", "b", "tie", Some(true));
    check("decide = \"weighted\"", "aa", "b", "A", Some(true));
    check(
        "decide = \"weighted\"\nband = 2",
        "aa",
        "b",
        "tie",
        Some(true),
    );
    check("decide = \"weighted\"", "aa", "bb", "tie", Some(true));
    check("decide = \"weighted\"", "same", "same", "tie", Some(true));
    check(
        "decide = \"strict\"\nties = true",
        "aaaaaa",
        "b",
        "A",
        Some(false),
    );
    // One order, less what the place is worth.
    check("orders = \"one\"\nprior = 3", "aa", "b", "A", None);
    check("orders = \"one\"\nprior = 3", "a", "bb", "B", None);
}

#[test]
fn a_ranking_finds_the_order_of_strength() {
    let format = format("format = \"ranking\"\n[pairwise]\ndecide = \"weighted\"\n");
    let item = Item {
        input: Some("q".into()),
        answer: None,
        answers: Some(["aa", "aaaaaaaa", "a", "aaaa"].map(String::from).to_vec()),
        ..Item::answered("1", "")
    };
    let verdict = judge_with(&format, item, &leaning).unwrap();
    let Some(Details::Ranking(ranking)) = verdict.details else {
        panic!("a ranking has an order")
    };
    assert_eq!(
        (verdict.label.as_str(), ranking.order),
        ("2", vec![2, 4, 1, 3])
    );
    assert_eq!((ranking.pairs.len(), ranking.possible), (6, 6));
    assert_eq!(verdict.tokens.prompt, 120);
}

#[test]
fn a_ranking_without_a_strongest_answer_names_none() {
    let format = format("format = \"ranking\"\n[pairwise]\ndecide = \"strict\"\n");
    for answers in [["same", "same"], ["aa", "b"], ["b", "aa"]] {
        let item = Item {
            input: Some("q".into()),
            answers: Some(answers.map(String::from).to_vec()),
            ..Item::answered("1", "")
        };
        let verdict = judge_with(&format, item, &leaning).unwrap();
        assert_eq!(
            (verdict.label.as_str(), verdict.expected),
            ("tie", Some(0.5)),
            "{answers:?}"
        );
    }
}

/// Supported where the context has the words.
fn support(ask: &Ask, labels: &[String]) -> Vec<f64> {
    if labels.len() == 5 {
        return vec![0.0, 0.0, 0.5, 0.5, 0.0];
    }
    let claim = text(ask, "CLAIM");
    let context = text(ask, "CONTEXT 1");
    let supported = context.contains(claim.trim_end_matches('.'));
    match (supported, claim.contains("not")) {
        (true, _) => vec![0.9, 0.05, 0.05],
        (false, true) => vec![0.1, 0.8, 0.1],
        (false, false) => vec![0.1, 0.1, 0.8],
    }
}

fn with_context(answer: &str, passages: &[&str]) -> Item {
    Item {
        input: Some("q".into()),
        context: Some(passages.iter().map(|passage| passage.to_string()).collect()),
        ..Item::answered("1", answer)
    }
}

#[test]
fn claims_are_checked_one_by_one() {
    let rules = "format = \"claims\"\nshows = [\"context\", \"answer\"]\n[claims]\npass_at = 0.6\nsection_chars = 200\n";
    let format = format(rules);
    let context = "The sky is blue. Grass is green. Snow is white.";
    let check = |answer: &str, label: &str, counts: [usize; 3]| {
        let item = with_context(answer, &[context]);
        let verdict = judge_with(&format, item, &support).unwrap();
        let Some(Details::Claims(claims)) = verdict.details else {
            panic!("claims are told")
        };
        assert_eq!(verdict.label, label, "{answer}");
        assert_eq!(
            [claims.supported, claims.contradicted, claims.not_found],
            counts
        );
        let share = counts[0] as f64 / counts.iter().sum::<usize>() as f64;
        assert_eq!(verdict.expected, Some(share));
        for claim in &claims.claims {
            assert_eq!(answer[claim.span.start..claim.span.end], claim.span.quote);
            let severity = (claim.opinion.label != "supported").then_some(3.5);
            assert_eq!(claim.severity, severity);
        }
        claims.sections
    };
    check("The sky is blue. Grass is green.", "pass", [2, 0, 0]);
    check(
        "The sky is blue. Snow is not cold. Ice is hot.",
        "fail",
        [1, 1, 1],
    );
    check("The sky is blue. The sky is blue.", "pass", [1, 0, 0]);
    let long = format!(
        "The sky is blue.{}\n\nGrass is green. Snow is white.",
        " ".repeat(190)
    );
    assert_eq!(check(&long, "pass", [3, 0, 0]), 2);
    for nothing in ["", "?!", "no sentence"] {
        let none = judge_with(&format, with_context(nothing, &[context]), &support);
        assert_eq!(none, Err(Unjudged::NoClaims), "{nothing}");
    }
}

#[test]
fn retrieval_is_three_verdicts_on_three_things() {
    let formats = all("format = \"rag\"\n", Mode::ScoreOnly);
    let ids: Vec<&str> = formats
        .iter()
        .map(|format| format.rubric().id.as_str())
        .collect();
    assert_eq!(
        ids,
        [
            "r.faithfulness",
            "r.answer_relevance",
            "r.context_relevance"
        ]
    );
    let shown = [
        &["CONTEXT 1", "CONTEXT 2", "ANSWER"][..],
        &["INPUT", "ANSWER"],
        &["INPUT", "PASSAGE"],
    ];
    for (format, shown) in formats.iter().zip(shown) {
        let judge = |_: usize, ask: &Ask| {
            let names: Vec<String> = texts(ask).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, shown);
            let good = texts(ask).last().unwrap().1.contains("good");
            answer(ask, &move |_, _| {
                if good { vec![0.8, 0.2] } else { vec![0.2, 0.8] }
            })
        };
        let item = with_context("a good answer", &["good", "bad"]);
        let verdict = drive(format, item, &judge).0.unwrap();
        let expected = verdict.expected.unwrap();
        let want = if shown.contains(&"PASSAGE") { 0.5 } else { 0.8 };
        assert!((expected - want).abs() < 1e-12, "{expected}");
        assert_eq!(verdict.label, "pass");
    }
}

fn trace(expected: Option<&str>) -> Item {
    let steps = r#"[{"role":"user","content":"go"},
        {"role":"Scout","content":"I look.","tool_calls":[{"function":{"name":"look","arguments":"{\"at\":1}"}}]},
        {"role":"tool","content":"nothing"},
        {"role":"Runner","content":"wrong turn"}]"#;
    Item {
        answer: None,
        input: Some("q".into()),
        trajectory: Some(serde_json::from_str(steps).unwrap()),
        expected: expected.map(|text| serde_json::from_str(text).unwrap()),
        ..Item::answered("1", "")
    }
}

/// The steps that hold "wrong" are bad, and their agent is to blame.
fn blame(ask: &Ask, labels: &[String]) -> Vec<f64> {
    let steps: Vec<(String, String)> = texts(ask)
        .into_iter()
        .filter(|(name, _)| name.starts_with("STEP"))
        .collect();
    let wrong = |(_, text): &&(String, String)| text.contains("wrong");
    let guilty = steps.iter().find(wrong);
    let last_is_wrong = steps.last().as_ref().is_some_and(wrong);
    let like = |label: &String| match (label.as_str(), guilty) {
        ("pass", _) => !last_is_wrong,
        ("fail", _) => last_is_wrong,
        (label, Some((name, text))) => {
            text.starts_with(&format!("{label}: ")) || *name == format!("STEP {label}")
        }
        _ => false,
    };
    labels
        .iter()
        .map(|label| if like(label) { 0.7 } else { 0.1 })
        .collect()
}

#[test]
fn steps_are_judged_blamed_and_compared() {
    let check = |judge: &str, expected: Option<&str>| {
        let rules = format!(
            "format = \"trajectory\"\nshows = [\"input\", \"answer\"]\n[trajectory]\njudge = \"{judge}\"\n"
        );
        drive(&format(&rules), trace(expected), &|_, ask| {
            answer(ask, &blame)
        })
    };
    let (verdict, asks) = check("steps", None);
    let verdict = verdict.unwrap();
    let Some(Details::Trajectory(found)) = &verdict.details else {
        panic!("steps are told")
    };
    let labels: Vec<&str> = found
        .steps
        .iter()
        .map(|step| step.opinion.label.as_str())
        .collect();
    assert_eq!(
        (verdict.label.as_str(), labels),
        ("fail", vec!["pass", "pass", "pass", "fail"])
    );
    // Each question begins with the one before it, so that an engine computes the trace once.
    let first = |ask: &Ask| {
        texts(ask)
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
    };
    for two in asks.windows(2) {
        assert!(first(&two[1]).starts_with(&first(&two[0])));
    }
    let (verdict, _) = check("attribution", None);
    let verdict = verdict.unwrap();
    let Some(Details::Trajectory(found)) = &verdict.details else {
        panic!("blame is told")
    };
    assert_eq!(
        (
            verdict.label.as_str(),
            found.step.as_ref().unwrap().label.as_str()
        ),
        ("Runner", "3")
    );
    assert_eq!(verdict.expected, None);

    let compared = |expected: &str| {
        let (verdict, asks) = check("compare", Some(expected));
        assert!(asks.is_empty(), "comparing asks nobody");
        let verdict = verdict.unwrap();
        let Some(Details::Trajectory(found)) = verdict.details else {
            panic!("the comparison is told")
        };
        (verdict.label, found.comparison.unwrap().outcome)
    };
    let told = |label: &str, outcome: &str| (label.to_string(), outcome.to_string());
    assert_eq!(compared(r#"[{"name":"look"}]"#), told("pass", "match"));
    assert_eq!(compared(r#"[{"name":"run"}]"#), told("fail", "diverged"));
    assert_eq!(
        compared(r#"[{"name":"look"},{"name":"run"}]"#),
        told("fail", "stopped_early")
    );
    assert_eq!(compared("[]"), told("fail", "extra_steps"));
    let (outcome, _) = check("both", Some(r#"[{"name":"look"}]"#));
    let Some(Details::Trajectory(found)) = outcome.unwrap().details else {
        panic!("both are told")
    };
    assert_eq!(
        (found.steps.len(), found.comparison.unwrap().recall),
        (4, 1.0)
    );
}

#[test]
fn a_check_settles_an_item_without_a_model() {
    let format = format(
        "format = \"classify\"\n[[level]]\nlabel = \"good\"\nvalue = 2\ndescription = \"d\"\n\
         [[level]]\nlabel = \"bad\"\nvalue = -1\ndescription = \"d\"\n\
         [[check]]\nname = \"no apology\"\nkind = \"banned\"\nphrases = [\"sorry\"]\n",
    );
    let item = |text: &str| pair(text, "");
    let (verdict, asks) = drive(&format, item("I am sorry."), &|_, _| {
        panic!("a model was asked")
    });
    let verdict = verdict.unwrap();
    assert!(asks.is_empty());
    assert_eq!(
        (verdict.label.as_str(), verdict.expected, verdict.reading),
        ("bad", Some(-1.0), None)
    );
    assert!(
        matches!(verdict.details, Some(Details::Check(broken)) if broken.check == "no apology")
    );
    let verdict = judge_with(&format, item("Fine."), &|_, _| vec![0.75, 0.25]).unwrap();
    assert_eq!(verdict.label, "good");
    assert!((verdict.expected.unwrap() - 1.25).abs() < 1e-12);
}

#[test]
fn what_can_not_be_judged_fails_by_its_own_kind() {
    let binary = "scale = \"binary\"\n[[level]]\nlabel = \"pass\"\ndescription = \"d\"\n[[level]]\nlabel = \"fail\"\ndescription = \"d\"\n";
    let example = "[[example]]\nid = \"e\"\ninput = \"q\"\nanswer = \"x\"\nrationale = \"r\"\nlabel = \"pass\"\n";
    let bare = Item::answered("1", "x");
    let asked = || pair("x", "y");
    let check = |rules: &str, item: Item, want: FailureKind| {
        let outcome = judge_with(&format(rules), item, &|_, labels| vec![1.0; labels.len()]);
        let unjudged = outcome.expect_err(rules);
        assert_eq!(
            FailureKind::of(&unjudged),
            Some(want),
            "{rules}: {unjudged}"
        );
    };
    use FailureKind::{Candidates, MissingField, NoClaims, Shown, Trajectory};
    check(binary, bare.clone(), MissingField);
    check(
        &format!("shows = [\"reference\", \"answer\"]\n{binary}"),
        asked(),
        MissingField,
    );
    check(
        "format = \"pairwise\"\n",
        Item {
            answer_b: None,
            ..asked()
        },
        MissingField,
    );
    check("format = \"claims\"\n", asked(), MissingField);
    check("format = \"claims\"\n", with_context("", &["c"]), NoClaims);
    check("format = \"ranking\"\n", asked(), MissingField);
    let alone = Item {
        answers: Some(vec!["x".into()]),
        ..asked()
    };
    check("format = \"ranking\"\n", alone, Candidates);
    check("format = \"trajectory\"\n", asked(), MissingField);
    let broken = Item {
        trajectory: Some(serde_json::json!([1])),
        ..asked()
    };
    check("format = \"trajectory\"\n", broken, Trajectory);
    let unexpected = Item {
        expected: Some(serde_json::json!([1])),
        ..trace(None)
    };
    check("format = \"trajectory\"\n", unexpected, Trajectory);
    check(
        "format = \"trajectory\"\n[trajectory]\njudge = \"compare\"\n",
        trace(None),
        MissingField,
    );
    check(&format!("{binary}{example}"), asked(), Shown);
}

#[test]
fn a_failure_of_one_question_is_no_verdict() {
    let format = format("format = \"pairwise\"\n");
    let judge = |_: usize, ask: &Ask| match text(ask, "ANSWER A").as_str() {
        "x" => Err(Failure::NonFiniteLogits),
        _ => answer(ask, &leaning),
    };
    let (outcome, _) = drive(&format, pair("x", "yy"), &judge);
    assert_eq!(outcome, Err(Unjudged::Asked(Failure::NonFiniteLogits)));
}

#[test]
fn what_an_evaluators_form_can_not_hold_is_a_failure_of_its_own() {
    let binary = "scale = \"binary\"\n[[level]]\nlabel = \"pass\"\ndescription = \"d\"\n[[level]]\nlabel = \"fail\"\ndescription = \"d\"\n";
    let manner = Manner {
        contract: Some(Contract::PrometheusV1),
        ..Manner::default()
    };
    let format = formats::of(script::rubric(binary), manner).remove(0);
    let (outcome, asks) = drive(&format, pair("x", "y"), &|_, _| panic!("a model was asked"));
    let unjudged = outcome.unwrap_err();
    assert!(asks.is_empty());
    assert_eq!(
        FailureKind::of(&unjudged),
        Some(FailureKind::Contract),
        "{unjudged}"
    );
    // A form without a tie is told before anything is paid for.
    let manner = Manner {
        contract: Some(Contract::PrometheusV2),
        ..Manner::default()
    };
    let ties = script::rubric("format = \"pairwise\"\n[pairwise]\nties = true\n");
    let format = formats::of(ties, manner).remove(0);
    let (outcome, asks) = drive(&format, pair("x", "y"), &|_, _| panic!("a model was asked"));
    assert!(asks.is_empty() && outcome.unwrap_err().to_string().contains("ties"));
}
