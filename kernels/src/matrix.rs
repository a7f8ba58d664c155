//! A matrix of weights, packed once for products. Knows no activations.

use crate::error::{expect_length, product};
use crate::pack::{self, Layout, PANEL, RUN, planes};
use crate::vector::{Floats, LANES, Line};
use crate::{KernelError, Quant};
use half::{bf16, f16};
use rayon::prelude::*;

/// Weights `[outputs, inputs]`, in panels of 32 outputs.
pub struct Matrix {
    quant: Quant,
    outputs: usize,
    inputs: usize,
    pub(crate) panels: Panels,
}

/// The weights, panel after panel; the last one is filled up with zeros.
pub(crate) enum Panels {
    /// Quantized: see `pack`. `[panels, blocks, lines]`.
    Packed(Layout, Vec<Line>),
    /// `[panels, inputs, 2]`.
    Single(Vec<Floats>),
    /// `[panels, inputs, 2]`, in half precision.
    Half(Vec<[f16; LANES]>),
    /// `[panels, inputs, 2]`, upper halves of singles.
    Upper(Vec<[u16; LANES]>),
}

impl Matrix {
    /// Packs the blocks of a GGUF tensor of shape `[outputs, inputs]`.
    ///
    /// # Errors
    /// Where `inputs` is no whole number of blocks, or `bytes` is not exactly as long as type and shape ask for.
    pub fn new(
        quant: Quant,
        outputs: usize,
        inputs: usize,
        bytes: &[u8],
    ) -> Result<Matrix, KernelError> {
        let blocks = KernelError::Blocks {
            quant,
            columns: inputs,
            block: quant.block(),
        };
        let row = quant.row_bytes(inputs).ok_or(blocks)?;
        expect_length("bytes of a matrix", &[outputs, row], bytes.len())?;
        product(
            "a matrix",
            &[
                outputs
                    .checked_add(PANEL)
                    .ok_or(KernelError::Overflow { what: "a matrix" })?,
                inputs,
                8,
            ],
        )?;
        let panels = match pack::layout(quant) {
            Some(layout) => Panels::Packed(layout, pack(quant, layout, outputs, inputs, bytes)),
            None => match quant {
                Quant::F16 => Panels::Half(interleave(
                    outputs,
                    inputs,
                    bytes,
                    [f16::ZERO; LANES],
                    |panel, lane, at| {
                        panel[lane] = f16::from_le_bytes([at[0], at[1]]);
                    },
                )),
                Quant::BF16 => Panels::Upper(interleave(
                    outputs,
                    inputs,
                    bytes,
                    [0; LANES],
                    |panel, lane, at| {
                        panel[lane] = bf16::from_le_bytes([at[0], at[1]]).to_bits();
                    },
                )),
                _ => Panels::Single(interleave(
                    outputs,
                    inputs,
                    bytes,
                    Floats([0.0; LANES]),
                    |panel, lane, at| {
                        panel.0[lane] = f32::from_le_bytes([at[0], at[1], at[2], at[3]]);
                    },
                )),
            },
        };
        Ok(Matrix {
            quant,
            outputs,
            inputs,
            panels,
        })
    }

    /// Bytes of memory that weights `[outputs, inputs]` of this type will take when they are packed.
    pub fn packed_bytes(quant: Quant, outputs: usize, inputs: usize) -> u64 {
        let panels = outputs.div_ceil(PANEL) as u64;
        let panel = match pack::layout(quant) {
            Some(layout) => (layout.blocks(inputs) * layout.lines()) as u64 * 64,
            None => (inputs as u64).saturating_mul((PANEL * quant.block_bytes()) as u64),
        };
        panels.saturating_mul(panel)
    }

    /// The type that the weights had in their file.
    pub fn quant(&self) -> Quant {
        self.quant
    }

    /// Rows of the matrix: elements of a result row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the matrix: elements of an activation row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Bytes of memory that the packed weights take.
    pub fn memory(&self) -> usize {
        match &self.panels {
            Panels::Packed(_, all) => size_of_val(&**all),
            Panels::Single(all) => size_of_val(&**all),
            Panels::Half(all) => size_of_val(&**all),
            Panels::Upper(all) => size_of_val(&**all),
        }
    }

    /// Number of weights.
    #[allow(clippy::len_without_is_empty)]
    pub(crate) fn len(&self) -> usize {
        self.outputs * self.inputs
    }

    /// Whether the weights are quantized.
    pub fn is_packed(&self) -> bool {
        matches!(self.panels, Panels::Packed(..))
    }

    /// Whether its products take activations with a scale for every 32, not 64: see [`Activations::new`](crate::Activations::new).
    pub fn is_fine(&self) -> bool {
        matches!(&self.panels, Panels::Packed(layout, _) if layout.fine())
    }

