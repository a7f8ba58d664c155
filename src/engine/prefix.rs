//! The prefix tree: which runs of tokens lie in the KV cache already.
//!
//! A node is one full page of [`PAGE`] tokens, found under the page before it, so a path from the root spells a prefix.
//! The tree holds one reference to each of its pages. A sequence that uses a page uses all pages above it, so a page
//! that only the tree holds has none but such pages below it, and eviction of leaves can reach all of them. Knows token
//! ids and page ids, no tensor and no sequence.

use crate::engine::pages::Pages;
use crate::model::batch::{PAGE, PageId};
use std::collections::{BTreeSet, HashMap};

/// Names a node of a [`Prefix`]. Stays valid as long as someone besides the tree holds the node's page.
pub type NodeId = usize;

/// The empty prefix.
pub const ROOT: NodeId = 0;

/// One full page of tokens.
pub type PageTokens = [u32; PAGE];

#[derive(Debug)]
struct Node {
    parent: NodeId,
    tokens: PageTokens,
    /// Meaningless for the root, which has no page.
    page: PageId,
    children: HashMap<PageTokens, NodeId>,
    used: u64,
}

/// A radix tree over token ids, one page a step.
#[derive(Debug)]
pub struct Prefix {
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    /// Nodes without children, least recently used first.
    leaves: BTreeSet<(u64, NodeId)>,
    clock: u64,
}

impl Default for Prefix {
    fn default() -> Self {
        let root = Node {
            parent: ROOT,
            tokens: [0; PAGE],
            page: 0,
            children: HashMap::new(),
            used: 0,
        };
        Prefix {
            nodes: vec![Some(root)],
            vacant: Vec::new(),
            leaves: BTreeSet::new(),
            clock: 0,
        }
    }
}

impl Prefix {
    /// The page that continues `node` with `tokens`, if it is cached. Counts as a use. The page is not retained.
    pub fn child(&mut self, node: NodeId, tokens: &PageTokens) -> Option<(NodeId, PageId)> {
        let child = *self.nodes.get(node)?.as_ref()?.children.get(tokens)?;
        self.touch(child);
        Some((child, self.nodes[child].as_ref()?.page))
    }

    /// The pages, from the root on, in which `tokens` are cached; at most `limit` pages. Not counted as a use.
    pub fn cached(&self, tokens: &[u32], limit: usize) -> impl Iterator<Item = PageId> {
        let mut node = ROOT;
        tokens
            .chunks_exact(PAGE)
            .take(limit)
            .map_while(move |page| {
                node = *self.nodes[node].as_ref()?.children.get(page)?;
                Some(self.nodes[node].as_ref()?.page)
            })
    }

    /// Puts a filled page under `node`. The tree retains it, unless it has these tokens already: then the answer names
    /// the page that the tree has, whose content is the same.
    pub fn insert(
        &mut self,
        pages: &mut Pages,
        node: NodeId,
        tokens: &PageTokens,
        page: PageId,
    ) -> (NodeId, PageId) {
        if let Some(known) = self.child(node, tokens) {
            return known;
        }
        let child = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        pages.retain(page);
        self.nodes[child] = Some(Node {
            parent: node,
            tokens: *tokens,
            page,
            children: HashMap::new(),
            used: self.clock,
        });
        if let Some(parent) = self.nodes[node].as_mut() {
            parent.children.insert(*tokens, child);
            let used = parent.used;
            self.leaves.remove(&(used, node));
        }
        self.leaves.insert((self.clock, child));
        self.touch(child);
        (child, page)
    }

    /// Drops the least recently used leaf that nobody else holds, which frees its page. `false` where there is none.
    pub fn evict(&mut self, pages: &mut Pages) -> bool {
        let Some(&(used, leaf)) = self
            .leaves
            .iter()
            .find(|(_, leaf)| self.is_idle(pages, *leaf))
        else {
            return false;
        };
        self.leaves.remove(&(used, leaf));
        let Some(node) = self.nodes[leaf].take() else {
            return false;
        };
        self.vacant.push(leaf);
        pages.release(node.page);
        if let Some(parent) = self.nodes[node.parent].as_mut() {
            parent.children.remove(&node.tokens);
            if parent.children.is_empty() && node.parent != ROOT {
                let used = parent.used;
                self.leaves.insert((used, node.parent));
            }
        }
        true
    }

