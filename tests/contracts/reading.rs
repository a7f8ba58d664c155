//! How answers are read back, and what their labels are called.

use crate::Texts;
use assize::ask::Readout;
use assize::judge::contracts::{Case, Contract, ContractError, Grade, Reading};

/// The reading of an answer that is put together as the shape says.
fn read(contract: Contract, case: &Case<'_>, text: &str) -> Result<Reading, ContractError> {
    let posed = contract
        .pose(case, Some(400))
        .expect("the case fits the form");
    contract.read(&posed, text)
}

#[test]
fn answers_are_read_back_and_nothing_is_guessed() {
    let texts = Texts::load();
    let (levels, binary) = (texts.grades("levels"), texts.grades("binary"));
    let whole = texts.case(&levels);
    let passes = Case {
        grades: &binary,
        ..whole
    };
    let pair = Case {
        responses: texts.pair(),
        ..whole
    };
    let check = |contract, case: &Case<'_>, text: &str, expected: Option<(&str, &str)>| {
        let found = read(contract, case, text).ok();
        let found = found.map(|found| (found.rationale.expect("a rationale"), found.label));
        let expected = expected.map(|(rationale, label)| (rationale.to_owned(), label.to_owned()));
        assert_eq!(found, expected, "{contract:?}: {text:?}");
    };
    for contract in [Contract::PrometheusV1, Contract::PrometheusV2] {
        check(
            contract,
            &whole,
            "Good, 5 of 5.\n [RESULT] 4",
            Some(("Good, 5 of 5.", "4")),
        );
        for text in [
            "Good.",
            "Good. [RESULT] 6",
            "Good. [RESULT] 4.",
            "Good. [RESULT]4",
            "[RESULT] 5 so [RESULT] 4",
        ] {
            check(contract, &whole, text, None);
        }
    }
    check(
        Contract::PrometheusV2,
        &pair,
        "A is better. [RESULT] B",
        Some(("A is better.", "B")),
    );
    let flow = "<feedback>\nIt is <score>1</score>.\n</feedback>\n<score>\n0\n</score>";
    check(
        Contract::FlowJudge,
        &passes,
        flow,
        Some(("It is <score>1</score>.", "fail")),
    );
    check(Contract::FlowJudge, &whole, flow, None);
    let selene = "**Reasoning:** Fine.\n\n**Result:** Yes";
    check(Contract::Selene, &passes, selene, Some(("Fine.", "pass")));
    check(Contract::Selene, &whole, selene, None);
    check(
        Contract::Selene,
        &pair,
        "**Reasoning:** Fine.\n\n**Result:** A",
        Some(("Fine.", "A")),
    );
    let glider =
        "<reasoning>\n- so\n</reasoning>\n<highlight>\n['x']\n</highlight>\n<score>\n3\n</score>";
    check(Contract::Glider, &whole, glider, Some(("- so", "3")));
    let reading = read(Contract::Glider, &whole, glider).expect("it is of the form");
    assert_eq!(reading.highlights.as_deref(), Some("['x']"));
    // Without a rationale nothing but the label's surroundings is written.
    let posed = Contract::Selene.pose(&passes, None).expect("fits");
    let bare = Contract::Selene
        .read(&posed, "**Reasoning:**\n\n**Result:** No")
        .expect("of the form");
    assert_eq!((bare.rationale, bare.label.as_str()), (None, "fail"));
}

#[test]
fn a_readout_takes_the_rubrics_labels() {
    let texts = Texts::load();
    let binary = texts.grades("binary");
    let case = texts.case(&binary);
    let posed = Contract::Selene.pose(&case, None).expect("fits");
    assert_eq!(posed.spoken(), ["Yes", "No"]);
    let readout = |labels: &[&str]| Readout {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        log_masses: vec![-0.5, -1.5],
    };
    let relabelled = posed
        .relabel(&readout(&["Yes", "No"]))
        .expect("its own labels");
    assert_eq!(relabelled, readout(&["pass", "fail"]));
    assert_eq!(
        posed.relabel(&readout(&["No", "Yes"])),
        Err(ContractError::Readout)
    );
    let reversed: Vec<Grade<'_>> = binary.iter().rev().copied().collect();
    let case = texts.case(&reversed);
    let posed = Contract::FlowJudge.pose(&case, None).expect("fits");
    assert_eq!(
        (posed.spoken(), posed.labels.as_slice()),
        (
            &["0".to_owned(), "1".to_owned()][..],
            &["fail".to_owned(), "pass".to_owned()][..]
        )
    );
}
