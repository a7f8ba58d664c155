//! The head of a file of packed weights: what it was packed from, under which layout, which matrix lies where, and the digest of
//! every chunk of what follows. Knows no file: it is read from bytes and written to bytes, and believes none of them unchecked.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic, and version of this format |
//! | 8 | length of the JSON, little-endian |
//! | 32 | sha256 of the JSON |
//! | as many | the JSON of [`Head`] |
//! | up to a multiple of 4096 | zeros |

use super::super::verify::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes of panels that share a digest.
pub(super) const CHUNK: usize = 4 << 20;

/// Magic and version of the format.
const MAGIC: &[u8; 8] = b"assizeP1";

/// What comes before the JSON.
const FIXED: usize = 48;

/// Where the panels may begin: a page of memory.
const PAGE: usize = 4096;

/// Longest JSON that is read: a hundred thousand matrices and a file of a terabyte take some twenty million bytes.
const LONGEST: u64 = 1 << 26;

/// What the JSON holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    /// Version of the panels' layout.
    pub layout: u32,
    /// sha256 of the model, as it is told of the whole.
    pub source: String,
    /// Bytes of the panels.
    pub bytes: u64,
    /// sha256 of each chunk of them, in hex.
    pub chunks: Vec<String>,
    /// The matrices, in the order of their panels.
    pub matrices: Vec<Entry>,
}

/// A matrix: some rows of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Name of the tensor.
    pub name: String,
    /// Its first row in the tensor.
    pub first: usize,
    /// Name of its type.
    pub quant: String,
    /// Its rows.
    pub outputs: usize,
    /// Its columns.
    pub inputs: usize,
    /// Where its panels begin, counted from those of the first matrix.
    pub at: usize,
}

/// A head that was read.
pub(super) struct Read {
    /// The head.
    pub head: Head,
    /// Its digest in hex, which stands for the panels too.
    pub digest: String,
    /// Where the panels begin.
    pub start: usize,
}

impl Head {
    /// Reads the head of a file, whose other bytes must be exactly its panels.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn read(file: &[u8]) -> Result<Read, String> {
        let fixed = file.get(..FIXED).ok_or("cut off in its first bytes")?;
        let (magic, fixed) = fixed.split_at(8);
        if magic != MAGIC {
            return Err("not a file of packed weights, or of another version".into());
        }
        let (length, expected) = fixed.split_at(8);
        let length = length
            .try_into()
            .map(u64::from_le_bytes)
            .unwrap_or(u64::MAX);
        let json = usize::try_from(length)
            .ok()
            .filter(|_| length <= LONGEST)
            .and_then(|length| file.get(FIXED..FIXED + length))
            .ok_or_else(|| format!("the head claims {length} bytes"))?;
        let digest = Sha256::digest(json);
        if digest[..] != *expected {
            return Err("the head does not have its digest".into());
        }
        let head: Head = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let start = (FIXED + json.len()).next_multiple_of(PAGE);
        let found = file.len().checked_sub(start).map(|found| found as u64);
        if found != Some(head.bytes) {
            let (bytes, file) = (head.bytes, file.len());
            return Err(format!(
                "{bytes} bytes of panels can't be in a file of {file}"
            ));
        }
        if head.bytes.div_ceil(CHUNK as u64) != head.chunks.len() as u64 {
            return Err("another number of digests than of chunks".into());
        }
        Ok(Read {
            head,
            digest: hex(&digest),
            start,
        })
    }

    /// The head as it lies before the panels. Its length does not depend on what the digests are.
    ///
    /// # Errors
    /// A head that would not be read again.
    pub fn write(&self) -> std::io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        if json.len() as u64 > LONGEST {
            let many = self.matrices.len();
            return Err(std::io::Error::other(format!(
                "{many} matrices are too many"
            )));
        }
        let mut head = Vec::with_capacity((FIXED + json.len()).next_multiple_of(PAGE));
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&(json.len() as u64).to_le_bytes());
        head.extend_from_slice(&Sha256::digest(&json));
        head.extend_from_slice(&json);
        head.resize(head.len().next_multiple_of(PAGE), 0);
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            layout: 1,
            source: "ab".repeat(32),
            bytes: 5,
            chunks: vec!["0".repeat(64)],
            matrices: vec![Entry {
                name: "blk.0.\"é\"".into(),
                first: 3,
                quant: "Q4_K".into(),
                outputs: 2,
                inputs: 256,
                at: 0,
            }],
        }
    }

    fn file(head: &Head, panels: usize) -> Vec<u8> {
        let mut file = head.write().expect("a head");
        file.resize(file.len() + panels, 7);
        file
    }

    #[test]
    fn what_was_written_is_read() {
        let read = Head::read(&file(&head(), 5)).expect("a sound file");
        assert_eq!((read.head, read.start), (head(), 4096));
        let mut other = head();
        other.chunks[0] = "f".repeat(64);
        assert_eq!(
            other.write().expect("a head").len(),
            head().write().expect("a head").len()
        );
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let check = |file: &[u8], expect: &str| {
            let error = Head::read(file)
                .err()
                .unwrap_or_else(|| panic!("read, though {expect}"));
            assert!(error.contains(expect), "{error}\nshould say: {expect}");
        };
        let whole = file(&head(), 5);
        check(&whole[..20], "first bytes");
        check(&file(&head(), 4), "5 bytes of panels");
        check(&file(&head(), 6), "5 bytes of panels");
        check(&[&b"GGUF"[..], &whole[4..]].concat(), "not a file");
        for (at, value, expect) in [(60, 1, "digest"), (20, 1, "digest"), (14, 1, "claims")] {
            let mut broken = whole.clone();
            broken[at] ^= value;
            check(&broken, expect);
        }
        let mut several = head();
        several.chunks.push("0".repeat(64));
        check(&file(&several, 5), "number of digests");
    }
}
