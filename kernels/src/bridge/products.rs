//! Products of tensors with weights, and what is fused with them: a norm before, a bias, a residual and a gated unit after. Packed weights are
//! multiplied here; for weights on a device, `device` does the same.

use super::{Guard, Weight, device, gated, only, soft_cap_in_place};
use crate::profile::{Phase, span};
use crate::{Activation, Activations, KernelError, Matrix, Precision, Product, isa, rows};
use candle_core::{Device, Error, Result, Tensor};

/// A matrix of weights `[outputs, inputs]` with what is added to its products.
#[derive(Clone, Copy)]
pub struct Linear<'a> {
    /// The weights.
    pub weight: &'a Weight,
    /// `[outputs]`, in f32.
    pub bias: Option<&'a Tensor>,
}

/// The same where the weights are packed.
#[derive(Clone, Copy)]
struct Packed<'a> {
    weight: &'a Matrix,
    bias: Option<&'a Tensor>,
}

impl<'a> Linear<'a> {
    fn packed(self) -> Result<Packed<'a>> {
        Ok(Packed {
            weight: self.weight.packed()?,
            bias: self.bias,
        })
    }
}

/// Whether these weights are on a device, as all of a model are or none.
fn on_device(layers: &[Linear<'_>]) -> bool {
    layers
        .iter()
        .any(|layer| !matches!(layer.weight, Weight::Packed(_)))
}

/// A root-mean-square norm that rows go through on their way to a product.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    /// What each element is multiplied with, `[inputs]` in f32.
    pub weight: &'a Tensor,
    /// Added to the mean square.
    pub eps: f32,
}

/// `x`, `[T, inputs]` in f32, through the norm if there is one, times the weights, plus the bias: `[T, outputs]`. The `residual`, of the result's
/// shape, is added last.
pub fn linear(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    layer: Linear<'_>,
    residual: Option<&Tensor>,
    precision: Precision,
) -> Result<Tensor> {
    only(linear_many(x, norm, &[layer], precision, residual)?)
}

/// As [`linear`], through a norm and without a residual; the result, `[T, outputs]`, bent by the `cap` where there is one, takes the place of
/// whatever is in `out`, and its memory.
pub fn linear_into(
    x: &Tensor,
    norm: Norm<'_>,
    layer: Linear<'_>,
    precision: Precision,
    cap: Option<f32>,
    out: &mut Vec<f32>,
) -> Result<()> {
    if on_device(&[layer]) {
        let _span = span(Phase::Matmul);
        return device::head(x, norm, layer, cap, out);
    }
    multiply_into(x, norm, layer.packed()?, precision, out)?;
    cap.map_or(Ok(()), |cap| soft_cap_in_place(out, cap))
}

fn multiply_into(
    x: &Tensor,
    norm: Norm<'_>,
    layer: Packed<'_>,
    precision: Precision,
    out: &mut Vec<f32>,
) -> Result<()> {
    let _span = span(Phase::Matmul);
    let (rows, _) = x.dims2()?;
    out.resize(rows * layer.weight.outputs(), 0.0);
    let bias = layer.bias.map(Guard::new).transpose()?;
    let product = Product {
        weights: layer.weight,
        bias: bias.as_ref().map(Guard::floats).transpose()?,
        residual: None,
        out,
    };
    with_activations(x, Some(norm), &[layer], precision, |x| {
        crate::matmul_many(isa(), x, &mut [product])
    })
}

