//! The table of verdicts, readable without colour.
//!
//! Item names and rationales come from traces and models, so nothing of them reaches the terminal but printable
//! characters.

use crate::journal::{Row, RowOutcome};

/// Most rows that are printed; a longer run is read in its folder.
pub const MAX_ROWS: usize = 60;

/// The table, `width` columns wide at most. `expected` names the column of expected scores.
pub fn table<'a>(rows: impl Iterator<Item = &'a Row>, expected: &str, width: usize) -> String {
    let rows: Vec<&Row> = rows.collect();
    // The rubric is told where there are several.
    let first = rows.iter().find_map(|row| row.rubric.as_deref());
    let several = rows
        .iter()
        .any(|row| row.rubric.is_some() && row.rubric.as_deref() != first);
    let named = |row: &Row| match (&row.rubric, several) {
        (Some(rubric), true) => format!("{} {rubric}", shorten(&plain(&row.item), 28)),
        _ => shorten(&plain(&row.item), 28),
    };
    let number = |value: &Option<f64>| value.map(|value| format!("{value:.3}")).unwrap_or_default();
    let mut lines: Vec<[String; 5]> =
        vec![["item", "label", expected, "mass", "why"].map(String::from)];
    let mut left_out = 0;
    for row in rows {
        if lines.len() > MAX_ROWS {
            left_out += 1;
            continue;
        }
        lines.push(match &row.outcome {
            RowOutcome::Judged {
                label,
                expected,
                mass,
                low_mass,
                rationale,
                ..
            } => [
                named(row),
                plain(label),
                number(expected),
                format!("{}{}", number(mass), if *low_mass { " low" } else { "" }),
                plain(rationale.as_deref().unwrap_or_default()),
            ],
            RowOutcome::Failed { kind, reason } => {
                let why = format!("{}: {}", kind.name(), plain(reason));
                [
                    named(row),
                    "failed".into(),
                    String::new(),
                    String::new(),
                    why,
                ]
            }
        });
    }
    let mut widths = [0; 5];
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            widths[column] = widths[column].max(columns(cell));
        }
    }
    let taken: usize = widths[..4].iter().map(|width| width + 2).sum();
    widths[4] = width.saturating_sub(taken).max(20);
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            let cell = shorten(cell, widths[column]);
            let blanks = if column == 4 {
                0
            } else {
                widths[column] + 2 - columns(&cell)
            };
            row.push_str(&cell);
            row.extend(std::iter::repeat_n(' ', blanks));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    if left_out > 0 {
        text.push_str(&format!("and {left_out} more\n"));
    }
    text
}

/// The text on one line, without control characters and marks that turn the writing direction.
pub fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .filter(|c| !turns(*c))
        .collect()
}

/// At most `width` columns, an ellipsis in place of what was left out.
fn shorten(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_string();
    }
    let mut kept = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += char_columns(c);
        if used > width {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept
}

/// Columns that a terminal gives to the text: near enough for aligning a table.
fn columns(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

fn char_columns(c: char) -> usize {
    match u32::from(c) {
        // Combining marks, joiners and variation selectors stand on the character before them.
        0x0300..=0x036f | 0x0483..=0x0489 | 0x0591..=0x05bd | 0x0610..=0x061a | 0x064b..=0x065f => {
            0
        }
        0x0e31
        | 0x0e34..=0x0e3a
        | 0x0e47..=0x0e4e
        | 0x200b..=0x200d
        | 0x20d0..=0x20ff
        | 0xfe00..=0xfe0f => 0,
        // East Asian scripts and pictures are two columns wide.
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => {
            2
        }
        0xfe30..=0xfe6f
        | 0xff01..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::FailureKind;

    fn judged(item: &str, rationale: &str, low_mass: bool) -> Row {
        let outcome = RowOutcome::Judged {
            label: "pass".into(),
            expected: Some(0.5),
            mass: Some(0.25),
            low_mass,
            margin: Some(0.0),
            rationale: Some(rationale.into()),
            facts: None,
        };
        Row {
            item: item.into(),
            rubric: Some("r".into()),
            key: "k".into(),
            outcome,
        }
    }

    #[test]
    fn rows_line_up() {
        let failed = RowOutcome::Failed {
            kind: FailureKind::Length,
            reason: "too long".into(),
        };
        let rows = [
            judged("a", "because\nof \u{1b}[31mthis", false),
            judged("日本", "x", true),
            Row {
                item: "b".into(),
                rubric: Some("r".into()),
                key: "k".into(),
                outcome: failed,
            },
        ];
        let want = "item  label   p(pass)  mass       why\n\
                    a     pass    0.500    0.250      because of  [31mthis\n\
                    日本  pass    0.500    0.250 low  x\n\
                    b     failed                      length: too long\n";
        assert_eq!(table(rows.iter(), "p(pass)", 100), want);
    }

    #[test]
    fn long_runs_and_long_texts_are_cut() {
        let rows: Vec<Row> = (0..MAX_ROWS + 5)
            .map(|row| judged(&row.to_string(), &"x".repeat(500), false))
            .collect();
        let text = table(rows.iter(), "p(pass)", 80);
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(text.ends_with("and 5 more\n"));
    }
}
