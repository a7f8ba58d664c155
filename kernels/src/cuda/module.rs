//! The compiled kernels: loaded once a card, found by name, launched on candle's stream. Knows no operation.

use super::shapes::Card;
use candle_core::cuda_backend::CudaDevice;
use candle_core::cuda_backend::cudarc::driver::sys::{
    CUdevice_attribute as Attribute, CUfunction_attribute as FunctionAttribute, CUresult,
};
use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaStream, LaunchArgs, LaunchConfig,
};
use candle_core::cuda_backend::cudarc::nvrtc::Ptx;
use candle_core::{Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The modules that `build.rs` compiled, and the kernels that each has.
const MODULES: [(&[u8], &[&str]); 4] = [
    (
        include_bytes!(concat!(env!("OUT_DIR"), "/attention.fatbin")),
        &[
            "attend_64",
            "attend_96",
            "attend_128",
            "attend_256",
            "merge",
        ],
    ),
    (
        include_bytes!(concat!(env!("OUT_DIR"), "/rows.fatbin")),
        &["rms_norm", "rope", "write_rows", "gated", "add", "soft_cap"],
    ),
    (
        include_bytes!(concat!(env!("OUT_DIR"), "/readout.fatbin")),
        &["log_sum_exp", "gather", "argmax_masked"],
    ),
    (
        include_bytes!(concat!(env!("OUT_DIR"), "/dequantize.fatbin")),
        &["dequantize"],
    ),
];

/// The architectures that the kernels were compiled for, as compute capabilities without the dot: 90 is 9.0. A card of another one of the same
/// major number and a higher minor one can run them (but for 90, whose code is for 9.0 alone). A build for all of them also has code that drivers compile
/// for newer cards.
pub fn module_architectures() -> &'static [u32] {
    &include!(concat!(env!("OUT_DIR"), "/architectures.rs")).0
}

/// The architecture whose intermediate code is there, for drivers to compile for any newer card.
fn ptx_architecture() -> Option<u32> {
    include!(concat!(env!("OUT_DIR"), "/architectures.rs")).1
}

/// The kernels of one card.
pub struct Kernels {
    functions: HashMap<&'static str, CudaFunction>,
    /// What the card can do.
    pub card: Card,
}

/// The kernels on the stream of a device.
pub struct On {
    /// candle's device.
    pub device: CudaDevice,
    /// The kernels.
    pub kernels: Arc<Kernels>,
    stream: Arc<CudaStream>,
}

impl On {
    /// Loads the kernels where they are not yet.
    pub fn new(device: &CudaDevice) -> Result<On> {
        // Modules belong to a context, and a card has one, which lives as long as they do.
        static LOADED: Mutex<Vec<(usize, Arc<Kernels>)>> = Mutex::new(Vec::new());
        let stream = device.cuda_stream();
        let context = stream.context().cu_ctx() as usize;
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = loaded.iter().find(|(own, _)| *own == context);
        let kernels = match found {
            Some((_, kernels)) => kernels.clone(),
            None => {
                let kernels = Arc::new(load(&stream)?);
                loaded.push((context, kernels.clone()));
                kernels
            }
        };
        Ok(On {
            device: device.clone(),
            kernels,
            stream,
        })
    }

    /// A launch of a kernel, to which arguments are added in their order.
    pub fn arguments(&self, name: &str) -> Result<LaunchArgs<'_>> {
        match self.kernels.functions.get(name) {
            Some(function) => Ok(self.stream.launch_builder(function)),
            None => candle_core::bail!("no kernel {name} in this build"),
        }
    }

    /// Launches, unless there are no blocks.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and what they point to is as large as the kernel takes it to be.
    pub unsafe fn launch(
        &self,
        mut arguments: LaunchArgs<'_>,
        [x, y]: [usize; 2],
        threads: usize,
        bytes: usize,
    ) -> Result<()> {
        if x == 0 || y == 0 {
            return Ok(());
        }
        let number = |value: usize| u32::try_from(value).map_err(Error::wrap);
        let shape = LaunchConfig {
            grid_dim: (number(x)?, number(y)?, 1),
            block_dim: (number(threads)?, 1, 1),
            shared_mem_bytes: number(bytes)?,
        };
        // SAFETY: this function's contract.
        unsafe { arguments.launch(shape) }
            .map(|_| ())
            .map_err(Error::wrap)
    }
}

fn load(stream: &Arc<CudaStream>) -> Result<Kernels> {
    let context = stream.context();
    let attribute = |name: Attribute| -> Result<usize> {
        let value = context.attribute(name).map_err(Error::wrap)?;
        usize::try_from(value).map_err(Error::wrap)
    };
    let card = Card {
        processors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
    };
    let mut functions = HashMap::new();
    for (module, names) in MODULES {
        let module = context
            .load_module(Ptx::from_binary(module.to_vec()))
            .map_err(|error| match error.0 {
                CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
                | CUresult::CUDA_ERROR_INVALID_PTX
                | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                    let (major, minor) = context.compute_capability().unwrap_or_default();
                    let built: Vec<String> = module_architectures().iter().map(u32::to_string).collect();
                    let ptx = ptx_architecture().map_or(String::new(), |least| format!(", or later than {least} by its driver"));
                    Error::Msg(format!(
                        "this build has kernels for compute capability {}{ptx}; the card has {major}{minor}: build with CUDA_COMPUTE_CAP={major}{minor}",
                        built.join(", ")
                    ))
                }
                _ => Error::wrap(error),
            })?;
        for name in names {
            let function = module.load_function(name).map_err(Error::wrap)?;
            if name.starts_with("attend") {
                // More than 48 KiB of shared memory is had by those that ask.
                let bytes = i32::try_from(card.shared_bytes).map_err(Error::wrap)?;
                let most = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                function.set_attribute(most, bytes).map_err(Error::wrap)?;
            }
            functions.insert(*name, function);
        }
    }
    Ok(Kernels { functions, card })
}
