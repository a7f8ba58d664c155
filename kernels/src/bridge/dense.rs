//! Products with dense weights on an NVIDIA card: factors in bf16 or f16 on its tensor cores, sums and results in single precision, through cuBLAS.
//!
//! candle's own product gives results in the type of its factors: logits of 20 in bf16 are off by up to 0.06, which no verdict survives.

use candle_core::backend::BackendStorage as _;
use candle_core::cuda_backend::CudaDType;
use candle_core::cuda_backend::cudarc::cublas::result::gemm_ex;
use candle_core::cuda_backend::cudarc::cublas::sys;
use candle_core::cuda_backend::cudarc::driver::{DevicePtr as _, DevicePtrMut as _, DeviceRepr};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp2, DType, Error, Layout, Result, Shape, Tensor,
};
use half::{bf16, f16};
use std::ffi::{c_int, c_void};

/// `x`, `[T, inputs]`, times `weight`, `[outputs, inputs]`, both in bf16 or both in f16: `[T, outputs]` in f32.
pub(super) fn multiply(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.contiguous()?.apply_op2_no_bwd(weight, &Multiply)
}

struct Multiply;

impl CustomOp2 for Multiply {
    fn name(&self) -> &'static str {
        "dense product"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        candle_core::bail!("this product is one of a card")
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        x_layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (rows, inputs) = x_layout.shape().dims2()?;
        let (outputs, columns) = weight_layout.shape().dims2()?;
        if columns != inputs {
            candle_core::bail!("rows of {inputs} meet weights of {columns}");
        }
        let contiguous = |layout: &Layout| {
            let offsets = layout.contiguous_offsets();
            offsets.ok_or_else(|| Error::Msg("a product takes contiguous tensors".into()))
        };
        let ranges = [contiguous(x_layout)?, contiguous(weight_layout)?];
        let shape = [rows, outputs, inputs];
        match x.dtype() {
            DType::F16 => {
                product::<f16>([x, weight], ranges, shape, sys::cudaDataType_t::CUDA_R_16F)
            }
            _ => product::<bf16>([x, weight], ranges, shape, sys::cudaDataType_t::CUDA_R_16BF),
        }
    }
}

/// The product of factors of type `T`, which cuBLAS calls `kind`.
fn product<T: CudaDType + DeviceRepr>(
    [x, weight]: [&CudaStorage; 2],
    [x_range, weight_range]: [(usize, usize); 2],
    [rows, outputs, inputs]: [usize; 3],
    kind: sys::cudaDataType_t,
) -> Result<(CudaStorage, Shape)> {
    let device = x.device();
    let stream = device.cuda_stream();
    let (x, weight) = (x.as_cuda_slice::<T>()?, weight.as_cuda_slice::<T>()?);
    let x = x.slice(x_range.0..x_range.1);
    let weight = weight.slice(weight_range.0..weight_range.1);
    // SAFETY: the product below writes every element before anything reads one.
    let mut out = unsafe { device.alloc::<f32>(rows * outputs)? };
    let (m, n, k) = (int(outputs)?, int(rows)?, int(inputs)?);
    let (one, zero) = (1f32, 0f32);
    {
        let (x, _x) = x.device_ptr(&stream);
        let (weight, _weight) = weight.device_ptr(&stream);
        let (out, _out) = out.device_ptr_mut(&stream);
        let blas = device.cublas_handle();
        // cuBLAS counts by columns: its `[outputs, rows]` is our `[rows, outputs]`, and the weights are met turned.
        // SAFETY: the three pointers are of memory on this device that lives until the guards beside them fall, of `m * k`, `k * n` and `m * n`
        // elements of the types named, as was checked; the factors are numbers on the host that live until the call returns.
        unsafe {
            gemm_ex(
                *blas.handle(),
                sys::cublasOperation_t::CUBLAS_OP_T,
                sys::cublasOperation_t::CUBLAS_OP_N,
                m,
                n,
                k,
                (&raw const one).cast::<c_void>(),
                weight as *const c_void,
                kind,
                k,
                x as *const c_void,
                kind,
                k,
                (&raw const zero).cast::<c_void>(),
                out as *mut c_void,
                sys::cudaDataType_t::CUDA_R_32F,
                m,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP,
            )
        }
        .map_err(Error::wrap)?;
    }
    let device = device.clone();
    let storage = CudaStorage::wrap_cuda_slice(out, device);
    Ok((storage, Shape::from((rows, outputs))))
}

fn int(size: usize) -> Result<c_int> {
    c_int::try_from(size).map_err(Error::wrap)
}
