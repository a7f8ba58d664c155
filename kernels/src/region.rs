//! Where the numbers of a matrix lie: in memory of its own, or in a region that somebody else holds, such as a mapped file. Knows no
//! layout and no file.

use crate::KernelError;
use crate::vector::{Floats, LANES, Line};
use half::f16;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that are shared and that nobody changes while they are.
pub type Region = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Alignment of the numbers in a region, in bytes.
pub const ALIGNMENT: usize = 64;

/// What may be read from any bytes.
///
/// # Safety
/// Every pattern of bits is a value, there is no padding, nothing is dropped, and the alignment is at most [`ALIGNMENT`].
pub(crate) unsafe trait Plain: Copy + Send + Sync {}

// SAFETY: sixteen words, 64 bytes, aligned to 64.
unsafe impl Plain for Line {}
// SAFETY: sixteen floats, 64 bytes, aligned to 64.
unsafe impl Plain for Floats {}
// SAFETY: an f16 is a transparent u16.
unsafe impl Plain for [f16; LANES] {}
// SAFETY: plain integers.
unsafe impl Plain for [u16; LANES] {}

/// A slice that is owned, or borrowed from a region for as long as it is there.
pub(crate) enum Held<T> {
    Own(Vec<T>),
    /// Bytes of the region, and how many `T` they are.
    Shared(Region, Range<usize>, usize),
}

impl<T: Plain> Held<T> {
    /// `count` numbers at byte `at` of the region.
    pub(crate) fn shared(region: Region, at: usize, count: usize) -> Result<Held<T>, KernelError> {
        let bytes = count
            .checked_mul(size_of::<T>())
            .and_then(|bytes| at.checked_add(bytes))
            .map(|end| at..end)
            .ok_or(KernelError::Overflow { what: "a region" })?;
        let all = (*region).as_ref();
        let Some(part) = all.get(bytes.clone()) else {
            return Err(KernelError::Index {
                what: "end of the panels",
                index: bytes.end,
                limit: all.len(),
            });
        };
        if part.as_ptr().addr() % ALIGNMENT != 0 {
            let reason = format!("panels at byte {at} are not aligned to {ALIGNMENT} bytes");
            return Err(KernelError::Shape(reason));
        }
        Ok(Held::Shared(region, bytes, count))
    }

    /// The numbers as they lie in memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        let all: &[T] = self;
        // SAFETY: a plain type has no padding, so all its bytes are set; bytes need no alignment.
        unsafe { std::slice::from_raw_parts(all.as_ptr().cast(), size_of_val(all)) }
    }
}

impl<T: Plain> Deref for Held<T> {
    type Target = [T];

    /// Empty where a region does not give the bytes that it gave before.
    fn deref(&self) -> &[T] {
        let (region, bytes, count) = match self {
            Held::Own(all) => return all,
            Held::Shared(region, bytes, count) => (region, bytes, count),
        };
        let part = (**region).as_ref().get(bytes.clone()).unwrap_or(&[]);
        // SAFETY: any bytes are values of a plain type.
        let (before, all, _) = unsafe { part.align_to::<T>() };
        match before.is_empty() && all.len() == *count {
            true => all,
            false => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_or_is_not_aligned_is_refused() {
        let lines = Held::Own(vec![Line([0x0403_0201; LANES]); 4]);
        let region: Region = Arc::new(Aligned(lines));
        let check = |at, count, well: bool| {
            let held = Held::<Line>::shared(region.clone(), at, count);
            assert_eq!(held.is_ok(), well, "{count} at {at}");
            if let Ok(held) = held {
                assert_eq!(held.len(), count);
                assert!(held.iter().all(|line| line.0[3] == 0x0403_0201));
                assert_eq!(held.bytes().len(), 64 * count);
            }
        };
        check(0, 4, true);
        check(64, 3, true);
        check(256, 0, true);
        check(64, 4, false);
        check(4, 1, false);
        check(usize::MAX - 63, 1, false);
        check(0, usize::MAX, false);
    }

    struct Aligned(Held<Line>);

    impl AsRef<[u8]> for Aligned {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }
}
