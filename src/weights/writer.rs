//! Writes a GGUF file (version 3) front to back: a header from metadata and a list of tensors, then the tensors' bytes in
//! the order of the list. It holds no tensor, checks that each gets exactly the bytes that its type and shape take, and
//! knows no file: anything that bytes can be written to will do.

use super::{Array, Kind, Metadata, Value};
use assize_kernels::Quant;
use std::io::{self, Write};

/// Where tensor data is aligned: GGUF's default, so that no key has to say it.
const ALIGNMENT: u64 = 32;

/// A tensor that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, unique in the file.
    pub name: String,
    /// Type of its blocks.
    pub quant: Quant,
    /// Shape, outermost first (the reverse of the order in the file).
    pub shape: Vec<usize>,
}

impl Entry {
    /// Elements of the last dimension.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows over all other dimensions.
    pub fn rows(&self) -> usize {
        let (_, outer) = self.shape.split_last().unwrap_or((&1, &[]));
        outer.iter().product()
    }

    /// Bytes of a row; `None` where it is no whole number of blocks.
    pub fn row_bytes(&self) -> Option<usize> {
        self.quant.row_bytes(self.columns())
    }

    /// Bytes of the tensor; `None` where its rows are no whole blocks, or it is too large to count.
    pub fn bytes(&self) -> Option<u64> {
        let rows = (self.shape.iter().rev().skip(1))
            .try_fold(1u64, |rows, size| rows.checked_mul(*size as u64))?;
        rows.checked_mul(self.row_bytes()? as u64)
    }
}

/// A GGUF file being written.
pub struct Writer<W: Write> {
    out: W,
    /// Bytes that each tensor takes, in their order.
    sizes: Vec<u64>,
    /// The tensor that is written next.
    at: usize,
    /// Bytes that it still lacks.
    missing: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header. Integers of the metadata are written in 32 bits where they fit, as other readers expect them.
    ///
    /// # Errors
    /// What `out` says; [`io::ErrorKind::InvalidInput`] for a tensor whose rows are no whole blocks, or for nested arrays.
    pub fn new(mut out: W, metadata: &Metadata, entries: &[Entry]) -> io::Result<Writer<W>> {
        let mut head = Vec::new();
        head.extend_from_slice(b"GGUF");
        head.extend_from_slice(&3u32.to_le_bytes());
        head.extend_from_slice(&(entries.len() as u64).to_le_bytes());
        head.extend_from_slice(&(metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata.iter() {
            text(&mut head, key);
            put(&mut head, value)?;
        }
        let mut sizes = Vec::with_capacity(entries.len());
        let mut offset = 0u64;
        for entry in entries {
            let refused = || invalid(format!("tensor {} can't have its shape", entry.name));
            let size = entry.bytes().ok_or_else(refused)?;
            text(&mut head, &entry.name);
            head.extend_from_slice(&(entry.shape.len() as u32).to_le_bytes());
            for size in entry.shape.iter().rev() {
                head.extend_from_slice(&(*size as u64).to_le_bytes());
            }
            head.extend_from_slice(&number_of(entry.quant)?.to_le_bytes());
            head.extend_from_slice(&offset.to_le_bytes());
            offset = size
                .checked_next_multiple_of(ALIGNMENT)
                .and_then(|size| offset.checked_add(size))
                .ok_or_else(refused)?;
            sizes.push(size);
        }
        pad(&mut head);
        out.write_all(&head)?;
        let missing = sizes.first().copied().unwrap_or(0);
        Ok(Writer {
            out,
            sizes,
            at: 0,
            missing,
        })
    }

    /// Writes the next bytes of the next tensor. They must not reach into the one after it.
    ///
    /// # Errors
    /// What the output says; [`io::ErrorKind::InvalidInput`] for bytes that the tensor has no room for.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > self.missing {
            let (bytes, missing) = (bytes.len(), self.missing);
            return Err(invalid(format!(
                "{bytes} bytes for a tensor that lacks {missing}"
            )));
        }
        self.out.write_all(bytes)?;
        self.missing -= bytes.len() as u64;
        if self.missing == 0 && self.at < self.sizes.len() {
            let over = self.sizes[self.at] % ALIGNMENT;
            if over > 0 {
                let zeros = [0; ALIGNMENT as usize];
                self.out.write_all(&zeros[over as usize..])?;
            }
            self.at += 1;
            self.missing = self.sizes.get(self.at).copied().unwrap_or(0);
        }
        Ok(())
    }

