//! JSONL: one JSON object a line.
//!
//! Reads a line at a time within a fixed bound of memory; a byte order mark, CRLF and blank lines are accepted.

use super::fault::Fault;
use super::item::kind;
use serde_json::{Map, Value};
use std::io::BufRead;

/// Longest line that is read, in bytes.
pub const MAX_LINE: usize = 64 << 20;

/// The lines of a JSONL file as JSON objects.
pub struct Lines<R> {
    reader: R,
    line: u64,
    max_line: usize,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads from `reader`; lines over `max_line` bytes are faults.
    pub fn new(reader: R, max_line: usize) -> Self {
        Lines {
            reader,
            line: 0,
            max_line,
            ended: false,
        }
    }

    /// The next line as raw bytes without its end: `Ok(None)` where it was too long.
    fn read_line(&mut self) -> std::io::Result<Option<(bool, Vec<u8>)>> {
        let (mut bytes, mut fits, mut any) = (Vec::new(), true, false);
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                return Ok(any.then_some((fits, bytes)));
            }
            any = true;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let piece = &buffer[..end.unwrap_or(buffer.len())];
            fits = fits && bytes.len() + piece.len() <= self.max_line;
            if fits {
                bytes.extend_from_slice(piece);
            } else {
                // What was kept of an overlong line is of no use any more.
                bytes = Vec::new();
            }
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some((fits, bytes)));
            }
        }
    }

    fn parse(&self, fits: bool, bytes: &[u8]) -> Result<Map<String, Value>, Fault> {
        if !fits {
            return Err(Fault::TooLong(self.max_line));
        }
        let text =
            std::str::from_utf8(bytes).map_err(|error| Fault::NotUtf8(error.valid_up_to() + 1))?;
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(other) => Err(Fault::NotObject(kind(&other))),
            Err(error) => Err(Fault::NotJson(position_only(&error))),
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    /// The line's number and its object.
    type Item = (u64, Result<Map<String, Value>, Fault>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let (fits, bytes) = match self.read_line() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => {
                    self.ended = true;
                    return Some((self.line + 1, Err(Fault::Read(error.to_string()))));
                }
            };
            self.line += 1;
            let bytes = if self.line == 1 {
                bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes)
            } else {
                &bytes
            };
            if fits && bytes.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Some((self.line, self.parse(fits, bytes)));
        }
        self.ended = true;
        None
    }
}

/// The parser's message with the column alone: its line is always 1 here, which would mislead.
fn position_only(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let reason = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(reason, _)| reason);
    format!("{reason} at column {}", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], want: &[(u64, Result<&str, &str>)]) {
        let found: Vec<(u64, Result<String, String>)> = Lines::new(bytes, 64)
            .map(|(line, result)| {
                (
                    line,
                    result
                        .map(|object| object["a"].to_string())
                        .map_err(|fault| fault.to_string()),
                )
            })
            .collect();
        let want: Vec<(u64, Result<String, String>)> = want
            .iter()
            .map(|(line, result)| (*line, result.map(String::from).map_err(String::from)))
            .collect();
        assert_eq!(found, want);
    }

    #[test]
    fn good_lines() {
        check(b"", &[]);
        check(b"\n\n", &[]);
        check(b"{\"a\":1}", &[(1, Ok("1"))]);
        check(
            b"\xEF\xBB\xBF{\"a\":1}\r\n\r\n{\"a\":2}\r\n",
            &[(1, Ok("1")), (3, Ok("2"))],
        );
    }

    #[test]
    fn bad_lines_leave_the_others() {
        check(
            b"nope\n{\"a\":2}\n",
            &[
                (1, Err("not valid JSON: expected ident at column 2")),
                (2, Ok("2")),
            ],
        );
        check(
            b"[1]\n{\"a\":2}",
            &[
                (1, Err("an array where a JSON object is expected")),
                (2, Ok("2")),
            ],
        );
        check(
            b"{\"a\":\"\xff\"}\n{\"a\":2}",
            &[
                (
                    1,
                    Err("not valid UTF-8: the first bad byte is number 7 of the line"),
                ),
                (2, Ok("2")),
            ],
        );
        let mut long = vec![b'x'; 500];
        long.extend_from_slice(b"\n{\"a\":2}\n");
        check(&long, &[(1, Err("longer than 64 bytes")), (2, Ok("2"))]);
        check(
            b"{\"a\":\"\\ud800\"}",
            &[(
                1,
                Err("not valid JSON: unexpected end of hex escape at column 13"),
            )],
        );
    }

    #[test]
    fn errors_do_not_quote_the_trace() {
        for line in [
            "{\"a\":\"secret\" secret}",
            "secret",
            "{\"secret\"",
            "\"secret\"",
        ] {
            for (_, result) in Lines::new(line.as_bytes(), 1000) {
                assert!(
                    !result.unwrap_err().to_string().contains("secret"),
                    "{line}"
                );
            }
        }
    }
}
