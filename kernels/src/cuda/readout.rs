//! What is read of rows of logits, so that a few numbers cross the bus and no row does.

use super::operands::{Guard, number};
use super::shapes::{REDUCE_BYTES, THREADS};
use crate::KernelError;
use candle_core::cuda_backend::cudarc::driver::PushKernelArg;
use candle_core::{Error, Result, Tensor};

/// What comes of a row under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The token of the largest logit that is admitted, the lowest of equals.
    Token(u32),
    /// The mask admits none of the row's tokens.
    Nothing,
    /// One of the row's logits, admitted or not, is not finite.
    NotFinite,
}

/// Numbers of `readout.cu` that stand for no token.
const NONE: u32 = u32::MAX;
const NOT_FINITE: u32 = u32::MAX - 1;

/// The logarithm of the sum of the exponentials of each row of `logits`, `[n, vocabulary]` in f32, in double precision. NaN where a logit is NaN.
///
/// # Errors
/// Where `logits` is no such tensor.
pub fn log_sum_exp(logits: &Tensor) -> Result<Vec<f64>> {
    log_sum_exp_without(logits, &[])
}

/// As [`log_sum_exp`] of all tokens but `excluded[i]` for row `i`, a sum of its own; in any order, and with none where the list is empty.
///
/// # Errors
/// As [`log_sum_exp`], or where there are lists, but not one for each row.
pub fn log_sum_exp_without(logits: &Tensor, excluded: &[Vec<u32>]) -> Result<Vec<f64>> {
    let (rows, columns) = sizes(logits)?;
    if !excluded.is_empty() && excluded.len() != rows {
        candle_core::bail!("{} lists of tokens for {rows} rows", excluded.len());
    }
    if rows == 0 {
        return Ok(Vec::new());
    }
    let guard = Guard::new(logits)?;
    let (logits, on) = (guard.view::<f32>()?, guard.on()?);
    // The beginnings of the lists, the end of the last, and the lists.
    let mut words = vec![0u32; excluded.len() + 1];
    for (row, list) in excluded.iter().enumerate() {
        let start = words.len();
        words.extend(list);
        words[start..].sort_unstable();
        words[row + 1] = number(words.len() - excluded.len() - 1)?;
    }
    let words = on.device.clone_htod(&words)?;
    let (beginnings, lists) = words.split_at(excluded.len() + 1);
    let width = number(columns)?;
    // SAFETY: the kernel writes a number for each row.
    let mut out = unsafe { on.device.alloc::<f64>(rows) }?;
    let nothing = 0u64;
    let mut arguments = on.arguments("log_sum_exp")?;
    arguments.arg(&logits);
    match excluded.is_empty() {
        true => arguments.arg(&nothing),
        false => arguments.arg(&beginnings),
    };
    arguments.arg(&lists).arg(&mut out).arg(&width);
    // SAFETY: the arguments of `log_sum_exp`; each list lies within its table.
    unsafe { on.launch(arguments, [rows, 1], THREADS, REDUCE_BYTES) }?;
    on.device.clone_dtoh(&out)
}

/// The logits of some rows and tokens.
///
/// # Errors
/// Where `logits` is no `[n, vocabulary]` in f32, or there is no such row or token.
pub fn gather(logits: &Tensor, pairs: &[(u32, u32)]) -> Result<Vec<f32>> {
    let (rows, columns) = sizes(logits)?;
    for (what, index, limit) in pairs.iter().flat_map(|(row, token)| {
        [
            ("row", *row as usize, rows),
            ("token", *token as usize, columns),
        ]
    }) {
        if index >= limit {
            return Err(Error::wrap(KernelError::Index { what, index, limit }));
        }
    }
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let guard = Guard::new(logits)?;
    let (logits, on) = (guard.view::<f32>()?, guard.on()?);
    let both = pairs.iter().map(|(row, _)| *row);
    let both: Vec<u32> = both.chain(pairs.iter().map(|(_, token)| *token)).collect();
    let both = on.device.clone_htod(&both)?;
    let (of_rows, of_tokens) = both.split_at(pairs.len());
    let (width, count) = (number(columns)?, number(pairs.len())?);
    // SAFETY: the kernel writes a number for each pair.
    let mut out = unsafe { on.device.alloc::<f32>(pairs.len()) }?;
    let mut arguments = on.arguments("gather")?;
    arguments
        .arg(&logits)
        .arg(&of_rows)
        .arg(&of_tokens)
        .arg(&mut out);
    arguments.arg(&width).arg(&count);
    // SAFETY: the arguments of `gather`; every row and token was held against the logits.
    unsafe { on.launch(arguments, [pairs.len().div_ceil(THREADS), 1], THREADS, 0) }?;
    on.device.clone_dtoh(&out)
}

/// For each row of `logits`, `[n, vocabulary]` in f32, the token of the largest logit that its mask admits: bit `t % 32` of word `t / 32` admits token
/// `t`, words that are missing admit none, and no mask admits all.
///
/// # Errors
/// Where `logits` is no such tensor, or there is not one mask for each row.
pub fn argmax_masked(logits: &Tensor, masks: &[Option<&[u32]>]) -> Result<Vec<Choice>> {
    let (rows, columns) = sizes(logits)?;
    if masks.len() != rows {
        candle_core::bail!("{} masks for {rows} rows", masks.len());
    }
    if rows == 0 {
        return Ok(Vec::new());
    }
    let guard = Guard::new(logits)?;
    let (logits, on) = (guard.view::<f32>()?, guard.on()?);
    // Where each row's mask begins, its words, and all masks.
    let mut table = vec![NONE; 2 * rows];
    for (row, mask) in masks.iter().enumerate() {
        if let Some(mask) = mask {
            let mask = &mask[..mask.len().min(columns.div_ceil(32))];
            table[row] = number(table.len() - 2 * rows)?;
            table[rows + row] = number(mask.len())?;
            table.extend(mask);
        }
    }
    let table = on.device.clone_htod(&table)?;
    let (beginnings, rest) = table.split_at(rows);
    let (lengths, words) = rest.split_at(rows);
    let width = number(columns)?;
    // SAFETY: the kernel writes a number for each row.
    let mut out = unsafe { on.device.alloc::<u32>(rows) }?;
    let mut arguments = on.arguments("argmax_masked")?;
    arguments
        .arg(&logits)
        .arg(&beginnings)
        .arg(&lengths)
        .arg(&words);
    arguments.arg(&mut out).arg(&width);
    // SAFETY: the arguments of `argmax_masked`; each mask lies within its table.
    unsafe { on.launch(arguments, [rows, 1], THREADS, REDUCE_BYTES) }?;
    let out = on.device.clone_dtoh(&out)?;
    Ok(out
        .into_iter()
        .map(|token| match token {
            NONE => Choice::Nothing,
            NOT_FINITE => Choice::NotFinite,
            token => Choice::Token(token),
        })
        .collect())
}

/// Rows, and tokens of each, which there must be.
fn sizes(logits: &Tensor) -> Result<(usize, usize)> {
    let (rows, columns) = logits.dims2()?;
    if columns == 0 {
        candle_core::bail!("logits of no tokens");
    }
    Ok((rows, columns))
}
