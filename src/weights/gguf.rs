//! Reads the header of a GGUF file (version 2 or 3) from its bytes. The file is untrusted: each offset, count, length
//! and extent is checked against it with checked arithmetic before anything is allocated, so that memory stays within
//! a small multiple of the file's own size. It maps no file and reads no weight.

use super::{Array, Kind, Metadata, Value, WeightsError};
use assize_kernels::Quant;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

/// Arrays in arrays deeper than this are refused: no known writer nests at all, and the reader recurses.
const DEEPEST_ARRAY: usize = 4;

/// Most dimensions of a tensor, as in GGML.
const MOST_DIMENSIONS: u32 = 4;

/// Where tensor data is aligned if the file does not say.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Largest alignment that is believed: a mebibyte.
const LARGEST_ALIGNMENT: u64 = 1 << 20;

/// What the header of a GGUF file says.
#[derive(Clone, Debug)]
pub struct Gguf {
    /// Version of the format: 2 or 3.
    pub version: u32,
    /// The key-value pairs.
    pub metadata: Metadata,
    /// The tensors, in the order of the header.
    pub tensors: Vec<Tensor>,
}

/// Where a tensor lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name, unique in the file.
    pub name: String,
    /// Type of its blocks.
    pub quant: Quant,
    /// Shape, outermost first (the reverse of the order in the file).
    pub shape: Vec<usize>,
    /// Its bytes, counted from the start of the file; inside the file, and overlapping no other tensor.
    pub range: Range<usize>,
}

/// Reads the header of the GGUF file `bytes`; `path` only names it in errors.
///
/// # Errors
/// [`WeightsError::Malformed`] where the bytes break the format or end early, [`WeightsError::Format`] for another
/// format, version or byte order, [`WeightsError::Unsupported`] for tensor types that assize does not read.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Gguf, WeightsError> {
    let mut reader = Reader { bytes, at: 0, path };
    let version = reader.opening()?;
    let tensor_count = reader.u64("number of tensors")?;
    let pair_count = reader.u64("number of metadata pairs")?;
    // A pair takes at least a length, a type and one byte; a tensor a length, a dimension count, a type, an offset.
    reader.bounded("metadata pairs", pair_count, 13)?;
    reader.bounded("tensors", tensor_count, 24)?;

    let mut metadata = Metadata::default();
    for _ in 0..pair_count {
        let at = reader.at;
        let key = reader.string("metadata key")?;
        let kind = reader.u32("type of a metadata value")?;
        let value = reader.value(kind, &key)?;
        if metadata.get(&key).is_some() {
            return Err(
                reader.malformed(at, format!("metadata key `{}` appears twice", shown(&key)))
            );
        }
        metadata.insert(key, value);
    }

    let at = reader.at;
    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(_) => metadata.integer("general.alignment").unwrap_or(0),
    };
    if !alignment.is_power_of_two() || alignment > LARGEST_ALIGNMENT {
        let what = format!("general.alignment is not a power of two up to {LARGEST_ALIGNMENT}");
        return Err(reader.malformed(at, what));
    }

    let mut headers = Vec::with_capacity(reader.bounded("tensors", tensor_count, 24)?);
    let mut names = HashSet::new();
    for _ in 0..tensor_count {
        let header = reader.tensor()?;
        if !names.insert(header.name.clone()) {
            return Err(reader.malformed(
                header.at,
                format!("tensor `{}` appears twice", shown(&header.name)),
            ));
        }
        headers.push(header);
    }
    let tensors = reader.place(headers, alignment)?;
    Ok(Gguf {
        version,
        metadata,
        tensors,
    })
}

/// A tensor's entry in the header, before its extent is known to be good.
struct Header {
    at: usize,
    name: String,
    id: u32,
    shape: Vec<usize>,
    offset: u64,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
}

