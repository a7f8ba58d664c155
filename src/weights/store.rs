//! A model file, or the files of a split one, mapped and checked once, then handed down. It knows no tensor's meaning
//! and reads no weight itself: pages come in when somebody touches them.

use super::gguf::{self, Tensor};
use super::{Metadata, WeightsError};
use assize_kernels::Quant;
use memmap2::{Mmap, UncheckedAdvice};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Bytes of the largest page of memory that a system may have.
const FORGET: usize = 1 << 16;

/// Most files that a split model may have.
const MOST_FILES: usize = 1024;

/// A tensor as it lies in the file.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Type of its blocks.
    pub quant: Quant,
    /// Shape, outermost first (the reverse of GGUF's order): a matrix is `[rows out, columns in]`.
    pub shape: &'a [usize],
    /// Its bytes, exactly as many as type and shape need.
    pub bytes: &'a [u8],
}

/// A model file, or the files of a split one, mapped and checked once.
pub struct Store {
    paths: Vec<PathBuf>,
    maps: Vec<Mmap>,
    metadata: Metadata,
    /// Each with the file that it lies in.
    tensors: Vec<(usize, Tensor)>,
    index: HashMap<String, usize>,
}

impl Store {
    /// Opens a GGUF file; given one file of a split model, opens all of them.
    ///
    /// # Errors
    /// Any [`WeightsError`]; nothing in the files is believed before it is checked.
    pub fn open(path: &Path) -> Result<Store, WeightsError> {
        let paths = split_paths(path)?;
        let mut store = Store {
            maps: Vec::with_capacity(paths.len()),
            paths,
            metadata: Metadata::default(),
            tensors: Vec::new(),
            index: HashMap::new(),
        };
        for number in 0..store.paths.len() {
            store.add(number)?;
        }
        if let Some(count) = store.metadata.integer("split.tensors.count")
            && count != store.tensors.len() as u64
        {
            let found = store.tensors.len();
            return Err(split(
                path,
                format!("the model says it has {count} tensors, but its files hold {found}"),
            ));
        }
        Ok(store)
    }

    /// The metadata; of a split model, that of its first file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.index.get(name).map(|&number| self.view(number))
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, TensorView<'_>)> {
        (0..self.tensors.len())
            .map(|number| (self.tensors[number].1.name.as_str(), self.view(number)))
    }

    /// Gives the memory of a tensor's bytes back to the system: they have been read, and should they be asked for again, they come from
    /// the file again.
    pub fn forget(&self, name: &str) {
        let Some(&number) = self.index.get(name) else {
            return;
        };
        let (file, tensor) = &self.tensors[number];
        // Whole pages only, and none that a neighbour shares.
        let start = tensor.range.start.next_multiple_of(FORGET);
        let end = tensor.range.end / FORGET * FORGET;
        if start < end {
            // SAFETY: the map is of a file, shared and read-only, so what is dropped here is not lost: the next touch reads the same bytes
            // from the file. Borrows of them stay valid, since the addresses stay mapped.
            let forgotten = unsafe {
                self.maps[*file].unchecked_advise_range(
                    UncheckedAdvice::DontNeed,
                    start,
                    end - start,
                )
            };
            if let Err(error) = forgotten {
                tracing::debug!(%error, "memory of a tensor was not given back");
            }
        }
    }

    /// The files, in order.
    pub fn files(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Bytes of all files together.
    pub fn byte_len(&self) -> u64 {
        self.maps.iter().map(|map| map.len() as u64).sum()
    }

    fn view(&self, number: usize) -> TensorView<'_> {
        let (file, tensor) = &self.tensors[number];
        TensorView {
            quant: tensor.quant,
            shape: &tensor.shape,
            bytes: &self.maps[*file][tensor.range.clone()],
        }
    }

    /// Maps and checks the next file.
    fn add(&mut self, number: usize) -> Result<(), WeightsError> {
        let path = &self.paths[number];
        let file = File::open(path).map_err(|source| WeightsError::Io {
            path: path.clone(),
            action: "open the file",
            source,
        })?;
        let map = map(&file, path)?;
        let header = gguf::parse(&map, path)?;
        let count = self.paths.len() as u64;
        match (
            header.metadata.integer("split.no"),
            header.metadata.integer("split.count"),
        ) {
            (_, Some(says)) if says != count && says > 1 => {
                let what = format!(
                    "one of {says} files of a split model, but {count} lie here under its name"
                );
                return Err(split(path, what));
            }
            (Some(says), _) if count > 1 && says != number as u64 => {
                let what = format!(
                    "named as file {} of the model, but it says it is file {}",
                    number + 1,
                    says + 1
                );
                return Err(split(path, what));
            }
            _ => {}
        }
        for tensor in header.tensors {
            match self.index.entry(tensor.name.clone()) {
                Entry::Occupied(_) => {
                    return Err(split(
                        path,
                        format!("tensor `{}` is in an earlier file too", tensor.name),
                    ));
                }
                Entry::Vacant(entry) => entry.insert(self.tensors.len()),
            };
            self.tensors.push((number, tensor));
        }
        if number == 0 {
            self.metadata = header.metadata;
        }
        self.maps.push(map);
        Ok(())
    }
}

