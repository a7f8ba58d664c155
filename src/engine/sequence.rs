//! A sequence: the tokens of one ask, and which of them lie in which page.
//!
//! Tokens are the truth and pages a cache of them: a sequence can lose all its pages and go on later. Knows no tensor,
//! no constraint and no other sequence.

use crate::ask::TokenCounts;
use crate::engine::pages::{Copy, Pages};
use crate::engine::prefix::{NodeId, PageTokens, ROOT};
use crate::model::batch::{PAGE, PageId};

/// The tokens of one ask and their pages.
#[derive(Clone, Debug)]
pub struct Sequence {
    tokens: Vec<u32>,
    prompt: usize,
    /// A hash of the tokens up to the end of each full page of the prompt.
    chains: Vec<u64>,
    /// Position `p` lies in `table[p / PAGE]`.
    table: Vec<PageId>,
    computed: usize,
    /// Most tokens that were ever computed or cached, so that nothing is counted twice after a preemption.
    reached: usize,
    cursor: NodeId,
    /// Where the tokens came from.
    pub counts: TokenCounts,
    /// Branches that wait for a pass, oldest first.
    pub branches: Vec<Branch>,
}

/// A continuation whose last row is wanted. It starts right after the sequence's last token and never joins it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The owner's name for it.
    pub slot: usize,
    /// Its tokens, at least one.
    pub tokens: Vec<u32>,
}

/// A branch of a sequence, for one forward pass: it shares the full pages and has its own copy of the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Pages, each with a reference of its own.
    pub table: Vec<PageId>,
    /// Copies to be made before the pass.
    pub copies: Vec<Copy>,
}

