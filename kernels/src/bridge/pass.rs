//! What all layers of a pass have in common: whose its rows are, and where their keys and values go. On a device these tables are brought
//! there once a pass.

use crate::Span;
use candle_core::{Device, Result};

/// The rows of a pass, or those of them that attend.
pub struct Pass {
    pub(super) spans: Vec<Span>,
    pub(super) slots: Vec<u32>,
    #[cfg(feature = "cuda")]
    cuda: Option<crate::cuda::Plan>,
    /// The slots there; nothing where nothing is to be written, since a card has no empty memory.
    #[cfg(any(feature = "cuda", feature = "metal"))]
    slots_there: Option<candle_core::Tensor>,
}

impl Pass {
    /// The rows of `spans`, on `device`. Row `i` goes to slot `slots[i]`, `page * PAGE + offset`; there are none where nothing is to be written.
    pub fn new(device: &Device, spans: Vec<Span>, slots: Vec<u32>) -> Result<Pass> {
        #[cfg(not(any(feature = "cuda", feature = "metal")))]
        let _ = device;
        Ok(Pass {
            #[cfg(feature = "cuda")]
            cuda: match device {
                Device::Cuda(_) => Some(crate::cuda::Plan::new(device, &spans)?),
                _ => None,
            },
            #[cfg(any(feature = "cuda", feature = "metal"))]
            slots_there: match device.is_cpu() || slots.is_empty() {
                true => None,
                false => Some(candle_core::Tensor::new(slots.as_slice(), device)?),
            },
            spans,
            slots,
        })
    }

    /// The tables of attention on the device.
    #[cfg(feature = "cuda")]
    pub(super) fn plan(&self) -> Result<&crate::cuda::Plan> {
        match &self.cuda {
            Some(plan) => Ok(plan),
            None => candle_core::bail!("this pass is of another device"),
        }
    }

    /// The slots on the device.
    #[cfg(any(feature = "cuda", feature = "metal"))]
    pub(super) fn slots_there(&self) -> Result<&candle_core::Tensor> {
        match &self.slots_there {
            Some(slots) => Ok(slots),
            None => candle_core::bail!("this pass writes nothing, or is of another device"),
        }
    }
}
