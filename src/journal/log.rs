//! Writes the run folder: `run.json` once, `verdicts.jsonl` a line a verdict, appended in the order of settling.
//!
//! A line is written whole by one call, so a process killed at any moment leaves whole lines and at most one torn one.
//! When a run is complete, the lines are put in the order of the items by writing a new file and renaming it over the
//! old one: an uninterrupted run and a resumed one end with the same bytes.

use super::description::RunDescription;
use super::error::JournalError;
use super::record::{Record, Row};
use super::resume::{self, Entry, Scan};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// A run folder, open for appending. Other processes are kept out until it is dropped.
pub struct Journal {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    scan: Scan,
    _lock: File,
}

/// What opening a folder found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Items settled before.
    pub settled: usize,
    /// Bytes of a torn last line that were dropped.
    pub torn: u64,
}

impl Journal {
    /// Opens or creates the folder of a run.
    ///
    /// # Errors
    /// The folder is in use, holds another run, or holds a line that is no verdict. Nothing is changed then.
    pub fn open(
        folder: &Path,
        description: &RunDescription,
    ) -> Result<(Journal, Opened), JournalError> {
        std::fs::create_dir_all(folder).map_err(JournalError::io(folder))?;
        let lock_path = folder.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path);
        let lock = lock.map_err(JournalError::io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Locked(folder.to_path_buf()));
            }
            Err(TryLockError::Error(error)) => return Err(JournalError::io(&lock_path)(error)),
        }
        let path = folder.join("verdicts.jsonl");
        let scan = resume::scan(&path)?;
        match read_description(folder)? {
            Some(earlier) => {
                let differences = description.differences(&earlier);
                if !differences.is_empty() {
                    let differences = differences.join("; ");
                    return Err(JournalError::OtherRun {
                        folder: folder.to_path_buf(),
                        differences,
                    });
                }
                // What may change between a run and its resumption is kept as it was last.
                if earlier != *description {
                    write_description(folder, description)?;
                }
            }
            None if scan.whole > 0 => {
                return Err(JournalError::NoDescription(folder.to_path_buf()));
            }
            None => write_description(folder, description)?,
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(JournalError::io(&path))?;
        if scan.torn > 0 {
            file.set_len(scan.whole).map_err(JournalError::io(&path))?;
        }
        let settled = scan
            .entries
            .values()
            .filter(|entry| entry.row.settled())
            .count();
        let opened = Opened {
            settled,
            torn: scan.torn,
        };
        Ok((
            Journal {
                folder: folder.to_path_buf(),
                path,
                file,
                scan,
                _lock: lock,
            },
            opened,
        ))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the item of this key need not be judged again.
    pub fn settled(&self, key: &str) -> bool {
        self.scan
            .entries
            .get(key)
            .is_some_and(|entry| entry.row.settled())
    }

    /// What is known of the item of this key.
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.scan.entries.get(key).map(|entry| &entry.row)
    }

    /// The line of this key, as it stands in the file.
    pub fn line(&self, key: &str) -> Result<Option<String>, JournalError> {
        let Some(entry) = self.scan.entries.get(key) else {
            return Ok(None);
        };
        let mut file = File::open(&self.path).map_err(JournalError::io(&self.path))?;
        read_line(&mut file, entry)
            .map(Some)
            .map_err(JournalError::io(&self.path))
    }

    /// Appends a record; once this returns, killing the process does not lose it. A failure that came out as it stands here
    /// already is not written twice. Returns the line.
    pub fn append(&mut self, record: &Record) -> Result<String, JournalError> {
        let line = record.line();
        self.append_line(&line, record.row())?;
        Ok(line)
    }

    /// Appends a line, with its line end, whose row is this.
    pub fn append_line(&mut self, line: &str, row: Row) -> Result<(), JournalError> {
        let known = self.scan.entries.get(&row.key);
        if known.is_some_and(|entry| !entry.row.settled() && entry.row == row) {
            return Ok(());
        }
        self.file
            .write_all(line.as_bytes())
            .map_err(JournalError::io(&self.path))?;
        let (key, length) = (row.key.clone(), line.len() as u64);
        let entry = Entry {
            row,
            offset: self.scan.whole,
            length,
        };
        self.scan.whole += length;
        if self.scan.entries.insert(key.clone(), entry).is_some() {
            self.scan.clean = false;
            self.scan.order.retain(|earlier| *earlier != key);
        }
        self.scan.order.push(key);
        Ok(())
    }

    /// Puts the lines in the order of `keys`; lines of other items follow in the order in which they stood. Does nothing
    /// where they stand like that already. Returns how many lines are of other items.
    pub fn finish(&mut self, keys: &[String]) -> Result<usize, JournalError> {
        let wanted: std::collections::HashSet<&String> = keys.iter().collect();
        let known = keys
            .iter()
            .filter(|key| self.scan.entries.contains_key(*key));
        let others = self.scan.order.iter().filter(|key| !wanted.contains(key));
        let order: Vec<String> = known.chain(others).cloned().collect();
        let extra = self
            .scan
            .order
            .iter()
            .filter(|key| !wanted.contains(key))
            .count();
        self.file.sync_all().map_err(JournalError::io(&self.path))?;
        if self.scan.clean && order == self.scan.order {
            return Ok(extra);
        }
        let temporary = self.folder.join("verdicts.jsonl.new");
        self.rewrite(&temporary, &order)
            .map_err(JournalError::io(&temporary))?;
        std::fs::rename(&temporary, &self.path).map_err(JournalError::io(&self.path))?;
        sync_folder(&self.folder);
        self.scan = resume::scan(&self.path)?;
        self.file = OpenOptions::new()
            .append(true)
            .open(&self.path)
            .map_err(JournalError::io(&self.path))?;
        Ok(extra)
    }

    fn rewrite(&self, temporary: &Path, order: &[String]) -> std::io::Result<()> {
        let mut source = File::open(&self.path)?;
        let mut target = BufWriter::new(File::create(temporary)?);
        for key in order {
            if let Some(entry) = self.scan.entries.get(key) {
                target.write_all(read_line(&mut source, entry)?.as_bytes())?;
            }
        }
        target.into_inner()?.sync_all()
    }
}

