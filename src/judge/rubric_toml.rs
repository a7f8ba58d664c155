//! Reads a rubric from TOML, key by key, so that every fault has the line on which it stands.

use super::rubric::{DecodingSettings, Example, Level, Rubric, Scale, Shown};
use super::rubric_check::{self, Lines};
use super::rubric_error::RubricError;
use super::rules::FormatName;
use super::rules_toml;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const KEYS: [&str; 19] = [
    "format",
    "check",
    "weight",
    "pairwise",
    "claims",
    "trajectory",
    "id",
    "version",
    "criterion",
    "question",
    "ignore",
    "partial",
    "refusals",
    "shows",
    "scale",
    "level",
    "example",
    "decoding",
    "mass_threshold",
];
const LEVEL_KEYS: [&str; 3] = ["label", "description", "value"];
const EXAMPLE_KEYS: [&str; 8] = [
    "id",
    "input",
    "context",
    "reference",
    "answer",
    "rationale",
    "evidence",
    "label",
];
const DECODING_KEYS: [&str; 6] = [
    "temperature",
    "top_p",
    "max_tokens",
    "rationale_chars",
    "quotes",
    "quote_chars",
];

/// Reads and checks a rubric.
pub fn parse(text: &str) -> Result<Rubric, RubricError> {
    let source = Source { text };
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| source.line(span));
        let mend = if error.message().contains("duplicate") {
            "write the key once"
        } else {
            "texts stand in \"…\" or \"\"\"…\"\"\", lists in […]; a table begins with [name]"
        };
        RubricError::new(line, error.message().trim().replace('\n', " "), mend)
    })?;
    let root = Table {
        source,
        table: document.get_ref(),
        line: 1,
        place: "",
    };
    root.known(&KEYS)?;

    let format = match root.word("format", &FormatName::ALL.map(FormatName::name))? {
        Some(name) => FormatName::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .unwrap_or_default(),
        None => FormatName::default(),
    };
    let scale_line = root.line_of("scale");
    let scale = match root.word("scale", &["binary", "integer", "named"])? {
        Some("binary") => Some(Scale::Binary),
        Some("integer") => Some(Scale::Integer),
        Some(_) => Some(Scale::Named),
        None => None,
    };
    let mut lines = Lines {
        scale: scale_line,
        ..Lines::default()
    };
    let mut levels = Vec::new();
    for table in root.tables("level")? {
        lines.levels.push(table.line);
        levels.push(level(&table)?);
    }
    rules_toml::own_tables(&root, format)?;
    let pairwise = rules_toml::pairwise(&root)?;
    let scale = rules_toml::levels(&root, format, scale, &pairwise, &mut levels)?;
    let checks = rules_toml::checks(&root, &levels)?;
    lines.check = root.line_of("check");
    // Levels that a format brings itself stand nowhere.
    lines.levels.resize(levels.len(), scale_line);
    let mut examples = Vec::new();
    for table in root.tables("example")? {
        lines.examples.push(table.line);
        examples.push(example(&table)?);
    }
    let mut shows = Vec::new();
    lines.shows = root.line_of("shows");
    for (line, name) in root
        .texts("shows")?
        .unwrap_or_else(|| vec![(1, "input".into()), (1, "answer".into())])
    {
        let known = Shown::ALL.map(Shown::name);
        let shown = Shown::ALL.into_iter().find(|shown| shown.name() == name);
        shows.push(shown.ok_or_else(|| RubricError::unknown(line, "field", &name, &known))?);
    }
    lines.id = root.line_of("id");
    let (decoding, decoding_line) = decoding(&root)?;
    lines.decoding = decoding_line;
    lines.mass_threshold = root.line_of("mass_threshold");
    let ignore = root
        .texts("ignore")?
        .unwrap_or_default()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let rubric = Rubric {
        id: root.required("id", "add id = \"a-short-name\"")?,
        version: root.required("version", "add version = \"1\"")?,
        criterion: root.required(
            "criterion",
            "add criterion = \"…\": what is judged, in a few words",
        )?,
        question: root.required(
            "question",
            "add question = \"…\": what the judge has to answer",
        )?,
        ignore,
        partial: root.text("partial")?,
        refusals: root.text("refusals")?,
        format,
        shows,
        scale,
        levels,
        examples,
        decoding,
        mass_threshold: root.number("mass_threshold")?.unwrap_or(0.5),
        weight: rules_toml::weight(&root)?,
        checks,
        pairwise,
        claims: rules_toml::claims(&root)?,
        trajectory: rules_toml::trajectory(&root)?,
    };
    rubric_check::check(rubric, &lines)
}

