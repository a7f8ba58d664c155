//! Tensors as arguments of kernels: read access to a contiguous one, and fresh results of either type. Knows no operation.

use super::module::On;
use candle_core::cuda_backend::cudarc::driver::{
    CudaSlice, CudaView, DeviceRepr, LaunchArgs, PushKernelArg,
};
use candle_core::cuda_backend::{CudaDType, CudaDevice, CudaStorage};
use candle_core::op::BackpropOp;
use candle_core::{DType, Error, Layout, Result, Shape, Storage, StorageRef, Tensor};
use half::bf16;

/// Read access to a contiguous tensor on a card, for as long as it lives.
pub struct Guard<'a> {
    storage: StorageRef<'a>,
    start: usize,
    end: usize,
}

impl<'a> Guard<'a> {
    /// Fails where the tensor is elsewhere, or not contiguous.
    pub fn new(tensor: &'a Tensor) -> Result<Guard<'a>> {
        let (storage, layout) = tensor.storage_and_layout();
        let (start, end) = contiguous(layout)?;
        let guard = Guard {
            storage,
            start,
            end,
        };
        guard.cuda()?;
        Ok(guard)
    }

    fn cuda(&self) -> Result<&CudaStorage> {
        match &*self.storage {
            Storage::Cuda(storage) => Ok(storage),
            _ => candle_core::bail!("the kernels for NVIDIA cards take tensors that are on one"),
        }
    }

    /// The kernels of the card that it is on.
    pub fn on(&self) -> Result<On> {
        On::new(&self.cuda()?.device)
    }

    /// The device that it is on.
    pub fn device(&self) -> Result<&CudaDevice> {
        Ok(&self.cuda()?.device)
    }

    /// Its elements.
    pub fn view<T: CudaDType + DeviceRepr>(&self) -> Result<CudaView<'_, T>> {
        Ok(self
            .cuda()?
            .as_cuda_slice::<T>()?
            .slice(self.start..self.end))
    }
}

/// Where a contiguous tensor lies in its storage.
pub fn contiguous(layout: &Layout) -> Result<(usize, usize)> {
    layout
        .contiguous_offsets()
        .ok_or_else(|| Error::Msg("the kernels take contiguous tensors".to_string()))
}

/// Fails where two tensors are on different cards.
pub fn same_card(guards: &[&Guard<'_>]) -> Result<()> {
    for guard in guards {
        if guard.device()?.id() != guards[0].device()?.id() {
            candle_core::bail!("the tensors of one operation are on different cards");
        }
    }
    Ok(())
}

/// A result that a kernel fills.
pub enum Fresh {
    /// In single precision.
    Single(CudaSlice<f32>),
    /// In bf16.
    Brief(CudaSlice<bf16>),
}

impl Fresh {
    /// Memory for so many elements of a type, F32 or BF16, of any content.
    ///
    /// # Safety
    /// Every element is written before it is read.
    pub unsafe fn new(device: &CudaDevice, count: usize, kind: DType) -> Result<Fresh> {
        match kind {
            // SAFETY: this function's contract.
            DType::F32 => Ok(Fresh::Single(unsafe { device.alloc(count) }?)),
            // SAFETY: as above.
            DType::BF16 => Ok(Fresh::Brief(unsafe { device.alloc(count) }?)),
            other => candle_core::bail!("results are in F32 or BF16, not in {other:?}"),
        }
    }

    /// As [`Fresh::new`], all zeros.
    pub fn zeros(device: &CudaDevice, count: usize, kind: DType) -> Result<Fresh> {
        match kind {
            DType::F32 => Ok(Fresh::Single(device.alloc_zeros(count)?)),
            DType::BF16 => Ok(Fresh::Brief(device.alloc_zeros(count)?)),
            other => candle_core::bail!("results are in F32 or BF16, not in {other:?}"),
        }
    }

    /// 1 for bf16, as kernels have it.
    pub fn brief(&self) -> u32 {
        match self {
            Fresh::Single(_) => 0,
            Fresh::Brief(_) => 1,
        }
    }

    /// Adds it to a kernel's arguments.
    pub fn add_to<'a>(&'a mut self, arguments: &mut LaunchArgs<'a>) {
        match self {
            Fresh::Single(slice) => arguments.arg(slice),
            Fresh::Brief(slice) => arguments.arg(slice),
        };
    }

    /// As a tensor.
    pub fn into_tensor(self, device: &CudaDevice, shape: impl Into<Shape>) -> Tensor {
        let device = device.clone();
        let storage = match self {
            Fresh::Single(slice) => CudaStorage::wrap_cuda_slice(slice, device),
            Fresh::Brief(slice) => CudaStorage::wrap_cuda_slice(slice, device),
        };
        Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false)
    }
}

/// A number as kernels have it.
pub fn number(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(Error::wrap)
}