    /// Number of panels.
    pub(crate) fn panel_count(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Dequantizes row `index` into `out`, exactly as [`crate::scalar::quant::dequantize`] would.
    ///
    /// # Errors
    /// Where there is no such row, or `out` has not [`Matrix::inputs`] elements.
    pub fn row(&self, index: usize, out: &mut [f32]) -> Result<(), KernelError> {
        if index >= self.outputs {
            return Err(KernelError::Index {
                what: "row",
                index,
                limit: self.outputs,
            });
        }
        expect_length("a row of weights", &[self.inputs], out.len())?;
        let (panel, half, lane) = (index / PANEL, index % PANEL / LANES, index % LANES);
        let first = panel * self.inputs * 2 + half;
        match &self.panels {
            Panels::Packed(layout, all) => {
                let each = layout.blocks(self.inputs) * layout.lines();
                row(
                    *layout,
                    &all[panel * each..(panel + 1) * each],
                    half,
                    lane,
                    out,
                );
            }
            Panels::Single(all) => out
                .iter_mut()
                .enumerate()
                .for_each(|(i, out)| *out = all[first + 2 * i].0[lane]),
            Panels::Half(all) => out
                .iter_mut()
                .enumerate()
                .for_each(|(i, out)| *out = all[first + 2 * i][lane].to_f32()),
            Panels::Upper(all) => out
                .iter_mut()
                .enumerate()
                .for_each(|(i, out)| *out = bf16::from_bits(all[first + 2 * i][lane]).to_f32()),
        }
        Ok(())
    }
}

/// So many lines of zeros. They come from the system as zeros and are touched first by the threads that fill them, which for large files
/// is most of the time that packing takes.
fn zeros(count: usize) -> Vec<Line> {
    // SAFETY: a line is an array of integers, for which zeros are a value.
    unsafe { Box::<[Line]>::new_zeroed_slice(count).assume_init() }.into_vec()
}

fn pack(quant: Quant, layout: Layout, outputs: usize, inputs: usize, bytes: &[u8]) -> Vec<Line> {
    let each = layout.blocks(inputs) * layout.lines();
    let mut all = zeros(outputs.div_ceil(PANEL) * each);
    if !all.is_empty() {
        let row = bytes.len() / outputs;
        bytes
            .par_chunks(PANEL * row)
            .zip(all.par_chunks_exact_mut(each))
            .for_each(|(rows, panel)| pack::fill(quant, layout, rows, row, panel));
    }
    all
}

/// Dequantizes one output of a panel.
fn row(layout: Layout, panel: &[Line], half: usize, lane: usize, out: &mut [f32]) {
    let part = pack::GROUP / layout.parts;
    let output = half * LANES + lane;
    for (i, out) in out.iter_mut().enumerate() {
        let (block, i) = (
            i / (layout.groups * pack::GROUP),
            i % (layout.groups * pack::GROUP),
        );
        let lines = &panel[block * layout.lines()..(block + 1) * layout.lines()];
        let (rest, codes) = lines.split_at(layout.scaling_lines());
        let run = &codes[(half * 2 * layout.groups + i / RUN) * layout.bits..][..layout.bits];
        let (quad, byte, mut code, mut done) = (i % RUN / 4, i % 4, 0, 0);
        for width in planes(layout.bits) {
            let word = run[done + quad % width].0[lane] >> (8 * byte + width * (quad / width));
            code |= (word & (255 >> (8 - width))) << done;
            done += width;
        }
        let half_at = |line: usize| {
            let word = rest[line].0[output / 2];
            f16::from_bits((word >> (16 * (output % 2))) as u16).to_f32()
        };
        let byte_at = |first: usize| {
            let at = i / part * PANEL + output;
            let word = rest[first + at / 64].0[at % 64 / 4];
            f32::from((word >> (8 * (at % 4))) as i8)
        };
        let (scale_lines, sub_lines) = (layout.scale_lines(), layout.sub_lines());
        let subs = if layout.offsets {
            2 * scale_lines
        } else {
            scale_lines
        };
        let number = |first: usize, sub: usize| {
            if layout.sub_scales {
                half_at(first) * byte_at(sub)
            } else {
                half_at(first + i / part)
            }
        };
        let scale = number(0, subs);
        *out = if layout.offsets {
            scale * code as f32 + number(scale_lines, subs + sub_lines)
        } else {
            scale * (code as f32 - layout.center() as f32)
        };
    }
}

/// Turns `[outputs, inputs]` elements into `[panels, inputs, 2]` vectors of sixteen outputs.
fn interleave<T: Copy + Send + Sync>(
    outputs: usize,
    inputs: usize,
    bytes: &[u8],
    zero: T,
    put: impl Fn(&mut T, usize, &[u8]) + Sync,
) -> Vec<T> {
    let mut all = vec![zero; outputs.div_ceil(PANEL) * inputs * 2];
    if all.is_empty() {
        return all;
    }
    let row = bytes.len() / outputs;
    all.par_chunks_exact_mut(inputs * 2)
        .zip(bytes.par_chunks(PANEL * row))
        .for_each(|(panel, rows)| {
            for (output, bytes) in rows.chunks_exact(row).enumerate() {
                for (i, at) in bytes.chunks_exact(row / inputs).enumerate() {
                    put(&mut panel[2 * i + output / LANES], output % LANES, at);
                }
            }
        });
    all
}
