//! A matrix of weights, packed once for products. Knows no activations.

use crate::error::{expect_length, product};
use crate::pack::{self, Layout, PANEL, RUN, planes};
use crate::region::{Held, Region};
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
    Packed(Layout, Held<Line>),
    /// `[panels, inputs, 2]`.
    Single(Held<Floats>),
    /// `[panels, inputs, 2]`, in half precision.
    Half(Held<[f16; LANES]>),
    /// `[panels, inputs, 2]`, upper halves of singles.
    Upper(Held<[u16; LANES]>),
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
        let row = check(quant, outputs, inputs)?;
        expect_length("bytes of a matrix", &[outputs, row], bytes.len())?;
        let panels = match (pack::layout(quant), quant) {
            (Some(layout), _) => {
                let all = pack(quant, layout, outputs, inputs, bytes);
                Panels::Packed(layout, Held::Own(all))
            }
            (None, Quant::F16) => Panels::Half(interleave(
                outputs,
                inputs,
                bytes,
                [f16::ZERO; LANES],
                |panel, lane, at| {
                    panel[lane] = f16::from_le_bytes([at[0], at[1]]);
                },
            )),
            (None, Quant::BF16) => Panels::Upper(interleave(
                outputs,
                inputs,
                bytes,
                [0; LANES],
                |panel, lane, at| {
                    panel[lane] = bf16::from_le_bytes([at[0], at[1]]).to_bits();
                },
            )),
            (None, _) => Panels::Single(interleave(
                outputs,
                inputs,
                bytes,
                Floats([0.0; LANES]),
                |panel, lane, at| {
                    panel.0[lane] = f32::from_le_bytes([at[0], at[1], at[2], at[3]]);
                },
            )),
        };
        Ok(Matrix {
            quant,
            outputs,
            inputs,
            panels,
        })
    }

    /// A matrix whose panels lie in a region already, from byte `at` on: [`Matrix::packed_bytes`] of them, as [`Matrix::panel_bytes`] gave
    /// them out under the same [`Matrix::LAYOUT`]. Any bytes are weights of some matrix, so that these ones can't be told from others here.
    ///
    /// # Errors
    /// As [`Matrix::new`]; and where the region is too short, or `at` is not aligned to [`Matrix::ALIGNMENT`] in memory.
    pub fn shared(
        quant: Quant,
        outputs: usize,
        inputs: usize,
        region: Region,
        at: usize,
    ) -> Result<Matrix, KernelError> {
        check(quant, outputs, inputs)?;
        let panels = outputs.div_ceil(PANEL);
        let vectors = panels * inputs * 2;
        let panels = match (pack::layout(quant), quant) {
            (Some(layout), _) => {
                let lines = panels * layout.blocks(inputs) * layout.lines();
                Panels::Packed(layout, Held::shared(region, at, lines)?)
            }
            (None, Quant::F16) => Panels::Half(Held::shared(region, at, vectors)?),
            (None, Quant::BF16) => Panels::Upper(Held::shared(region, at, vectors)?),
            (None, _) => Panels::Single(Held::shared(region, at, vectors)?),
        };
        Ok(Matrix {
            quant,
            outputs,
            inputs,
            panels,
        })
    }

    /// Version of how panels lie in memory: what was written under another one means something else. To be raised with every change of
    /// `pack`, of the panels, or of what a quantized type's layout is. Where the high byte of a word comes first it is another one too.
    pub const LAYOUT: u32 = if cfg!(target_endian = "big") {
        0x8000_0002
    } else {
        2
    };

    /// Alignment of panels in a region, in bytes.
    pub const ALIGNMENT: usize = crate::region::ALIGNMENT;

    /// The panels as they lie in memory: see [`Matrix::shared`].
    pub fn panel_bytes(&self) -> &[u8] {
        match &self.panels {
            Panels::Packed(_, all) => all.bytes(),
            Panels::Single(all) => all.bytes(),
            Panels::Half(all) => all.bytes(),
            Panels::Upper(all) => all.bytes(),
        }
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
        self.panel_bytes().len()
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

/// Bytes of a row of the file; an error where the matrix can't have that type and shape.
fn check(quant: Quant, outputs: usize, inputs: usize) -> Result<usize, KernelError> {
    let blocks = KernelError::Blocks {
        quant,
        columns: inputs,
        block: quant.block(),
    };
    let row = quant.row_bytes(inputs).ok_or(blocks)?;
    let overflow = KernelError::Overflow { what: "a matrix" };
    let padded = outputs.checked_add(PANEL).ok_or(overflow)?;
    product("a matrix", &[padded, inputs, 8])?;
    Ok(row)
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
) -> Held<T> {
    let mut all = vec![zero; outputs.div_ceil(PANEL) * inputs * 2];
    if all.is_empty() {
        return Held::Own(all);
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
    Held::Own(all)
}
