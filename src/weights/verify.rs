//! The sha256 of files. A model of a gigabyte is not hashed again at each start: a small record in the cache remembers
//! the digest together with size, inode and the times of the last modification and of the last change, and is believed while these
//! stay the same. The last of them can't be set by a program: whoever writes, replaces or back-dates the file moves it on. It
//! does not know which digest a file ought to have.

use super::WeightsError;
use super::progress::Progress;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Reads the whole file and returns its sha256 in hex.
///
/// # Errors
/// [`WeightsError::Io`].
pub fn sha256(path: &Path, progress: &dyn Progress) -> Result<String, WeightsError> {
    let refused = |action| {
        move |source| WeightsError::Io {
            path: path.into(),
            action,
            source,
        }
    };
    let mut file = File::open(path).map_err(refused("open the file"))?;
    let bytes = file
        .metadata()
        .map_err(refused("read the file's size"))?
        .len();
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    progress.begin(&format!("checking {name}"), Some(bytes));
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                progress.end();
                return Err(refused("read the file")(error));
            }
        };
        digest.update(&buffer[..count]);
        done += count as u64;
        progress.advance(done);
    }
    progress.end();
    Ok(hex(&digest.finalize()))
}

/// The sha256 of the file in hex, from the record in `home` if the file has not changed since, else by reading it.
///
/// # Errors
/// [`WeightsError::Io`] for the model file; a record that can't be read or written only costs time.
pub fn remembered(
    path: &Path,
    home: &Path,
    progress: &dyn Progress,
) -> Result<String, WeightsError> {
    let refused = |source| WeightsError::Io {
        path: path.into(),
        action: "find the file",
        source,
    };
    let before = path.metadata().map_err(refused)?;
    if let Some(sha256) = recorded(path, &before, home) {
        return Ok(sha256);
    }
    let sha256 = sha256(path, progress)?;
    // A file that changed while it was read has a digest that belongs to neither state.
    let after = path.metadata().map_err(refused)?;
    if unchanged(&before, &after) {
        record(path, &after, &sha256, home);
    }
    Ok(sha256)
}

/// The digest that was recorded of the file at `path`, if its metadata are still what they were then.
pub(super) fn recorded(path: &Path, metadata: &Metadata, home: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let record = read(&record_path(&path, home))?;
    (record.stamp == Stamp::of(metadata) && record.path == path).then_some(record.sha256)
}

/// Records a digest of the file at `path`, which has these metadata. A record that can't be written only costs time.
pub(super) fn record(path: &Path, metadata: &Metadata, sha256: &str, home: &Path) {
    let Ok(path) = path.canonicalize() else {
        return;
    };
    let record = Record {
        sha256: sha256.into(),
        stamp: Stamp::of(metadata),
        path,
    };
    write(&record_path(&record.path, home), &record);
}

/// Whether a file's metadata say that it was neither written nor replaced in between.
pub(super) fn unchanged(before: &Metadata, after: &Metadata) -> bool {
    Stamp::of(before) == Stamp::of(after)
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[derive(Serialize, Deserialize)]
struct Record {
    sha256: String,
    path: PathBuf,
    stamp: Stamp,
}

/// What changes when a file is written or replaced.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    modified: String,
    /// When the content or the metadata changed last; empty where the system does not tell.
    changed: String,
    inode: u64,
    device: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        let modified = metadata
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Stamp {
            bytes: metadata.len(),
            // Text, for TOML's integers are too narrow for nanoseconds since 1970.
            modified: modified
                .map(|time| time.as_nanos().to_string())
                .unwrap_or_default(),
            changed: changed(metadata),
            inode: place(metadata).0,
            device: place(metadata).1,
        }
    }
}

#[cfg(unix)]
fn changed(metadata: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec())
}

/// Inode and device.
#[cfg(unix)]
fn place(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    // TOML's integers are signed; the top bits never decide.
    let most = i64::MAX as u64;
    (metadata.ino() & most, metadata.dev() & most)
}

#[cfg(not(unix))]
fn changed(_: &Metadata) -> String {
    String::new()
}

#[cfg(not(unix))]
fn place(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

fn record_path(path: &Path, home: &Path) -> PathBuf {
    let key = hex(&Sha256::digest(path.as_os_str().as_encoded_bytes()));
    home.join("verified").join(format!("{}.toml", &key[..32]))
}

fn read(path: &Path) -> Option<Record> {
    // Opening anything else might wait for ever.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let record: Record = toml::from_str(&fs::read_to_string(path).ok()?).ok()?;
    (super::manifest::is_sha256(&record.sha256) && !record.stamp.modified.is_empty())
        .then_some(record)
}

fn write(path: &Path, record: &Record) {
    let Ok(text) = toml::to_string(record) else {
        return;
    };
    let _ = super::lock::replace(path, text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::progress::Silent;
    use std::cell::Cell;

    #[derive(Default)]
    struct Counter(Cell<usize>);

    impl Progress for Counter {
        fn begin(&self, _: &str, _: Option<u64>) {
            self.0.set(self.0.get() + 1);
        }
        fn advance(&self, _: u64) {}
        fn end(&self) {}
        fn note(&self, _: &str) {}
    }

    #[test]
    fn known_digests() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        fs::write(&path, b"abc").expect("a file");
        let digest = sha256(&path, &Silent).expect("a digest");
        assert_eq!(
            digest,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let error = sha256(&folder.path().join("b"), &Silent)
            .expect_err("absent")
            .to_string();
        assert!(error.contains("can't open the file"), "{error}");
    }

    #[test]
    fn an_unchanged_file_is_read_once_and_a_changed_one_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.gguf");
        let home = folder.path().join("home");
        let reads = Counter::default();
        let digest = || remembered(&path, &home, &reads).expect("a digest");
        fs::write(&path, b"one").expect("a file");
        let one = digest();
        assert_eq!((digest(), reads.0.get()), (one.clone(), 1));
        // Same size, another content: the modification time or the inode tells.
        let other = folder.path().join("other");
        fs::write(&other, b"two").expect("a file");
        fs::rename(&other, &path).expect("a rename");
        assert_ne!(digest(), one);
        let mut expected = 2;
        assert_eq!(reads.0.get(), expected);
        // Written in place, and dated back: the time of the last change tells, whose clock ticks every few milliseconds.
        #[cfg(unix)]
        {
            let two = digest();
            std::thread::sleep(std::time::Duration::from_millis(50));
            let dated = fs::metadata(&path).and_then(|metadata| metadata.modified());
            fs::write(&path, b"six").expect("a file");
            let file = File::options().write(true).open(&path).expect("the file");
            file.set_modified(dated.expect("a date")).expect("a date");
            assert_ne!(digest(), two);
            expected += 1;
        }
        assert_eq!(reads.0.get(), expected);
        // A record that was tampered with or cut off is not believed.
        let record = fs::read_dir(home.join("verified"))
            .expect("records")
            .next()
            .expect("one")
            .expect("one")
            .path();
        fs::write(&record, b"sha256 = \"0").expect("a file");
        assert_ne!(digest(), one);
        assert_eq!(reads.0.get(), expected + 1);
    }
}
