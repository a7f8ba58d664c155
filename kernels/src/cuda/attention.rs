//! Attention on a card. A [`Plan`] holds what all layers of a pass have in common; its tables are uploaded once.

use super::module::On;
use super::operands::{Fresh, Guard, number, same_card};
use super::shapes::{Attend, merge_threads};
use super::tables::{Geometry, Tables, check, tables};
use crate::{KernelError, PAGE, Span};
use candle_core::cuda_backend::CudaDevice;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaView, DeviceRepr, PushKernelArg};
use candle_core::{DType, Device, Error, Result, Tensor};
use half::bf16;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A ragged batch: whose the rows are, where their context lies, and which of them meet what together.
pub struct Plan {
    device: CudaDevice,
    spans: Vec<Span>,
    /// Rows that are in spans, and the end of them.
    rows: (usize, usize),
    /// End of the pages' numbers.
    pages: usize,
    /// The tables for each geometry that was asked for: one, but for models whose layers differ.
    made: Mutex<Vec<(Geometry, Arc<Uploaded>)>>,
}

/// Tables on the card, one behind the other in one piece of memory.
struct Uploaded {
    words: CudaSlice<u32>,
    wide: Range<usize>,
    narrow: Range<usize>,
    entries: Range<usize>,
    pages: Range<usize>,
    merges: Range<usize>,
    /// Numbers of items and of rows to merge.
    counts: [usize; 3],
    partials: usize,
}

/// Words of an item, an entry, and a row to merge.
const ITEM: usize = 9;
const ENTRY: usize = 3;
const MERGE: usize = 3;

/// What is the same for the whole of a launch; the structure of `paging.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Shape {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    window: u32,
    scale: f32,
    soft_cap: f32,
    brief: u32,
    stages: u32,
}

// SAFETY: numbers of 32 bits without padding, as the kernels declare them.
unsafe impl DeviceRepr for Shape {}

impl Plan {
    /// Checks the spans. The tables are made and uploaded by the first [`attention`] that needs them.
    ///
    /// # Errors
    /// Where the device is no NVIDIA card, or spans overlap or lack pages.
    pub fn new(device: &Device, spans: &[Span]) -> Result<Plan> {
        let (end, pages) = check(spans).map_err(Error::wrap)?;
        Ok(Plan {
            device: device.as_cuda_device()?.clone(),
            spans: spans.to_vec(),
            rows: (spans.iter().map(|span| span.rows).sum(), end),
            pages,
            made: Mutex::new(Vec::new()),
        })
    }

    fn uploaded(&self, geometry: Geometry) -> Result<Arc<Uploaded>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, uploaded)) = made.iter().find(|(own, _)| *own == geometry) {
            return Ok(uploaded.clone());
        }
        let tables = tables(&self.spans, geometry).map_err(Error::wrap)?;
        let uploaded = Arc::new(upload(&self.device, &tables)?);
        made.push((geometry, uploaded.clone()));
        Ok(uploaded)
    }
}

fn upload(device: &CudaDevice, tables: &Tables) -> Result<Uploaded> {
    let mut words: Vec<u32> = Vec::new();
    let mut append = |part: &mut dyn Iterator<Item = u32>| {
        let start = words.len();
        words.extend(part);
        start..words.len()
    };
    let item = |item: &super::tables::Item| -> [u32; ITEM] {
        [
            item.first_query,
            item.queries,
            item.rows,
            item.pages,
            item.first_split,
            item.end_split,
            item.lowest,
            item.highest,
            item.folded,
        ]
    };
    let wide = append(&mut tables.wide.iter().flat_map(item));
    let narrow = append(&mut tables.narrow.iter().flat_map(item));
    let entry = |entry: &super::tables::Entry| -> [u32; ENTRY] {
        [entry.row, entry.position, entry.partial]
    };
    let entries = append(&mut tables.entries.iter().flat_map(entry));
    let merge =
        |merge: &super::tables::Merge| -> [u32; MERGE] { [merge.row, merge.partial, merge.count] };
    let merges = append(&mut tables.merges.iter().flat_map(merge));
    let pages = append(&mut tables.pages.iter().copied());
    if words.is_empty() {
        words.push(0);
    }
    Ok(Uploaded {
        words: device.clone_htod(&words)?,
        counts: [tables.wide.len(), tables.narrow.len(), tables.merges.len()],
        partials: tables.partials,
        wide,
        narrow,
        entries,
        pages,
        merges,
    })
}

impl Uploaded {
    fn part(&self, range: &Range<usize>) -> CudaView<'_, u32> {
        self.words.slice(range.clone())
    }
}

