//! Reads what a rubric says for the formats that need more than levels.

use super::checks::{Check, CheckKind, Unit};
use super::expected::Order;
use super::rubric::{Level, Scale};
use super::rubric_error::RubricError;
use super::rubric_toml::Table;
use super::rules::{
    CheckRule, ClaimsRules, Decide, FormatName, Orders, PairwiseRules, TrajectoryRules,
    TrajectoryTask,
};

/// The scale of a format, which may bring its own levels: a rubric of pairs has the labels `A`, `B` and `tie` and none besides.
pub(super) fn levels(
    root: &Table<'_>,
    format: FormatName,
    scale: Option<Scale>,
    pairwise: &PairwiseRules,
    levels: &mut Vec<Level>,
) -> Result<Scale, RubricError> {
    let own = |why: &str| {
        let line = root.line_of(if scale.is_some() { "scale" } else { "level" });
        let problem = format!("the format {} has its own labels", format.name());
        RubricError::new(
            line,
            problem,
            format!("leave scale and [[level]] out: {why}"),
        )
    };
    let bare = scale.is_none() && levels.is_empty();
    let level = |label: &str, value: Option<f64>, description: &str| Level {
        label: label.into(),
        value,
        description: description.into(),
    };
    match format {
        FormatName::Pairwise | FormatName::Ranking if !bare => {
            Err(own("the judge names the better of two answers"))
        }
        // The label of a ranking is the number of an answer; its pairs have these.
        FormatName::Pairwise | FormatName::Ranking => {
            let tie = if pairwise.ties {
                "Neither is better."
            } else {
                "The two orders do not agree."
            };
            levels.push(level("A", Some(1.0), "ANSWER A is better."));
            levels.push(level("B", Some(0.0), "ANSWER B is better."));
            levels.push(level("tie", Some(0.5), tie));
            Ok(Scale::Named)
        }
        FormatName::Claims | FormatName::Rag if !bare => {
            Err(own("each claim or passage has labels of its own"))
        }
        FormatName::Claims | FormatName::Rag => {
            levels.push(level("pass", None, "It holds."));
            levels.push(level("fail", None, "It does not."));
            Ok(Scale::Binary)
        }
        FormatName::Classify => match scale {
            None | Some(Scale::Named) => Ok(Scale::Named),
            Some(_) => Err(RubricError::new(
                root.line_of("scale"),
                "the format classify has named labels",
                "leave scale out, or use format = \"pointwise\"",
            )),
        },
        FormatName::Trajectory if bare => {
            levels.push(level("pass", None, "What was asked is reached."));
            levels.push(level("fail", None, "It is not."));
            Ok(Scale::Binary)
        }
        FormatName::Pointwise | FormatName::Trajectory => scale.ok_or_else(|| {
            root.missing(
                "scale",
                "add scale = \"binary\", scale = \"integer\" or scale = \"named\"",
            )
        }),
    }
}

