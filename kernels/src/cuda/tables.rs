//! The tables of a ragged batch: which queries meet which splits of which pages together, and what is merged afterwards.
//!
//! Spans of few rows are sorted into groups whose pages are the same over some splits, so that a prefix which they share is read once for all of them;
//! a span with rows enough for a block of its own meets everything alone. Which queries go together, and how many splits one block takes, changes no
//! result: see `attention.cu`. Knows no device.

use super::shapes::SPLIT;
use crate::error::product;
use crate::{KernelError, PAGE, Span};

/// Pages of a split.
const SPLIT_PAGES: usize = SPLIT / PAGE;
/// Instead of a number of a partial result; `DIRECT` of `paging.cuh`.
const DIRECT: u32 = u32::MAX;
/// Blocks that each processor should find, where splits can be given to more of them.
const BLOCKS: usize = 4;

/// What a block of threads does for one head of the cache; the structure of `paging.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Item {
    /// First of its rows' queries that it has.
    pub first_query: u32,
    /// Its queries.
    pub queries: u32,
    /// Where its rows begin among the entries.
    pub rows: u32,
    /// Where its pages begin, those of position 0.
    pub pages: u32,
    /// First split.
    pub first_split: u32,
    /// End of its splits.
    pub end_split: u32,
    /// Lowest position of its rows.
    pub lowest: u32,
    /// Highest position of its rows.
    pub highest: u32,
    /// 1 where its splits are merged into one result.
    pub folded: u32,
}

/// A row that an item has; the structure of `paging.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Row of the batch.
    pub row: u32,
    /// Its position.
    pub position: u32,
    /// Number of the first partial result, or all ones.
    pub partial: u32,
}

/// A row whose partial results are merged; the structure of `paging.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Merge {
    /// Row of the batch.
    pub row: u32,
    /// Its first partial result.
    pub partial: u32,
    /// Its partial results.
    pub count: u32,
}

/// What tables are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Query heads that share a head of the cache.
    pub shared_by: usize,
    /// Heads of the cache.
    pub kv_heads: usize,
    /// Queries of a wide block.
    pub wide: usize,
    /// Queries of a narrow block.
    pub narrow: usize,
    /// Processors of the card.
    pub processors: usize,
}

/// The tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Items of more queries than a narrow block has, those with most to do first.
    pub wide: Vec<Item>,
    /// The others, likewise.
    pub narrow: Vec<Item>,
    /// Rows of items.
    pub entries: Vec<Entry>,
    /// Pages of spans.
    pub pages: Vec<u32>,
    /// Rows that have partial results.
    pub merges: Vec<Merge>,
    /// Partial results of a head.
    pub partials: usize,
}

/// Checks that spans do not overlap and have the pages that they need. Answers the end of their rows and of their pages' numbers.
///
/// # Errors
/// Where they don't.
pub fn check(spans: &[Span]) -> Result<(usize, usize), KernelError> {
    let (mut next, mut limit) = (0, 0);
    for span in spans {
        if span.first < next {
            return Err(KernelError::Shape(format!(
                "span at row {} overlaps the one before it",
                span.first
            )));
        }
        let overflow = KernelError::Overflow { what: "span" };
        next = span.first.checked_add(span.rows).ok_or(overflow.clone())?;
        let length = span.position.checked_add(span.rows).ok_or(overflow)?;
        if product("pages of a span", &[span.pages.len(), PAGE])? < length {
            return Err(KernelError::Shape(format!(
                "{} pages do not cover {length} positions",
                span.pages.len()
            )));
        }
        // Positions, rows and slots are numbers of 32 bits on a card, and positions are rounded up there.
        for (what, index) in [("row", next), ("position", length)] {
            if index > i32::MAX as usize {
                return Err(KernelError::Index {
                    what,
                    index,
                    limit: i32::MAX as usize,
                });
            }
        }
        let highest = span.pages.iter().max();
        limit = limit.max(highest.map_or(0, |page| *page as usize + 1));
    }
    Ok((next, limit))
}

