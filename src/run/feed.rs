//! Where a run's items come from: a source that is there whole, or one that may keep a run waiting.
//!
//! Reading a pipe blocks, and a run that blocks can neither settle what is in flight nor be interrupted; so a pipe is read on a
//! thread of its own. Knows no engine.

use crate::trace::{Item, ItemError};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

/// What a source has to give. There is one of these at a time, so its size is no matter.
#[allow(clippy::large_enum_variant)]
pub enum Fed {
    /// An item, or a line that is none.
    Item(Result<Item, ItemError>),
    /// Nothing yet; ask again.
    Later,
}

/// Items read ahead, at most this many.
const AHEAD: usize = 16;

struct Feed(Receiver<Result<Item, ItemError>>);

impl Iterator for Feed {
    type Item = Fed;

    fn next(&mut self) -> Option<Fed> {
        match self.0.try_recv() {
            Ok(item) => Some(Fed::Item(item)),
            Err(TryRecvError::Empty) => Some(Fed::Later),
            Err(TryRecvError::Disconnected) => None,
        }
    }
}

/// Reads `items` on a thread of its own, which ends with the source or with the process.
pub fn feed(
    items: impl Iterator<Item = Result<Item, ItemError>> + Send + 'static,
) -> impl Iterator<Item = Fed> {
    let (sender, receiver) = sync_channel(AHEAD);
    std::thread::spawn(move || {
        for item in items {
            if sender.send(item).is_err() {
                return;
            }
        }
    });
    Feed(receiver)
}
