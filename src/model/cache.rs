//! The tensors of the KV cache: for each layer one of keys and one of values, in pages of 16 positions.
//!
//! Which page belongs to which sequence is the engine's affair; here pages are only storage.

use super::ModelError;
use super::batch::{PAGE, PageId};
use super::config::Config;
use assize_kernels::cache::Part;
use assize_kernels::{CacheType, bridge};
use candle_core::{Result, Tensor};

/// Bytes that one page takes, in all layers together.
pub fn page_bytes(config: &Config, kind: CacheType) -> usize {
    let head = kind.head_bytes(config.head_dim).unwrap_or(usize::MAX);
    let heads = config.layers().saturating_mul(config.kv_heads);
    heads.saturating_mul(head).saturating_mul(2)
}

/// Keys and values of a layer, of one type.
pub(super) struct LayerCache {
    /// Keys, rotated already: `[pages, kv_heads, head_dim, 16]`, or in 8 bits `[pages, kv_heads, words]`.
    pub(super) keys: Tensor,
    /// Values: `[pages, kv_heads, 16, head_dim]`, or in 8 bits `[pages, kv_heads, words]`.
    pub(super) values: Tensor,
}

/// The caches of all layers.
pub(super) fn allocate(
    config: &Config,
    kind: CacheType,
    pages: usize,
) -> std::result::Result<Vec<LayerCache>, ModelError> {
    let fits = pages
        .checked_mul(page_bytes(config, kind))
        .is_some_and(|bytes| bytes <= isize::MAX as usize);
    if pages == 0 || pages > u32::MAX as usize / PAGE || !fits {
        return Err(ModelError::Options(format!(
            "a cache of {pages} pages can't be had"
        )));
    }
    let shape = [pages, config.kv_heads, config.head_dim];
    (0..config.layers())
        .map(|_| {
            Ok(LayerCache {
                keys: bridge::new_cache(kind, Part::Keys, shape)?,
                values: bridge::new_cache(kind, Part::Values, shape)?,
            })
        })
        .collect()
}

impl LayerCache {
    /// Writes one row of keys and values, `[T, kv_heads, head_dim]` each, to each slot: `page · 16 + offset`.
    pub(super) fn write(&self, keys: &Tensor, values: &Tensor, slots: &[u32]) -> Result<()> {
        bridge::write_rows(&self.keys, Part::Keys, keys, slots)?;
        bridge::write_rows(&self.values, Part::Values, values, slots)
    }

    /// Copies a page.
    pub(super) fn copy_page(&self, from: PageId, to: PageId) -> Result<()> {
        bridge::copy_page(&self.keys, from, to)?;
        bridge::copy_page(&self.values, from, to)
    }
}
