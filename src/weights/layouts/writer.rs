//! Writes packed weights: to a partial file, chunk by chunk, synced, then renamed, so that others see a whole file or none. One process
//! writes at a time. It knows no decoder: the parts are what the one that packed them says.

use super::super::verify::hex;
use super::head::{CHUNK, Entry, Head};
use super::{ENDING, LayoutError, Layouts, Place};
use assize_kernels::Matrix;
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Some rows of a tensor, packed.
#[derive(Clone)]
pub struct Part {
    /// Name of the tensor.
    pub name: String,
    /// The first of the rows.
    pub first: usize,
    /// The rows.
    pub matrix: Arc<Matrix>,
}

/// Packed weights that are not on disk.
pub struct Unwritten {
    /// Where they belong.
    pub place: Place,
    /// All matrices of the model.
    pub parts: Vec<Part>,
}

impl Unwritten {
    /// Writes the file and returns its bytes; `None` where another process has written it or is about to, or where `stop` was set.
    ///
    /// # Errors
    /// [`LayoutError::Io`]; nothing is left behind then.
    pub fn write(&self, stop: &AtomicBool) -> Result<Option<u64>, LayoutError> {
        let folder = Place::folder(&self.place.home);
        let path = self.place.path();
        let partial = folder.join(format!("{}.partial", self.place.prefix()));
        let io = |path: &Path, action| {
            let path = path.to_owned();
            move |source| LayoutError::Io {
                path,
                action,
                source,
            }
        };
        fs::create_dir_all(&folder).map_err(io(&folder, "make the folder"))?;
        let busy = folder.join(".busy");
        let alone = match fs::symlink_metadata(&busy) {
            Ok(found) if !found.is_file() => Err(io::Error::other("not a regular file")),
            _ => File::options().create(true).append(true).open(&busy),
        };
        let alone = alone.map_err(io(&busy, "open the file"))?;
        match alone.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(io(&busy, "lock the file")(source)),
        }
        if Layouts::open(&self.place)
            .is_ok_and(|there| self.parts.iter().all(|part| there.has(part)))
        {
            return Ok(None);
        }
        let written = self
            .stream(&partial, stop)
            .map_err(io(&partial, "write the packed weights"))
            .and_then(|bytes| {
                if bytes.is_some() {
                    fs::rename(&partial, &path).map_err(io(&path, "rename a file to it"))?;
                }
                Ok(bytes)
            });
        if !matches!(written, Ok(Some(_))) {
            let _ = fs::remove_file(&partial);
            return written;
        }
        // The rename is not on disk before the folder is; after a crash there may be no file, which is no harm.
        if let Ok(folder) = File::open(&folder) {
            let _ = folder.sync_all();
        }
        self.remove_older(&folder);
        written
    }

    /// Writes and syncs the partial file.
    fn stream(&self, path: &Path, stop: &AtomicBool) -> io::Result<Option<u64>> {
        let mut at = 0usize;
        let mut matrices = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let matrix = &part.matrix;
            matrices.push(Entry {
                name: part.name.clone(),
                first: part.first,
                quant: format!("{:?}", matrix.quant()),
                outputs: matrix.outputs(),
                inputs: matrix.inputs(),
                at,
            });
            at = (at + matrix.memory()).next_multiple_of(Matrix::ALIGNMENT);
        }
        let mut head = Head {
            layout: Matrix::LAYOUT,
            source: self.place.sha256.clone(),
            bytes: at as u64,
            chunks: vec!["0".repeat(64); at.div_ceil(CHUNK)],
            matrices,
        };
        // What a process left that came to an end goes, and so does a link: nothing outside this folder is written.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::create_new(path)?;
        // Its digests come when all chunks have gone by: until then the file can't be taken for a whole one.
        let start = head.write()?.len();
        file.seek(SeekFrom::Start(start as u64))?;
        let mut chunks = Chunks::new(&file);
        for part in &self.parts {
            let bytes = part.matrix.panel_bytes();
            for piece in bytes.chunks(CHUNK) {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                chunks.write(piece)?;
            }
            let over = bytes.len() % Matrix::ALIGNMENT;
            if over > 0 {
                chunks.write(&[0; Matrix::ALIGNMENT][over..])?;
            }
        }
        head.chunks = chunks.finish();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&head.write()?)?;
        file.sync_all()?;
        Ok(Some((start + at) as u64))
    }

    /// Removes what was packed from the same model under earlier layouts. Later ones belong to a later assize.
    fn remove_older(&self, folder: &Path) {
        let version = |name: &str| -> Option<u32> {
            let version = name.strip_prefix(&self.place.sha256)?.strip_prefix("-v")?;
            version.strip_suffix(ENDING)?.parse().ok()
        };
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if version(&name.to_string_lossy()).is_some_and(|version| version < Matrix::LAYOUT) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Bytes on their way into a file, with a digest for every chunk.
struct Chunks<'a> {
    file: &'a File,
    digest: Sha256,
    /// Bytes of the chunk so far.
    filled: usize,
    done: Vec<String>,
}

impl<'a> Chunks<'a> {
    fn new(file: &'a File) -> Self {
        Chunks {
            file,
            digest: Sha256::new(),
            filled: 0,
            done: Vec::new(),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.filled));
            self.digest.update(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == CHUNK {
                self.end();
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        self.done.push(hex(&self.digest.finalize_reset()));
        self.filled = 0;
    }

    fn finish(mut self) -> Vec<String> {
        if self.filled > 0 {
            self.end();
        }
        self.done
    }
}
