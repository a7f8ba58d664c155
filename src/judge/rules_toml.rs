//! Reads what a rubric says for the formats that need more than levels.

use super::rubric::{Level, Scale};
use super::rubric_error::RubricError;
use super::rubric_toml::Table;
use super::rules::{
    ClaimsRules, Decide, FormatName, Orders, PairwiseRules, TrajectoryOrder, TrajectoryRules,
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
    if table.word("decide", &["strict", "weighted"])? == Some("weighted") {
        rules.decide = Decide::Weighted;
    }
    if let Some(band) = table.within("band", 0.0, 50.0)? {
        rules.band = band;
    }
    let prior = table.within("prior", -50.0, 50.0)?;
    match (table.word("orders", &["both", "one"])?, prior) {
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
    if let Some(name) = table.word("order", &TrajectoryOrder::ALL.map(TrajectoryOrder::name))? {
        let mut orders = TrajectoryOrder::ALL.into_iter();
        rules.order = orders
            .find(|order| order.name() == name)
            .unwrap_or_default();
    }
    if let Some(characters) = table.count("step_chars", 40, 100_000)? {
        rules.step_chars = characters;
    }
    Ok(rules)
}
