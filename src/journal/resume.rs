//! Reads what an earlier process left in a run folder.

use super::error::JournalError;
use super::record::Row;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A settled or failed item and where its line stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub row: Row,
    /// Offset of the line in bytes.
    pub offset: u64,
    /// Its length with the line end.
    pub length: u64,
}

/// The whole lines of a `verdicts.jsonl`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Scan {
    /// By key; of several lines of one key the last counts.
    pub entries: HashMap<String, Entry>,
    /// Keys in the order of their last lines.
    pub order: Vec<String>,
    /// Bytes of whole lines.
    pub whole: u64,
    /// Bytes after them: a line that was being written when the process died.
    pub torn: u64,
    /// Whether every line counts.
    pub clean: bool,
}

/// Reads a `verdicts.jsonl`; an absent one is empty.
pub(super) fn scan(path: &Path) -> Result<Scan, JournalError> {
    let mut scan = Scan {
        clean: true,
        ..Scan::default()
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(scan),
        Err(error) => return Err(JournalError::io(path)(error)),
    };
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut bytes = Vec::new();
    let mut number = 0;
    loop {
        bytes.clear();
        let length = reader
            .read_until(b'\n', &mut bytes)
            .map_err(JournalError::io(path))? as u64;
        if length == 0 {
            return Ok(scan);
        }
        if bytes.last() != Some(&b'\n') {
            // Lines are written whole, line end last, so one without it is torn, however complete it looks.
            scan.torn = length;
            return Ok(scan);
        }
        number += 1;
        let corrupt = |reason| JournalError::Corrupt {
            path: path.to_path_buf(),
            line: number,
            reason,
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| corrupt("not UTF-8"))?;
        let row = Row::parse(text).map_err(corrupt)?;
        let key = row.key.clone();
        let entry = Entry {
            row,
            offset: scan.whole,
            length,
        };
        if scan.entries.insert(key.clone(), entry).is_some() {
            scan.clean = false;
            scan.order.retain(|earlier| *earlier != key);
        }
        scan.order.push(key);
        scan.whole += length;
    }
}