fn split(path: &Path, what: String) -> WeightsError {
    WeightsError::Split {
        path: path.into(),
        what,
    }
}

/// Maps a file, or refuses one that is empty or not regular.
pub(super) fn map(file: &File, path: &Path) -> Result<Mmap, WeightsError> {
    let refused = |action| {
        move |source| WeightsError::Io {
            path: path.into(),
            action,
            source,
        }
    };
    let kind = file.metadata().map_err(refused("read the file's size"))?;
    if !kind.is_file() {
        let source = std::io::Error::other("not a regular file");
        return Err(WeightsError::Io {
            path: path.into(),
            action: "map it",
            source,
        });
    }
    if kind.len() == 0 {
        return Err(WeightsError::Malformed {
            path: path.into(),
            at: 0,
            what: "the file is empty".into(),
        });
    }
    // SAFETY: the map is read-only and hands out borrows of itself alone. What the compiler can't see is another process that
    // changes or shortens the file meanwhile. assize itself never writes a model file, or one of packed weights, in place:
    // it renames finished ones into the cache. Against others no program that maps files can defend itself; the
    // bytes are only ever read as plain numbers, for which every bit pattern is a value, and a shortened file ends the
    // process by a signal rather than by reading foreign memory.
    unsafe { Mmap::map(file) }.map_err(refused("map the file into memory"))
}

/// The files of the model that `path` belongs to, in order: itself alone unless its name ends in `-00001-of-00003.gguf`.
pub(super) fn split_paths(path: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let Some((stem, _, count)) = path
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(split_name)
    else {
        return Ok(vec![path.into()]);
    };
    if count > MOST_FILES {
        return Err(split(
            path,
            format!("the name says {count} files; up to {MOST_FILES} are believed"),
        ));
    }
    let files: Vec<_> = (1..=count)
        .map(|number| path.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf")))
        .collect();
    match files.iter().find(|file| !file.exists()) {
        Some(missing) => Err(split(path, format!("{} is missing", missing.display()))),
        None => Ok(files),
    }
}

/// Takes `stem-00001-of-00003.gguf` apart; `None` for other names.
fn split_name(name: &str) -> Option<(&str, usize, usize)> {
    let rest = name.strip_suffix(".gguf")?;
    let digits = |text: &str| {
        (text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse().ok())?
    };
    let (rest, count) = rest.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let (number, count): (usize, usize) = (digits(number)?, digits(count)?);
    (1..=count)
        .contains(&number)
        .then_some((stem, number, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_names() {
        let check = |name, expect| assert_eq!(split_name(name), expect, "{name}");
        check("m-00002-of-00003.gguf", Some(("m", 2, 3)));
        check("a-b-00001-of-00001.gguf", Some(("a-b", 1, 1)));
        check("m-00004-of-00003.gguf", None);
        check("m-00000-of-00003.gguf", None);
        check("m-1-of-3.gguf", None);
        check("m-+0001-of-00003.gguf", None);
        check("m.gguf", None);
        check("-of-.gguf", None);
    }
}
