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

/// Why a forward pass failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ForwardError(pub String);

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
    /// Copies a page, in all layers (copy on write).
    fn copy_page(&mut self, from: PageId, to: PageId) -> Result<(), ForwardError>;
}
