//! Packed weights on disk, so that the next start maps them instead of packing them again. A cache: whatever is wrong with a file of it,
//! the file is refused with a reason, the weights are packed as if it weren't there, and it is written anew. Knows no tensor's meaning.
//!
//! The files lie in `layouts/` of the model cache, one a model, named by the model's sha256 and the layout's version. Every chunk of one has
//! a digest. All are checked when a file is met first, and again whenever it was written or replaced (see `verify`); in between, a
//! record stands for them, as it does for the model file itself.

mod head;
mod writer;

use super::{WeightsError, store, verify};
use assize_kernels::{Matrix, Quant, Region};
use head::{CHUNK, Entry, Head, Read};
use memmap2::Mmap;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use writer::{Part, Unwritten};

/// Where the packed weights of a model lie, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Root of the model cache.
    pub home: PathBuf,
    /// sha256 of the model, as [`Located`](super::fetch::Located) has it.
    pub sha256: String,
}

/// Why packed weights are not used or not kept.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// There is no file.
    #[error("{} is not there", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// The file is not what this model's packed weights are.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file was whole once, and is not what was written.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused.
    #[error("{}: can't {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file can't be mapped.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

impl Place {
    /// The folder of all packed weights.
    pub fn folder(home: &Path) -> PathBuf {
        home.join("layouts")
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        Place::folder(&self.home).join(format!("{}{}", self.prefix(), ENDING))
    }

    /// The name up to its ending.
    fn prefix(&self) -> String {
        format!("{}-v{}", self.sha256, Matrix::LAYOUT)
    }
}

/// What the names of the files end in.
const ENDING: &str = ".panels";

/// Bytes that packed weights take on disk in all.
pub fn disk_bytes(home: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(Place::folder(home)) else {
        return 0;
    };
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|metadata| metadata.len())
        .sum()
}

/// The packed weights of a model, mapped and checked.
pub struct Layouts {
    map: Arc<Mmap>,
    start: usize,
    /// By name and first row.
    index: HashMap<(String, usize), Entry>,
}

impl Layouts {
    /// Maps the file and checks it: its head always, its panels where no record says that they were checked since the file last changed.
    ///
    /// # Errors
    /// [`LayoutError`]: the weights have to be packed.
    pub fn open(place: &Place) -> Result<Layouts, LayoutError> {
        let path = place.path();
        let file = match open_file(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LayoutError::Absent { path });
            }
            Err(source) => {
                return Err(LayoutError::Io {
                    path,
                    action: "open the file",
                    source,
                });
            }
        };
        let metadata = file.metadata().map_err(|source| LayoutError::Io {
            path: path.clone(),
            action: "read the file's size",
            source,
        })?;
        let refused = |reason: String| LayoutError::Refused {
            path: path.clone(),
            reason,
        };
        let map = store::map(&file, &path)?;
        let Read {
            head,
            digest,
            start,
        } = Head::read(&map).map_err(refused)?;
        if head.layout != Matrix::LAYOUT {
            let layout = head.layout;
            return Err(refused(format!("packed under layout {layout}")));
        }
        if head.source != place.sha256 {
            return Err(refused("packed from another model".into()));
        }
        if verify::recorded(&path, &metadata, &place.home).as_ref() == Some(&digest) {
            prefault(&map);
        } else {
            check(&map[start..], &head.chunks).map_err(|reason| LayoutError::Damaged {
                path: path.clone(),
                reason,
            })?;
            // A file that was changed meanwhile was checked in no state at all.
            if file
                .metadata()
                .is_ok_and(|after| verify::unchanged(&metadata, &after))
            {
                verify::record(&path, &metadata, &digest, &place.home);
            }
        }
        let index = (head.matrices.into_iter())
            .map(|entry| ((entry.name.clone(), entry.first), entry))
            .collect();
        Ok(Layouts {
            map: Arc::new(map),
            start,
            index,
        })
    }

    /// The rows of a tensor from `first` on as a matrix, if they were packed as that type and shape.
    pub fn find(
        &self,
        name: &str,
        first: usize,
        quant: Quant,
        outputs: usize,
        inputs: usize,
    ) -> Option<Matrix> {
        let entry = self.index.get(&(name.to_owned(), first))?;
        let same = (entry.outputs, entry.inputs) == (outputs, inputs)
            && entry.quant == format!("{quant:?}");
        let at = self.start.checked_add(entry.at).filter(|_| same)?;
        let region: Region = self.map.clone();
        // A place that is not aligned, or not within the file, is refused there.
        Matrix::shared(quant, outputs, inputs, region, at).ok()
    }

    /// Whether the part is here.
    fn has(&self, part: &Part) -> bool {
        let matrix = &part.matrix;
        let (outputs, inputs) = (matrix.outputs(), matrix.inputs());
        self.find(&part.name, part.first, matrix.quant(), outputs, inputs)
            .is_some()
    }
}

/// Opens a file for reading. Anything else is an error: to open it might mean to wait for ever.
fn open_file(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

/// Holds every chunk to its digest, on all threads.
fn check(panels: &[u8], digests: &[String]) -> Result<(), String> {
    let wrong = panels
        .par_chunks(CHUNK)
        .zip(digests)
        .position_any(|(chunk, digest)| verify::hex(&Sha256::digest(chunk)) != *digest);
    match wrong {
        Some(chunk) => Err(format!("chunk {chunk} does not have its digest")),
        None => Ok(()),
    }
}

/// Brings the pages in on all threads, before somebody waits for them one by one. A system that can't is no harm.
fn prefault(map: &Mmap) {
    #[cfg(target_os = "linux")]
    {
        /// Bytes that a thread brings in at a time.
        const PART: usize = 16 << 20;
        let parts = 0..map.len().div_ceil(PART);
        parts.into_par_iter().for_each(|part| {
            let (at, left) = (part * PART, map.len() - part * PART);
            let _ = map.advise_range(memmap2::Advice::PopulateRead, at, PART.min(left));
        });
    }
    #[cfg(not(target_os = "linux"))]
    let _ = map;
}
