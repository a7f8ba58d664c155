//! The products of a range of rows with one panel: which kernel does them, and what it needs for that. Knows no threads, and not where results go.
//!
//! Quantized panels meet few rows as they are unpacked, and many rows after they were expanded, piece by piece, to bytes. Both give the same bits.

use crate::activations::Activations;
use crate::dispatch::Isa;
use crate::generic::exact::{self, Narrow, Widen};
use crate::generic::expand::{CHUNK, Chunk, Dequantize, Expand, Weights};
use crate::generic::few::Few;
use crate::generic::quantized;
use crate::matrix::Panels;
use crate::pack::{GROUP, Layout, PANEL};
use crate::vector::{Floats, LANES, Line};
use crate::{Matrix, Precision};
use std::ops::Range;

/// Inputs of a piece of a panel that is expanded at a time.
const PIECE: usize = CHUNK * GROUP;

/// Room for a piece of a panel, in either form.
pub(crate) struct Room {
    chunk: Box<Chunk>,
    weights: Box<Weights>,
}

impl Room {
    /// Nothing in it yet.
    pub(crate) fn new() -> Room {
        Room {
            chunk: Box::new(Chunk::new()),
            weights: Box::new([[Floats([0.0; LANES]); 2]; PIECE]),
        }
    }
}

/// The products of a range of rows, or of rows of groups where the weights are quantized, with a panel, added to `totals`, piece by piece of
/// the panel.
pub(crate) fn compute(
    isa: Isa,
    x: &Activations<'_>,
    w: &Matrix,
    panel: usize,
    rows: Range<usize>,
    room: &mut Room,
    totals: &mut [[f32; PANEL]],
) {
    let inputs = w.inputs();
    let this = panel * inputs..(panel + 1) * inputs;
    let both = 2 * this.start..2 * this.end;
    let Room { chunk, weights } = room;
    match (&w.panels, x.precision()) {
        (Panels::Packed(layout, all), Precision::Quantized | Precision::Refined) => {
            let kernels = kernels(*layout);
            let each = piece_lines(*layout);
            let panel_lines = layout.blocks(inputs) * layout.lines();
            // From this panel on, so that its last piece has a next one too.
            let from_here = &all[panel * panel_lines..];
            let few = rows.len() <= isa.few_rows();
            for (piece, lines) in from_here[..panel_lines].chunks(each).enumerate() {
                if few {
                    (kernels.few)(isa, lines, x, piece, rows.clone(), totals);
                    continue;
                }
                isa.run(Expand {
                    layout: *layout,
                    lines,
                    chunk,
                });
                let behind = &from_here[piece * each + lines.len()..];
                let next = &behind[..each.min(behind.len())];
                (kernels.many)(isa, chunk, x, piece, rows.clone(), next, totals);
            }
        }
        (Panels::Packed(layout, all), Precision::Exact) => {
            let pieces = lines(*layout, all, panel, inputs).chunks(piece_lines(*layout));
            for (piece, lines) in pieces.enumerate() {
                isa.run(Dequantize {
                    layout: *layout,
                    lines,
                    weights,
                });
                let count = PIECE.min(inputs - piece * PIECE);
                exact_rows(
                    isa,
                    &weights[..count],
                    x,
                    piece * PIECE,
                    rows.clone(),
                    totals,
                );
            }
        }
        (Panels::Single(all), _) => {
            for (piece, weights) in all.as_chunks::<2>().0[this].chunks(PIECE).enumerate() {
                exact_rows(isa, weights, x, piece * PIECE, rows.clone(), totals);
            }
        }
        (Panels::Half(all), _) => {
            widened_rows(isa, Narrow::Half(&all[both]), weights, x, rows, totals);
        }
        (Panels::Upper(all), _) => {
            widened_rows(isa, Narrow::Upper(&all[both]), weights, x, rows, totals);
        }
    }
}

/// The lines of a panel.
fn lines(layout: Layout, all: &[Line], panel: usize, inputs: usize) -> &[Line] {
    let each = layout.blocks(inputs) * layout.lines();
    &all[panel * each..(panel + 1) * each]
}

/// Lines of a piece.
fn piece_lines(layout: Layout) -> usize {
    CHUNK / layout.groups * layout.lines()
}

