//! Refuses rubrics that read well but can't be judged by.

use super::rubric::{Example, Level, Rubric, Scale, Shown};
use super::rubric_error::RubricError;
use super::rules::{FormatName, TrajectoryTask};
use std::collections::HashMap;

/// Longest name of a level, in bytes.
const LONGEST_LABEL: usize = 40;

/// Where the parts of a rubric stand in its file.
#[derive(Default)]
pub struct Lines {
    pub id: usize,
    pub scale: usize,
    pub shows: usize,
    pub check: usize,
    pub decoding: usize,
    pub mass_threshold: usize,
    pub levels: Vec<usize>,
    pub examples: Vec<usize>,
}

/// Checks, gives levels their values and puts them in order.
pub fn check(mut rubric: Rubric, lines: &Lines) -> Result<Rubric, RubricError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !rubric.id.chars().all(fine) || rubric.id.starts_with('.') || rubric.id.len() > 80 {
        let mend =
            "use up to 80 letters, digits, \"-\", \"_\" and \".\": the id names the run folder";
        return Err(RubricError::new(
            lines.id,
            "the id can't name a folder",
            mend,
        ));
    }
    shows(&rubric, lines)?;
    if rubric.format != FormatName::Ranking {
        levels(&mut rubric, lines)?;
    }
    let mut ids = HashMap::new();
    for (example, line) in rubric.examples.iter().zip(&lines.examples) {
        if let Some(first) = ids.insert(example.id.as_str(), *line) {
            let problem = format!(
                "the example id \"{}\" was already used on line {first}",
                example.id
            );
            return Err(RubricError::new(
                *line,
                problem,
                "give every example its own id",
            ));
        }
        check_example(&rubric, example, *line)?;
    }
    let one_answer = matches!(
        rubric.format,
        FormatName::Pointwise | FormatName::Classify | FormatName::Claims
    );
    if !one_answer && !rubric.checks.is_empty() {
        let format = rubric.format.name();
        return Err(RubricError::new(
            lines.check,
            format!("the format {format} judges no single answer that could be checked"),
            "leave [[check]] out",
        ));
    }
    let compares = rubric.trajectory.task == TrajectoryTask::Compare;
    if rubric.format == FormatName::Trajectory && compares && rubric.scale != Scale::Binary {
        return Err(RubricError::new(
            lines.scale,
            "steps that are compared with the expected ones pass or fail",
            "leave scale and [[level]] out",
        ));
    }
    let stepwise = rubric.trajectory.task == TrajectoryTask::Steps;
    if rubric.format == FormatName::Trajectory && stepwise && rubric.values().is_none() {
        return Err(RubricError::new(
            lines.scale,
            "the worst step can't be told among labels without values",
            "give every [[level]] a value = …",
        ));
    }
    let bare = matches!(rubric.format, FormatName::Pointwise | FormatName::Classify);
    if let (false, Some(line)) = (bare, lines.examples.first()) {
        let format = rubric.format.name();
        return Err(RubricError::new(
            *line,
            format!("the format {format} shows no examples"),
            "leave [[example]] out",
        ));
    }
    let decoding = &rubric.decoding;
    if !(0.0..=5.0).contains(&decoding.temperature) {
        let problem = format!("temperature is {}", decoding.temperature);
        return Err(RubricError::new(
            lines.decoding,
            problem,
            "use a number from 0 to 5",
        ));
    }
    if !(decoding.top_p > 0.0 && decoding.top_p <= 1.0) {
        let problem = format!("top_p is {}", decoding.top_p);
        return Err(RubricError::new(
            lines.decoding,
            problem,
            "use a number above 0 and up to 1",
        ));
    }
    if !(0.0..=1.0).contains(&rubric.mass_threshold) {
        let problem = format!("mass_threshold is {}", rubric.mass_threshold);
        return Err(RubricError::new(
            lines.mass_threshold,
            problem,
            "use a probability from 0 to 1",
        ));
    }
    Ok(rubric)
}

fn shows(rubric: &Rubric, lines: &Lines) -> Result<(), RubricError> {
    if !rubric.shows.contains(&Shown::Answer) {
        let mend = "add \"answer\" to shows: it is what is judged";
        return Err(RubricError::new(
            lines.shows,
            "the rubric does not show the answer",
            mend,
        ));
    }
    for (index, shown) in rubric.shows.iter().enumerate() {
        if rubric.shows[..index].contains(shown) {
            let problem = format!("shows names \"{}\" twice", shown.name());
            return Err(RubricError::new(
                lines.shows,
                problem,
                "name each field once",
            ));
        }
    }
    Ok(())
}