impl Sequence {
    /// A sequence of which nothing is computed yet. The prompt isn't empty.
    pub fn new(prompt: Vec<u32>) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let chains = prompt.chunks_exact(PAGE).map(|page| {
            for token in page {
                hash = (hash ^ u64::from(*token))
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(29);
            }
            hash
        });
        Sequence {
            chains: chains.collect(),
            counts: TokenCounts {
                prompt: prompt.len(),
                ..TokenCounts::default()
            },
            prompt: prompt.len(),
            tokens: prompt,
            table: Vec::new(),
            computed: 0,
            reached: 0,
            cursor: ROOT,
            branches: Vec::new(),
        }
    }

    /// All tokens: the prompt, then the output.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The output's tokens.
    pub fn output(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// Number of tokens of the prompt.
    pub fn prompt(&self) -> usize {
        self.prompt
    }

    /// Tokens, from the start on, that lie in the pages.
    pub fn computed(&self) -> usize {
        self.computed
    }

    /// Tokens that a forward pass has yet to see.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// The pages, in order of position.
    pub fn table(&self) -> &[PageId] {
        &self.table
    }

    /// Appends tokens to the output.
    pub fn append(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
    }

    /// Pages of the prompt that may come from the prefix tree: full ones, short of the last token, whose row is needed.
    pub fn sharable(&self) -> usize {
        (self.prompt - 1) / PAGE
    }

    /// A name for the prefix that ends with page `page` of the prompt: equal prefixes have equal names. `None` where
    /// the page isn't sharable.
    pub fn chain(&self, page: usize) -> Option<u64> {
        self.chains
            .get(page)
            .copied()
            .filter(|_| page < self.sharable())
    }

    /// The page that comes next, where it may come from the prefix tree, and the node that it hangs under.
    pub fn next_shared(&self) -> Option<(NodeId, &PageTokens)> {
        let page = self.computed / PAGE;
        if !self.computed.is_multiple_of(PAGE) || page >= self.sharable() {
            return None;
        }
        Some((self.cursor, self.tokens[self.computed..].first_chunk()?))
    }

    /// Takes the next page from the prefix tree. Answers with the number of tokens that count as cached.
    pub fn adopt(&mut self, pages: &mut Pages, node: NodeId, page: PageId) -> usize {
        pages.retain(page);
        self.table.push(page);
        self.cursor = node;
        self.computed += PAGE;
        let new = self
            .computed
            .saturating_sub(self.reached.max(self.computed - PAGE));
        self.reached = self.reached.max(self.computed);
        self.counts.cached += new;
        new
    }

    /// Pages that the tokens up to `end` need beyond those in the table.
    pub fn missing(&self, end: usize) -> usize {
        end.div_ceil(PAGE).saturating_sub(self.table.len())
    }

    /// Puts a fresh page at the end of the table; the sequence takes over its reference.
    pub fn grow(&mut self, page: PageId) {
        self.table.push(page);
    }

    /// Notes that a forward pass has computed `rows` more tokens. Answers with the number of prompt tokens that were
    /// computed for the first time.
    pub fn advance(&mut self, rows: usize) -> usize {
        self.computed += rows;
        let before = self.reached.min(self.prompt);
        self.reached = self.reached.max(self.computed);
        self.reached.min(self.prompt) - before
    }

    /// The full pages of the prompt that a pass from `start` to now has filled, by index.
    pub fn filled(&self, start: usize) -> std::ops::Range<usize> {
        start / PAGE..(self.computed.min(self.prompt) / PAGE)
    }

    /// The tokens of a full page.
    pub fn page_tokens(&self, page: usize) -> Option<&PageTokens> {
        self.tokens.get(page * PAGE..)?.first_chunk()
    }

    /// Where the next filled page hangs in the prefix tree.
    pub fn cursor(&self) -> NodeId {
        self.cursor
    }

    /// Notes that page `index` hangs at `node` of the prefix tree as `page`, and takes that page for its own.
    pub fn share(&mut self, pages: &mut Pages, index: usize, node: NodeId, page: PageId) {
        if self.table[index] != page {
            pages.retain(page);
            pages.release(self.table[index]);
            self.table[index] = page;
        }
        self.cursor = node;
    }

    /// Lets go of all pages: the tokens stay, and are computed anew when their turn comes.
    pub fn release(&mut self, pages: &mut Pages) {
        for page in self.table.drain(..) {
            pages.release(page);
        }
        self.computed = 0;
        self.cursor = ROOT;
    }

    /// Pages that a branch of `length` tokens needs for itself.
    pub fn fork_pages(&self, length: usize) -> usize {
        (self.computed + length).div_ceil(PAGE) - self.computed / PAGE
    }

    /// Starts a branch of `length` tokens after all computed ones: full pages are shared, the last partial one is
    /// copied on write. `None`, with nothing changed, where the pages don't suffice.
    pub fn fork(&self, pages: &mut Pages, length: usize) -> Option<Fork> {
        if self.fork_pages(length) > pages.free() {
            return None;
        }
        let held = self.computed.div_ceil(PAGE);
        let mut fork = Fork {
            table: self.table[..held].to_vec(),
            copies: Vec::new(),
        };
        for page in &fork.table {
            pages.retain(*page);
        }
        for index in self.computed / PAGE..(self.computed + length).div_ceil(PAGE) {
            let to = pages.allocate()?;
            match fork.table.get_mut(index) {
                Some(page) => {
                    fork.copies.push(Copy { from: *page, to });
                    pages.release(*page);
                    *page = to;
                }
                None => fork.table.push(to),
            }
        }
        Some(fork)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(length: usize, pages: &mut Pages) -> Sequence {
        let mut sequence = Sequence::new((0..length as u32).collect());
        for _ in 0..sequence.missing(length) {
            sequence.grow(pages.allocate().unwrap());
        }
        assert_eq!(sequence.advance(length), length);
        sequence
    }

    #[test]
    fn a_fork_shares_full_pages_and_copies_the_last() {
        for (length, branch, own, copied) in [
            (16, 1, 1, 0),
            (17, 1, 1, 1),
            (31, 1, 1, 1),
            (31, 2, 2, 1),
            (32, 17, 2, 0),
            (3, 1, 1, 1),
        ] {
            let mut pages = Pages::new(8);
            let sequence = computed(length, &mut pages);
            let before = pages.free();
            let fork = sequence.fork(&mut pages, branch).unwrap();
            assert_eq!(before - pages.free(), own, "{length} + {branch}");
            assert_eq!(fork.copies.len(), copied, "{length} + {branch}");
            assert_eq!(fork.table.len(), (length + branch).div_ceil(PAGE));
            assert_eq!(
                fork.table[..length / PAGE],
                sequence.table()[..length / PAGE]
            );
            for page in fork.table {
                pages.release(page);
            }
            assert_eq!(pages.free(), before);
            assert_eq!(sequence.fork(&mut pages, (before + 1) * PAGE), None);
            assert_eq!(pages.free(), before, "a refused fork changes nothing");
        }
    }

    #[test]
    fn the_last_row_of_a_prompt_is_never_shared() {
        for (length, sharable) in [(1, 0), (16, 0), (17, 1), (32, 1), (33, 2)] {
            let sequence = Sequence::new(vec![7; length]);
            assert_eq!(sequence.sharable(), sharable, "{length}");
            assert_eq!(sequence.chain(sharable), None);
            assert_eq!(sequence.next_shared().is_some(), sharable > 0);
        }
    }

    #[test]
    fn nothing_is_counted_twice_after_a_preemption() {
        let mut pages = Pages::new(8);
        let mut sequence = computed(40, &mut pages);
        sequence.release(&mut pages);
        assert_eq!(
            (pages.free(), sequence.computed(), sequence.pending()),
            (8, 0, 40)
        );
        let page = pages.allocate().unwrap();
        assert_eq!(sequence.adopt(&mut pages, 1, page), 0);
        assert_eq!(sequence.advance(24), 0);
        assert_eq!(sequence.counts.cached, 0);
    }
}