impl Reader<'_> {
    fn malformed(&self, at: usize, what: String) -> WeightsError {
        WeightsError::Malformed {
            path: self.path.into(),
            at: at as u64,
            what,
        }
    }

    fn format(&self, what: impl Into<String>, hint: &'static str) -> WeightsError {
        WeightsError::Format {
            path: self.path.into(),
            what: what.into(),
            hint,
        }
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, count: u64, what: &str) -> Result<&[u8], WeightsError> {
        if count > self.remaining() as u64 {
            let left = self.remaining();
            return Err(self.malformed(
                self.at,
                format!("{what} takes {count} bytes but the file has {left} more"),
            ));
        }
        let start = self.at;
        self.at += count as usize;
        Ok(&self.bytes[start..self.at])
    }

    fn u32(&mut self, what: &str) -> Result<u32, WeightsError> {
        let mut raw = [0; 4];
        raw.copy_from_slice(self.take(4, what)?);
        Ok(u32::from_le_bytes(raw))
    }

    fn u64(&mut self, what: &str) -> Result<u64, WeightsError> {
        let mut raw = [0; 8];
        raw.copy_from_slice(self.take(8, what)?);
        Ok(u64::from_le_bytes(raw))
    }

    /// `count` as a `usize`, if that many things of at least `least` bytes can still follow.
    fn bounded(&self, what: &str, count: u64, least: u64) -> Result<usize, WeightsError> {
        match count.checked_mul(least) {
            Some(bytes) if bytes <= self.remaining() as u64 => Ok(count as usize),
            _ => {
                let left = self.remaining();
                Err(self.malformed(
                    self.at,
                    format!("{count} {what} can't lie in the {left} bytes that follow"),
                ))
            }
        }
    }

    fn string(&mut self, what: &str) -> Result<String, WeightsError> {
        let at = self.at;
        let length = self.u64(what)?;
        let bytes = self.take(length, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.malformed(at, format!("{what} is not UTF-8"))),
        }
    }

    /// Magic and version.
    fn opening(&mut self) -> Result<u32, WeightsError> {
        const MEND: &str =
            "convert the model again with a current llama.cpp, or fetch a newer GGUF file";
        let magic = self.take(4, "the opening `GGUF`")?;
        if magic != b"GGUF" {
            return Err(self.format(
                "not a GGUF file",
                "assize reads GGUF; `assize models` lists models that it can fetch",
            ));
        }
        match self.u32("version")? {
            version @ (2 | 3) => Ok(version),
            1 => Err(self.format("GGUF version 1, which is too old", MEND)),
            version if version.swap_bytes() <= 0xffff => Err(self.format(
                "a big-endian GGUF file; assize reads little-endian ones",
                MEND,
            )),
            version => Err(self.format(
                format!("GGUF version {version}; assize reads 2 and 3"),
                MEND,
            )),
        }
    }

    fn value(&mut self, kind: u32, key: &str) -> Result<Value, WeightsError> {
        let what = || format!("value of `{}`", shown(key));
        match kind {
            8 => Ok(Value::String(self.string(&what())?)),
            9 => Ok(Value::Array(self.array(key, 1)?)),
            _ => match number(kind) {
                Some(kind) => Ok(kind.read(self.take(kind.bytes() as u64, &what())?)),
                None => Err(self.malformed(self.at, format!("{} has unknown type {kind}", what()))),
            },
        }
    }

    fn array(&mut self, key: &str, depth: usize) -> Result<Array, WeightsError> {
        let at = self.at;
        if depth > DEEPEST_ARRAY {
            let what = format!("array `{}` nests deeper than {DEEPEST_ARRAY}", shown(key));
            return Err(self.malformed(at, what));
        }
        let what = || format!("array `{}`", shown(key));
        let kind = self.u32(&what())?;
        let count = self.u64(&what())?;
        match kind {
            8 => {
                let mut strings = Vec::with_capacity(self.bounded("strings", count, 8)?);
                for _ in 0..count {
                    strings.push(self.string(&what())?);
                }
                Ok(Array::Strings(strings))
            }
            9 => {
                let mut arrays = Vec::with_capacity(self.bounded("arrays", count, 12)?);
                for _ in 0..count {
                    arrays.push(self.array(key, depth + 1)?);
                }
                Ok(Array::Nested(arrays))
            }
            _ => {
                let Some(kind) = number(kind) else {
                    return Err(self.malformed(
                        at,
                        format!("{} has elements of unknown type {kind}", what()),
                    ));
                };
                let count = self.bounded("numbers", count, kind.bytes() as u64)?;
                let bytes = self.take((count * kind.bytes()) as u64, &what())?.to_vec();
                Ok(Array::Numbers { kind, bytes })
            }
        }
    }

    fn tensor(&mut self) -> Result<Header, WeightsError> {
        let at = self.at;
        let name = self.string("tensor name")?;
        let dimensions = self.u32("number of dimensions")?;
        if dimensions > MOST_DIMENSIONS {
            let what = format!(
                "tensor `{}` has {dimensions} dimensions; GGUF knows up to 4",
                shown(&name)
            );
            return Err(self.malformed(at, what));
        }
        let mut shape = Vec::with_capacity(dimensions as usize);
        for _ in 0..dimensions {
            let size = self.u64("dimension")?;
            match usize::try_from(size) {
                Ok(size) if size > 0 => shape.push(size),
                _ => {
                    let what = format!("tensor `{}` has a dimension of {size}", shown(&name));
                    return Err(self.malformed(at, what));
                }
            }
        }
        shape.reverse();
        let id = self.u32("tensor type")?;
        let offset = self.u64("tensor offset")?;
        Ok(Header {
            at,
            name,
            id,
            shape,
            offset,
        })
    }

    /// Checks where the tensors lie, now that the end of the header is known.
    fn place(&self, headers: Vec<Header>, alignment: u64) -> Result<Vec<Tensor>, WeightsError> {
        self.known_types(&headers)?;
        let length = self.bytes.len() as u64;
        let base = (self.at as u64).div_ceil(alignment) * alignment;
        let mut tensors = Vec::with_capacity(headers.len());
        for header in headers {
            let Header {
                at,
                name,
                id,
                shape,
                offset,
            } = header;
            let Some(quant) = Quant::from_ggml(id) else {
                continue;
            };
            let Some(size) = byte_size(quant, &shape) else {
                let what = format!(
                    "tensor `{}` of type {quant:?} can't have shape {shape:?}: its rows must be whole blocks of {} and \
                     its size must fit a file",
                    shown(&name),
                    quant.block()
                );
                return Err(self.malformed(at, what));
            };
            if offset % alignment != 0 {
                let what = format!(
                    "tensor `{}` lies at offset {offset}, off the alignment of {alignment}",
                    shown(&name)
                );
                return Err(self.malformed(at, what));
            }
            let end = base
                .checked_add(offset)
                .and_then(|start| start.checked_add(size));
            match end {
                Some(end) if end <= length => {
                    tensors.push(Tensor {
                        name,
                        quant,
                        shape,
                        range: (end - size) as usize..end as usize,
                    });
                }
                _ => {
                    let what = format!(
                        "tensor `{}` takes {size} bytes at offset {offset} of the data, beyond the end of the file ({length} bytes)",
                        shown(&name)
                    );
                    return Err(self.malformed(at, what));
                }
            }
        }
        self.apart(&tensors)?;
        Ok(tensors)
    }

    fn known_types(&self, headers: &[Header]) -> Result<(), WeightsError> {
        let mut unread = headers
            .iter()
            .filter(|header| Quant::from_ggml(header.id).is_none());
        match unread.next() {
            None => Ok(()),
            Some(header) => Err(WeightsError::Unsupported {
                path: self.path.into(),
                tensor: shown(&header.name),
                kind: type_name(header.id),
                id: header.id,
                others: unread.count(),
            }),
        }
    }

    fn apart(&self, tensors: &[Tensor]) -> Result<(), WeightsError> {
        let mut order: Vec<&Tensor> = tensors.iter().collect();
        order.sort_by_key(|tensor| tensor.range.start);
        for pair in order.windows(2) {
            if pair[1].range.start < pair[0].range.end {
                let what = format!(
                    "tensors `{}` and `{}` overlap",
                    shown(&pair[0].name),
                    shown(&pair[1].name)
                );
                return Err(self.malformed(pair[1].range.start, what));
            }
        }
        Ok(())
    }
}

/// Bytes that a tensor takes; `None` where its rows are no whole blocks or the size overflows.
fn byte_size(quant: Quant, shape: &[usize]) -> Option<u64> {
    let row = shape.last().copied().unwrap_or(1);
    if row % quant.block() != 0 {
        return None;
    }
    let weights = shape
        .iter()
        .try_fold(1u64, |product, &size| product.checked_mul(size as u64))?;
    (weights / quant.block() as u64).checked_mul(quant.block_bytes() as u64)
}

/// The number type that GGUF counts `kind`.
fn number(kind: u32) -> Option<Kind> {
    Some(match kind {
        0 => Kind::U8,
        1 => Kind::I8,
        2 => Kind::U16,
        3 => Kind::I16,
        4 => Kind::U32,
        5 => Kind::I32,
        6 => Kind::F32,
        7 => Kind::Bool,
        10 => Kind::U64,
        11 => Kind::I64,
        12 => Kind::F64,
        _ => return None,
    })
}

/// Names from the file go into messages: without control characters, and short.
fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    if name.chars().nth(80).is_some() {
        text.push('…');
    }
    text
}

/// GGML's name of a tensor type that assize does not read.
fn type_name(id: u32) -> &'static str {
    match id {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => "unknown",
    }
}