fn read_line(file: &mut File, entry: &Entry) -> std::io::Result<String> {
    file.seek(SeekFrom::Start(entry.offset))?;
    let mut line = String::new();
    file.take(entry.length).read_to_string(&mut line)?;
    if line.len() as u64 != entry.length {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

fn read_description(folder: &Path) -> Result<Option<RunDescription>, JournalError> {
    let path = folder.join("run.json");
    match std::fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| JournalError::BadDescription {
                    path,
                    reason: error.to_string(),
                })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(JournalError::io(&path)(error)),
    }
}

/// Written beside and renamed, so that `run.json` is whole or absent.
fn write_description(folder: &Path, description: &RunDescription) -> Result<(), JournalError> {
    let (temporary, path) = (folder.join("run.json.new"), folder.join("run.json"));
    let write = || -> std::io::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(description)?;
        bytes.push(b'\n');
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &path)
    };
    write().map_err(JournalError::io(&path))?;
    sync_folder(folder);
    Ok(())
}

/// Makes a rename outlive a power cut. Not every system lets a folder be synced, and none needs it for correctness.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::description::tests::description;
    use super::super::record::{FailureKind, Outcome};
    use super::*;

    fn record(item: &str, kind: FailureKind) -> Record {
        let outcome = Outcome::Failure {
            kind,
            reason: "r".into(),
        };
        Record {
            item: item.into(),
            rubric: None,
            key: format!("key-{item}"),
            outcome,
        }
    }

    fn keys(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| format!("key-{item}")).collect()
    }

    fn open(folder: &Path) -> (Journal, Opened) {
        Journal::open(folder, &description()).unwrap()
    }

    #[test]
    fn a_run_ends_in_item_order() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(folder.path());
        for item in ["b", "c", "a"] {
            journal.append(&record(item, FailureKind::Length)).unwrap();
        }
        assert_eq!(journal.finish(&keys(&["a", "b", "missing"])).unwrap(), 1);
        let text = std::fs::read_to_string(folder.path().join("verdicts.jsonl")).unwrap();
        let items: Vec<String> = text
            .lines()
            .map(|line| Row::parse(line).unwrap().item)
            .collect();
        assert_eq!(items, ["a", "b", "c"]);
        assert_eq!(
            journal.line("key-c").unwrap().unwrap(),
            record("c", FailureKind::Length).line()
        );
    }

    #[test]
    fn faults_of_ours_are_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(folder.path());
        journal.append(&record("a", FailureKind::Engine)).unwrap();
        drop(journal);
        let (mut journal, opened) = open(folder.path());
        assert_eq!((opened.settled, journal.settled("key-a")), (0, false));
        journal.append(&record("a", FailureKind::Length)).unwrap();
        journal.finish(&keys(&["a"])).unwrap();
        let text = std::fs::read_to_string(folder.path().join("verdicts.jsonl")).unwrap();
        assert_eq!(text, record("a", FailureKind::Length).line());
    }

    #[test]
    fn torn_lines_are_dropped_and_corrupt_ones_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("verdicts.jsonl");
        let (mut journal, _) = open(folder.path());
        journal.append(&record("a", FailureKind::Length)).unwrap();
        drop(journal);
        let whole = std::fs::read_to_string(&path).unwrap();
        for cut in 1..whole.len() {
            std::fs::write(&path, format!("{whole}{}", &whole[..cut])).unwrap();
            let (journal, opened) = open(folder.path());
            assert_eq!(
                opened,
                Opened {
                    settled: 1,
                    torn: cut as u64
                }
            );
            drop(journal);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        }
        std::fs::write(&path, format!("{whole}nonsense\n{whole}")).unwrap();
        let error = Journal::open(folder.path(), &description()).err().unwrap();
        assert!(
            matches!(error, JournalError::Corrupt { line: 2, .. }),
            "{error}"
        );
    }

    #[test]
    fn folders_are_guarded() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = open(folder.path());
        let again = Journal::open(folder.path(), &description()).err().unwrap();
        assert!(matches!(again, JournalError::Locked(_)), "{again}");
        drop(journal);
        let mut other = description();
        other.seed = 7;
        let error = Journal::open(folder.path(), &other).err().unwrap();
        assert!(
            error
                .to_string()
                .ends_with("holds another run: seed: 0 there, 7 here"),
            "{error}"
        );
        std::fs::remove_file(folder.path().join("run.json")).unwrap();
        std::fs::write(
            folder.path().join("verdicts.jsonl"),
            record("a", FailureKind::Length).line(),
        )
        .unwrap();
        let error = Journal::open(folder.path(), &description()).err().unwrap();
        assert!(matches!(error, JournalError::NoDescription(_)), "{error}");
    }
}