/// Multiplies few rows with a piece as it is packed: the piece, all activations, the piece's index, which rows, and their totals.
type FewKernel = fn(Isa, &[Line], &Activations<'_>, usize, Range<usize>, &mut [[f32; PANEL]]);

/// Multiplies many rows with an expanded piece: the piece, all activations, the piece's index, which rows, what comes next, and the rows' totals.
type ManyKernel =
    fn(Isa, &Chunk, &Activations<'_>, usize, Range<usize>, &[Line], &mut [[f32; PANEL]]);

/// How quantized panels of a layout meet rows.
struct Kernels {
    few: FewKernel,
    many: ManyKernel,
}

/// The kernels for a layout.
fn kernels(layout: Layout) -> Kernels {
    macro_rules! kernels {
        ($bits:literal, $parts:literal, $offsets:literal, $fine:literal) => {
            Kernels {
                few: few_rows::<$bits, $parts, $offsets, $fine>,
                many: quantized_rows::<$parts, $offsets, $fine, { $bits < 8 }>,
            }
        };
    }
    match (layout.bits, layout.offsets, layout.fine()) {
        (2, ..) => kernels!(2, 4, true, false),
        (3, ..) => kernels!(3, 4, false, false),
        (4, true, false) => kernels!(4, 2, true, false),
        (4, true, true) => kernels!(4, 2, true, true),
        (4, false, _) => kernels!(4, 2, false, true),
        (5, true, false) => kernels!(5, 2, true, false),
        (5, true, true) => kernels!(5, 2, true, true),
        (5, false, _) => kernels!(5, 2, false, true),
        (6, ..) => kernels!(6, 4, false, false),
        _ => kernels!(8, 2, false, true),
    }
}

fn few_rows<const BITS: usize, const PARTS: usize, const OFFSETS: bool, const FINE: bool>(
    isa: Isa,
    lines: &[Line],
    x: &Activations<'_>,
    piece: usize,
    rows: Range<usize>,
    totals: &mut [[f32; PANEL]],
) {
    let groups = (x.columns().div_ceil(GROUP) - piece * CHUNK).min(CHUNK);
    let all = &x.piece(piece)[rows];
    in_blocks(isa.few_rows(), totals, |at, size, totals| {
        macro_rules! few {
            ($($size:literal)*) => {
                match size {
                    $($size => {
                        let rows = all[at..].as_chunks::<$size>().0;
                        for (rows, totals) in rows.iter().zip(totals.as_chunks_mut::<$size>().0) {
                            isa.run(Few::<$size, BITS, PARTS, OFFSETS, FINE> { lines, rows, groups, totals });
                        }
                    })*
                    _ => {}
                }
            };
        }
        few!(1 2 3 4 5 6 7 8);
    });
}

fn quantized_rows<const PARTS: usize, const OFFSETS: bool, const FINE: bool, const NARROW: bool>(
    isa: Isa,
    chunk: &Chunk,
    x: &Activations<'_>,
    piece: usize,
    rows: Range<usize>,
    next: &[Line],
    totals: &mut [[f32; PANEL]],
) {
    let groups = (x.columns().div_ceil(GROUP) - piece * CHUNK).min(CHUNK);
    let all = &x.piece(piece)[rows];
    in_blocks(isa.block_rows(), totals, |at, size, totals| {
        let rows = &all[at..at + totals.len()];
        // Blocks of the larger size ask for the first part, those of the smaller one for the rest.
        let part = |row: usize| next.len() * row / all.len();
        let next = &next[part(at)..part(at + totals.len())];
        macro_rules! block {
            ($($size:literal)*) => {
                match size {
                    $($size => isa.run(quantized::Block::<$size, PARTS, OFFSETS, FINE, NARROW> { chunk, rows, groups, next, totals }),)*
                    _ => {}
                }
            };
        }
        block!(1 2 3 4 5 6);
    });
}

/// The products with weights of two bytes, widened piece by piece.
fn widened_rows(
    isa: Isa,
    panel: Narrow<'_>,
    weights: &mut Weights,
    x: &Activations<'_>,
    rows: Range<usize>,
    totals: &mut [[f32; PANEL]],
) {
    let inputs = x.columns();
    for first in (0..inputs).step_by(PIECE) {
        let last = inputs.min(first + PIECE);
        let to = &mut weights[..last - first];
        let from = panel.part(2 * first..2 * last);
        isa.run(Widen { from, to });
        exact_rows(isa, to, x, first, rows.clone(), totals);
    }
}

fn exact_rows(
    isa: Isa,
    weights: &[[Floats; 2]],
    x: &Activations<'_>,
    first: usize,
    rows: Range<usize>,
    totals: &mut [[f32; PANEL]],
) {
    let row = |r: usize| &x.values()[r * x.columns()..][first..first + weights.len()];
    in_blocks(isa.block_rows(), totals, |at, size, totals| {
        let mut at = rows.start + at;
        macro_rules! block {
            ($($size:literal)*) => {
                match size {
                    $($size => {
                        for totals in totals.as_chunks_mut::<$size>().0 {
                            let rows = std::array::from_fn(|r| row(at + r));
                            isa.run(exact::Block::<$size> { weights, rows, totals });
                            at += $size;
                        }
                    })*
                    _ => {}
                }
            };
        }
        block!(1 2 3 4 5 6);
    });
}

/// Cuts rows into blocks as even as can be, none larger than the registers bear, and hands on those of one size together: where they start,
/// their size, and their totals.
fn in_blocks(
    most: usize,
    totals: &mut [[f32; PANEL]],
    mut work: impl FnMut(usize, usize, &mut [[f32; PANEL]]),
) {
    let rows = totals.len();
    if rows == 0 {
        return;
    }
    let blocks = rows.div_ceil(most);
    let (size, larger) = (rows / blocks, rows % blocks);
    let (these, others) = totals.split_at_mut(larger * (size + 1));
    if larger > 0 {
        work(0, size + 1, these);
    }
    work(larger * (size + 1), size, others);
}