    /// Ends the file and gives back what it was written to.
    ///
    /// # Errors
    /// What the output says; [`io::ErrorKind::InvalidInput`] where a tensor lacks bytes.
    pub fn finish(mut self) -> io::Result<W> {
        if self.at < self.sizes.len() {
            return Err(invalid(format!("tensor {} lacks bytes", self.at)));
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// GGUF's number of a tensor type.
fn number_of(quant: Quant) -> io::Result<u32> {
    (0..64)
        .find(|id| Quant::from_ggml(*id) == Some(quant))
        .ok_or_else(|| invalid(format!("{quant:?} has no number")))
}

fn pad(head: &mut Vec<u8>) {
    head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Type and value.
fn put(out: &mut Vec<u8>, value: &Value) -> io::Result<()> {
    let mut number = |kind: Kind, bytes: &[u8]| {
        out.extend_from_slice(&kind_number(kind).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Unsigned(value) => match u32::try_from(*value) {
            Ok(value) => number(Kind::U32, &value.to_le_bytes()),
            Err(_) => number(Kind::U64, &value.to_le_bytes()),
        },
        Value::Signed(value) => match i32::try_from(*value) {
            Ok(value) => number(Kind::I32, &value.to_le_bytes()),
            Err(_) => number(Kind::I64, &value.to_le_bytes()),
        },
        Value::Float(value) => number(Kind::F32, &(*value as f32).to_le_bytes()),
        Value::Boolean(value) => number(Kind::Bool, &[u8::from(*value)]),
        Value::String(value) => {
            out.extend_from_slice(&8u32.to_le_bytes());
            text(out, value);
        }
        Value::Array(array) => {
            out.extend_from_slice(&9u32.to_le_bytes());
            match array {
                Array::Numbers { kind, bytes } => {
                    out.extend_from_slice(&kind_number(*kind).to_le_bytes());
                    out.extend_from_slice(&(array.len() as u64).to_le_bytes());
                    out.extend_from_slice(bytes);
                }
                Array::Strings(strings) => {
                    out.extend_from_slice(&8u32.to_le_bytes());
                    out.extend_from_slice(&(strings.len() as u64).to_le_bytes());
                    strings.iter().for_each(|string| text(out, string));
                }
                Array::Nested(_) => return Err(invalid("nested arrays are not written".into())),
            }
        }
    }
    Ok(())
}

/// GGUF's number of a number type.
fn kind_number(kind: Kind) -> u32 {
    match kind {
        Kind::U8 => 0,
        Kind::I8 => 1,
        Kind::U16 => 2,
        Kind::I16 => 3,
        Kind::U32 => 4,
        Kind::I32 => 5,
        Kind::F32 => 6,
        Kind::Bool => 7,
        Kind::U64 => 10,
        Kind::I64 => 11,
        Kind::F64 => 12,
    }
}

#[cfg(test)]
mod tests {
    use super::super::gguf;
    use super::*;
    use std::path::Path;

    fn entry(name: &str, quant: Quant, shape: &[usize]) -> Entry {
        Entry {
            name: name.into(),
            quant,
            shape: shape.into(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut metadata = Metadata::default();
        metadata.insert("a.text", Value::String("é\n".into()));
        metadata.insert("b.count", Value::Unsigned(7));
        metadata.insert("c.large", Value::Unsigned(u64::MAX));
        metadata.insert("d.negative", Value::Signed(-5));
        metadata.insert("e.float", Value::Float(0.5));
        metadata.insert("f.flag", Value::Boolean(true));
        let strings = vec!["x".into(), String::new()];
        metadata.insert("g.strings", Value::Array(Array::Strings(strings)));
        let bytes = vec![1, 2, 3, 4, 5, 6];
        let kind = Kind::U16;
        metadata.insert("h.numbers", Value::Array(Array::Numbers { kind, bytes }));
        let entries = [
            entry("one", Quant::F32, &[3]),
            entry("two", Quant::Q4_0, &[2, 64]),
            entry("three", Quant::Q8_0, &[2, 3, 32]),
        ];
        let mut writer = Writer::new(Vec::new(), &metadata, &entries).unwrap();
        writer.write(&[1; 12]).unwrap();
        writer.write(&[2; 36]).unwrap();
        writer.write(&[3; 36]).unwrap();
        writer.write(&[4; 6 * 34]).unwrap();
        let file = writer.finish().unwrap();
        let read = gguf::parse(&file, Path::new("test")).unwrap();
        assert_eq!((read.version, &read.metadata), (3, &metadata));
        let found: Vec<_> = read
            .tensors
            .iter()
            .map(|tensor| entry(&tensor.name, tensor.quant, &tensor.shape))
            .collect();
        assert_eq!(found, entries);
        let bytes = |at: usize| &file[read.tensors[at].range.clone()];
        assert!(bytes(0).iter().all(|byte| *byte == 1));
        assert_eq!((bytes(1)[0], bytes(1)[71]), (2, 3));
        assert!(bytes(2).iter().all(|byte| *byte == 4));
    }

    #[test]
    fn too_few_and_too_many_bytes_are_refused() {
        let entries = [entry("one", Quant::F32, &[2])];
        let writer = || Writer::new(Vec::new(), &Metadata::default(), &entries).unwrap();
        assert!(writer().write(&[0; 9]).is_err());
        let mut short = writer();
        short.write(&[0; 4]).unwrap();
        assert!(short.finish().is_err());
        let broken = [entry("one", Quant::Q4_K, &[2, 128])];
        assert!(Writer::new(Vec::new(), &Metadata::default(), &broken).is_err());
        assert!(Writer::new(Vec::new(), &Metadata::default(), &[]).is_ok());
    }
}