fn level(table: &Table<'_>) -> Result<Level, RubricError> {
    table.known(&LEVEL_KEYS)?;
    let label = table.required("label", "add label = 1, or label = \"pass\"")?;
    let description = table.text("description")?.unwrap_or_default();
    if description.trim().is_empty() {
        let mend = format!("add description = \"…\": when an answer is on level {label}");
        return Err(RubricError::new(
            table.line,
            format!("level {label} has no description"),
            mend,
        ));
    }
    Ok(Level {
        label,
        value: table.number("value")?,
        description,
    })
}

fn example(table: &Table<'_>) -> Result<Example, RubricError> {
    table.known(&EXAMPLE_KEYS)?;
    let plain = |list: Vec<(usize, String)>| list.into_iter().map(|(_, text)| text).collect();
    Ok(Example {
        id: table.required("id", "add id = \"…\", distinct among the examples")?,
        input: table.text("input")?,
        context: table.texts("context")?.map(plain),
        reference: table.text("reference")?,
        answer: table.required("answer", "add answer = \"…\": the judged answer")?,
        rationale: table.required("rationale", "add rationale = \"…\": why the label is right")?,
        evidence: table.texts("evidence")?.map(plain).unwrap_or_default(),
        label: table.required("label", "add label = …: the right level")?,
    })
}

fn decoding(root: &Table<'_>) -> Result<(DecodingSettings, usize), RubricError> {
    let mut settings = DecodingSettings::default();
    let Some(table) = root.sub("decoding")? else {
        return Ok((settings, 1));
    };
    table.known(&DECODING_KEYS)?;
    if let Some(value) = table.number("temperature")? {
        settings.temperature = value as f32;
    }
    if let Some(value) = table.number("top_p")? {
        settings.top_p = value as f32;
    }
    settings.max_tokens = table.count("max_tokens", 16, 16_384)?;
    settings.rationale_chars = table.count("rationale_chars", 1, 8_000)?;
    let counts = [
        ("quotes", &mut settings.quotes, 0, 32),
        ("quote_chars", &mut settings.quote_chars, 8, 2_000),
    ];
    for (key, place, least, most) in counts {
        if let Some(value) = table.count(key, least, most)? {
            *place = value;
        }
    }
    Ok((settings, table.line))
}

/// The file's text, for turning byte offsets into lines.
#[derive(Clone, Copy)]
struct Source<'a> {
    text: &'a str,
}

impl Source<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

/// A table and where it stands.
pub(super) struct Table<'a> {
    source: Source<'a>,
    table: &'a DeTable<'a>,
    pub(super) line: usize,
    place: &'static str,
}

impl<'a> Table<'a> {
    /// Refuses any key that is not in `known`.
    pub(super) fn known(&self, known: &[&str]) -> Result<(), RubricError> {
        for (key, _) in self.table.iter() {
            if !known.contains(&key.get_ref().as_ref()) {
                let what = if self.place.is_empty() {
                    "key".to_string()
                } else {
                    format!("key of {}", self.place)
                };
                return Err(RubricError::unknown(
                    self.source.line(key.span()),
                    &what,
                    key.get_ref(),
                    known,
                ));
            }
        }
        Ok(())
    }

