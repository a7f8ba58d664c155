//! CSV: one item a row, the columns named by the header.
//!
//! Cells become strings of a JSON object, so that mapping and reading are the same for every format. An empty cell is an
//! absent field, except for the answers, which may be empty.

use super::fault::Fault;
use serde_json::{Map, Value};
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The rows of a CSV file as JSON objects.
pub struct Rows<R> {
    reader: csv::Reader<Bounded<R>>,
    left: Arc<AtomicUsize>,
    carriage: Arc<OnceLock<bool>>,
    max_row: usize,
    header: Option<Vec<String>>,
    may_be_empty: [String; 2],
    ended: bool,
}

/// Buffered bytes that the bound must leave room for beyond one row.
const READ_AHEAD: usize = 1 << 20;

impl<R: Read> Rows<R> {
    /// Reads from `reader`; a row over about `max_row` bytes ends the file with a fault, since no reader can tell where a
    /// runaway quote should have ended. `may_be_empty` names the columns in which an
    /// empty cell is an empty text.
    pub fn new(reader: R, max_row: usize, may_be_empty: [&str; 2]) -> Self {
        let left = Arc::new(AtomicUsize::new(max_row + READ_AHEAD));
        let carriage = Arc::new(OnceLock::new());
        let bounded = Bounded {
            inner: reader,
            left: left.clone(),
            carriage: carriage.clone(),
            last: 0,
        };
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(bounded);
        Rows {
            reader,
            left,
            carriage,
            max_row,
            header: None,
            may_be_empty: may_be_empty.map(String::from),
            ended: false,
        }
    }

    /// The next row's line and cells.
    fn row(&mut self) -> Option<(u64, Result<Vec<String>, Fault>)> {
        let mut record = csv::ByteRecord::new();
        self.left
            .store(self.max_row + READ_AHEAD, Ordering::Relaxed);
        let line = self.reader.position().line();
        match self.reader.read_byte_record(&mut record) {
            Ok(false) => None,
            Ok(true) => {
                // The csv crate ends a row at the carriage return and counts the line feed only with the next row.
                let behind = u64::from(self.header.is_some() && self.carriage.get() == Some(&true));
                let line = record.position().map_or(line, csv::Position::line) + behind;
                Some((line, record.iter().map(cell).collect()))
            }
            Err(error) => {
                self.ended = true;
                let fault = match error.kind() {
                    csv::ErrorKind::Io(inner) if inner.kind() == io::ErrorKind::FileTooLarge => {
                        Fault::TooLong(self.max_row)
                    }
                    _ => Fault::Read(error.to_string()),
                };
                Some((line, Err(fault)))
            }
        }
    }

    fn object(&self, header: &[String], cells: Vec<String>) -> Result<Map<String, Value>, Fault> {
        if cells.len() != header.len() {
            return Err(Fault::Cells {
                found: cells.len(),
                expected: header.len(),
            });
        }
        let pairs = header.iter().zip(cells);
        let kept =
            pairs.filter(|(name, cell)| !cell.is_empty() || self.may_be_empty.contains(name));
        Ok(kept
            .map(|(name, cell)| (name.clone(), Value::String(cell)))
            .collect())
    }
}

impl<R: Read> Iterator for Rows<R> {
    /// The line on which the row begins, and its object.
    type Item = (u64, Result<Map<String, Value>, Fault>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.header.is_none() {
            match self.row()? {
                (_, Ok(mut names)) => {
                    if let Some(first) = names.first_mut() {
                        *first = first.trim_start_matches('\u{feff}').to_string();
                    }
                    self.header = Some(names.iter().map(|name| name.trim().to_string()).collect());
                }
                (line, Err(fault)) => {
                    self.ended = true;
                    return Some((line, Err(fault)));
                }
            }
        }
        let (line, cells) = self.row()?;
        let header = self.header.as_deref().unwrap_or_default();
        Some((line, cells.and_then(|cells| self.object(header, cells))))
    }
}

fn cell(bytes: &[u8]) -> Result<String, Fault> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| Fault::NotUtf8(error.valid_up_to() + 1))?;
    Ok(text.to_string())
}

/// A reader that gives up once a row has used up its allowance, and notes how the first line ends.
struct Bounded<R> {
    inner: R,
    left: Arc<AtomicUsize>,
    carriage: Arc<OnceLock<bool>>,
    last: u8,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let wanted = buffer.len().min(left);
        let count = self.inner.read(&mut buffer[..wanted])?;
        self.left.store(left - count, Ordering::Relaxed);
        if self.carriage.get().is_none() {
            for byte in &buffer[..count] {
                if *byte == b'\n' {
                    self.carriage.get_or_init(|| self.last == b'\r');
                    break;
                }
                self.last = *byte;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], want: &[(u64, Result<&str, &str>)]) {
        let found: Vec<(u64, Result<String, String>)> =
            Rows::new(text, 100, ["answer", "answer_b"])
                .map(|(line, result)| {
                    let shown = result.map(|object| Value::Object(object).to_string());
                    (line, shown.map_err(|fault| fault.to_string()))
                })
                .collect();
        let want: Vec<(u64, Result<String, String>)> = want
            .iter()
            .map(|(line, result)| (*line, result.map(String::from).map_err(String::from)))
            .collect();
        assert_eq!(found, want);
    }

    #[test]
    fn rows_become_objects() {
        check(b"", &[]);
        check(
            b"\xEF\xBB\xBFid,answer\r\n1,\"a, \"\"b\"\"\"\r\n2,\r\n",
            &[
                (2, Ok(r#"{"id":"1","answer":"a, \"b\""}"#)),
                (3, Ok(r#"{"id":"2","answer":""}"#)),
            ],
        );
        check(b"id,input,answer\n,,x\n", &[(2, Ok(r#"{"answer":"x"}"#))]);
    }

    #[test]
    fn bad_rows_leave_the_others() {
        check(
            b"id,answer\n1\n2,b\n",
            &[
                (2, Err("1 cells, but the header has 2")),
                (3, Ok(r#"{"id":"2","answer":"b"}"#)),
            ],
        );
        check(
            b"id,answer\n1,\xff\n2,b\n",
            &[
                (
                    2,
                    Err("not valid UTF-8: the first bad byte is number 1 of the line"),
                ),
                (3, Ok(r#"{"id":"2","answer":"b"}"#)),
            ],
        );
    }

    #[test]
    fn a_quote_that_never_closes_is_bounded() {
        let mut text = b"id,answer\n1,\"".to_vec();
        text.resize(READ_AHEAD * 3, b'x');
        check(&text, &[(2, Err("longer than 100 bytes"))]);
    }
}
