//! The examples of every format can be read, and every item of theirs is posed, or fails in the way that it is there to show.

use assize::journal::FailureKind;
use assize::judge::rules::FormatName;
use assize::judge::{Manner, Rubric, Step, formats};
use assize::trace::{FieldMap, open};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Items that show a failure.
const FAILING: [(&str, FailureKind); 1] = [("no-reference", FailureKind::MissingField)];

#[test]
fn every_format_has_an_example_that_can_be_posed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/formats");
    let mut seen = BTreeSet::new();
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let rubric = Rubric::parse(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        seen.insert(rubric.format.name());
        let items = open(&[path.with_extension("jsonl")], None, FieldMap::default()).unwrap();
        for item in items {
            let item = Arc::new(item.unwrap());
            for format in formats::of(rubric.clone(), Manner::default()) {
                let (_, step) = format.begin(item.clone());
                if let Step::Settled(outcome) = step
                    && let Err(unjudged) = *outcome
                {
                    failed.push((item.name.clone(), FailureKind::of(&unjudged).unwrap()));
                }
            }
        }
    }
    let wanted: BTreeSet<&str> = FormatName::ALL.map(FormatName::name).into();
    assert_eq!(seen, wanted);
    assert_eq!(failed, FAILING.map(|(name, kind)| (name.to_string(), kind)));
}
