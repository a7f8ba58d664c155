//! A ragged batch: the rows of several sequences, laid end to end. Knows no tensor.

/// Tokens in a page of the KV cache.
pub const PAGE: usize = 16;

/// Names a page of the KV cache, in all layers at once.
pub type PageId = u32;

/// The rows of one sequence in a [`Batch`], and the pages that hold its context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// First row of the batch that is this sequence's.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
    /// Position of the first row in its sequence; the rows are consecutive.
    pub position: usize,
    /// The sequence's pages in order: position `p` lies in `pages[p / PAGE]` at `p % PAGE`. Covers every row.
    pub pages: Vec<PageId>,
}

/// One forward pass over `tokens.len()` rows. The decoder writes the K/V of each row to its page, then lets it attend to
/// positions `0..=position` of its own span, whichever were written before or in this very pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token ids, `[T]`.
    pub tokens: Vec<u32>,
    /// The sequences, in row order; together they cover all rows exactly once.
    pub spans: Vec<Span>,
    /// Rows whose logits are wanted, ascending.
    pub outputs: Vec<usize>,
}

/// Why a batch can't be run. All of these are faults of the engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A token that the model has no embedding for.
    #[error("token {token} in row {row} is beyond the vocabulary of {vocabulary}")]
    Token {
        /// The token.
        token: u32,
        /// Its row.
        row: usize,
        /// Number of token ids.
        vocabulary: usize,
    },
    /// Spans that leave rows out, overlap, or are empty.
    #[error(
        "span {span} has {rows} rows from {first} on, where row {expected} comes next of {total}"
    )]
    Rows {
        /// Index of the span.
        span: usize,
        /// Its first row.
        first: usize,
        /// Its number of rows.
        rows: usize,
        /// The row that it had to begin with.
        expected: usize,
        /// Rows in the batch.
        total: usize,
    },
    /// Rows behind the last span.
    #[error("the spans end at row {covered} of {total}")]
    Uncovered {
        /// Rows that the spans cover.
        covered: usize,
        /// Rows in the batch.
        total: usize,
    },
    /// A position that the model was not made for.
    #[error("span {span} reaches position {position}, beyond the context of {context}")]
    Position {
        /// Index of the span.
        span: usize,
        /// Its last position.
        position: usize,
        /// Length of the context.
        context: usize,
    },
    /// A span with too few pages for its last position.
    #[error("span {span} has {pages} pages, too few for position {position}")]
    Pages {
        /// Index of the span.
        span: usize,
        /// Its number of pages.
        pages: usize,
        /// Its last position.
        position: usize,
    },
    /// A page that the cache does not have.
    #[error("page {page} is beyond the {pages} of the cache")]
    Page {
        /// The page.
        page: PageId,
        /// Pages in the cache.
        pages: usize,
    },
    /// Two rows that would be written to one slot.
    #[error("page {page} is written by two spans")]
    Shared {
        /// The page.
        page: PageId,
    },
    /// Outputs that are not ascending rows of the batch.
    #[error("output row {row} is out of order, or beyond the {total} rows")]
    Output {
        /// The row.
        row: usize,
        /// Rows in the batch.
        total: usize,
    },
}

impl Batch {
    /// Checks the batch against a model with `vocabulary` tokens, `context` positions and a cache of `pages`.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn check(&self, vocabulary: usize, context: usize, pages: usize) -> Result<(), BatchError> {
        let total = self.tokens.len();
        for (row, token) in self.tokens.iter().enumerate() {
            if *token as usize >= vocabulary {
                return Err(BatchError::Token {
                    token: *token,
                    row,
                    vocabulary,
                });
            }
        }
        let mut covered = 0;
        let mut written = std::collections::HashSet::new();
        for (index, span) in self.spans.iter().enumerate() {
            let (first, rows) = (span.first, span.rows);
            if first != covered || rows == 0 || rows > total - covered {
                return Err(BatchError::Rows {
                    span: index,
                    first,
                    rows,
                    expected: covered,
                    total,
                });
            }
            covered += rows;
            let position = span.position.saturating_add(rows - 1);
            if position >= context {
                return Err(BatchError::Position {
                    span: index,
                    position,
                    context,
                });
            }
            if position / PAGE >= span.pages.len() {
                return Err(BatchError::Pages {
                    span: index,
                    pages: span.pages.len(),
                    position,
                });
            }
            if let Some(page) = span.pages.iter().find(|page| **page as usize >= pages) {
                return Err(BatchError::Page { page: *page, pages });
            }
            for page in &span.pages[span.position / PAGE..=position / PAGE] {
                if !written.insert(*page) {
                    return Err(BatchError::Shared { page: *page });
                }
            }
        }
        if covered != total {
            return Err(BatchError::Uncovered { covered, total });
        }
        let mut least = 0;
        for row in &self.outputs {
            if *row < least || *row >= total {
                return Err(BatchError::Output { row: *row, total });
            }
            least = row + 1;
        }
        Ok(())
    }

    /// The position of each row in its sequence, `[T]`. The spans must cover the rows.
    pub fn positions(&self) -> Vec<usize> {
        self.spans
            .iter()
            .flat_map(|span| span.position..span.position + span.rows)
            .collect()
    }

    /// Where each row's keys and values go, `[T]`: `page · PAGE + offset`. The spans must cover the rows.
    pub fn slots(&self) -> Vec<u32> {
        let slots_of = |span: &'_ Span| {
            let slot = |position: usize| {
                span.pages[position / PAGE] * PAGE as u32 + (position % PAGE) as u32
            };
            (span.position..span.position + span.rows)
                .map(slot)
                .collect::<Vec<u32>>()
        };
        self.spans.iter().flat_map(slots_of).collect()
    }
}