/// Refuses the tables of other formats, which would say nothing.
pub(super) fn own_tables(root: &Table<'_>, format: FormatName) -> Result<(), RubricError> {
    let owners: [(&'static str, &[FormatName]); 3] = [
        ("pairwise", &[FormatName::Pairwise, FormatName::Ranking]),
        ("claims", &[FormatName::Claims]),
        ("trajectory", &[FormatName::Trajectory]),
    ];
    for (name, formats) in owners {
        if root.sub(name)?.is_some() && !formats.contains(&format) {
            return Err(RubricError::new(
                root.line_of(name),
                format!("[{name}] says nothing in the format {}", format.name()),
                format!("leave it out, or add format = \"{}\"", formats[0].name()),
            ));
        }
    }
    Ok(())
}

/// `weight`.
pub(super) fn weight(root: &Table<'_>) -> Result<Option<f64>, RubricError> {
    match root.number("weight")? {
        Some(weight) if weight <= 0.0 => Err(RubricError::new(
            root.line_of("weight"),
            format!("weight is {weight}"),
            "use a number above 0",
        )),
        weight => Ok(weight),
    }
}

/// `[pairwise]`.
pub(super) fn pairwise(root: &Table<'_>) -> Result<PairwiseRules, RubricError> {
    let mut rules = PairwiseRules::default();
    let Some(table) = root.sub("pairwise")? else {
        return Ok(rules);
    };
    table.known(&["ties", "decide", "band", "orders", "prior", "pairs"])?;
    if let Some(ties) = table.flag("ties")? {
        rules.ties = ties;
    }
    let decide = table.word("decide", &["strict", "weighted"])?;
    if decide == Some("weighted") {
        rules.decide = Decide::Weighted;
    }
    if let Some(band) = table.within("band", 0.0, 50.0)? {
        rules.band = band;
    }
    let prior = table.within("prior", -50.0, 50.0)?;
    match (table.word("orders", &["both", "one"])?, prior) {
        (Some("one"), _) if decide == Some("strict") => {
            return Err(RubricError::new(
                table.line_of("decide"),
                "a strict decision needs both orders",
                "use decide = \"weighted\", or orders = \"both\"",
            ));
        }
        (Some("one"), prior) => {
            rules.orders = Orders::One {
                prior: prior.unwrap_or(0.0),
            };
            // One order alone can't disagree with another.
            rules.decide = Decide::Weighted;
        }
        (_, Some(_)) => {
            return Err(RubricError::new(
                table.line_of("prior"),
                "a prior serves one order alone",
                "add orders = \"one\", or leave the prior out",
            ));
        }
        _ => (),
    }
    rules.pairs = table.count("pairs", 1, 1_000_000)?;
    Ok(rules)
}

/// `[claims]`.
pub(super) fn claims(root: &Table<'_>) -> Result<ClaimsRules, RubricError> {
    let mut rules = ClaimsRules::default();
    let Some(table) = root.sub("claims")? else {
        return Ok(rules);
    };
    table.known(&["most", "pass_at", "severity", "section_chars"])?;
    if let Some(most) = table.count("most", 1, 64)? {
        rules.most = most;
    }
    if let Some(share) = table.within("pass_at", 0.0, 1.0)? {
        rules.pass_at = share;
    }
    if let Some(severity) = table.flag("severity")? {
        rules.severity = severity;
    }
    if let Some(characters) = table.count("section_chars", 200, 100_000)? {
        rules.section_chars = characters;
    }
    Ok(rules)
}

/// `[trajectory]`.
pub(super) fn trajectory(root: &Table<'_>) -> Result<TrajectoryRules, RubricError> {
    let mut rules = TrajectoryRules::default();
    let Some(table) = root.sub("trajectory")? else {
        return Ok(rules);
    };
    table.known(&["judge", "order", "step_chars"])?;
    if let Some(name) = table.word("judge", &TrajectoryTask::ALL.map(TrajectoryTask::name))? {
        let mut tasks = TrajectoryTask::ALL.into_iter();
        rules.task = tasks.find(|task| task.name() == name).unwrap_or_default();
    }
    rules.order = match table.word("order", &["exact", "in-order", "any-order"])? {
        Some("in-order") => Order::InOrder,
        Some("any-order") => Order::AnyOrder,
        _ => Order::Exact,
    };
    rules.step_chars = table.count("step_chars", 40, 100_000)?;
    Ok(rules)
}

/// `[[check]]`, with the labels that the rubric has.
pub(super) fn checks(root: &Table<'_>, levels: &[Level]) -> Result<Vec<CheckRule>, RubricError> {
    let tables = root.tables("check")?;
    tables.iter().map(|table| check(table, levels)).collect()
}

fn check(table: &Table<'_>, levels: &[Level]) -> Result<CheckRule, RubricError> {
    table.known(&[
        "name", "kind", "unit", "min", "max", "pattern", "keys", "phrases", "only", "label",
    ])?;
    const KINDS: [&str; 6] = ["length", "match", "match_not", "json", "banned", "cites"];
    const MOST: usize = 100_000_000;
    let missing = || table.missing("kind", "add kind = \"length\", or another kind of check");
    let texts = |key| -> Result<Vec<String>, RubricError> {
        let texts = table.texts(key)?.unwrap_or_default();
        Ok(texts.into_iter().map(|(_, text)| text).collect())
    };
    let pattern = || table.required("pattern", "add pattern = '…': a regular expression");
    let kind = match table.word("kind", &KINDS)?.ok_or_else(missing)? {
        "length" => CheckKind::Length {
            unit: match table.word("unit", &["characters", "words"])? {
                Some("words") => Unit::Words,
                _ => Unit::Characters,
            },
            min: table.count("min", 0, MOST)?,
            max: table.count("max", 0, MOST)?,
        },
        "match" => CheckKind::Matches(pattern()?),
        "match_not" => CheckKind::MatchesNot(pattern()?),
        "json" => CheckKind::Json {
            required: texts("keys")?,
        },
        "banned" => CheckKind::Banned(texts("phrases")?),
        _ => CheckKind::Cites {
            only: table.flag("only")?.unwrap_or(false),
        },
    };
    let name = table.text("name")?.unwrap_or_else(|| kind.name().into());
    let check = Check::new(&name, kind)
        .map_err(|error| RubricError::new(table.line, error.problem, error.mend))?;
    // An answer that can't pass is worth the least that there is.
    let worth = |level: &&Level| match level.label.as_str() {
        "fail" => Some(0.0),
        "pass" => Some(1.0),
        label => level.value.or_else(|| label.parse().ok()),
    };
    let least = levels
        .iter()
        .filter(|level| worth(level).is_some())
        .min_by(|a, b| worth(a).unwrap_or(0.0).total_cmp(&worth(b).unwrap_or(0.0)));
    let label = match (table.text("label")?, least) {
        (Some(label), _) if levels.iter().any(|level| level.label == label) => label,
        (Some(label), _) => {
            let known: Vec<&str> = levels.iter().map(|level| level.label.as_str()).collect();
            return Err(RubricError::unknown(
                table.line_of("label"),
                "label",
                &label,
                &known,
            ));
        }
        (None, Some(level)) => level.label.clone(),
        (None, None) => {
            return Err(table.missing(
                "label",
                "add label = \"…\": what an answer gets that does not pass",
            ));
        }
    };
    Ok(CheckRule { check, label })
}