/// Spans that meet some splits together, and how many partial results each of them had before.
struct Unit {
    spans: Vec<usize>,
    first: usize,
    end: usize,
}

/// Makes the tables for spans that [`check`] has passed.
///
/// # Errors
/// Where they would be too large for their numbers.
pub fn tables(spans: &[Span], geometry: Geometry) -> Result<Tables, KernelError> {
    let units = units(spans, geometry);
    let longest = units.iter().map(|unit| unit.end - unit.first).max();
    let mut each = longest.unwrap_or(1).max(1);
    while each > 1 && blocks(spans, &units, geometry, each) < BLOCKS * geometry.processors {
        each = each.div_ceil(2);
    }
    let mut pieces: Vec<Unit> = Vec::new();
    for unit in units {
        for first in (unit.first..unit.end).step_by(each) {
            pieces.push(Unit {
                spans: unit.spans.clone(),
                first,
                end: unit.end.min(first + each),
            });
        }
    }

    let mut builder = Builder::new(spans, geometry, &pieces)?;
    for piece in &pieces {
        builder.add(piece)?;
    }
    Ok(builder.finish())
}

/// Splits that a span's rows see.
fn splits(span: &Span) -> usize {
    match span.rows {
        0 => 0,
        rows => (span.position + rows).div_ceil(SPLIT),
    }
}

/// The pages that a span's rows need of a split.
fn pages_of(span: &Span, split: usize) -> &[u32] {
    let needed = (span.position + span.rows).div_ceil(PAGE);
    &span.pages[split * SPLIT_PAGES..needed.min((split + 1) * SPLIT_PAGES)]
}

/// All that is to be done, the splits of each span in rising order.
fn units(spans: &[Span], geometry: Geometry) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut short = Vec::new();
    for (index, span) in spans.iter().enumerate() {
        if span.rows == 0 {
            continue;
        }
        if span.rows * geometry.shared_by * 2 < geometry.wide {
            short.push(index);
        } else {
            units.push(Unit {
                spans: vec![index],
                first: 0,
                end: splits(span),
            });
        }
    }
    // A tree of prefixes, walked without recursion: deep ones come from long sequences, not from malice, but a stack is no place for either.
    let mut open = vec![(short, 0)];
    while let Some((members, split)) = open.pop() {
        let mut classes: Vec<(&[u32], Vec<usize>)> = Vec::new();
        let mut places: std::collections::HashMap<&[u32], usize> = std::collections::HashMap::new();
        for member in members {
            if splits(&spans[member]) <= split {
                continue;
            }
            let key = pages_of(&spans[member], split);
            let at = *places.entry(key).or_insert_with(|| {
                classes.push((key, Vec::new()));
                classes.len() - 1
            });
            classes[at].1.push(member);
        }
        for (_, members) in classes {
            let same = |split: usize| {
                let first = &spans[members[0]];
                members.iter().all(|member| {
                    let span = &spans[*member];
                    splits(span) > split && pages_of(span, split) == pages_of(first, split)
                })
            };
            let mut end = split + 1;
            while splits(&spans[members[0]]) > end && same(end) {
                end += 1;
            }
            units.push(Unit {
                spans: members.clone(),
                first: split,
                end,
            });
            open.push((members, end));
        }
    }
    units.sort_by_key(|unit| unit.first);
    units
}

/// Blocks that there are when each takes so many splits.
fn blocks(spans: &[Span], units: &[Unit], geometry: Geometry, each: usize) -> usize {
    let blocks = |unit: &Unit| {
        let rows: usize = unit.spans.iter().map(|span| spans[*span].rows).sum();
        (rows * geometry.shared_by).div_ceil(geometry.wide) * (unit.end - unit.first).div_ceil(each)
    };
    units.iter().map(blocks).sum::<usize>() * geometry.kv_heads
}