/// Why a forward pass failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ForwardError(pub String);

impl From<BatchError> for ForwardError {
    fn from(error: BatchError) -> Self {
        ForwardError(format!("the batch is malformed: {error}"))
    }
}

/// What the engine needs of a model. The decoder is one; tests bring a small deterministic fake.
pub trait Forward: Send {
    /// Number of logits a row.
    fn vocabulary(&self) -> usize;
    /// Longest sequence that the model was made for, in tokens.
    fn context(&self) -> usize;
    /// Number of pages in the cache.
    fn pages(&self) -> usize;
    /// Runs the batch. Returns the logits of `batch.outputs`, row-major `[outputs, vocabulary]`, before temperature.
    /// The bits of a row depend on its own sequence alone: never on the other rows, the chunking or the thread count.
    fn forward(&mut self, batch: &Batch) -> Result<Vec<f32>, ForwardError>;
    /// Takes logits back that are no longer needed: their memory serves the next pass.
    fn recycle(&mut self, _logits: Vec<f32>) {}
    /// Copies a page, in all layers (copy on write).
    fn copy_page(&mut self, from: PageId, to: PageId) -> Result<(), ForwardError>;
    /// Bytes of a page in all layers, as [`Forward::read_page`] gives them; `None` where pages do not leave the model.
    fn page_bytes(&self) -> Option<usize> {
        None
    }
    /// Appends the bytes of a page. They depend on the tokens that the page holds and on those before them alone.
    fn read_page(&self, _page: PageId, _to: &mut Vec<u8>) -> Result<(), ForwardError> {
        Err(ForwardError("pages do not leave this model".to_owned()))
    }
    /// Fills a page with bytes that [`Forward::read_page`] gave, of a model that computes the same bits.
    fn write_page(&mut self, _page: PageId, _from: &[u8]) -> Result<(), ForwardError> {
        Err(ForwardError("pages do not enter this model".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: usize, rows: usize, position: usize, pages: &[PageId]) -> Span {
        Span {
            first,
            rows,
            position,
            pages: pages.to_vec(),
        }
    }

    #[test]
    fn malformed_batches_are_refused() {
        let check = |tokens: &[u32],
                     spans: &[Span],
                     outputs: &[usize],
                     expected: Result<(), BatchError>| {
            let batch = Batch {
                tokens: tokens.to_vec(),
                spans: spans.to_vec(),
                outputs: outputs.to_vec(),
            };
            assert_eq!(batch.check(100, 40, 8), expected, "{batch:?}");
        };
        let (a, b) = (span(0, 2, 15, &[7, 0]), span(2, 1, 0, &[3]));
        check(&[], &[], &[], Ok(()));
        check(&[1, 2, 3], &[a.clone(), b.clone()], &[0, 2], Ok(()));
        let token = BatchError::Token {
            token: 100,
            row: 1,
            vocabulary: 100,
        };
        check(&[1, 100, 3], &[a.clone(), b.clone()], &[], Err(token));
        check(
            &[1, 2, 3],
            std::slice::from_ref(&a),
            &[],
            Err(BatchError::Uncovered {
                covered: 2,
                total: 3,
            }),
        );
        let rows = BatchError::Rows {
            span: 0,
            first: 2,
            rows: 1,
            expected: 0,
            total: 3,
        };
        check(&[1, 2, 3], &[b.clone(), a.clone()], &[], Err(rows));
        let rows = BatchError::Rows {
            span: 0,
            first: 0,
            rows: 0,
            expected: 0,
            total: 0,
        };
        check(&[], &[span(0, 0, 0, &[1])], &[], Err(rows));
        let huge = span(0, usize::MAX, 0, &[1]);
        let rows = BatchError::Rows {
            span: 0,
            first: 0,
            rows: usize::MAX,
            expected: 0,
            total: 1,
        };
        check(&[1], &[huge], &[], Err(rows));
        let position = BatchError::Position {
            span: 0,
            position: 40,
            context: 40,
        };
        check(&[1], &[span(0, 1, 40, &[1, 2, 3])], &[], Err(position));
        let position = BatchError::Position {
            span: 0,
            position: usize::MAX,
            context: 40,
        };
        check(&[1, 1], &[span(0, 2, usize::MAX, &[1])], &[], Err(position));
        check(
            &[1],
            &[span(0, 1, 16, &[1])],
            &[],
            Err(BatchError::Pages {
                span: 0,
                pages: 1,
                position: 16,
            }),
        );
        check(
            &[1],
            &[span(0, 1, 0, &[8])],
            &[],
            Err(BatchError::Page { page: 8, pages: 8 }),
        );
        let both = [span(0, 1, 15, &[7, 0]), span(1, 1, 0, &[7])];
        check(&[1, 2], &both, &[], Err(BatchError::Shared { page: 7 }));
        check(
            &[1],
            &[span(0, 1, 0, &[1])],
            &[1],
            Err(BatchError::Output { row: 1, total: 1 }),
        );
        check(
            &[1, 2],
            &[span(0, 2, 0, &[1])],
            &[1, 1],
            Err(BatchError::Output { row: 1, total: 2 }),
        );
    }

    #[test]
    fn rows_know_their_position_and_slot() {
        let batch = Batch {
            tokens: vec![0; 4],
            spans: vec![span(0, 3, 15, &[7, 2]), span(3, 1, 3, &[5])],
            outputs: Vec::new(),
        };
        assert_eq!(batch.positions(), [15, 16, 17, 3]);
        assert_eq!(batch.slots(), [7 * 16 + 15, 2 * 16, 2 * 16 + 1, 5 * 16 + 3]);
    }
}
