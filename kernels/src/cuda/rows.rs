//! What is done to each row or element by itself: norm, rope, gated units, sums, soft cap, and dequantization.

use super::module::On;
use super::operands::{Fresh, Guard, number, same_card};
use super::shapes::{REDUCE_BYTES, THREADS, element_blocks};
use crate::{Activation, KernelError, Quant, RopeStyle};
use candle_core::cuda_backend::cudarc::driver::PushKernelArg;
use candle_core::{DType, Device, Error, Result, Tensor};

/// No address.
const NOTHING: u64 = 0;

/// Root-mean-square norm over the last dimension of `x`, `[.., d]` in f32, with a weight `[d]`, in F32 or BF16.
///
/// # Errors
/// Where shapes or types do not fit.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32, out: DType) -> Result<Tensor> {
    let columns = columns(x, weight)?;
    let rows = x.elem_count() / columns;
    norm(x, None, None, weight, eps, out, rows).map(|(_, normed)| normed.reshape(x.dims()))?
}

/// As [`rms_norm`] of the rows `rows`, `[n]` in u32, of `x`, `[T, d]`: `[n, d]`. The rows must be there: the card doesn't ask.
///
/// # Errors
/// Where shapes or types do not fit, or a row is not there.
pub fn rms_norm_of(
    x: &Tensor,
    rows: &[u32],
    weight: &Tensor,
    eps: f32,
    out: DType,
) -> Result<Tensor> {
    let (count, _) = x.dims2()?;
    if let Some(row) = rows.iter().find(|row| **row as usize >= count) {
        return Err(Error::wrap(KernelError::Index {
            what: "row",
            index: *row as usize,
            limit: count,
        }));
    }
    norm(x, Some(rows), None, weight, eps, out, rows.len()).map(|(_, normed)| normed)
}

/// `a + b`, `[.., d]`, and the norm of that, as [`rms_norm`]: the sum is read while it is near.
///
/// # Errors
/// Where shapes or types do not fit.
pub fn add_rms_norm(
    a: &Tensor,
    b: &Tensor,
    weight: &Tensor,
    eps: f32,
    out: DType,
) -> Result<(Tensor, Tensor)> {
    same_shape("add_rms_norm", a, b)?;
    let rows = a.elem_count() / columns(a, weight)?;
    let (sum, normed) = norm(a, None, Some(b), weight, eps, out, rows)?;
    match sum {
        Some(sum) => Ok((sum.reshape(a.dims())?, normed.reshape(a.dims())?)),
        None => candle_core::bail!("add_rms_norm: no sum"),
    }
}

fn columns(x: &Tensor, weight: &Tensor) -> Result<usize> {
    let columns = weight.dims1()?;
    if columns == 0 || x.dims().last() != Some(&columns) {
        candle_core::bail!(
            "rms_norm: rows {:?} with a weight {:?}",
            x.dims(),
            weight.dims()
        );
    }
    Ok(columns)
}

/// The sum, where there is one, and the norm: `[rows, d]`.
fn norm(
    x: &Tensor,
    rows: Option<&[u32]>,
    other: Option<&Tensor>,
    weight: &Tensor,
    eps: f32,
    out: DType,
    count: usize,
) -> Result<(Option<Tensor>, Tensor)> {
    let columns = columns(x, weight)?;
    let (x, weight) = (Guard::new(x)?, Guard::new(weight)?);
    let other = other.map(Guard::new).transpose()?;
    same_card(&[&x, &weight])?;
    if let Some(other) = &other {
        same_card(&[&x, other])?;
    }
    let on = x.on()?;
    let rows = match rows {
        Some(rows) if !rows.is_empty() => Some(on.device.clone_htod(rows)?),
        _ => None,
    };
    // SAFETY: the kernel writes every element of every row.
    let mut normed = unsafe { Fresh::new(&on.device, count * columns, out) }?;
    let mut sum = match other {
        // SAFETY: as above.
        Some(_) => Some(unsafe { Fresh::new(&on.device, count * columns, DType::F32) }?),
        None => None,
    };
    let (x, weight) = (x.view::<f32>()?, weight.view::<f32>()?);
    let other = match &other {
        Some(other) => Some(other.view::<f32>()?),
        None => None,
    };
    let (brief, width) = (normed.brief(), number(columns)?);
    let mut arguments = on.arguments("rms_norm")?;
    arguments.arg(&x);
    match &rows {
        Some(rows) => arguments.arg(rows),
        None => arguments.arg(&NOTHING),
    };
    match &other {
        Some(other) => arguments.arg(other),
        None => arguments.arg(&NOTHING),
    };
    match &mut sum {
        Some(sum) => sum.add_to(&mut arguments),
        None => {
            arguments.arg(&NOTHING);
        }
    }
    arguments.arg(&weight);
    normed.add_to(&mut arguments);
    arguments.arg(&width).arg(&eps).arg(&brief);
    // SAFETY: the arguments of `rms_norm`; rows and lengths were held against each other.
    unsafe { on.launch(arguments, [count, 1], THREADS, REDUCE_BYTES) }?;
    let shape = (count, columns);
    Ok((
        sum.map(|sum| sum.into_tensor(&on.device, shape)),
        normed.into_tensor(&on.device, shape),
    ))
}