/// Attention of `q`, `[R, heads, dim]` in f32, over keys `k` and values `v`, `[pages, kv_heads, PAGE, dim]` in bf16: `[R, heads * dim]` in F32 or BF16. A
/// row at position `p` of its span sees positions `0..=p`, or, with a window `w`, those above `p - w`. Rows outside all spans are zero.
///
/// # Errors
/// Where shapes do not fit, or the plan is of another batch or card.
#[allow(clippy::too_many_arguments)]
pub fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    plan: &Plan,
    scale: f32,
    window: Option<usize>,
    soft_cap: Option<f32>,
    out: DType,
) -> Result<Tensor> {
    let (rows, heads, dim) = q.dims3()?;
    let (pages, kv_heads, page, own) = k.dims4()?;
    if k.dims() != v.dims() || page != PAGE || own != dim || kv_heads == 0 || heads % kv_heads != 0
    {
        candle_core::bail!(
            "attention: queries {:?}, keys {:?}, values {:?}",
            q.dims(),
            k.dims(),
            v.dims()
        );
    }
    for (what, index, limit) in [
        ("end of a span", plan.rows.1, rows + 1),
        ("end of the pages", plan.pages, pages + 1),
    ] {
        if index >= limit {
            return Err(Error::wrap(KernelError::Index { what, index, limit }));
        }
    }
    if window == Some(0) {
        candle_core::bail!("attention: a window of no positions");
    }
    let (q, k, v) = (Guard::new(q)?, Guard::new(k)?, Guard::new(v)?);
    same_card(&[&q, &k, &v])?;
    let on = q.on()?;
    if on.device.id() != plan.device.id() {
        candle_core::bail!("attention: the plan is of another card");
    }
    let count = rows * heads * dim;
    let mut result = match plan.rows.0 == rows {
        // SAFETY: every row is in a span, and the tables give every query of such a row one place that writes it.
        true => unsafe { Fresh::new(&on.device, count, out) }?,
        false => Fresh::zeros(&on.device, count, out)?,
    };
    if plan.rows.0 == 0 {
        return Ok(result.into_tensor(&on.device, (rows, heads * dim)));
    }

    let card = on.kernels.card;
    let (Some(wide), Some(narrow)) = (Attend::wide(dim, card), Attend::narrow(dim, card)) else {
        candle_core::bail!(
            "attention on a card takes heads of 8 to 256 dimensions, in eights, not of {dim}"
        );
    };
    let uploaded = plan.uploaded(Geometry {
        shared_by: heads / kv_heads,
        kv_heads,
        wide: wide.queries(),
        narrow: narrow.queries(),
        processors: card.processors,
    })?;
    let shape = Shape {
        heads: number(heads)?,
        kv_heads: number(kv_heads)?,
        dim: number(dim)?,
        // A window beyond all positions is none.
        window: window.map_or(0, |window| u32::try_from(window).unwrap_or(0)),
        scale,
        soft_cap: soft_cap.unwrap_or(0.0),
        brief: result.brief(),
        stages: 0,
    };
    let results = uploaded.partials * heads;
    // SAFETY: `merge` reads what the items have written, and nothing of those that say that they saw nothing.
    let (mut sums, mut tops) = unsafe {
        (
            on.device.alloc::<f32>((results * dim).max(1))?,
            on.device.alloc::<f32>((results * 2).max(1))?,
        )
    };
    let (q, k, v) = (q.view::<f32>()?, k.view::<bf16>()?, v.view::<bf16>()?);
    let entries = uploaded.part(&uploaded.entries);
    let page_table = uploaded.part(&uploaded.pages);
    for (block, items, count) in [
        (wide, &uploaded.wide, uploaded.counts[0]),
        (narrow, &uploaded.narrow, uploaded.counts[1]),
    ] {
        let items = uploaded.part(items);
        let shape = Shape {
            stages: number(block.stages)?,
            ..shape
        };
        let name = block.name();
        let mut arguments = on.arguments(&name)?;
        arguments.arg(&q).arg(&k).arg(&v);
        arguments.arg(&items).arg(&entries).arg(&page_table);
        arguments.arg(&mut sums).arg(&mut tops);
        result.add_to(&mut arguments);
        arguments.arg(&shape);
        // SAFETY: the arguments of `attend`. The tables are of spans whose rows and pages were held against the tensors above, `sums` and `tops` have
        // what the tables count, and the block's shared memory is what `Attend` counts, which the card has.
        unsafe { on.launch(arguments, [count, kv_heads], block.threads(), block.bytes()) }?;
    }
    merge(&on, &uploaded, [&sums, &tops], &mut result, shape)?;
    Ok(result.into_tensor(&on.device, (rows, heads * dim)))
}

fn merge(
    on: &On,
    uploaded: &Uploaded,
    [sums, tops]: [&CudaSlice<f32>; 2],
    result: &mut Fresh,
    shape: Shape,
) -> Result<()> {
    let merges = uploaded.part(&uploaded.merges);
    let mut arguments = on.arguments("merge")?;
    arguments.arg(&merges).arg(sums).arg(tops);
    result.add_to(&mut arguments);
    arguments.arg(&shape);
    let grid = [uploaded.counts[2], shape.heads as usize];
    // SAFETY: the arguments of `merge`; the rows are those of the tables.
    unsafe { on.launch(arguments, grid, merge_threads(shape.dim as usize), 0) }
}
