//! Why a kernel refused its input. Knows no operation in particular.

/// Why a kernel refused its input. Nothing was computed and no output was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// A slice has another length than the shapes beside it ask for.
    #[error("{what}: expected {expected} elements, got {actual}")]
    Length {
        /// The argument.
        what: &'static str,
        /// Elements that the shapes ask for.
        expected: usize,
        /// Elements that it has.
        actual: usize,
    },
    /// Sizes whose product does not fit the machine's address space.
    #[error("{what}: sizes overflow")]
    Overflow {
        /// The argument.
        what: &'static str,
    },
    /// A row of weights that is no whole number of blocks.
    #[error("a row of {columns} weights is no whole number of {quant:?} blocks of {block}")]
    Blocks {
        /// Type of the weights.
        quant: crate::Quant,
        /// Weights in a row.
        columns: usize,
        /// Weights in a block.
        block: usize,
    },
    /// An index beyond what it indexes.
    #[error("{what} {index} is beyond {limit}")]
    Index {
        /// What is indexed.
        what: &'static str,
        /// The index.
        index: usize,
        /// First index that is too large.
        limit: usize,
    },
    /// Sizes that do not fit together.
    #[error("{0}")]
    Shape(String),
    /// An instruction set that this machine, or this build, has not.
    #[error("instruction set {name:?} is not available here; available: {available}")]
    Isa {
        /// The name asked for.
        name: String,
        /// The names that would do.
        available: String,
    },
}

/// `Ok` where `actual` is the product of `sizes`.
pub(crate) fn expect_length(
    what: &'static str,
    sizes: &[usize],
    actual: usize,
) -> Result<(), KernelError> {
    let expected = product(what, sizes)?;
    if expected == actual {
        Ok(())
    } else {
        Err(KernelError::Length {
            what,
            expected,
            actual,
        })
    }
}

/// The product of `sizes`, if it fits.
pub(crate) fn product(what: &'static str, sizes: &[usize]) -> Result<usize, KernelError> {
    sizes
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul(*size))
        .ok_or(KernelError::Overflow { what })
}