    fn find(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    pub(super) fn line_of(&self, key: &str) -> usize {
        let found = self.table.iter().find(|(name, _)| name.get_ref() == key);
        found.map_or(self.line, |(name, _)| self.source.line(name.span()))
    }

    pub(super) fn missing(&self, key: &str, mend: &str) -> RubricError {
        let place = if self.place.is_empty() {
            "the rubric"
        } else {
            self.place
        };
        RubricError::new(self.line, format!("{place} has no \"{key}\""), mend)
    }

    /// One of these words.
    pub(super) fn word(
        &self,
        key: &str,
        known: &[&'static str],
    ) -> Result<Option<&'static str>, RubricError> {
        let Some(word) = self.text(key)? else {
            return Ok(None);
        };
        match known.iter().find(|name| **name == word) {
            Some(name) => Ok(Some(name)),
            None => Err(RubricError::unknown(self.line_of(key), key, &word, known)),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, RubricError> {
        match self.find(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Boolean(flag) => Ok(Some(*flag)),
                _ => Err(self.wrong(key, value, "true or false")),
            },
        }
    }

    /// An integer from `least` to `most`.
    pub(super) fn count(
        &self,
        key: &str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, RubricError> {
        match self.number(key)? {
            None => Ok(None),
            Some(value)
                if value.fract() == 0.0 && value >= least as f64 && value <= most as f64 =>
            {
                Ok(Some(value as usize))
            }
            Some(value) => Err(RubricError::new(
                self.line_of(key),
                format!("{key} is {value}"),
                format!("use an integer from {least} to {most}"),
            )),
        }
    }

    /// A number from `least` to `most`.
    pub(super) fn within(
        &self,
        key: &str,
        least: f64,
        most: f64,
    ) -> Result<Option<f64>, RubricError> {
        match self.number(key)? {
            Some(value) if !(least..=most).contains(&value) => Err(RubricError::new(
                self.line_of(key),
                format!("{key} is {value}"),
                format!("use a number from {least} to {most}"),
            )),
            other => Ok(other),
        }
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, want: &str) -> RubricError {
        let line = self.source.line(value.span());
        RubricError::new(
            line,
            format!("\"{key}\" is {}", kind(value.get_ref())),
            format!("write {want}"),
        )
    }

    /// A text; an integer is read as its digits, so that `label = 3` and `version = 1` work.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, RubricError> {
        let Some(value) = self.find(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::String(text) => Ok(Some(text.to_string())),
            DeValue::Integer(digits) if digits.radix() == 10 => {
                Ok(Some(digits.as_str().replace('+', "")))
            }
            _ => Err(self.wrong(key, value, "a text in quotes")),
        }
    }

    pub(super) fn required(&self, key: &str, mend: &str) -> Result<String, RubricError> {
        let text = self.text(key)?.ok_or_else(|| self.missing(key, mend))?;
        if text.trim().is_empty() && key != "answer" {
            return Err(RubricError::new(
                self.line_of(key),
                format!("\"{key}\" is empty"),
                mend,
            ));
        }
        Ok(text)
    }

    /// A list of texts with their lines; one text alone is a list of one.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<(usize, String)>>, RubricError> {
        let Some(value) = self.find(key) else {
            return Ok(None);
        };
        let one = |value: &Spanned<DeValue<'a>>| match value.get_ref() {
            DeValue::String(text) => Ok((self.source.line(value.span()), text.to_string())),
            _ => Err(self.wrong(key, value, "a list of texts in quotes")),
        };
        match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .map(one)
                .collect::<Result<Vec<_>, _>>()
                .map(Some),
            _ => Ok(Some(vec![one(value)?])),
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, RubricError> {
        let Some(value) = self.find(key) else {
            return Ok(None);
        };
        let digits = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.wrong(key, value, "a number")),
        };
        match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(key, value, "a finite number")),
        }
    }

    pub(super) fn sub(&self, key: &'static str) -> Result<Option<Table<'a>>, RubricError> {
        let Some(value) = self.find(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(Table {
                source: self.source,
                table,
                line: self.line_of(key),
                place: key,
            })),
            _ => Err(self.wrong(key, value, &format!("a table that begins with [{key}]"))),
        }
    }

    pub(super) fn tables(&self, key: &'static str) -> Result<Vec<Table<'a>>, RubricError> {
        let Some(value) = self.find(key) else {
            return Ok(Vec::new());
        };
        let want = format!("tables that begin with [[{key}]]");
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.wrong(key, value, &want));
        };
        let mut tables = Vec::new();
        for item in items.iter() {
            let DeValue::Table(table) = item.get_ref() else {
                return Err(self.wrong(key, item, &want));
            };
            let line = self.source.line(item.span());
            tables.push(Table {
                source: self.source,
                table,
                line,
                place: key,
            });
        }
        Ok(tables)
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
