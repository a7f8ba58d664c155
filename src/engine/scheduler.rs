//! The scheduler: which rows run in the next pass.
//!
//! Every pass goes through the running sequences from the oldest to the youngest and gives each what it needs next,
//! within the token budget: one row for a chosen token, a chunk of a prompt or of a forced run, or the branches of a
//! readout. A sequence that lacks pages evicts cached prefixes first, then preempts the youngest; the oldest can always
//! go on, so every ask ends. Knows no tensor, no constraint and no ask.
//!
//! A prompt waits while an older sequence is computing the page that it needs next, and then takes that page from the
//! prefix tree: a shared rubric is computed once even when all asks arrive together.

use crate::engine::EngineSettings;
use crate::engine::pages::Pages;
use crate::engine::prefix::{Prefix, ROOT};
use crate::engine::sequence::{Fork, Sequence};
use crate::model::batch::{PAGE, PageId};
use std::collections::HashSet;

/// What one sequence does in a pass; `sequence` is its index among the running ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// The next `rows` pending tokens.
    Rows {
        /// Whose.
        sequence: usize,
        /// How many.
        rows: usize,
    },
    /// One branch. Its pages are released after the pass, by [`Scheduler::settle_fork`].
    Branch {
        /// Whose.
        sequence: usize,
        /// The branch's slot.
        slot: usize,
        /// The branch's pages.
        fork: Fork,
    },
}

/// One pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What runs, in row order.
    pub work: Vec<Work>,
    /// Sequences that lost their pages, by index; the caller takes them out of the running ones.
    pub preempted: Vec<usize>,
    /// Prompt tokens taken from the prefix tree.
    pub cached: usize,
}

/// Hands out pages and rows.
#[derive(Debug)]
pub struct Scheduler {
    settings: EngineSettings,
    pages: Pages,
    prefix: Prefix,
}

impl Scheduler {
    /// A scheduler over `pages` free pages.
    pub fn new(settings: EngineSettings, pages: usize) -> Self {
        Scheduler {
            settings,
            pages: Pages::new(pages),
            prefix: Prefix::default(),
        }
    }

    /// The pages, to be looked at.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The prefix tree, to be looked at.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Whether there is room to admit `sequence` beside the running ones. Each of them is left the pages that it lacks
    /// and one to grow, so that a newcomer is not preempted at once.
    pub fn has_room<'a>(
        &self,
        sequence: &Sequence,
        running: impl ExactSizeIterator<Item = &'a Sequence>,
    ) -> bool {
        if running.len() == 0 {
            return true;
        }
        // Cached pages that nobody uses are among the idle ones already.
        let in_use = |page: &PageId| self.pages.references(*page) > 1;
        let cached = match self.settings.prefix_cache {
            true => self
                .prefix
                .cached(sequence.tokens(), sequence.sharable())
                .filter(in_use)
                .count(),
            false => 0,
        };
        let lacking = |sequence: &Sequence| sequence.missing(sequence.tokens().len());
        let promised: usize = running.map(|other| lacking(other) + 1).sum();
        let needed = lacking(sequence).saturating_sub(cached) + 1;
        self.pages.free() + self.prefix.idle(&self.pages) >= promised + needed
    }

    /// Plans a pass over the running sequences, oldest first.
    pub fn plan(&mut self, running: &mut [&mut Sequence]) -> Plan {
        let mut plan = Plan::default();
        let mut budget = self.settings.max_batch_tokens;
        // Pages that an older sequence of this pass is going to fill.
        let mut claimed: HashSet<u64> = HashSet::new();
        let mut end = running.len();
        let mut index = 0;
        while index < end {
            let (older, younger) = running[..end].split_at_mut(index + 1);
            let sequence = &mut older[index];
            if self.settings.prefix_cache {
                plan.cached += self.adopt(sequence);
            }
            let page = sequence.computed() / PAGE;
            let waits = sequence.computed().is_multiple_of(PAGE)
                && sequence
                    .chain(page)
                    .is_some_and(|chain| claimed.contains(&chain));
            if self.settings.prefix_cache {
                claimed.extend((page..sequence.sharable()).filter_map(|page| sequence.chain(page)));
            }
            if !waits {
                // Every younger sequence that needs but a row or two shall have it in this pass, too.
                let spare = younger.iter().filter(|other| other.pending() == 1).count();
                let share = budget.saturating_sub(spare).max(1).min(budget);
                let mut pool = Pool {
                    scheduler: self,
                    younger,
                    preempted: Vec::new(),
                };
                let used = if sequence.pending() > 0 {
                    pool.rows(sequence, index, share, &mut plan)
                } else {
                    pool.branches(sequence, index, share, &mut plan)
                };
                let preempted = pool.preempted;
                end -= preempted.len();
                plan.preempted
                    .extend(preempted.into_iter().map(|offset| index + 1 + offset));
                budget -= used.min(budget);
            }
            index += 1;
        }
        plan.preempted.reverse();
        plan
    }

    /// Notes that a pass has computed `rows` more tokens of `sequence`, and caches the pages of the prompt that it
    /// filled. Answers with the number of prompt tokens computed for the first time.
    pub fn settle_rows(&mut self, sequence: &mut Sequence, rows: usize) -> usize {
        let start = sequence.computed();
        let new = sequence.advance(rows);
        if self.settings.prefix_cache {
            for index in sequence.filled(start) {
                let Some(tokens) = sequence.page_tokens(index) else {
                    continue;
                };
                let own = sequence.table()[index];
                let (node, page) =
                    self.prefix
                        .insert(&mut self.pages, sequence.cursor(), tokens, own);
                sequence.share(&mut self.pages, index, node, page);
            }
        }
        new
    }

    /// Puts the pages of `tokens` into the prefix tree, from the first on, as far as pages are free. `fill` is told which of them belongs into which
    /// page, for those that the tree lacks. Answers with the number that lie there in the end.
    ///
    /// # Errors
    /// What `fill` says; the pages before it stay.
    pub fn keep<E>(
        &mut self,
        tokens: &[u32],
        mut fill: impl FnMut(usize, PageId) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut node = ROOT;
        let (whole, _) = tokens.as_chunks::<PAGE>();
        for (index, tokens) in whole.iter().enumerate() {
            if let Some((child, _)) = self.prefix.child(node, tokens) {
                node = child;
                continue;
            }
            let Some(page) = self.pages.allocate() else {
                return Ok(index);
            };
            let filled = fill(index, page);
            if filled.is_ok() {
                (node, _) = self.prefix.insert(&mut self.pages, node, tokens, page);
            }
            // The tree has a reference of its own now, or else the page is free again.
            self.pages.release(page);
            filled?;
        }
        Ok(whole.len())
    }

    /// Releases the pages of a branch.
    pub fn settle_fork(&mut self, fork: Fork) {
        for page in fork.table {
            self.pages.release(page);
        }
    }

    /// Releases the pages of a sequence; what the prefix tree has of them stays cached.
    pub fn release(&mut self, sequence: &mut Sequence) {
        sequence.release(&mut self.pages);
    }

    fn adopt(&mut self, sequence: &mut Sequence) -> usize {
        let mut cached = 0;
        while let Some((node, tokens)) = sequence.next_shared()
            && let Some((child, page)) = self.prefix.child(node, tokens)
        {
            cached += sequence.adopt(&mut self.pages, child, page);
        }
        cached
    }
}

