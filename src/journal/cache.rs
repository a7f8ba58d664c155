//! Verdicts kept across runs, by the exact key of item, rubric, template, model and settings.
//!
//! One file a verdict, so that several runs, and several machines over a shared folder, may read and write at once. What is found
//! there is untrusted: a line that is no verdict of that key is as good as none.

use super::error::JournalError;
use super::record::{Row, RowOutcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest line that is read back, in bytes.
const LONGEST: u64 = 16 << 20;

/// A folder of verdicts.
#[derive(Debug)]
pub struct VerdictCache {
    folder: PathBuf,
    written: AtomicU64,
}

impl VerdictCache {
    /// The cache in a folder, which is made where it is not there. What no key holds and yet decides verdicts is the `edition`: the
    /// version of assize and of its arithmetic, and the device. Each has a folder of its own.
    ///
    /// # Errors
    /// The folder can't be made.
    pub fn open(folder: &Path, edition: &str) -> Result<VerdictCache, JournalError> {
        let folder = folder.join(edition);
        fs::create_dir_all(&folder).map_err(JournalError::io(&folder))?;
        Ok(VerdictCache {
            folder,
            written: AtomicU64::new(0),
        })
    }

    /// The line of a key with its line end, and its row.
    pub fn find(&self, key: &str) -> Option<(String, Row)> {
        let path = self.path(key)?;
        let sound = fs::symlink_metadata(&path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LONGEST);
        let line = sound.then(|| fs::read_to_string(&path).ok())??;
        let row = Row::parse(line.trim_end()).ok()?;
        let judged = matches!(row.outcome, RowOutcome::Judged { .. });
        let whole = line.ends_with('\n') && line.matches('\n').count() == 1;
        (judged && whole && row.key == key).then_some((line, row))
    }

    /// Keeps the line of a verdict. A cache that can't be written costs later runs their time and this one nothing, so failing
    /// is only told.
    pub fn keep(&self, key: &str, line: &str) {
        let Some(path) = self.path(key) else { return };
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let beside = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
        let folder = path.parent().unwrap_or(&self.folder);
        let kept = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&beside, line))
            .and_then(|()| fs::rename(&beside, &path));
        if let Err(error) = kept {
            let _ = fs::remove_file(&beside);
            tracing::warn!(
                "a verdict is not kept in {}: {error}",
                self.folder.display()
            );
        }
    }

    /// Keys are hex digits; anything else is no key, and no path.
    fn path(&self, key: &str) -> Option<PathBuf> {
        let fine = key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        fine.then(|| {
            self.folder
                .join(&key[..2])
                .join(format!("{}.json", &key[2..]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &str) -> String {
        format!(
            "{{\"item\":\"a\",\"rubric\":\"r\",\"key\":\"{key}\",\"label\":\"pass\",\"expected\":1.0}}\n"
        )
    }

    #[test]
    fn only_a_verdict_of_that_key_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = VerdictCache::open(folder.path(), "1").unwrap();
        let (key, other) = ("a".repeat(64), "b".repeat(64));
        assert_eq!(cache.find(&key), None);
        cache.keep(&key, &line(&key));
        assert_eq!(cache.find(&key).unwrap().0, line(&key));
        for bad in [
            line(&key),
            line(&other).trim_end().to_string(),
            line(&other).repeat(2),
            format!(
                "{{\"item\":\"a\",\"key\":\"{other}\",\"failure\":{{\"kind\":\"length\",\"reason\":\"\"}}}}\n"
            ),
            "{".into(),
        ] {
            cache.keep(&other, &bad);
            assert_eq!(cache.find(&other), None, "{bad}");
        }
        cache.keep("../escape", &line(&key));
        assert_eq!(cache.find("../escape"), None);
        assert!(!folder.path().join("escape").exists());
    }
}