fn levels(rubric: &mut Rubric, lines: &Lines) -> Result<(), RubricError> {
    let mut first: HashMap<String, usize> = HashMap::new();
    for (level, line) in rubric.levels.iter_mut().zip(&lines.levels) {
        level_value(rubric.scale, level, *line)?;
        if let Some(earlier) = first.insert(level.label.clone(), *line) {
            let problem = format!(
                "level {} was already described on line {earlier}",
                level.label
            );
            return Err(RubricError::new(
                *line,
                problem,
                "describe every level once",
            ));
        }
    }
    match rubric.scale {
        Scale::Binary => {
            for label in ["pass", "fail"] {
                if !first.contains_key(label) {
                    let mend =
                        format!("add [[level]] with label = \"{label}\" and description = \"…\"");
                    return Err(RubricError::new(
                        lines.scale,
                        format!("level {label} has no description"),
                        mend,
                    ));
                }
            }
            rubric.levels.sort_by_key(|level| level.label == "fail");
        }
        Scale::Integer => {
            let number = |level: &Level| level.value.map_or(0, |value| value as i64);
            rubric.levels.sort_by_key(number);
            let mut numbers = rubric.levels.iter().map(number);
            let Some(least) = numbers.next() else {
                let mend = "add [[level]] with label = 1 and description = \"…\", and so on";
                return Err(RubricError::new(
                    lines.scale,
                    "the scale has no levels",
                    mend,
                ));
            };
            if rubric.levels.len() == 1 {
                let problem = format!("the scale has level {least} alone");
                return Err(RubricError::new(
                    lines.scale,
                    problem,
                    "describe at least two levels",
                ));
            }
            if let Some((gap, _)) = (least + 1..)
                .zip(numbers)
                .find(|(want, found)| want != found)
            {
                let mend = format!("add [[level]] with label = {gap} and description = \"…\"");
                return Err(RubricError::new(
                    lines.scale,
                    format!("level {gap} has no description"),
                    mend,
                ));
            }
        }
        Scale::Named if rubric.levels.len() < 2 => {
            return Err(RubricError::new(
                lines.scale,
                "there are fewer than two labels to choose from",
                "add [[level]] with label = \"…\" and description = \"…\"",
            ));
        }
        Scale::Named => {
            let valued = rubric.levels.iter().filter(|level| level.value.is_some());
            if ![0, rubric.levels.len()].contains(&valued.count()) {
                return Err(RubricError::new(
                    lines.scale,
                    "some labels have a value and others have none",
                    "give every [[level]] a value = …, or none",
                ));
            }
        }
    }
    Ok(())
}

/// Gives a level its value, and the label of an integer its usual digits.
fn level_value(scale: Scale, level: &mut Level, line: usize) -> Result<(), RubricError> {
    if scale != Scale::Named && level.value.is_some() {
        return Err(RubricError::new(
            line,
            format!("level {} has a value of its own", level.label),
            "leave the value out: it follows from the label; or use scale = \"named\"",
        ));
    }
    match (scale, level.label.as_str()) {
        (Scale::Binary, "pass") => level.value = Some(1.0),
        (Scale::Binary, "fail") => level.value = Some(0.0),
        (Scale::Binary, other) => {
            return Err(RubricError::unknown(
                line,
                "level",
                other,
                &["pass", "fail"],
            ));
        }
        (Scale::Integer, digits) => match digits.parse::<i64>() {
            Ok(value) if (0..=1000).contains(&value) => {
                level.label = value.to_string();
                level.value = Some(value as f64);
            }
            _ => {
                let problem = format!("level \"{digits}\" of an integer scale");
                return Err(RubricError::new(
                    line,
                    problem,
                    "use integers from 0 to 1000, or scale = \"binary\"",
                ));
            }
        },
        // A readout of labels follows all ways to spell them, whose number doubles with every byte.
        (Scale::Named, name) if name.len() > LONGEST_LABEL || name.trim() != name => {
            return Err(RubricError::new(
                line,
                format!(
                    "the label \"{}\"",
                    name.chars().take(40).collect::<String>()
                ),
                format!("use up to {LONGEST_LABEL} bytes, without blanks at the ends"),
            ));
        }
        (Scale::Named, _) => (),
    }
    Ok(())
}