/// Where a sequence gets pages from: free ones, cached ones, and those of the younger sequences.
struct Pool<'a, 'b, 'c> {
    scheduler: &'a mut Scheduler,
    younger: &'b mut [&'c mut Sequence],
    /// Indexes into `younger`, from the end.
    preempted: Vec<usize>,
}

impl Pool<'_, '_, '_> {
    /// Makes `wanted` pages free by evicting cached prefixes, as far as that can be done.
    fn evict(&mut self, wanted: usize) -> bool {
        while self.scheduler.pages.free() < wanted {
            if !self.scheduler.prefix.evict(&mut self.scheduler.pages) {
                return false;
            }
        }
        true
    }

    /// Makes `wanted` pages free, by preempting younger sequences if it must.
    fn preempt(&mut self, wanted: usize) -> bool {
        while !self.evict(wanted) {
            let Some(youngest) = (self.younger.len() - self.preempted.len()).checked_sub(1) else {
                return false;
            };
            self.scheduler.release(self.younger[youngest]);
            self.preempted.push(youngest);
        }
        true
    }

    /// Schedules pending tokens, and answers with the number of rows. Where pages are short, what fits in the pages at
    /// hand is better than nothing, and better than preempting others.
    fn rows(
        &mut self,
        sequence: &mut Sequence,
        index: usize,
        share: usize,
        plan: &mut Plan,
    ) -> usize {
        let wanted = sequence
            .pending()
            .min(self.scheduler.settings.prefill_chunk)
            .min(share);
        if wanted == 0 {
            return 0;
        }
        if !self.evict(sequence.missing(sequence.computed() + wanted)) {
            self.preempt(sequence.missing(sequence.computed() + 1));
        }
        let room =
            (sequence.table().len() + self.scheduler.pages.free()) * PAGE - sequence.computed();
        let rows = wanted.min(room);
        for _ in 0..sequence.missing(sequence.computed() + rows) {
            if let Some(page) = self.scheduler.pages.allocate() {
                sequence.grow(page);
            }
        }
        if rows > 0 {
            plan.work.push(Work::Rows {
                sequence: index,
                rows,
            });
        }
        rows
    }

    /// Schedules as many branches as fit, and answers with the number of rows. A branch longer than the whole budget
    /// runs where nothing else does. Others are preempted for the first branch only: the rest can follow later.
    fn branches(
        &mut self,
        sequence: &Sequence,
        index: usize,
        share: usize,
        plan: &mut Plan,
    ) -> usize {
        let mut used = 0;
        for branch in &sequence.branches {
            let length = branch.tokens.len();
            if used + length > share && !plan.work.is_empty() {
                break;
            }
            let wanted = sequence.fork_pages(length);
            if !(self.evict(wanted) || used == 0 && self.preempt(wanted)) {
                break;
            }
            let Some(fork) = sequence.fork(&mut self.scheduler.pages, length) else {
                break;
            };
            used += length;
            plan.work.push(Work::Branch {
                sequence: index,
                slot: branch.slot,
                fork,
            });
        }
        used
    }
}
