//! Where prefixes are kept from one run to the next: one file for each model and rubric, the oldest going first where they grow too many.
//!
//! A file is written beside its place, synced and renamed, so that it is whole or not there. Whatever goes wrong is for the caller to say, and
//! never stops a run. Knows no format and no page.

use super::snapshot::{self, Key, MOST, Refused};
use crate::engine::Engine;
use crate::journal::RunDescription;
use crate::judge::digest::Digest;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Most bytes of all files of a folder together.
const FOLDER: u64 = 1 << 30;

/// How the files' names end.
const ENDING: &str = "prefix";

/// How the names of files end that are being written.
const UNFINISHED: &str = "new";

/// After so long, a file that is still being written was left by a run that came to an end.
const LEFT: Duration = Duration::from_secs(600);

/// The kept prefix of one kind of run.
pub struct Keep {
    folder: PathBuf,
    path: PathBuf,
    key: Key,
    /// Tokens that were taken from the file.
    loaded: usize,
}

impl Keep {
    /// What is kept in `folder` for runs such as this one.
    pub fn new(folder: PathBuf, description: &RunDescription) -> Keep {
        let key = key(description);
        let name: String = key[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Keep {
            path: folder.join(name).with_extension(ENDING),
            folder,
            key,
            loaded: 0,
        }
    }

    /// Puts what is kept into the engine's cache, and answers with the number of tokens. `None` where nothing is kept.
    ///
    /// # Errors
    /// Why the file is not used.
    pub fn load(&mut self, engine: &mut Engine) -> Result<Option<usize>, Refused> {
        let Some(page) = engine.page_bytes() else {
            return Ok(None);
        };
        let kind = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?.file_type(),
        };
        // Opening anything else might wait for ever.
        if !kind.is_file() {
            return Err(Refused::Magic);
        }
        let file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        let kept = snapshot::read(&mut BufReader::new(&file), length, &self.key, page)?;
        let imported = engine.import(&kept);
        self.loaded = imported.map_err(|error| Refused::Io(io::Error::other(error)))?;
        // A file that was of use is not the oldest. Where that can't be noted, it goes a little earlier.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some(self.loaded))
    }

    /// Keeps what all prompts began with, unless it is there already. Answers with the bytes written.
    ///
    /// # Errors
    /// What the system says.
    pub fn save(&self, engine: &Engine) -> io::Result<Option<u64>> {
        let Some(page) = engine.page_bytes() else {
            return Ok(None);
        };
        let kept = engine.export(MOST).map_err(io::Error::other)?;
        if kept.tokens.len() <= self.loaded {
            return Ok(None);
        }
        make_folder(&self.folder)?;
        let beside = self
            .path
            .with_extension(format!("{}.{UNFINISHED}", std::process::id()));
        let written = write(&beside, |out| snapshot::write(out, &self.key, &kept, page));
        let placed = written.and_then(|()| fs::rename(&beside, &self.path));
        if let Err(error) = placed {
            // The disk may be full: half a file is of no use to anybody.
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        prune(&self.folder, &self.path)?;
        Ok(Some(kept.bytes.len() as u64))
    }
}

/// What decides the bits of a prefix's pages, and which prompts begin with it.
fn key(description: &RunDescription) -> Key {
    let settings = &description.settings;
    let rubrics = description.rubrics.iter();
    let rubrics: Vec<&str> = rubrics
        .flat_map(|rubric| [rubric.prompt_digest.as_str(), rubric.digest.as_str()])
        .collect();
    Digest::new("assize prefix")
        .field(assize_kernels::ARITHMETIC.to_le_bytes())
        .field(&description.assize)
        .list(&description.model.sha256)
        .field(&description.tokenizer_digest)
        .field(&description.template_digest)
        .list(&rubrics)
        .field(&description.device)
        .field(&settings.mode)
        .field(settings.exact.to_string())
        .field(&settings.kv_type)
        .field(format!("{:?}", settings.context))
        .bytes()
}

/// The folder, which nobody else may read if it is new.
fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// A new file that nobody else may read, filled and synced.
fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    // A link that somebody left here must not be followed.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = BufWriter::new(options.open(path)?);
    fill(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}

/// Removes what earlier runs left unfinished, and the oldest files, but not the `newest`, until the rest is small enough.
fn prune(folder: &Path, newest: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ours = path.extension().is_some_and(|ending| ending == ENDING);
        // Another run may have removed it.
        let Ok(found) = fs::symlink_metadata(&path) else {
            continue;
        };
        let modified = found.modified()?;
        if ours && found.is_file() && path != newest {
            files.push((modified, found.len(), path));
        } else if path.extension().is_some_and(|ending| ending == UNFINISHED)
            && modified.elapsed().is_ok_and(|ago| ago > LEFT)
        {
            fs::remove_file(path)?;
        }
    }
    files.sort();
    let newest = fs::metadata(newest)?.len();
    let mut total = files.iter().map(|(_, length, _)| length).sum::<u64>() + newest;
    for (_, length, path) in files {
        if total <= FOLDER {
            break;
        }
        fs::remove_file(path)?;
        total -= length;
    }
    Ok(())
}
