//! How long work on files says how far it is. The command line draws it as a bar; nothing here knows a terminal.

/// Told of the work on one file at a time. Byte counts are absolute.
pub trait Progress {
    /// Work begins; `total` bytes, if that is known.
    fn begin(&self, label: &str, total: Option<u64>);
    /// So many bytes are done.
    fn advance(&self, done: u64);
    /// The work ended, well or not.
    fn end(&self);
    /// One line that the user should read.
    fn note(&self, line: &str);
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
    fn note(&self, _: &str) {}
}
