//! What a device can do at most, as found in this run: dense products in bf16, and a copy within its memory.

use candle_core::{DType, Device, Result, Tensor};
use std::time::Instant;

/// The two ceilings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Operations a second of a large product in bf16, a product and an addition being two.
    pub products: f64,
    /// Bytes a second of a copy, read and written ones together.
    pub copy: f64,
}

/// Runs of each measurement; the fastest counts, since a disturbance only ever slows.
const RUNS: usize = 8;

/// Measures with squares of `side` and a copy of `bytes`.
///
/// # Errors
/// What the device says, such as that its memory is too small.
pub fn measure(device: &Device, side: usize, bytes: usize) -> Result<Ceilings> {
    // Random numbers: a card does zeros faster than anything that it is used for.
    let square = || Tensor::randn(0f32, 1f32, (side, side), device)?.to_dtype(DType::BF16);
    let (a, b) = (square()?, square()?);
    let product = fastest(device, || a.matmul(&b).map(drop))?;
    drop((a, b));
    let block = Tensor::zeros(bytes.div_ceil(4), DType::F32, device)?;
    let copy = fastest(device, || block.copy().map(drop))?;
    Ok(Ceilings {
        products: 2.0 * (side as f64).powi(3) / product,
        copy: 2.0 * bytes as f64 / copy,
    })
}

/// Seconds of the fastest run; the first one does not count.
fn fastest(device: &Device, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for run in 0..=RUNS {
        device.synchronize()?;
        let began = Instant::now();
        work()?;
        device.synchronize()?;
        if run > 0 {
            least = least.min(began.elapsed().as_secs_f64());
        }
    }
    Ok(least.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_rates() {
        let found = measure(&Device::Cpu, 64, 1 << 16).unwrap();
        assert!(found.products > 1e6 && found.copy > 1e6, "{found:?}");
        assert!(found.products.is_finite() && found.copy.is_finite());
    }
}
