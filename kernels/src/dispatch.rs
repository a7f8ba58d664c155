//! Which instruction set the kernels run on: found once, at run time. Knows no operation.

use crate::KernelError;
use crate::vector::{Portable, Vector};
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use crate::arm::{neon::Neon, products};
#[cfg(target_arch = "x86_64")]
use crate::x86::{avx2::Avx2, avx512::Avx512};

/// Names the instruction set to use, over the best one found: `portable`; on x86-64 `avx2`, `avxvnni` or `avx512`; on AArch64
/// `neon`, `dotprod` or `i8mm`.
pub const ISA_VARIABLE: &str = "ASSIZE_ISA";

/// An instruction set that this machine has. All of them give the same bits.
#[derive(Clone, Copy, Debug)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon<products::Plain>),
    #[cfg(target_arch = "aarch64")]
    Dotprod(Neon<products::Dotprod>),
    #[cfg(target_arch = "aarch64")]
    I8mm(Neon<products::I8mm>),
}

impl Isa {
    /// Plain Rust: available everywhere, and slow.
    pub const PORTABLE: Isa = Isa(Kind::Portable);

    /// All that this machine has, the best one last.
    pub fn available() -> Vec<Isa> {
        #[allow(unused_mut)]
        let mut all = vec![Isa::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx2::detect().map(|v| Isa(Kind::Avx2(v))));
            all.extend(Avx2::detect().map(|v| Isa(Kind::AvxVnni(v))));
            all.extend(Avx512::detect().map(|v| Isa(Kind::Avx512(v))));
        }
        #[cfg(target_arch = "aarch64")]
        {
            all.extend(Neon::detect().map(|v| Isa(Kind::Neon(v))));
            all.extend(Neon::detect().map(|v| Isa(Kind::Dotprod(v))));
            all.extend(Neon::detect().map(|v| Isa(Kind::I8mm(v))));
        }
        all
    }

    /// The one of this name.
    ///
    /// # Errors
    /// Where there is none, or this machine has it not.
    pub fn named(name: &str) -> Result<Isa, KernelError> {
        let available = Isa::available();
        available
            .iter()
            .copied()
            .find(|isa| isa.name() == name)
            .ok_or_else(|| KernelError::Isa {
                name: name.to_string(),
                available: available
                    .iter()
                    .map(|isa| isa.name())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// The one that [`ISA_VARIABLE`] names, else the best that this machine has.
    ///
    /// # Errors
    /// Where the variable names one that is not available.
    pub fn from_environment() -> Result<Isa, KernelError> {
        match std::env::var_os(ISA_VARIABLE) {
            Some(name) => Isa::named(&name.to_string_lossy()),
            None => Ok(Isa::best()),
        }
    }

    /// Its name, as in [`ISA_VARIABLE`].
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::AvxVnni(_) => "avxvnni",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Kind::Dotprod(_) => "dotprod",
            #[cfg(target_arch = "aarch64")]
            Kind::I8mm(_) => "i8mm",
        }
    }

    /// Rows that a product works on at a time, as many as its registers bear: a row takes two vectors of sums, so two rows take 8 of
    /// the 16 registers of AVX2, and 16 of the 32 of NEON.
    pub(crate) fn block_rows(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(v) => v.block_rows(),
            _ => 2,
        }
    }

    /// Rows that are multiplied at a time by weights as these are unpacked: all their sums for a half of a panel lie in registers.
    pub(crate) fn few_rows(self) -> usize {
        match self.0 {
            Kind::Portable => 1,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => 8,
            _ => 2,
        }
    }

    fn best() -> Isa {
        Isa::available().pop().unwrap_or(Isa::PORTABLE)
    }

    /// Runs the operation in code compiled for this instruction set.
    pub(crate) fn run<O: Operation>(self, operation: O) -> O::Output {
        match self.0 {
            Kind::Portable => operation.run(Portable),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(v) => v.run(operation),
            #[cfg(target_arch = "x86_64")]
            Kind::AvxVnni(v) => v.run(operation),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(v) => v.run(operation),
            #[cfg(target_arch = "aarch64")]
            Kind::Neon(v) => v.run(operation),
            #[cfg(target_arch = "aarch64")]
            Kind::Dotprod(v) => v.run(operation),
            #[cfg(target_arch = "aarch64")]
            Kind::I8mm(v) => v.run(operation),
        }
    }
}

/// The instruction set of this process: [`Isa::from_environment`], asked once; the best one where that is an error. A program
/// that wants to tell its user of the error asks [`Isa::from_environment`] at start.
pub fn isa() -> Isa {
    static CHOSEN: OnceLock<Isa> = OnceLock::new();
    *CHOSEN.get_or_init(|| Isa::from_environment().unwrap_or_else(|_| Isa::best()))
}

/// A kernel with its arguments, written once over any vectors. `run` must be `#[inline(always)]`, and all that it calls too: only then is it
/// compiled for the instructions of `V`.
pub trait Operation {
    /// What it gives back.
    type Output;
    /// Does it.
    fn run<V: Vector>(self, v: V) -> Self::Output;
}
