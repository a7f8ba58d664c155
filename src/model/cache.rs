//! The tensors of the KV cache: for each layer one of keys and one of values, in pages of 16 positions.
//!
//! Which page belongs to which sequence is the engine's affair; here pages are only storage.

use super::ModelError;
use super::batch::{PAGE, PageId};
use super::config::Config;
use assize_kernels::bridge::{self, Pass};
use assize_kernels::cache::Part;
use assize_kernels::{CacheType, Precision};
use candle_core::{Device, Result, Tensor};

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// Both in single precision.
    F32,
    /// Both in half precision.
    F16,
    /// Keys in half precision, values in 8 bits.
    Q8Values,
    /// Both in 8 bits.
    Q8,
    /// Both in bf16: what a device keeps.
    Bf16,
}

impl KvType {
    /// What a precision keeps unless it is told otherwise.
    pub fn of(precision: Precision) -> KvType {
        match precision {
            Precision::Quantized | Precision::Refined => KvType::F16,
            Precision::Exact => KvType::F32,
        }
    }

    /// Its name: `f32`, `f16`, `q8v`, `q8` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Q8Values => "q8v",
            KvType::Q8 => "q8",
            KvType::Bf16 => "bf16",
        }
    }

    /// How keys, or values, lie.
    pub fn part(self, part: Part) -> CacheType {
        match (self, part) {
            (KvType::F32, _) => CacheType::F32,
            (KvType::F16, _) | (KvType::Q8Values, Part::Keys) => CacheType::F16,
            (KvType::Q8, _) | (KvType::Q8Values, Part::Values) => CacheType::Q8,
            (KvType::Bf16, _) => CacheType::Bf16,
        }
    }
}

/// Bytes that one page takes, in all layers together.
pub fn page_bytes(config: &Config, kind: KvType) -> usize {
    let [keys, values] = [Part::Keys, Part::Values].map(|part| {
        let bytes = kind.part(part).head_bytes(config.head_dim);
        bytes.unwrap_or(usize::MAX)
    });
    let heads = config.layers().saturating_mul(config.kv_heads);
    heads.saturating_mul(keys.saturating_add(values))
}

/// Keys and values of a layer.
pub(super) struct LayerCache {
    /// Keys, rotated already: `[pages, kv_heads, head_dim, 16]`, or in 8 bits `[pages, kv_heads, words]`; on a device as values lie.
    pub(super) keys: Tensor,
    /// Values: `[pages, kv_heads, 16, head_dim]`, or in 8 bits `[pages, kv_heads, words]`.
    pub(super) values: Tensor,
}

/// The caches of all layers, on the device where the layers are.
pub(super) fn allocate(
    config: &Config,
    kind: KvType,
    pages: usize,
    device: &Device,
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
                keys: bridge::new_cache(kind.part(Part::Keys), Part::Keys, shape, device)?,
                values: bridge::new_cache(kind.part(Part::Values), Part::Values, shape, device)?,
            })
        })
        .collect()
}

impl LayerCache {
    /// Writes one row of keys and values, `[T, kv_heads, head_dim]` each, to each of the pass's slots.
    pub(super) fn write(&self, keys: &Tensor, values: &Tensor, pass: &Pass) -> Result<()> {
        bridge::write_both([&self.keys, &self.values], [keys, values], pass)
    }

    /// Bytes of a page, keys and values together.
    pub(super) fn page_bytes(&self) -> usize {
        bridge::page_bytes(&self.keys) + bridge::page_bytes(&self.values)
    }

    /// Appends the bytes of a page: keys, then values.
    pub(super) fn read_page(&self, page: PageId, to: &mut Vec<u8>) -> Result<()> {
        bridge::read_page(&self.keys, page, to)?;
        bridge::read_page(&self.values, page, to)
    }

    /// Fills a page with as many bytes as it has.
    pub(super) fn write_page(&self, page: PageId, from: &[u8]) -> Result<()> {
        let (keys, values) = from.split_at(bridge::page_bytes(&self.keys).min(from.len()));
        bridge::write_page(&self.keys, page, keys)?;
        bridge::write_page(&self.values, page, values)
    }

    /// Copies a page.
    pub(super) fn copy_page(&self, from: PageId, to: PageId) -> Result<()> {
        bridge::copy_page(&self.keys, from, to)?;
        bridge::copy_page(&self.values, from, to)
    }
}
