//! A matrix of weights, packed once for products. Knows no activations.

use crate::error::{expect_length, product};
use crate::pack::{self, GROUP, Layout, PANEL, Panel};
use crate::vector::{Codes, Floats, LANES};
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
    /// Quantized: see `pack`.
    Codes(Packed),
    /// `[panels, inputs, 32]`.
    Single(Vec<Floats>),
    /// `[panels, inputs, 32]`, in half precision.
    Half(Vec<[f16; LANES]>),
    /// `[panels, inputs, 32]`, upper halves of singles.
    Upper(Vec<[u16; LANES]>),
}

/// The panels of a quantized matrix.
pub(crate) struct Packed {
    pub(crate) layout: Layout,
    /// `[panels, groups, 2, lines]`.
    pub(crate) codes: Vec<Codes>,
    /// `[panels, groups, scales, 2]`.
    pub(crate) scales: Vec<Floats>,
    /// As the scales, or empty where the layout has a zero.
    pub(crate) offsets: Vec<Floats>,
    /// `[panels, groups, 2]`.
    pub(crate) levels: Vec<Floats>,
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
            Some(layout) => Panels::Codes(Packed::new(quant, layout, outputs, inputs, bytes)),
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
        // Bits of 32 inputs of one output: codes, scales, offsets and a level.
        let group = match pack::layout(quant) {
            Some(layout) => {
                let codes = if layout.nibbles { 128 } else { 256 };
                let floats = layout.scales * if layout.zero.is_none() { 2 } else { 1 } + 1;
                codes + 32 * floats
            }
            None => 256 * quant.block_bytes(),
        };
        let weights = (outputs.next_multiple_of(PANEL) as u64).saturating_mul(inputs as u64);
        weights.saturating_mul(group as u64) / 256
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
            Panels::Codes(packed) => {
                size_of_val(&*packed.codes)
                    + size_of_val(&*packed.scales)
                    + size_of_val(&*packed.offsets)
                    + size_of_val(&*packed.levels)
            }
            Panels::Single(all) => size_of_val(&**all),
            Panels::Half(all) => size_of_val(&**all),
            Panels::Upper(all) => size_of_val(&**all),
        }
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
            Panels::Codes(packed) => packed.row(panel, half, lane, out),
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

impl Packed {
    fn new(quant: Quant, layout: Layout, outputs: usize, inputs: usize, bytes: &[u8]) -> Packed {
        let (panels, groups) = (outputs.div_ceil(PANEL), inputs / GROUP);
        let (codes_each, scales_each) = (groups * 2 * layout.lines(), groups * layout.scales * 2);
        let offsets_each = if layout.zero.is_none() {
            scales_each
        } else {
            0
        };
        let mut packed = Packed {
            layout,
            codes: vec![Codes([0; 4 * LANES]); panels * codes_each],
            scales: vec![Floats([0.0; LANES]); panels * scales_each],
            offsets: vec![Floats([0.0; LANES]); panels * offsets_each],
            levels: vec![Floats([0.0; LANES]); panels * groups * 2],
        };
        if packed.codes.is_empty() {
            return packed;
        }
        let row = bytes.len() / outputs;
        // Where there are no offsets, every panel gets an empty slice of them.
        let mut offsets = packed.offsets.chunks_exact_mut(scales_each);
        let offsets: Vec<&mut [Floats]> = (0..panels)
            .map(|_| offsets.next().unwrap_or_default())
            .collect();
        bytes
            .par_chunks(PANEL * row)
            .zip(packed.codes.par_chunks_exact_mut(codes_each))
            .zip(packed.scales.par_chunks_exact_mut(scales_each))
            .zip(offsets)
            .zip(packed.levels.par_chunks_exact_mut(groups * 2))
            .for_each(|((((rows, codes), scales), offsets), levels)| {
                pack::fill(
                    quant,
                    layout,
                    rows,
                    row,
                    Panel {
                        codes,
                        scales,
                        offsets,
                        levels,
                    },
                );
            });
        packed
    }

    fn row(&self, panel: usize, half: usize, lane: usize, out: &mut [f32]) {
        let (groups, lines) = (out.len() / GROUP, self.layout.lines());
        for (group, out) in out.chunks_exact_mut(GROUP).enumerate() {
            let group = panel * groups + group;
            for (i, out) in out.iter_mut().enumerate() {
                let byte =
                    self.codes[(group * 2 + half) * lines + i / 4 % lines].0[4 * lane + i % 4];
                let code = if self.layout.nibbles {
                    (byte >> (4 * (i / 16))) & 15
                } else {
                    byte
                };
                let scale =
                    (group * self.layout.scales + i * self.layout.scales / GROUP) * 2 + half;
                let code = f32::from(code);
                *out = match self.layout.zero {
                    Some(zero) => self.scales[scale].0[lane] * (code - zero as f32),
                    None => self.scales[scale].0[lane] * code + self.offsets[scale].0[lane],
                };
            }
        }
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