fn check_example(rubric: &Rubric, example: &Example, line: usize) -> Result<(), RubricError> {
    let named = |problem: String| format!("example \"{}\" {problem}", example.id);
    if !rubric
        .levels
        .iter()
        .any(|level| level.label == example.label)
    {
        let labels = rubric.labels();
        let known: Vec<&str> = labels.iter().map(String::as_str).collect();
        let mend = format!("use one of {}", known.join(", "));
        return Err(RubricError::new(
            line,
            named(format!(
                "has the label \"{}\", which is no level",
                example.label
            )),
            mend,
        ));
    }
    for shown in &rubric.shows {
        let there = match shown {
            Shown::Input => example.input.is_some(),
            Shown::Context => example.context.is_some(),
            Shown::Reference => example.reference.is_some(),
            Shown::Answer => true,
        };
        if !there {
            let name = shown.name();
            let problem = named(format!("has no \"{name}\", which the rubric shows"));
            return Err(RubricError::new(
                line,
                problem,
                format!("add {name} = \"…\" to the example"),
            ));
        }
    }
    if example
        .evidence
        .iter()
        .any(|quote| quote.is_empty() || !example.answer.contains(quote.as_str()))
    {
        let mend = "copy passages of the answer letter by letter";
        return Err(RubricError::new(
            line,
            named("quotes what its answer does not say".into()),
            mend,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::judge::Rubric;

    const GOOD: &str = "id = \"r\"\nversion = 1\ncriterion = \"c\"\nquestion = \"q\"\nscale = \"integer\"\n\
        [[level]]\nlabel = 2\ndescription = \"two\"\n[[level]]\nlabel = 1\ndescription = \"one\"\n";

    fn check(text: &str, want: (usize, &str, &str)) {
        let error = Rubric::parse(text).expect_err(text);
        assert_eq!(
            (error.line, error.problem.as_str(), error.mend.as_str()),
            want,
            "{text}"
        );
    }

    #[test]
    fn a_good_rubric() {
        let rubric = Rubric::parse(GOOD).unwrap();
        assert_eq!(rubric.labels(), ["1", "2"]);
        assert_eq!(rubric.values(), Some(vec![1.0, 2.0]));
        assert_eq!(rubric.digest().len(), 64);
        let same = Rubric::parse(&format!("# a comment\n{}", GOOD.replace(" = ", "="))).unwrap();
        assert_eq!(rubric.digest(), same.digest());
        let other = Rubric::parse(&GOOD.replace("two", "deux")).unwrap();
        assert_ne!(rubric.digest(), other.digest());
    }

    #[test]
    fn faults_have_line_and_mend() {
        let edit = |from: &str, to: &str| GOOD.replacen(from, to, 1);
        check(
            &edit("criterion", "criterium"),
            (
                3,
                "unknown key \"criterium\"",
                "did you mean \"criterion\"?",
            ),
        );
        check(
            &edit("description", "desription"),
            (
                8,
                "unknown key of level \"desription\"",
                "did you mean \"description\"?",
            ),
        );
        check(
            &edit("\"integer\"", "\"intger\""),
            (5, "unknown scale \"intger\"", "did you mean \"integer\"?"),
        );
        check(
            &edit("description = \"two\"\n", ""),
            (
                6,
                "level 2 has no description",
                "add description = \"…\": when an answer is on level 2",
            ),
        );
        check(
            &edit("\"two\"", "\" \""),
            (
                6,
                "level 2 has no description",
                "add description = \"…\": when an answer is on level 2",
            ),
        );
        check(
            &edit("label = 2", "label = 1"),
            (
                9,
                "level 1 was already described on line 6",
                "describe every level once",
            ),
        );
        check(
            &edit("label = 2", "label = 3"),
            (
                5,
                "level 2 has no description",
                "add [[level]] with label = 2 and description = \"…\"",
            ),
        );
        check(
            &edit("id = \"r\"\n", ""),
            (1, "the rubric has no \"id\"", "add id = \"a-short-name\""),
        );
        check(
            &edit("version = 1", "version = true"),
            (2, "\"version\" is true or false", "write a text in quotes"),
        );
        check(
            &edit("\"q\"", "\"\""),
            (
                4,
                "\"question\" is empty",
                "add question = \"…\": what the judge has to answer",
            ),
        );
        check(
            &edit("scale", "shows = [\"input\", \"anwser\"]\nscale"),
            (5, "unknown field \"anwser\"", "did you mean \"answer\"?"),
        );
        check(
            &edit("scale", "mass_threshold = 2\nscale"),
            (5, "mass_threshold is 2", "use a probability from 0 to 1"),
        );
        let twice = Rubric::parse(&edit("criterion", "id")).unwrap_err();
        assert_eq!((twice.line, twice.mend.as_str()), (3, "write the key once"));
        let broken = Rubric::parse(&edit("\"c\"", "\"c")).unwrap_err();
        assert_eq!(broken.line, 3);
    }

    #[test]
    fn examples_are_checked() {
        let example = |id: &str, answer: &str, label: &str| {
            format!(
                "[[example]]\nid = \"{id}\"\ninput = \"i\"\nanswer = \"{answer}\"\nrationale = \"r\"\n\
                 evidence = [\"yes\"]\nlabel = {label}\n"
            )
        };
        let with = |text: String| format!("{GOOD}{text}");
        assert!(Rubric::parse(&with(example("a", "yes sir", "1"))).is_ok());
        check(
            &with(example("a", "yes", "1") + &example("a", "yes", "1")),
            (
                19,
                "the example id \"a\" was already used on line 12",
                "give every example its own id",
            ),
        );
        check(
            &with(example("a", "no", "1")),
            (
                12,
                "example \"a\" quotes what its answer does not say",
                "copy passages of the answer letter by letter",
            ),
        );
        check(
            &with(example("a", "yes", "7")),
            (
                12,
                "example \"a\" has the label \"7\", which is no level",
                "use one of 1, 2",
            ),
        );
    }
}
