//! Products of 8-bit activations with an expanded piece of a panel.
//!
//! For an output and a row, group by group in order: the integer products of the group's parts (exact), each times the weights' scale, are
//! summed up, and that sum times the activations' scale is added to the total by one fused operation. Another adds the product of the
//! weights' level with the activations' base, and where weights have offsets, one a part adds the offset's product with the sum of
//! the activations. In a fine layout each part has its own scale, level and base. That order is the same for any number of rows in a block.
//!
//! Of 24 vector operations a group of Q4_K, 16 are integer products; without offsets it is 16 of 22, with four scales a group 16 of 26,
//! and in a fine layout 16 of 26 too.

use super::expand::Chunk;
use crate::activations::Piece;
use crate::dispatch::Operation;
use crate::pack::PANEL;
use crate::vector::{LANES, Line, Vector};

/// The products of rows, `R` at a time, with a chunk of a panel, added to the totals. `PARTS`, `OFFSETS` and `FINE` are the layout's; where `NARROW`, its
/// codes have at most 6 bits.
pub struct Block<
    'a,
    const R: usize,
    const PARTS: usize,
    const OFFSETS: bool,
    const FINE: bool,
    const NARROW: bool,
> {
    /// The weights.
    pub chunk: &'a Chunk,
    /// The rows' groups that meet the chunk's; a multiple of `R`.
    pub rows: &'a [Piece],
    /// How many groups count: all but at the end of a panel.
    pub groups: usize,
    /// Lines that will be expanded next: the memory is asked for them bit by bit, so that the products hide the wait.
    pub next: &'a [Line],
    /// The totals so far, one a row.
    pub totals: &'a mut [[f32; PANEL]],
}

impl<const R: usize, const PARTS: usize, const OFFSETS: bool, const FINE: bool, const NARROW: bool>
    Operation for Block<'_, R, PARTS, OFFSETS, FINE, NARROW>
{
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let (rows, _) = self.rows.as_chunks::<R>();
        let (totals, _) = self.totals.as_chunks_mut::<R>();
        let mut next = self
            .next
            .chunks(self.next.len().div_ceil(rows.len().max(1)).max(1));
        for (rows, totals) in rows.iter().zip(totals) {
            for line in next.next().unwrap_or(&[]) {
                v.prefetch(line);
            }
            block::<V, R, PARTS, OFFSETS, FINE, NARROW>(v, self.chunk, rows, self.groups, totals);
        }
    }
}

#[inline(always)]
fn block<
    V: Vector,
    const R: usize,
    const PARTS: usize,
    const OFFSETS: bool,
    const FINE: bool,
    const NARROW: bool,
>(
    v: V,
    chunk: &Chunk,
    rows: &[Piece; R],
    groups: usize,
    out: &mut [[f32; PANEL]; R],
) {
    let mut totals = [[v.splat(0.0); 2]; R];
    for (totals, from) in totals.iter_mut().zip(out.iter()) {
        let (halves, _) = from.as_chunks::<LANES>();
        *totals = [v.load(&halves[0]), v.load(&halves[1])];
    }
    let quads = 16 / PARTS;
    let scales = chunk.scales.as_chunks::<PARTS>().0;
    let offsets = chunk.offsets.as_chunks::<PARTS>().0;
    let codes = chunk.codes.as_chunks::<2>().0;
    let pieces = codes.iter().zip(scales).zip(offsets).zip(&chunk.levels);
    for (g, (((codes, scales), offsets), levels)) in pieces.take(groups).enumerate() {
        let codes = codes.as_flattened();
        let mut scaled = [[v.splat(0.0); 2]; R];
        for part in 0..PARTS {
            let mut sums = [[v.splat_int(0); 2]; R];
            let first = part * quads;
            for (quad, codes) in (first..first + quads).zip(&codes[first..]) {
                let w = [v.load_line(&codes[0]), v.load_line(&codes[1])];
                for r in 0..R {
                    let x = v.splat_int(rows[r][g].quads[quad]);
                    for half in 0..2 {
                        sums[r][half] = if NARROW {
                            v.dot_narrow(sums[r][half], x, w[half])
                        } else {
                            v.dot(sums[r][half], x, w[half])
                        };
                    }
                }
            }
            for half in 0..2 {
                let scale = v.load(&scales[part][half].0);
                for r in 0..R {
                    let sum = v.to_float(sums[r][half]);
                    scaled[r][half] = if part == 0 || FINE {
                        v.mul(sum, scale)
                    } else {
                        v.fma(sum, scale, scaled[r][half])
                    };
                }
            }
            if FINE {
                for half in 0..2 {
                    let level = v.load(&levels[part][half].0);
                    for r in 0..R {
                        let mut total = totals[r][half];
                        let scale = v.splat(rows[r][g].scales[part]);
                        total = v.fma(scaled[r][half], scale, total);
                        totals[r][half] = v.fma(level, v.splat(rows[r][g].bases[part]), total);
                    }
                }
            }
        }
        for half in 0..2 {
            if !FINE {
                let level = v.load(&levels[0][half].0);
                for r in 0..R {
                    let mut total = totals[r][half];
                    total = v.fma(scaled[r][half], v.splat(rows[r][g].scales[0]), total);
                    totals[r][half] = v.fma(level, v.splat(rows[r][g].bases[0]), total);
                }
            }
            if OFFSETS {
                for (part, offset) in offsets.iter().enumerate() {
                    let offset = v.load(&offset[half].0);
                    for r in 0..R {
                        let sum = if PARTS == 2 {
                            rows[r][g].halves[part]
                        } else {
                            rows[r][g].quarters[part]
                        };
                        totals[r][half] = v.fma(offset, v.splat(sum), totals[r][half]);
                    }
                }
            }
        }
    }
    for (out, totals) in out.iter_mut().zip(totals) {
        let (halves, _) = out.as_chunks_mut::<LANES>();
        v.store(totals[0], &mut halves[0]);
        v.store(totals[1], &mut halves[1]);
    }
}
