//! Reads tensors of a model file by name and shape to where they are to lie, and keeps count of what was read.
//!
//! A tensor that is absent or of another shape is an error that names it, and so is one that nothing asked for: a part
//! of a model that the decoder leaves out would change its answers in silence.

use super::ModelError;
use super::placement::Placement;
use crate::weights::layouts::{Layouts, Part};
use crate::weights::{Store, TensorView};
use assize_kernels::bridge::Weight;
use assize_kernels::{KernelError, Matrix, Quant};
use candle_core::{DType, Device, Tensor};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// The tensors of a file, while a decoder is made of them.
pub(super) struct Tensors<'a> {
    store: &'a Store,
    placement: &'a Placement,
    /// Matrices that were packed at an earlier start.
    layouts: Option<&'a Layouts>,
    read: RefCell<HashSet<String>>,
    progress: Option<&'a dyn Fn(u64, u64)>,
    done: Cell<u64>,
    total: u64,
    /// Bytes that the matrices hold where they lie.
    held: Cell<usize>,
    /// All packed matrices, and how many of them had to be packed.
    made: RefCell<Vec<Part>>,
    fresh: Cell<usize>,
}

/// What came of the reading.
pub(super) struct Read {
    /// Bytes that the weights hold where they lie.
    pub(super) bytes: usize,
    /// All matrices, in the order of their making.
    pub(super) parts: Vec<Part>,
    /// How many of them had to be packed.
    pub(super) fresh: usize,
}

impl<'a> Tensors<'a> {
    /// Nothing is read yet. `progress` is told the bytes read and the bytes in all.
    pub(super) fn new(
        store: &'a Store,
        placement: &'a Placement,
        layouts: Option<&'a Layouts>,
        progress: Option<&'a dyn Fn(u64, u64)>,
    ) -> Self {
        let total = store
            .tensors()
            .map(|(_, view)| view.bytes.len() as u64)
            .sum();
        Tensors {
            store,
            placement,
            layouts,
            read: RefCell::default(),
            progress,
            done: Cell::new(0),
            total,
            held: Cell::new(0),
            made: RefCell::default(),
            fresh: Cell::new(0),
        }
    }

    /// Whether the file has the tensor.
    pub(super) fn has(&self, name: &str) -> bool {
        self.store.tensor(name).is_some()
    }

    /// A matrix `[out, in]`.
    pub(super) fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Weight, ModelError> {
        self.rows(name, &shape, 0..shape[0])
    }

    /// Some rows of a tensor of the given shape, counted over all its leading dimensions: a part of a fused matrix, or
    /// one expert of a stack. The last dimension is the matrix's input.
    pub(super) fn rows(
        &self,
        name: &str,
        shape: &[usize],
        rows: Range<usize>,
    ) -> Result<Weight, ModelError> {
        let view = self.view(name, shape)?;
        let input = shape.last().copied().unwrap_or(0);
        let refused = |reason: String| ModelError::Matrix {
            name: name.to_owned(),
            reason,
        };
        if input == 0 || input % view.quant.block() != 0 {
            return Err(refused(format!(
                "rows of {input} don't hold whole blocks of {}",
                view.quant.block()
            )));
        }
        let stride = input / view.quant.block() * view.quant.block_bytes();
        let bytes = (view.bytes)
            .get(rows.start * stride..rows.end * stride)
            .ok_or_else(|| {
                refused(format!(
                    "has {} bytes, too few for its shape",
                    view.bytes.len()
                ))
            })?;
        let weight = match self.placement {
            Placement::Processor => {
                let packed = self.packed(name, view.quant, rows.clone(), input, bytes);
                packed.map_err(|error| refused(error.to_string()))?
            }
            Placement::Device { device, plan } => {
                let (shape, form) = ([rows.len(), input], plan.form(name));
                Weight::on_device(shape, view.quant, bytes, device, form)
                    .map_err(|error| refused(error.to_string()))?
            }
        };
        self.held.set(self.held.get() + weight.memory());
        self.advance(bytes.len());
        if rows.end == shape[..shape.len() - 1].iter().product::<usize>() {
            // The last rows are where they are to lie: the file's own bytes need not stay in memory beside them.
            self.store.forget(name);
        }
        Ok(weight)
    }

    /// Rows of a tensor, packed for the kernels: as they were at an earlier start, where that is kept.
    fn packed(
        &self,
        name: &str,
        quant: Quant,
        rows: Range<usize>,
        input: usize,
        bytes: &[u8],
    ) -> Result<Weight, KernelError> {
        let (first, count) = (rows.start, rows.len());
        let found =
            (self.layouts).and_then(|layouts| layouts.find(name, first, quant, count, input));
        let matrix = match found {
            Some(matrix) => matrix,
            None => {
                self.fresh.set(self.fresh.get() + 1);
                Matrix::new(quant, count, input, bytes)?
            }
        };
        let matrix = Arc::new(matrix);
        self.made.borrow_mut().push(Part {
            name: name.to_owned(),
            first,
            matrix: matrix.clone(),
        });
        Ok(Weight::Packed(matrix))
    }

    /// A vector `[length]` as `f32`.
    pub(super) fn vector(&self, name: &str, length: usize) -> Result<Tensor, ModelError> {
        let view = self.view(name, &[length])?;
        let dtype = match view.quant {
            Quant::F32 => DType::F32,
            Quant::F16 => DType::F16,
            Quant::BF16 => DType::BF16,
            other => {
                return Err(ModelError::Type {
                    name: name.to_owned(),
                    found: format!("{other:?}"),
                });
            }
        };
        let vector = Tensor::from_raw_buffer(view.bytes, dtype, &[length], &Device::Cpu)?;
        self.held.set(self.held.get() + 4 * length);
        self.advance(view.bytes.len());
        Ok(vector
            .to_dtype(DType::F32)?
            .to_device(self.placement.device())?)
    }

    /// A vector, where the file has it.
    pub(super) fn optional_vector(
        &self,
        name: &str,
        length: usize,
    ) -> Result<Option<Tensor>, ModelError> {
        self.has(name)
            .then(|| self.vector(name, length))
            .transpose()
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`ModelError::Unread`] names the first tensor that nothing asked for.
    pub(super) fn finish(self) -> Result<Read, ModelError> {
        let read = self.read.borrow();
        match self.store.tensors().find(|(name, _)| !read.contains(*name)) {
            Some((name, _)) => Err(ModelError::Unread {
                name: name.chars().take(128).collect(),
            }),
            None => Ok(Read {
                bytes: self.held.get(),
                parts: self.made.take(),
                fresh: self.fresh.get(),
            }),
        }
    }

    fn view(&self, name: &str, shape: &[usize]) -> Result<TensorView<'a>, ModelError> {
        let view = self.store.tensor(name).ok_or_else(|| ModelError::Missing {
            name: name.to_owned(),
        })?;
        if view.shape != shape {
            return Err(ModelError::Shape {
                name: name.to_owned(),
                found: view.shape.to_vec(),
                expected: shape.to_vec(),
            });
        }
        self.read.borrow_mut().insert(name.to_owned());
        Ok(view)
    }

    fn advance(&self, bytes: usize) {
        self.done.set(self.done.get() + bytes as u64);
        if let Some(progress) = self.progress {
            progress(self.done.get(), self.total);
        }
    }
}