/// Rotary embedding of `x`, `[T, heads, dim]` in f32, by the angles of each row: `cos` and `sin` are `[T, r / 2]`; dimensions from `r` on stay.
///
/// # Errors
/// Where shapes or types do not fit.
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, style: RopeStyle) -> Result<Tensor> {
    let (rows, heads, dim) = x.dims3()?;
    let (own, pairs) = cos.dims2()?;
    if cos.dims() != sin.dims() || own != rows || 2 * pairs > dim {
        candle_core::bail!("rope: angles {:?}, rows {:?}", cos.dims(), x.dims());
    }
    let [heads, dim, pairs] = [number(heads)?, number(dim)?, number(pairs)?];
    let neox = u32::from(style == RopeStyle::Neox);
    let (guard, cos, sin) = (Guard::new(x)?, Guard::new(cos)?, Guard::new(sin)?);
    same_card(&[&guard, &cos, &sin])?;
    let on = guard.on()?;
    let count = x.elem_count();
    // SAFETY: the kernel writes every element.
    let mut out = unsafe { Fresh::new(&on.device, count, DType::F32) }?;
    let (from, cos, sin) = (guard.view::<f32>()?, cos.view::<f32>()?, sin.view::<f32>()?);
    let elements = count as u64;
    let mut arguments = on.arguments("rope")?;
    arguments.arg(&from).arg(&cos).arg(&sin);
    out.add_to(&mut arguments);
    arguments
        .arg(&heads)
        .arg(&dim)
        .arg(&pairs)
        .arg(&neox)
        .arg(&elements);
    // SAFETY: the arguments of `rope`; the shapes were held against each other.
    unsafe { on.launch(arguments, [blocks(count)?, 1], THREADS, 0) }?;
    Ok(out.into_tensor(&on.device, x.dims()))
}

/// `activation(gate) * up`, both of one shape, in f32, in F32 or BF16.
///
/// # Errors
/// Where shapes or types do not fit.
pub fn gated(gate: &Tensor, up: &Tensor, activation: Activation, out: DType) -> Result<Tensor> {
    same_shape("gated", gate, up)?;
    let (first, second) = (Guard::new(gate)?, Guard::new(up)?);
    same_card(&[&first, &second])?;
    let on = first.on()?;
    let (first, second) = (first.view::<f32>()?, second.view::<f32>()?);
    let count = gate.elem_count();
    // SAFETY: the kernel writes every element.
    let mut result = unsafe { Fresh::new(&on.device, count, out) }?;
    let (columns, gelu, brief) = (
        0u32,
        u32::from(activation == Activation::GeluTanh),
        result.brief(),
    );
    let elements = count as u64;
    let mut arguments = on.arguments("gated")?;
    arguments.arg(&first).arg(&second);
    result.add_to(&mut arguments);
    // As many columns as the stride: element by element.
    arguments
        .arg(&columns)
        .arg(&columns)
        .arg(&gelu)
        .arg(&brief)
        .arg(&elements);
    // SAFETY: the arguments of `gated`, all of one length.
    unsafe { on.launch(arguments, [blocks(count)?, 1], THREADS, 0) }?;
    Ok(result.into_tensor(&on.device, gate.dims()))
}

/// As [`gated`] of the halves of each row of `both`, `[T, 2 * n]`, the gate being the first: `[T, n]`.
///
/// # Errors
/// Where shapes or types do not fit.
pub fn gated_halves(both: &Tensor, activation: Activation, out: DType) -> Result<Tensor> {
    let (rows, stride) = both.dims2()?;
    if stride % 2 != 0 {
        candle_core::bail!("gated_halves: rows of {stride} have no halves");
    }
    let count = rows * (stride / 2);
    let guard = Guard::new(both)?;
    let on = guard.on()?;
    // SAFETY: the kernel writes every element.
    let mut result = unsafe { Fresh::new(&on.device, count, out) }?;
    let gate = guard.view::<f32>()?;
    let up = gate.slice((stride / 2).min(both.elem_count())..);
    let (gelu, brief) = (
        u32::from(activation == Activation::GeluTanh),
        result.brief(),
    );
    let (columns, stride) = (number(stride / 2)?, number(stride)?);
    let elements = count as u64;
    let mut arguments = on.arguments("gated")?;
    arguments.arg(&gate).arg(&up);
    result.add_to(&mut arguments);
    arguments
        .arg(&columns)
        .arg(&stride)
        .arg(&gelu)
        .arg(&brief)
        .arg(&elements);
    // SAFETY: the arguments of `gated`; the last row's second half ends where the tensor does.
    unsafe { on.launch(arguments, [blocks(count)?, 1], THREADS, 0) }?;
    Ok(result.into_tensor(&on.device, (rows, columns as usize)))
}

