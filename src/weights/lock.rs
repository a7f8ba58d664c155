//! `assize.lock`: which file was meant where a manifest could not say. The first fetch of an unpinned model records the
//! hub's own sha256 and the commit; from then on a differing file is refused. It knows no source and hashes nothing.
//!
//! It lies in the current folder where there is one already, so that a project can commit it, and else at the root of
//! the model cache.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// File name of the lock.
pub const NAME: &str = "assize.lock";

/// Why the lock can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The operating system refused.
    #[error("{}: can't {action}: {source}", path.display())]
    Io {
        /// The lock.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The text is no lock.
    #[error("{}: {reason}\nhint: mend the line, or remove the file to record the models again", path.display())]
    Malformed {
        /// The lock.
        path: PathBuf,
        /// What is wrong with it, and in which line.
        reason: String,
    },
}

/// The content of `assize.lock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Version of the format.
    version: u32,
    /// The files, by model and name.
    #[serde(default, rename = "file")]
    files: Vec<Locked>,
}

/// A file as it was when it was first fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// Name of the model.
    pub model: String,
    /// Name of the file.
    pub name: String,
    /// Its sha256, in hex.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where it came from: a repository of the hub, or packages.
    pub source: String,
    /// The commit, where the source has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Where the lock lies: in `folder` if there is one already, else at the root of the cache `home`.
pub fn path(folder: &Path, home: &Path) -> PathBuf {
    let own = folder.join(NAME);
    if own.exists() { own } else { home.join(NAME) }
}

impl Lock {
    /// Reads the lock; an absent one is empty.
    ///
    /// # Errors
    /// A file that can't be read or is no lock. It is never taken for an empty one, or a changed model would pass.
    pub fn read(path: &Path) -> Result<Lock, LockError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Lock {
                    version: 1,
                    files: Vec::new(),
                });
            }
            Err(source) => {
                return Err(LockError::Io {
                    path: path.into(),
                    action: "read the lock",
                    source,
                });
            }
        };
        let malformed = |reason: String| LockError::Malformed {
            path: path.into(),
            reason,
        };
        let lock: Lock = toml::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        if lock.version != 1 {
            return Err(malformed(format!(
                "version {} of the lock; this assize reads version 1",
                lock.version
            )));
        }
        match lock
            .files
            .iter()
            .find(|file| !super::manifest::is_sha256(&file.sha256))
        {
            Some(file) => Err(malformed(format!(
                "sha256 of `{}` is not 64 lower-case hex digits",
                file.name
            ))),
            None => Ok(lock),
        }
    }

    /// What is recorded of a file.
    pub fn get(&self, model: &str, name: &str) -> Option<&Locked> {
        self.files
            .iter()
            .find(|file| file.model == model && file.name == name)
    }

    /// Records files and writes the lock. A file that is recorded already stays as it is.
    ///
    /// # Errors
    /// [`LockError::Io`].
    pub fn record(&mut self, files: Vec<Locked>, path: &Path) -> Result<(), LockError> {
        for file in files {
            if self.get(&file.model, &file.name).is_none() {
                self.files.push(file);
            }
        }
        self.files
            .sort_by(|a, b| (&a.model, &a.name).cmp(&(&b.model, &b.name)));
        let text = toml::to_string(self).map_err(|error| LockError::Malformed {
            path: path.into(),
            reason: error.to_string(),
        })?;
        let head = "# Written by assize: what unpinned models were when they were first fetched.\n";
        replace(path, format!("{head}{text}").as_bytes()).map_err(|source| LockError::Io {
            path: path.into(),
            action: "write the lock",
            source,
        })
    }
}

/// Writes a file so that others see the old or the new content, never a part: a new file, synced, then renamed.
pub(super) fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let written = fs::File::create(&partial).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(name: &str, digit: &str) -> Locked {
        Locked {
            model: "m".into(),
            name: name.into(),
            sha256: digit.repeat(64),
            bytes: 5,
            source: "hf:o/r".into(),
            revision: Some("c0ffee".into()),
        }
    }

    #[test]
    fn a_record_stays_and_reads_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sub").join(NAME);
        let mut lock = Lock::read(&path).expect("an empty lock");
        lock.record(vec![locked("b", "b"), locked("a", "a")], &path)
            .expect("a write");
        lock.record(vec![locked("a", "f")], &path).expect("a write");
        let again = Lock::read(&path).expect("a lock");
        assert_eq!(again, lock);
        assert_eq!(again.get("m", "a"), Some(&locked("a", "a")));
        assert_eq!(again.get("m", "c"), None);
        assert_eq!(
            fs::read_dir(path.parent().expect("a folder"))
                .expect("a folder")
                .count(),
            1,
            "no partial is left"
        );
    }

    #[test]
    fn a_damaged_lock_is_no_empty_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let check = |text: &str, expect: &str| {
            fs::write(&path, text).expect("a file");
            let reason = Lock::read(&path).expect_err(expect).to_string();
            assert!(
                reason.contains(expect) && reason.contains(NAME),
                "{reason}\nshould say: {expect}"
            );
        };
        check("", "missing field `version`");
        check("version = 2", "version 2 of the lock");
        check("version = 1\nmodels = []", "unknown field `models`");
        check(
            "version = 1\n[[file]]\nmodel = \"m\"\nname = \"n\"\nsha256 = \"12\"\nbytes = 1\nsource = \"s\"",
            "64 lower-case hex digits",
        );
    }

    #[test]
    fn the_projects_own_lock_goes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("home");
        assert_eq!(path(folder.path(), &home), home.join(NAME));
        fs::write(folder.path().join(NAME), "version = 1\n").expect("a file");
        assert_eq!(path(folder.path(), &home), folder.path().join(NAME));
    }
}
