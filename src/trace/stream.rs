//! Opens trace files and chains them into one stream of items with distinct names.

use super::csv::Rows;
use super::fault::{Fault, ItemError};
use super::item::{FieldMap, Item};
use super::jsonl::{Lines, MAX_LINE};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// How a trace file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
}

/// Why a trace file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The path as given.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The name's ending says nothing about the format.
    #[error("{0}: can't tell its format from its name (.jsonl, .ndjson and .csv are known)")]
    Format(String),
}

type Objects = Box<dyn Iterator<Item = (u64, Result<Map<String, Value>, Fault>)> + Send>;

struct Source {
    file: String,
    prefix: String,
    objects: Objects,
}

/// The items of several files, one after the other. Every name is distinct: a second item of the same name is a fault.
pub struct Traces {
    sources: std::vec::IntoIter<Source>,
    current: Option<Source>,
    map: FieldMap,
    names: HashMap<String, u64>,
}

/// Opens every file at once, so that a path that does not exist is told before anything is judged. The path `-` is the
/// standard input. With several files, names are prefixed with the path and a colon.
pub fn open(
    paths: &[PathBuf],
    format: Option<TraceFormat>,
    map: FieldMap,
) -> Result<Traces, OpenError> {
    let mut sources = Vec::new();
    for path in paths {
        let (reader, file): (Box<dyn BufRead + Send>, String) = if path.as_os_str() == "-" {
            (
                Box::new(BufReader::new(std::io::stdin())),
                "standard input".into(),
            )
        } else {
            (
                Box::new(BufReader::with_capacity(1 << 16, open_file(path)?)),
                short_name(path),
            )
        };
        let objects: Objects = match format_of(path, format)? {
            TraceFormat::Jsonl => Box::new(Lines::new(reader, MAX_LINE)),
            TraceFormat::Csv => Box::new(Rows::new(
                reader,
                MAX_LINE,
                ["answer", "answer_b"].map(|field| map.path(field)),
            )),
        };
        let prefix = if paths.len() > 1 {
            format!("{}:", path.display())
        } else {
            String::new()
        };
        sources.push(Source {
            file,
            prefix,
            objects,
        });
    }
    Ok(Traces {
        sources: sources.into_iter(),
        current: None,
        map,
        names: HashMap::new(),
    })
}

/// Counts the lines that [`open`] would yield, or `None` where that needs more than one pass (the standard input, a pipe) or
/// would take long (files over 256 MiB).
pub fn count(paths: &[PathBuf], format: Option<TraceFormat>) -> Option<usize> {
    let mut total = 0;
    for path in paths {
        if path.as_os_str() == "-" {
            return None;
        }
        let metadata = std::fs::metadata(path).ok()?;
        if !metadata.is_file() || metadata.len() > 256 << 20 {
            return None;
        }
        let mut reader = BufReader::new(File::open(path).ok()?);
        match format_of(path, format).ok()? {
            TraceFormat::Jsonl => {
                let mut line = Vec::new();
                while reader.read_until(b'\n', &mut line).ok()? > 0 {
                    total += usize::from(!line.iter().all(u8::is_ascii_whitespace));
                    line.clear();
                }
            }
            TraceFormat::Csv => total += Rows::new(reader, MAX_LINE, ["", ""]).count(),
        }
    }
    Some(total)
}

impl Traces {
    /// The item, or what is wrong, and with what: the item of that id where it can be read, else the line.
    fn read(
        &mut self,
        source: &Source,
        line: u64,
        object: Result<Map<String, Value>, Fault>,
    ) -> Result<Item, (String, Fault)> {
        let prefix = &source.prefix;
        let unnamed = || format!("{prefix}line {line}");
        let object = object.map_err(|fault| (unnamed(), fault))?;
        let id = self.map.id(&object);
        let mut item = self
            .map
            .item(&object, &source.file, line, line.to_string())
            .map_err(|fault| {
                let named = id.map(|id| format!("{prefix}{id}"));
                let fresh = named.filter(|name| !self.names.contains_key(name));
                (fresh.unwrap_or_else(unnamed), fault)
            })?;
        item.name = format!("{prefix}{}", item.name);
        match self.names.get(&item.name) {
            Some(first) => Err((unnamed(), Fault::Duplicate(*first))),
            None => {
                self.names.insert(item.name.clone(), line);
                Ok(item)
            }
        }
    }
}