/// `a + b`, both of one shape, in f32.
///
/// # Errors
/// Where shapes or types do not fit.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    same_shape("add", a, b)?;
    let (first, second) = (Guard::new(a)?, Guard::new(b)?);
    same_card(&[&first, &second])?;
    let on = first.on()?;
    let (x, y) = (first.view::<f32>()?, second.view::<f32>()?);
    let count = a.elem_count();
    // SAFETY: the kernel writes every element.
    let mut out = unsafe { Fresh::new(&on.device, count, DType::F32) }?;
    let elements = count as u64;
    let mut arguments = on.arguments("add")?;
    arguments.arg(&x).arg(&y);
    out.add_to(&mut arguments);
    arguments.arg(&elements);
    // SAFETY: the arguments of `add`, all of one length.
    unsafe { on.launch(arguments, [blocks(count)?, 1], THREADS, 0) }?;
    Ok(out.into_tensor(&on.device, a.dims()))
}

/// `cap * tanh(x / cap)`, element by element, in f32.
///
/// # Errors
/// Where `x` is of another type.
pub fn soft_cap(x: &Tensor, cap: f32) -> Result<Tensor> {
    let guard = Guard::new(x)?;
    let (from, on) = (guard.view::<f32>()?, guard.on()?);
    let count = x.elem_count();
    // SAFETY: the kernel writes every element.
    let mut out = unsafe { Fresh::new(&on.device, count, DType::F32) }?;
    let elements = count as u64;
    let mut arguments = on.arguments("soft_cap")?;
    arguments.arg(&from);
    out.add_to(&mut arguments);
    arguments.arg(&cap).arg(&elements);
    // SAFETY: the arguments of `soft_cap`, both of one length.
    unsafe { on.launch(arguments, [blocks(count)?, 1], THREADS, 0) }?;
    Ok(out.into_tensor(&on.device, x.dims()))
}

/// Dequantizes `bytes`, `rows` rows of `columns` weights as GGUF has them, on the card, to F32 (equal to the last bit to the scalar truth) or BF16.
///
/// # Errors
/// Where the bytes are no such matrix, or the device is no NVIDIA card.
pub fn dequantize(
    device: &Device,
    quant: Quant,
    bytes: &[u8],
    [rows, columns]: [usize; 2],
    out: DType,
) -> Result<Tensor> {
    let on = On::new(device.as_cuda_device()?)?;
    let row = quant
        .row_bytes(columns)
        .and_then(|row| row.checked_mul(rows));
    if row != Some(bytes.len()) {
        candle_core::bail!(
            "dequantize: {} bytes are no {rows} rows of {columns} in {quant:?}",
            bytes.len()
        );
    }
    let count = rows * columns;
    // SAFETY: the kernel writes every element.
    let mut result = unsafe { Fresh::new(&on.device, count, out) }?;
    if count > 0 {
        let weights = on.device.clone_htod(bytes)?;
        // The kernel knows types by GGUF's numbers.
        let kind = (0..=u8::MAX.into()).find(|id| Quant::from_ggml(*id) == Some(quant));
        let kind: u32 = kind.ok_or_else(|| Error::msg(format!("{quant:?} has no number")))?;
        let [block, size] = [number(quant.block())?, number(quant.block_bytes())?];
        let (brief, elements) = (result.brief(), count as u64);
        let mut arguments = on.arguments("dequantize")?;
        arguments.arg(&weights);
        result.add_to(&mut arguments);
        arguments
            .arg(&kind)
            .arg(&block)
            .arg(&size)
            .arg(&brief)
            .arg(&elements);
        // SAFETY: the arguments of `dequantize`; the bytes are whole blocks of the type.
        unsafe { on.launch(arguments, [blocks(count)?, 1], THREADS, 0) }?;
    }
    Ok(result.into_tensor(&on.device, (rows, columns)))
}

fn blocks(count: usize) -> Result<usize> {
    let blocks = element_blocks(count);
    let blocks = blocks.ok_or(KernelError::Overflow { what: "elements" });
    blocks.map(|blocks| blocks as usize).map_err(Error::wrap)
}

fn same_shape(what: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dims() == b.dims() {
        Ok(())
    } else {
        candle_core::bail!("{what}: shapes {:?} and {:?}", a.dims(), b.dims())
    }
}