    /// Pages that only the tree holds: what eviction could free.
    pub fn idle(&self, pages: &Pages) -> usize {
        (1..self.nodes.len())
            .filter(|node| self.is_idle(pages, *node))
            .count()
    }

    /// Pages in the tree.
    pub fn len(&self) -> usize {
        self.nodes.len() - 1 - self.vacant.len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_idle(&self, pages: &Pages, node: NodeId) -> bool {
        self.nodes[node]
            .as_ref()
            .is_some_and(|node| pages.references(node.page) == 1)
    }

    fn touch(&mut self, id: NodeId) {
        self.clock += 1;
        let clock = self.clock;
        if let Some(node) = self.nodes[id].as_mut() {
            if self.leaves.remove(&(node.used, id)) {
                self.leaves.insert((clock, id));
            }
            node.used = clock;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(letter: u32) -> PageTokens {
        [letter; PAGE]
    }

    #[test]
    fn the_least_recently_used_leaf_goes_first_and_held_pages_stay() {
        let (mut pages, mut prefix) = (Pages::new(4), Prefix::default());
        let mut add = |prefix: &mut Prefix, node, letter| {
            let page = pages.allocate().unwrap();
            let (child, _) = prefix.insert(&mut pages, node, &tokens(letter), page);
            pages.release(page);
            (child, page)
        };
        let (a, page_a) = add(&mut prefix, ROOT, 1);
        let (_, page_ab) = add(&mut prefix, a, 2);
        let (_, page_c) = add(&mut prefix, ROOT, 3);
        let (_, page_d) = add(&mut prefix, ROOT, 4);
        let cached = |letters: [u32; 2], limit| {
            let tokens = letters.map(tokens).concat();
            prefix.cached(&tokens, limit).collect::<Vec<_>>()
        };
        assert_eq!(cached([1, 2], 9), [page_a, page_ab]);
        assert_eq!(cached([1, 2], 1), [page_a]);
        assert_eq!(cached([1, 3], 9), [page_a]);
        pages.retain(page_c);
        prefix.child(a, &tokens(2));
        assert_eq!(prefix.idle(&pages), 3);
        let mut freed = Vec::new();
        while prefix.evict(&mut pages) {
            freed.push(pages.allocate().unwrap());
        }
        // `d` was used before `ab`; `a` becomes a leaf last; `c` is held and stays.
        assert_eq!(freed, [page_d, page_ab, page_a]);
        assert_eq!((prefix.len(), prefix.is_empty()), (1, false));
    }

    proptest! {
        /// Against a model that is a plain map from prefixes to pages.
        #[test]
        fn finds_exactly_what_was_inserted_and_not_evicted(moves in prop::collection::vec((0u8..4, prop::collection::vec(0u32..3, 1..4)), 0..120)) {
            let (mut pages, mut prefix) = (Pages::new(8), Prefix::default());
            let mut known: HashMap<Vec<u32>, PageId> = HashMap::new();
            for (kind, path) in moves {
                if kind == 0 {
                    if prefix.evict(&mut pages) {
                        let gone: Vec<_> = known.iter().filter(|(_, page)| pages.references(**page) == 0).map(|(path, _)| path.clone()).collect();
                        prop_assert_eq!(gone.len(), 1);
                        prop_assert!(!known.keys().any(|other| other.len() > gone[0].len() && other.starts_with(&gone[0])));
                        known.remove(&gone[0]);
                    } else {
                        prop_assert!(known.is_empty());
                    }
                } else {
                    let mut node = ROOT;
                    for end in 1..=path.len() {
                        let key = path[..end].to_vec();
                        let found = prefix.child(node, &tokens(path[end - 1]));
                        prop_assert_eq!(found.map(|(_, page)| page), known.get(&key).copied());
                        node = match found {
                            Some((child, _)) => child,
                            None => {
                                let Some(page) = pages.allocate() else { break };
                                let (child, _) = prefix.insert(&mut pages, node, &tokens(path[end - 1]), page);
                                pages.release(page);
                                known.insert(key, page);
                                child
                            }
                        };
                    }
                }
                prop_assert_eq!(prefix.len(), known.len());
                prop_assert_eq!(prefix.idle(&pages), known.len());
                prop_assert_eq!(pages.free() + known.len(), pages.total());
            }
        }
    }
}
