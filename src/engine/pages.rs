//! Pages of the KV cache: who holds which, and which are free.
//!
//! Counts references and hands out page ids. Knows no tensor, no sequence and no prefix tree: what lies in a page is
//! the model's business. Running out is an `Option`, never a panic.

use crate::model::batch::PageId;

/// The pages of one KV cache.
#[derive(Clone, Debug)]
pub struct Pages {
    /// References to each page; 0 means free.
    counts: Vec<u32>,
    /// Free pages; the last one is handed out next.
    free: Vec<PageId>,
}

/// A page that must be copied before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The shared page.
    pub from: PageId,
    /// The fresh page that takes its place.
    pub to: PageId,
}

impl Pages {
    /// `total` free pages.
    pub fn new(total: usize) -> Self {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        Pages {
            counts: vec![0; total as usize],
            free: (0..total).rev().collect(),
        }
    }

    /// All pages, free or not.
    pub fn total(&self) -> usize {
        self.counts.len()
    }

    /// Pages that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// References to `page`; 0 for a free or an unknown one.
    pub fn references(&self, page: PageId) -> u32 {
        self.counts.get(page as usize).copied().unwrap_or(0)
    }

    /// A fresh page with one reference, or `None` where all are held.
    pub fn allocate(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.counts[page as usize] = 1;
        Some(page)
    }

    /// Adds a reference to a page that is held already.
    pub fn retain(&mut self, page: PageId) {
        debug_assert!(
            self.references(page) > 0,
            "page {page} is retained but nobody holds it"
        );
        if let Some(count) = self
            .counts
            .get_mut(page as usize)
            .filter(|count| **count > 0)
        {
            *count += 1;
        }
    }

    /// Drops a reference, and frees the page with the last one.
    pub fn release(&mut self, page: PageId) {
        debug_assert!(
            self.references(page) > 0,
            "page {page} is released but nobody holds it"
        );
        if let Some(count) = self
            .counts
            .get_mut(page as usize)
            .filter(|count| **count > 0)
        {
            *count -= 1;
            if *count == 0 {
                self.free.push(page);
            }
        }
    }

    /// Whether `page` must be copied before its holder may write to it.
    pub fn is_shared(&self, page: PageId) -> bool {
        self.references(page) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a model that is nothing but the list of references handed out.
        #[test]
        fn references_and_free_pages_add_up(total in 0usize..12, moves in prop::collection::vec((0u8..3, any::<prop::sample::Index>()), 0..200)) {
            let mut pages = Pages::new(total);
            let mut held: Vec<PageId> = Vec::new();
            for (kind, which) in moves {
                match kind {
                    0 => match pages.allocate() {
                        Some(page) => {
                            prop_assert!(!held.contains(&page), "page {} was handed out twice", page);
                            held.push(page);
                        }
                        None => {
                            let mut distinct = held.clone();
                            distinct.sort_unstable();
                            distinct.dedup();
                            prop_assert_eq!(distinct.len(), total, "refused although a page is free");
                        }
                    },
                    1 if !held.is_empty() => {
                        let page = held[which.index(held.len())];
                        pages.retain(page);
                        held.push(page);
                    }
                    2 if !held.is_empty() => pages.release(held.swap_remove(which.index(held.len()))),
                    _ => {}
                }
                for page in 0..total as PageId {
                    let references = held.iter().filter(|other| **other == page).count();
                    prop_assert_eq!(pages.references(page) as usize, references);
                    prop_assert_eq!(pages.is_shared(page), references > 1);
                }
                let busy = (0..total as PageId).filter(|page| held.contains(page)).count();
                prop_assert_eq!(pages.free() + busy, pages.total());
            }
            prop_assert_eq!(pages.references(total as PageId), 0);
        }
    }
}