struct Builder<'a> {
    spans: &'a [Span],
    geometry: Geometry,
    /// Where each span's pages begin.
    pages: Vec<u32>,
    /// The first partial result of each span, how many each of its rows has, and how many it has so far.
    partials: Vec<(usize, usize, usize)>,
    tables: Tables,
}

impl<'a> Builder<'a> {
    fn new(
        spans: &'a [Span],
        geometry: Geometry,
        pieces: &[Unit],
    ) -> Result<Builder<'a>, KernelError> {
        let mut tables = Tables::default();
        let mut pages = Vec::with_capacity(spans.len());
        for span in spans {
            pages.push(number(tables.pages.len())?);
            tables.pages.extend(&span.pages);
        }
        let mut partials = vec![(0, 0, 0); spans.len()];
        for piece in pieces {
            for span in &piece.spans {
                if !is_direct(piece, &spans[*span]) {
                    partials[*span].1 += results(piece);
                }
            }
        }
        for (span, (first, count, _)) in spans.iter().zip(&mut partials) {
            *first = tables.partials;
            for row in 0..span.rows {
                if *count > 0 {
                    tables.merges.push(Merge {
                        row: number(span.first + row)?,
                        partial: number(*first + row * *count)?,
                        count: number(*count)?,
                    });
                }
            }
            tables.partials += span.rows * *count;
        }
        number(tables.partials)?;
        Ok(Builder {
            spans,
            geometry,
            pages,
            partials,
            tables,
        })
    }

    fn add(&mut self, piece: &Unit) -> Result<(), KernelError> {
        let spans = self.spans;
        let rows = self.tables.entries.len();
        for index in &piece.spans {
            let span = &spans[*index];
            let (first, count, so_far) = &mut self.partials[*index];
            for row in 0..span.rows {
                self.tables.entries.push(Entry {
                    row: number(span.first + row)?,
                    position: number(span.position + row)?,
                    partial: match is_direct(piece, span) {
                        true => DIRECT,
                        false => number(*first + row * *count + *so_far)?,
                    },
                });
            }
            if !is_direct(piece, span) {
                *so_far += results(piece);
            }
        }
        let end = self.tables.entries.len();
        let shared_by = self.geometry.shared_by;
        let queries = (end - rows) * shared_by;
        for first in (0..queries).step_by(self.geometry.wide) {
            let count = self.geometry.wide.min(queries - first);
            let own = rows + first / shared_by..=rows + (first + count - 1) / shared_by;
            let positions = self.tables.entries[own].iter().map(|entry| entry.position);
            let item = Item {
                first_query: number(first)?,
                queries: number(count)?,
                rows: number(rows)?,
                pages: self.pages[piece.spans[0]],
                first_split: number(piece.first)?,
                end_split: number(piece.end)?,
                lowest: positions.clone().min().unwrap_or(0),
                highest: positions.max().unwrap_or(0),
                folded: u32::from(piece.first == 0),
            };
            match count <= self.geometry.narrow {
                true => self.tables.narrow.push(item),
                false => self.tables.wide.push(item),
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Tables {
        let work = |item: &Item| {
            let end = (item.end_split * SPLIT as u32).min(item.highest + 1);
            std::cmp::Reverse(end.saturating_sub(item.first_split * SPLIT as u32))
        };
        self.tables.wide.sort_by_key(work);
        self.tables.narrow.sort_by_key(work);
        self.tables
    }
}

/// Whether a piece is all that a span's rows see.
fn is_direct(piece: &Unit, span: &Span) -> bool {
    piece.first == 0 && piece.end == splits(span)
}

/// Partial results of a piece: one where it begins at the beginning, since merging goes on from there, or else one a split.
fn results(piece: &Unit) -> usize {
    match piece.first {
        0 => 1,
        first => piece.end - first,
    }
}

fn number(value: usize) -> Result<u32, KernelError> {
    u32::try_from(value)
        .ok()
        .filter(|value| *value < DIRECT)
        .ok_or(KernelError::Overflow {
            what: "tables of a batch",
        })
}
