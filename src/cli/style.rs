//! How assize speaks on stderr: plain lines without colour, errors with a hint after a blank line.

use super::fault::Fault;
use std::io::Write as _;

/// Says things on stderr.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Whether only errors are said.
    pub quiet: bool,
}

impl Console {
    /// A console; with `quiet` only errors are said.
    pub fn new(quiet: bool) -> Console {
        Console { quiet }
    }

    /// A line that helps, and that nothing depends on.
    pub fn say(&self, line: impl AsRef<str>) {
        if !self.quiet {
            line_of_stderr(line.as_ref());
        }
    }

    /// An error.
    pub fn error(&self, fault: &Fault) {
        line_of_stderr(format!("error: {}", fault.message));
        if !fault.hint.is_empty() {
            line_of_stderr(format!("\nhint: {}", fault.hint));
        }
    }
}

/// Writes a line on stderr. Where that can't be written to, nobody reads it, and the work goes on.
pub fn line_of_stderr(line: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "{}", line.as_ref());
}

/// A number of bytes in binary units, for people.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A duration for people: `42 s`, `3 min 5 s`, `2 h 7 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

/// The command line of this process, quoted for a shell.
pub fn this_command() -> String {
    let quote = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    std::env::args().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!(bytes(5), "5 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(1 << 30), "1.0 GiB");
        assert_eq!(duration(5.4), "5 s");
        assert_eq!(duration(185.0), "3 min 5 s");
        assert_eq!(duration(7620.0), "2 h 7 min");
    }
}
