//! The tensors of the KV cache: for each layer one of keys and one of values, in pages of 16 positions.
//!
//! Which page belongs to which sequence is the engine's affair; here pages are only storage.

use super::ModelError;
use super::batch::{PAGE, PageId};
use super::config::Config;
use assize_kernels::cache::Part;
use assize_kernels::{Precision, bridge};
use candle_core::{DType, Device, Result, Tensor};
use half::f16;
use half::vec::HalfBitsVecExt;

/// Bytes that one page takes, in all layers together.
pub fn page_bytes(config: &Config, precision: Precision) -> usize {
    let value = dtype(precision).size_in_bytes();
    2 * config.layers() * PAGE * config.kv_heads * config.head_dim * value
}

/// Keys and values of a layer: `f16`, or `f32` on the exact path.
pub(super) struct LayerCache {
    /// Keys, rotated already: `[pages, kv_heads, head_dim, 16]`.
    pub(super) keys: Tensor,
    /// Values: `[pages, kv_heads, 16, head_dim]`.
    pub(super) values: Tensor,
}

/// The caches of all layers.
pub(super) fn allocate(
    config: &Config,
    precision: Precision,
    pages: usize,
) -> std::result::Result<Vec<LayerCache>, ModelError> {
    let fits = pages
        .checked_mul(page_bytes(config, precision))
        .is_some_and(|bytes| bytes <= isize::MAX as usize);
    if pages == 0 || pages > u32::MAX as usize / PAGE || !fits {
        return Err(ModelError::Options(format!(
            "a cache of {pages} pages can't be had"
        )));
    }
    let (heads, dim) = (config.kv_heads, config.head_dim);
    let zeros = |shape: [usize; 4]| match precision {
        // Zeroed integers come untouched from the system, so that a page costs memory only once it is written.
        Precision::Quantized | Precision::Refined => {
            let zeros: Vec<f16> = vec![0u16; shape.iter().product()].reinterpret_into();
            Tensor::from_vec(zeros, &shape, &Device::Cpu)
        }
        Precision::Exact => {
            Tensor::from_vec(vec![0f32; shape.iter().product()], &shape, &Device::Cpu)
        }
    };
    (0..config.layers())
        .map(|_| {
            Ok(LayerCache {
                keys: zeros([pages, heads, dim, PAGE])?,
                values: zeros([pages, heads, PAGE, dim])?,
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

/// The type of cached keys and values.
fn dtype(precision: Precision) -> DType {
    match precision {
        Precision::Quantized | Precision::Refined => DType::F16,
        Precision::Exact => DType::F32,
    }
}
