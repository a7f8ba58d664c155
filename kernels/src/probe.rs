//! What NVIDIA cards there are, found without touching a library that may not be here: the binary is linked with none of them. Knows no tensor.

/// A card that the driver tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its number, as the driver counts.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability, such as 90 for 9.0.
    pub capability: u32,
    /// Bytes of memory that are free.
    pub free: u64,
    /// Bytes of memory that it has.
    pub total: u64,
}

/// Why no card, or not this one, can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// The build has no kernels for cards.
    #[error("this build has no kernels for NVIDIA cards; build with --features cuda")]
    NotBuilt,
    /// There is no driver.
    #[error("there is no NVIDIA driver: libcuda.so.1 was not found")]
    Driver,
    /// The driver is older than the kernels of this build.
    #[error(
        "the NVIDIA driver serves CUDA {found}, and this build needs {needed}; install a newer driver"
    )]
    DriverVersion {
        /// What it serves.
        found: String,
        /// What it would have to serve.
        needed: String,
    },
    /// A library that products need.
    #[error(
        "the library {library} was not found; it comes in the package {package}: put its folder on LD_LIBRARY_PATH"
    )]
    Library {
        /// The library.
        library: &'static str,
        /// A Python package that has it; toolkits have it, too.
        package: &'static str,
    },
    /// The build has no kernels for cards of this kind.
    #[error(
        "the card has compute capability {card}, and this build has kernels for {built}; build with CUDA_COMPUTE_CAP={digits}"
    )]
    Capability {
        /// The card's.
        card: String,
        /// What there is.
        built: String,
        /// What to build for.
        digits: u32,
    },
    /// The driver refused.
    #[error("the NVIDIA driver says: {0}")]
    Refused(String),
}

/// The cards that the driver tells of, in its order.
///
/// # Errors
/// Why there is none to tell of.
pub fn cards() -> Result<Vec<Card>, Absent> {
    #[cfg(feature = "cuda")]
    return cuda::cards();
    #[cfg(not(feature = "cuda"))]
    Err(Absent::NotBuilt)
}

/// Whether a card can be computed on with what is here and with what this build has.
///
/// # Errors
/// What is missing.
pub fn usable(card: &Card) -> Result<(), Absent> {
    #[cfg(feature = "cuda")]
    return cuda::libraries()
        .and_then(|()| fits(card.capability, CANDLE, crate::cuda::module_architectures()));
    #[cfg(not(feature = "cuda"))]
    {
        let _ = card;
        Err(Absent::NotBuilt)
    }
}

/// What candle's own kernels were compiled for: as its build script reads it.
#[cfg(feature = "cuda")]
const CANDLE: Option<&str> = option_env!("ASSIZE_CUDA_CAPABILITY");

/// Whether a card of such a capability runs both candle's kernels, which are for one, and ours, which are for several. Machine code of 8.0 runs on
/// 8.6, but none of 9.0 on 8.9 or 10.0, and candle's from 9.0 on uses what later cards no longer have.
#[cfg(any(feature = "cuda", test))]
fn fits(card: u32, candle: Option<&str>, ours: &[u32]) -> Result<(), Absent> {
    let serves = |built: u32| built / 10 == card / 10 && built <= card;
    let candle: Option<u32> = candle.and_then(|built| {
        let digits: String = built.chars().filter(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    let by_candle = candle.is_none_or(|built| match built {
        90.. => built == card,
        _ => serves(built),
    });
    let by_us = ours.iter().any(|built| serves(*built));
    if by_candle && by_us {
        return Ok(());
    }
    let dotted = |capability: u32| format!("{}.{}", capability / 10, capability % 10);
    let built = match candle.filter(|_| !by_candle) {
        Some(built) => dotted(built),
        None => {
            let all: Vec<String> = ours.iter().map(|built| dotted(*built)).collect();
            all.join(", ")
        }
    };
    Err(Absent::Capability {
        card: dotted(card),
        built,
        digits: card,
    })
}

#[cfg(feature = "cuda")]
mod cuda {
    use super::{Absent, Card};
    use candle_core::cuda_backend::cudarc::driver::{CudaContext, DriverError, sys};

    /// Whether a library can be opened. Where the binary was linked with it, it can.
    macro_rules! present {
        ($library:ident) => {{
            #[cfg(feature = "dynamic-loading")]
            // SAFETY: opening one of NVIDIA's libraries runs its own start, which asks nothing of the one who opens it.
            let found = unsafe {
                candle_core::cuda_backend::cudarc::$library::sys::is_culib_present()
            };
            #[cfg(not(feature = "dynamic-loading"))]
            let found = true;
            found
        }};
    }

    pub(super) fn libraries() -> Result<(), Absent> {
        let missing = |library, package| Err(Absent::Library { library, package });
        if !present!(cublas) {
            return missing("libcublas.so", "nvidia-cublas");
        }
        if !present!(curand) {
            return missing("libcurand.so", "nvidia-curand");
        }
        Ok(())
    }

    pub(super) fn cards() -> Result<Vec<Card>, Absent> {
        if !present!(driver) {
            return Err(Absent::Driver);
        }
        let mut version = 0;
        // SAFETY: the driver is here, and writes one number to where it may.
        let told = unsafe { sys::cuDriverGetVersion(&raw mut version) };
        told.result().map_err(refused)?;
        let (found, needed) = (version.max(0) as u32, sys::CUDA_VERSION);
        if found / 1000 < needed / 1000 {
            let dotted = |version: u32| format!("{}.{}", version / 1000, version % 1000 / 10);
            return Err(Absent::DriverVersion {
                found: dotted(found),
                needed: dotted(needed),
            });
        }
        let count = CudaContext::device_count().map_err(refused)?;
        (0..usize::try_from(count).unwrap_or(0))
            .map(|ordinal| card(ordinal).map_err(refused))
            .collect()
    }

    fn card(ordinal: usize) -> Result<Card, DriverError> {
        let context = CudaContext::new(ordinal)?;
        let (major, minor) = context.compute_capability()?;
        let (free, total) = context.mem_get_info()?;
        Ok(Card {
            ordinal,
            name: context.name()?,
            capability: u32::try_from(10 * major + minor).unwrap_or(0),
            free: free as u64,
            total: total as u64,
        })
    }

    fn refused(error: DriverError) -> Absent {
        Absent::Refused(format!("{error:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_needs_kernels_of_its_own_kind() {
        let ours = [80, 86, 89, 90];
        let check = |card: u32, candle: Option<&str>, built: Option<&str>| {
            let found = match fits(card, candle, &ours) {
                Ok(()) => None,
                Err(Absent::Capability { built, .. }) => Some(built),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found.as_deref(), built, "{card} with {candle:?}");
        };
        for card in ours {
            check(card, Some(&card.to_string()), None);
        }
        check(90, Some("90a"), None);
        check(86, Some("80"), None);
        check(80, Some("86"), Some("8.6"));
        check(90, Some("80"), Some("8.0"));
        check(89, Some("90"), Some("9.0"));
        check(100, Some("90"), Some("9.0"));
        check(100, Some("100"), Some("8.0, 8.6, 8.9, 9.0"));
        check(75, None, Some("8.0, 8.6, 8.9, 9.0"));
        let error = fits(89, Some("90"), &ours).unwrap_err().to_string();
        assert!(
            error.contains("8.9") && error.contains("9.0") && error.contains("=89"),
            "{error}"
        );
    }
}