impl Iterator for Traces {
    type Item = Result<Item, ItemError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut source = match self.current.take() {
                Some(source) => source,
                None => self.sources.next()?,
            };
            let Some((line, object)) = source.objects.next() else {
                continue;
            };
            let result = self
                .read(&source, line, object)
                .map_err(|(name, fault)| ItemError {
                    file: source.file.clone(),
                    line,
                    name,
                    fault,
                });
            self.current = Some(source);
            return Some(result);
        }
    }
}

fn open_file(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io {
        path: path.display().to_string(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    // Opening a folder succeeds on Unix; reading it would fail only later.
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(failed(std::io::ErrorKind::IsADirectory.into()));
    }
    Ok(file)
}

fn format_of(path: &Path, given: Option<TraceFormat>) -> Result<TraceFormat, OpenError> {
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default()
        .to_ascii_lowercase();
    match (given, ending.as_str()) {
        (Some(format), _) => Ok(format),
        (None, "jsonl" | "ndjson") => Ok(TraceFormat::Jsonl),
        (None, "csv") => Ok(TraceFormat::Csv),
        (None, _) if path.as_os_str() == "-" => Ok(TraceFormat::Jsonl),
        (None, _) => Err(OpenError::Format(path.display().to_string())),
    }
}

fn short_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[(&str, &str)]) -> Vec<Result<String, String>> {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (name, text) in files {
            paths.push(folder.path().join(name));
            std::fs::write(paths.last().unwrap(), text).unwrap();
        }
        let prefix = format!("{}/", folder.path().display());
        let traces = open(&paths, None, FieldMap::default()).unwrap();
        assert_eq!(
            count(&paths, None),
            Some(open(&paths, None, FieldMap::default()).unwrap().count())
        );
        traces
            .map(|result| {
                result
                    .map(|item| item.name.replace(&prefix, ""))
                    .map_err(|error| error.to_string())
            })
            .collect()
    }

    #[test]
    fn names_are_ids_or_line_numbers() {
        let found = names(&[(
            "a.jsonl",
            "{\"answer\":\"x\",\"id\":\"one\"}\n\n{\"answer\":\"y\"}\n",
        )]);
        assert_eq!(found, [Ok("one".into()), Ok("3".into())]);
    }

    #[test]
    fn duplicates_and_missing_fields_are_named() {
        let found = names(&[(
            "a.jsonl",
            "{\"answer\":\"x\",\"id\":1}\n{\"answer\":\"y\",\"id\":\"1\"}\n{\"id\":4}\n",
        )]);
        assert_eq!(
            found,
            [
                Ok("1".into()),
                Err("item 2 of a.jsonl: its id was already used by line 1".into()),
                Err("item 3 of a.jsonl: no field \"answer\"".into()),
            ]
        );
    }

    #[test]
    fn several_files_keep_their_names_apart() {
        let found = names(&[
            ("a.jsonl", "{\"answer\":\"x\",\"id\":1}\n"),
            ("b.csv", "id,answer\n1,y\n"),
        ]);
        assert_eq!(found, [Ok("a.jsonl:1".into()), Ok("b.csv:1".into())]);
    }

    #[test]
    fn unknown_endings_and_missing_files_are_refused() {
        let open = |path: &str| {
            open(&[path.into()], None, FieldMap::default())
                .err()
                .map(|error| error.to_string())
        };
        assert!(
            open("no-such-file.jsonl")
                .unwrap()
                .starts_with("no-such-file.jsonl: ")
        );
        assert!(open("Cargo.toml").unwrap().contains("format"));
        assert!(open("src.jsonl/../src").is_some());
    }
}
