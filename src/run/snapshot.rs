//! The file of a kept prefix: tokens that all prompts of a run begin with, and the pages of keys and values that belong to them.
//!
//! A magic word, the key of what made it, the number of tokens and the bytes of a page; then tokens, pages, and the sha256 of all before. Whatever
//! is read is untrusted: nothing is allocated before the sizes agree with the file's own, and nothing is used before the digest does. Knows no
//! engine and no folder.

use crate::engine::shared::Kept;
use crate::model::batch::PAGE;
use sha2::{Digest as _, Sha256};
use std::io::{self, Read, Write};

/// Most bytes that the pages of a file may have.
pub const MOST: u64 = 512 << 20;

/// Names what made the pages: model, kernels, type of cache, and all else that decides their bits.
pub type Key = [u8; 32];

const MAGIC: [u8; 16] = *b"assize prefix 1\n";
const HEADER: usize = 64;
const DIGEST: usize = 32;

/// Why a file is not used. None of this is a fault of the run.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not such a file, or of another version.
    #[error("it is not a kept prefix of this version")]
    Magic,
    /// Made by something else than what would use it.
    #[error("it belongs to another model, rubric or version")]
    Key,
    /// Sizes that do not fit the model, or each other.
    #[error(
        "{tokens} tokens in pages of {page} bytes do not fit a file of {length} bytes and pages of {expected}"
    )]
    Sizes {
        /// Tokens that it says it has.
        tokens: u64,
        /// Bytes of a page that it says it has.
        page: u64,
        /// Bytes that it has.
        length: u64,
        /// Bytes of the model's pages.
        expected: usize,
    },
    /// What is there is not what was written.
    #[error("its content does not have its digest")]
    Digest,
}

/// Writes a file.
///
/// # Errors
/// What the system says.
pub fn write(out: &mut impl Write, key: &Key, kept: &Kept, page: usize) -> io::Result<()> {
    let mut hasher = Sha256::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(bytes);
        out.write_all(bytes)
    };
    put(&MAGIC)?;
    put(key)?;
    put(&(kept.tokens.len() as u64).to_le_bytes())?;
    put(&(page as u64).to_le_bytes())?;
    let tokens: Vec<u8> = kept.tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
    put(&tokens)?;
    put(&kept.bytes)?;
    let digest: [u8; DIGEST] = hasher.finalize().into();
    out.write_all(&digest)
}

/// Reads a file of `length` bytes, whose pages must be of `page` bytes.
///
/// # Errors
/// Why it is not used.
pub fn read(input: &mut impl Read, length: u64, key: &Key, page: usize) -> Result<Kept, Refused> {
    let mut header = [0u8; HEADER];
    if length < HEADER as u64 {
        return Err(Refused::Magic);
    }
    input.read_exact(&mut header)?;
    let (magic, rest) = header.split_at(MAGIC.len());
    let (owner, counts) = rest.split_at(key.len());
    if magic != MAGIC {
        return Err(Refused::Magic);
    }
    if owner != key {
        return Err(Refused::Key);
    }
    let ([tokens, own], _) = counts.as_chunks::<8>() else {
        return Err(Refused::Magic);
    };
    let (tokens, own) = (u64::from_le_bytes(*tokens), u64::from_le_bytes(*own));
    let sizes = || Refused::Sizes {
        tokens,
        page: own,
        length,
        expected: page,
    };
    let bytes = tokens
        .checked_div(PAGE as u64)
        .and_then(|pages| pages.checked_mul(own))
        .filter(|bytes| *bytes <= MOST && own == page as u64)
        .ok_or_else(sizes)?;
    let whole = tokens.checked_mul(4).and_then(|ids| {
        ids.checked_add(bytes)?
            .checked_add((HEADER + DIGEST) as u64)
    });
    if whole != Some(length) || !tokens.is_multiple_of(PAGE as u64) {
        return Err(sizes());
    }
    let mut hasher = Sha256::new_with_prefix(header);
    // Their sum is the file's own length, which the bytes that are there bear out.
    let mut take = |count: u64| -> Result<Vec<u8>, Refused> {
        let mut bytes = Vec::new();
        (&mut *input).take(count).read_to_end(&mut bytes)?;
        match bytes.len() as u64 == count {
            true => Ok(bytes),
            false => Err(sizes()),
        }
    };
    let (ids, bytes) = (take(4 * tokens)?, take(bytes)?);
    let digest = take(DIGEST as u64)?;
    hasher.update(&ids);
    hasher.update(&bytes);
    if hasher.finalize()[..] != digest[..] {
        return Err(Refused::Digest);
    }
    let tokens = ids.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id));
    Ok(Kept {
        tokens: tokens.collect(),
        bytes,
    })
}
