//! A matrix over a region that somebody else holds is the matrix that was packed.

use assize_kernels::{KernelError, Matrix, Quant, Region};
use std::sync::Arc;

/// A region that begins at a multiple of 64 bytes, and `over` bytes further on.
struct Apart(Vec<u8>, usize);

impl Apart {
    fn new(bytes: &[u8], over: usize) -> Apart {
        let mut all = vec![0xff; bytes.len() + 128];
        let at = all.as_ptr().align_offset(64) + over;
        all[at..at + bytes.len()].copy_from_slice(bytes);
        all.truncate(at + bytes.len());
        Apart(all, at)
    }
}

impl AsRef<[u8]> for Apart {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

/// Some bytes of every value; scales are whatever comes.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 7 + i / 256 * 13) as u8).collect()
}

#[test]
fn every_type_is_the_same_over_a_region() {
    for quant in Quant::ALL {
        for outputs in [1, 32, 33, 70] {
            let inputs = 256;
            let file = bytes(outputs * quant.row_bytes(inputs).unwrap());
            let packed = Matrix::new(quant, outputs, inputs, &file).unwrap();
            let case = format!("{quant:?}, {outputs}");
            assert_eq!(
                Matrix::packed_bytes(quant, outputs, inputs),
                packed.memory() as u64,
                "{case}"
            );
            let kept = [&[0; 64], packed.panel_bytes()].concat();
            let region: Region = Arc::new(Apart::new(&kept, 0));
            let shared = Matrix::shared(quant, outputs, inputs, region.clone(), 64).unwrap();
            assert_eq!(shared.panel_bytes(), packed.panel_bytes(), "{case}");
            let row = |matrix: &Matrix, index| {
                let mut row = vec![0.0; inputs];
                matrix.row(index, &mut row).unwrap();
                row.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            assert_eq!(
                row(&shared, outputs - 1),
                row(&packed, outputs - 1),
                "{case}"
            );

            let refused = |at, region: &Region| {
                Matrix::shared(quant, outputs, inputs, region.clone(), at).err()
            };
            assert!(
                matches!(refused(128, &region), Some(KernelError::Index { .. })),
                "{case}: beyond the end"
            );
            assert!(refused(usize::MAX - 63, &region).is_some(), "{case}");
            let crooked: Region = Arc::new(Apart::new(&kept, 4));
            assert!(
                matches!(refused(64, &crooked), Some(KernelError::Shape(_))),
                "{case}: not aligned"
            );
        }
        let nothing: Region = Arc::new(Apart::new(&[], 0));
        let empty = Matrix::shared(quant, 0, 256, nothing.clone(), 0).unwrap();
        assert!(empty.panel_bytes().is_empty());
        assert!(Matrix::shared(quant, usize::MAX, 256, nothing.clone(), 0).is_err());
        assert!(Matrix::shared(quant, 1 << 40, 1 << 20, nothing, 0).is_err());
    }
}