/// The same `x` times several matrices, the activations being prepared once. The `residual`, of each result's shape, is added last.
pub fn linear_many(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    layers: &[Linear<'_>],
    precision: Precision,
    residual: Option<&Tensor>,
) -> Result<Vec<Tensor>> {
    if on_device(layers) {
        let _span = span(Phase::Matmul);
        return device::linear_many(x, norm, layers, residual);
    }
    let layers: Vec<Packed<'_>> = layers
        .iter()
        .map(|layer| layer.packed())
        .collect::<Result<_>>()?;
    products(x, norm, &layers, residual, precision)
}

/// `activation(gate(x)) * up(x)` through `down`, where `x`, `[T, inputs]`, goes through the norm first if there is one: `[T, outputs]`. The
/// `residual`, of the result's shape, is added last.
pub fn mlp(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    [gate, up, down]: [Linear<'_>; 3],
    activation: Activation,
    residual: Option<&Tensor>,
    precision: Precision,
) -> Result<Tensor> {
    if on_device(&[gate, up, down]) {
        let _span = span(Phase::Matmul);
        return device::mlp(x, norm, [gate, up, down], activation, residual);
    }
    let [gate, up, down] = [gate.packed()?, up.packed()?, down.packed()?];
    let packed = [gate, up, down]
        .iter()
        .all(|layer| layer.weight.is_packed());
    let plain = gate.bias.is_none() && up.bias.is_none();
    let plain = plain && gate.weight.is_fine() == up.weight.is_fine();
    if !(packed
        && plain
        && precision == Precision::Quantized
        && gate.weight.outputs().is_multiple_of(32))
    {
        let both = products(x, norm, &[gate, up], None, precision)?;
        let inner = gated(&both[0], &both[1], activation)?;
        return only(products(&inner, None, &[down], residual, precision)?);
    }
    let _span = span(Phase::Matmul);
    let fine = down.weight.is_fine();
    let inner = with_activations(x, norm, &[gate, up], precision, |x| {
        crate::gated(isa(), x, gate.weight, up.weight, activation, fine)
    })?;
    let (rows, _) = x.dims2()?;
    only(multiply(&inner, rows, &[down], residual)?)
}

fn products(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    layers: &[Packed<'_>],
    residual: Option<&Tensor>,
    precision: Precision,
) -> Result<Vec<Tensor>> {
    let (rows, _) = x.dims2()?;
    let fine = |layer: &Packed<'_>| layer.weight.is_fine();
    if layers.iter().any(fine) && !layers.iter().all(fine) {
        // The activations are prepared for each.
        return layers
            .iter()
            .map(|layer| only(products(x, norm, &[*layer], residual, precision)?))
            .collect();
    }
    let _span = span(Phase::Matmul);
    with_activations(x, norm, layers, precision, |x| {
        Ok(multiply(x, rows, layers, residual))
    })?
}

/// Hands the rows of `x` on, prepared for these layers, which are all fine or none. Where all are packed, normed rows are there in 8 bits only.
fn with_activations<T>(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    layers: &[Packed<'_>],
    precision: Precision,
    work: impl FnOnce(&Activations<'_>) -> std::result::Result<T, KernelError>,
) -> Result<T> {
    let (rows, columns) = x.dims2()?;
    let fine = layers.first().is_some_and(|layer| layer.weight.is_fine());
    let packed = layers.iter().all(|layer| layer.weight.is_packed());
    let guard = Guard::new(x)?;
    let values = guard.floats()?;
    let Some(norm) = norm else {
        let x =
            Activations::new(isa(), values, rows, columns, precision, fine).map_err(Error::wrap)?;
        return work(&x).map_err(Error::wrap);
    };
    let weight = Guard::new(norm.weight)?;
    let weight = weight.floats()?;
    if packed && precision != Precision::Exact && columns.is_multiple_of(32) && columns > 0 {
        let x = Activations::normed(isa(), values, rows, weight, norm.eps, precision, fine)
            .map_err(Error::wrap)?;
        return work(&x).map_err(Error::wrap);
    }
    let mut normed = vec![0f32; values.len()];
    rows::rms_norm(isa(), values, weight, norm.eps, &mut normed).map_err(Error::wrap)?;
    let x =
        Activations::new(isa(), &normed, rows, columns, precision, fine).map_err(Error::wrap)?;
    work(&x).map_err(Error::wrap)
}

fn multiply(
    x: &Activations<'_>,
    rows: usize,
    layers: &[Packed<'_>],
    residual: Option<&Tensor>,
) -> Result<Vec<Tensor>> {
    let biases: Vec<Option<Guard>> = layers
        .iter()
        .map(|layer| layer.bias.map(Guard::new).transpose())
        .collect::<Result<_>>()?;
    let residual = residual.map(Guard::new).transpose()?;
    let residual = residual.as_ref().map(Guard::floats).transpose()?;
    let mut outs: Vec<Vec<f32>> = layers
        .iter()
        .map(|layer| vec![0f32; rows * layer.weight.outputs()])
        .collect();
    let mut all = Vec::with_capacity(layers.len());
    for ((layer, bias), out) in layers.iter().zip(&biases).zip(&mut outs) {
        all.push(Product {
            weights: layer.weight,
            bias: bias.as_ref().map(Guard::floats).transpose()?,
            residual,
            out,
        });
    }
    crate::matmul_many(isa(), x, &mut all).map_err(Error::wrap)?;
    layers
        .iter()
        .zip(outs)
        .map(|(layer, out)| Tensor::from_vec(out, (rows, layer.weight.outputs()), &Device::Cpu))
        .collect()
}
