//! How kernels are launched on which card: blocks, threads, and bytes of shared memory. Plain arithmetic; knows no device.

/// Positions that a block of threads has in shared memory at a time; `BLOCK` of `paging.cuh`.
pub const BLOCK: usize = 64;
/// Positions whose softmax is computed by itself; `SPLIT` of `paging.cuh`.
pub const SPLIT: usize = 128;
/// Queries of a warp; `QUERIES` of `paging.cuh`.
pub const QUERIES: usize = 16;
/// Threads of a warp.
pub const WARP: usize = 32;
/// Threads of a block of those kernels that have a fixed number: `THREADS` of `rows.cu` and `readout.cu`.
pub const THREADS: usize = 256;
/// Bytes of shared memory of a kernel that adds up over a block: a number in double precision for each warp, and one for all.
pub const REDUCE_BYTES: usize = (THREADS / WARP + 1) * 8;
/// The most dimensions of a head.
pub const WIDEST: usize = 256;
/// The numbers of dimensions that attention is compiled for; a head is filled up with zeros to the next.
pub const WIDTHS: [usize; 4] = [64, 96, 128, WIDEST];

/// What a card can do for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Streaming multiprocessors.
    pub processors: usize,
    /// Bytes of shared memory that a block may have where it asks for more than 48 KiB.
    pub shared_bytes: usize,
}

/// A block of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attend {
    /// The width that it is compiled for.
    pub width: usize,
    /// Warps, each of which has 16 queries.
    pub warps: usize,
    /// Copies of a block's keys and values.
    pub stages: usize,
}

impl Attend {
    /// Bytes of shared memory: keys and values, both parts of the queries, and what they have gathered.
    pub fn bytes(self) -> usize {
        let stride = self.width + 8;
        let tiles = self.stages * 2 * BLOCK * stride * 2;
        let queries = self.warps * QUERIES * stride * 2 * 2;
        let folded = self.warps * WARP * self.width / 8 * 4 * 4;
        tiles + queries + folded
    }

    /// Threads of the block.
    pub fn threads(self) -> usize {
        self.warps * WARP
    }

    /// Queries of the block.
    pub fn queries(self) -> usize {
        self.warps * QUERIES
    }

    /// Name of the kernel.
    pub fn name(self) -> String {
        format!("attend_{}", self.width)
    }

    /// The block for many queries: as many warps as the card has room for, since each key and value that is read serves them all, and the next
    /// ones on their way where there is still room. None where a head has no whole number of eights, or is too wide.
    pub fn wide(dim: usize, card: Card) -> Option<Attend> {
        let choices = [
            (8, 2),
            (8, 1),
            (4, 2),
            (4, 1),
            (3, 1),
            (2, 2),
            (2, 1),
            (1, 1),
        ];
        let width = width(dim)?;
        choices
            .iter()
            .map(|(warps, stages)| Attend {
                width,
                warps: *warps,
                stages: *stages,
            })
            .find(|block| block.bytes() <= card.shared_bytes)
    }

    /// The block for at most 16 queries: small, so that several of them are on a processor and one loads while another computes.
    pub fn narrow(dim: usize, card: Card) -> Option<Attend> {
        let block = Attend {
            width: width(dim)?,
            warps: 1,
            stages: 1,
        };
        (block.bytes() <= card.shared_bytes).then_some(block)
    }
}

fn width(dim: usize) -> Option<usize> {
    let fits = dim > 0 && dim.is_multiple_of(8);
    WIDTHS
        .into_iter()
        .find(|width| dim <= *width)
        .filter(|_| fits)
}

/// Threads of a block that merges heads of `dim`: two dimensions each.
pub fn merge_threads(dim: usize) -> usize {
    (dim / 2).next_multiple_of(WARP).clamp(WARP, THREADS)
}

/// Blocks for so many elements, four to a thread; `None` where a grid can't have as many.
pub fn element_blocks(count: usize) -> Option<u32> {
    u32::try_from(count.div_ceil(4 * THREADS))
        .ok()
        .filter(|blocks| *blocks <= i32::MAX as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a block may have, by architecture.
    const ROOM: [(u32, usize); 4] = [
        (80, 163 << 10),
        (86, 99 << 10),
        (89, 99 << 10),
        (90, 227 << 10),
    ];

    #[test]
    fn every_head_has_its_block_on_every_card() {
        for (_, shared_bytes) in ROOM {
            let card = Card {
                processors: 1,
                shared_bytes,
            };
            for dim in (8..=WIDEST).step_by(8) {
                for block in [Attend::wide(dim, card), Attend::narrow(dim, card)] {
                    let block = block.unwrap();
                    assert!(block.width >= dim && block.bytes() <= shared_bytes);
                    assert!(block.threads() <= 256 && block.bytes().is_multiple_of(16));
                }
            }
            for dim in [0, 4, 100, 264] {
                assert_eq!(Attend::wide(dim, card), None);
                assert_eq!(Attend::narrow(dim, card), None);
            }
        }
    }

    #[test]
    fn warps_by_head_and_card() {
        let shape = |dim: usize, at: usize| {
            let card = Card {
                processors: 1,
                shared_bytes: ROOM[at].1,
            };
            Attend::wide(dim, card).map(|block| (block.warps, block.stages))
        };
        assert_eq!(shape(64, 0), Some((8, 2)));
        assert_eq!(shape(64, 1), Some((8, 1)));
        assert_eq!(shape(128, 0), Some((4, 2)));
        assert_eq!(shape(128, 1), Some((3, 1)));
        assert_eq!(shape(128, 3), Some((8, 2)));
        assert_eq!(shape(256, 0), Some((2, 1)));
        assert_eq!(shape(256, 2), Some((1, 1)));
        assert_eq!(shape(256, 3), Some((4, 1)));
    }

    #[test]
    fn elements_have_blocks() {
        assert_eq!(element_blocks(0), Some(0));
        assert_eq!(element_blocks(1), Some(1));
        assert_eq!(element_blocks(1025), Some(2));
        assert_eq!(element_blocks(usize::MAX), None);
        assert_eq!(merge_threads(8), 32);
        assert_eq!(merge_threads(80), 64);
        assert_eq!(merge_threads(256), 128);
    }
}
