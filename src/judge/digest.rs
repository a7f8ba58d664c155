//! sha256 over fields, so that no two different sequences of fields hash the same bytes.

use crate::trace::{Item, ItemError};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// A digest in the making.
#[derive(Clone, Default)]
pub struct Digest {
    hasher: Sha256,
}

impl Digest {
    /// A digest for one purpose: digests of different purposes never meet.
    pub fn new(purpose: &str) -> Digest {
        Digest::default().field(purpose)
    }

    /// Adds a field: its length, then its bytes.
    pub fn field(mut self, bytes: impl AsRef<[u8]>) -> Digest {
        let bytes = bytes.as_ref();
        self.hasher.update((bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
        self
    }

    /// Adds a field that may be absent; an absent one differs from an empty one.
    pub fn optional(self, bytes: Option<&str>) -> Digest {
        match bytes {
            Some(bytes) => self.field("some").field(bytes),
            None => self.field("none"),
        }
    }

    /// Adds a list of fields with its length.
    pub fn list<T: AsRef<[u8]>>(self, items: &[T]) -> Digest {
        let start = self.field((items.len() as u64).to_le_bytes());
        items.iter().fold(start, |digest, item| digest.field(item))
    }

    /// The digest's 32 bytes.
    pub fn bytes(self) -> [u8; 32] {
        self.hasher.finalize().into()
    }

    /// The digest in hex, 64 digits.
    pub fn hex(self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.bytes() {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// The digest of an item: its name and all of its text that a judge may be shown.
pub fn item(item: &Item) -> String {
    let digest = Digest::new("assize item")
        .field(&item.name)
        .optional(item.input.as_deref());
    let digest = match &item.context {
        Some(passages) => digest.field("some").list(passages),
        None => digest.field("none"),
    };
    let digest = digest
        .optional(item.reference.as_deref())
        .optional(item.answer.as_deref())
        .optional(item.answer_b.as_deref());
    let digest = match &item.answers {
        Some(answers) => digest.field("some").list(answers),
        None => digest.field("none"),
    };
    let json = |value: &Option<serde_json::Value>| value.as_ref().map(|value| value.to_string());
    digest
        .optional(json(&item.trajectory).as_deref())
        .optional(json(&item.expected).as_deref())
        .hex()
}

/// The digest of a line that is no item.
pub fn bad_line(error: &ItemError) -> String {
    Digest::new("assize bad line")
        .field(&error.name)
        .field(error.to_string())
        .hex()
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn fields_do_not_run_together() {
        let different = [
            Digest::new("a").field("bc"),
            Digest::new("ab").field("c"),
            Digest::new("a").field("b").field("c"),
            Digest::new("a").list(&["bc"]),
            Digest::new("a").optional(Some("bc")),
            Digest::new("a").optional(None),
        ];
        let texts: std::collections::HashSet<String> =
            different.into_iter().map(Digest::hex).collect();
        assert_eq!(texts.len(), 6);
        assert!(texts.iter().all(|text| text.len() == 64));
    }
}
