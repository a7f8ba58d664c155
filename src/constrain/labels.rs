//! Which tokens spell which label.
//!
//! At a label position the probability of a label is that of all ways to spell it in tokens. Let `p(t | c)` be the
//! full softmax after the context `c`, `C` the literal text that follows the label (closing quote, brace), and let
//! `b(t)` be the bytes that a token adds. For a label with the text `L`, which no longer label begins with,
//!
//! ```text
//! mass(L) = Σ  Π p(ti | c t1…ti−1)     over all paths t1…tn with b(t1)…b(tn) = L or = L + a beginning of C
//!                                      and b(t1)…b(tn−1) a strict prefix of L
//! ```
//!
//! and where longer labels begin with `L` (`1` against `10`), the paths that spell exactly `L` count only so far as the
//! next token doesn't go on towards a longer label:
//!
//! ```text
//! mass(L) = Σ  Π p(ti | …) · (1 − Σ p(t | c t1…tn) over all t that go on from L)     over paths that spell L
//!         + Σ  Π p(ti | …)                                   over paths that spell L + a beginning of C at once
//! ```
//!
//! Where a blank goes before the label, the model may write it as a token of its own, in one token with the label, or not
//! at all. Then each label has two spellings, with and without the blank, and its mass is the sum over both.
//!
//! So no path counts twice and the masses add up to at most 1. [`LabelTrie`] holds the paths; it knows no probability,
//! no grammar and no tensor. A label of `n` bytes has up to `2^(n−1)` paths, so a reader of long labels leaves out paths
//! whose probability so far can't matter any more.

use super::{ConstrainError, Vocabulary};
use crate::ask::Labels;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Names a node of a [`LabelTrie`].
pub type NodeId = usize;

/// Most bytes that all labels of one set may have together.
const MOST_BYTES: usize = 16 << 10;

/// Where a token leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The path is complete: its probability counts for this label, by index.
    Complete(usize),
    /// The path goes on: a further row is needed, with the token appended.
    Continue(NodeId),
}

/// The token paths to a set of labels. Nodes are the strict prefixes of labels that a path can reach.
#[derive(Debug)]
pub struct LabelTrie {
    names: Vec<String>,
    texts: Vec<String>,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    edges: Vec<(u32, Step)>,
    label: Option<usize>,
}

impl LabelTrie {
    /// Builds the paths to `labels`, which may stand behind `opening` and are followed by `closing`. Quoted labels are
    /// spelled as JSON escapes them, but for a label without closing text, which stands in no JSON.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where there is no label, an empty or repeated one, far too much text, or a label that
    /// begins as the opening does.
    pub fn build(
        vocabulary: &Vocabulary,
        labels: &Labels,
        opening: &str,
        closing: &str,
    ) -> Result<Self, ConstrainError> {
        check(labels)?;
        let bare = if closing.is_empty() {
            labels.names.clone()
        } else {
            written(labels)
        };
        let mut texts = bare.clone();
        let mut spellings: Vec<(String, usize)> = bare.into_iter().zip(0..).collect();
        if let Some(first) = opening.chars().next() {
            if let Some(name) = texts.iter().find(|text| text.starts_with(first)) {
                return Err(ConstrainError::Compile(format!(
                    "the label {name:?} begins as the text before it ends: take {first:?} from the label"
                )));
            }
            texts = texts
                .iter()
                .map(|text| format!("{opening}{text}"))
                .collect();
            spellings.extend(texts.iter().cloned().zip(0..));
        }
        let spelling = Spelling {
            spellings: &spellings,
            closing: closing.as_bytes(),
        };
        let mut nodes = Vec::new();
        let mut ids: HashMap<Vec<u8>, NodeId> = HashMap::from([(Vec::new(), 0)]);
        let mut waiting = vec![Vec::new()];
        while nodes.len() < waiting.len() {
            let prefix: Vec<u8> = waiting[nodes.len()].clone();
            let mut edges = BTreeMap::new();
            for (text, _) in &spellings {
                let Some(rest) = text
                    .as_bytes()
                    .strip_prefix(prefix.as_slice())
                    .filter(|rest| !rest.is_empty())
                else {
                    continue;
                };
                let rest = [rest, closing.as_bytes()].concat();
                for end in 1..=rest.len() {
                    let tokens = vocabulary.exactly(&rest[..end]);
                    if tokens.is_empty() {
                        continue;
                    }
                    let spelled = [prefix.as_slice(), &rest[..end]].concat();
                    let step = match spelling.complete(&spelled) {
                        Some(label) => Step::Complete(label),
                        None => Step::Continue(*ids.entry(spelled).or_insert_with_key(|spelled| {
                            waiting.push(spelled.clone());
                            waiting.len() - 1
                        })),
                    };
                    edges.extend(tokens.iter().map(|&token| (token, step)));
                }
            }
            let label = spellings
                .iter()
                .find(|(text, _)| text.as_bytes() == prefix)
                .map(|(_, label)| *label);
            nodes.push(Node {
                edges: edges.into_iter().collect(),
                label,
            });
        }
        Ok(LabelTrie {
            names: labels.names.clone(),
            texts,
            nodes,
        })
    }

    /// The labels, in the order asked.
    pub fn labels(&self) -> &[String] {
        &self.names
    }

    /// The text of a label as it stands in the output: the label itself, or the way JSON escapes it, behind the opening.
    pub fn text(&self, label: usize) -> &str {
        &self.texts[label]
    }

    /// The node before the first token.
    pub fn root(&self) -> NodeId {
        0
    }

    /// Tokens that lead on from `node`, ascending by id, with where they lead.
    pub fn edges(&self, node: NodeId) -> &[(u32, Step)] {
        &self.nodes[node].edges
    }

    /// The label whose text ends exactly at `node`, if a longer label goes on from here.
    pub fn label_at(&self, node: NodeId) -> Option<usize> {
        self.nodes[node].label
    }
}

/// The labels' texts as they stand in a JSON document, without the quotes around them.
pub(super) fn written(labels: &Labels) -> Vec<String> {
    if labels.quoted {
        labels.names.iter().map(|name| escaped(name)).collect()
    } else {
        labels.names.clone()
    }
}

/// `text` as it stands between the quotes of a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Refuses sets of labels that can't be told apart.
pub(super) fn check(labels: &Labels) -> Result<(), ConstrainError> {
    let refuse = |reason: String| Err(ConstrainError::Compile(reason));
    if labels.names.is_empty() {
        return refuse("there is no label".to_owned());
    }
    let bytes: usize = labels.names.iter().map(String::len).sum();
    if bytes > MOST_BYTES {
        return refuse(format!(
            "the labels have {bytes} bytes, more than {MOST_BYTES}"
        ));
    }
    let mut seen = HashSet::new();
    for name in &labels.names {
        if name.is_empty() {
            return refuse("a label is empty".to_owned());
        }
        if !seen.insert(name) {
            return refuse(format!("the label {name:?} is there twice"));
        }
    }
    Ok(())
}

/// The ways to spell the labels, and what follows them.
struct Spelling<'a> {
    /// Each text that spells a label, with the label's index.
    spellings: &'a [(String, usize)],
    closing: &'a [u8],
}

impl Spelling<'_> {
    /// The label that `spelled` completes, or `None` where a longer spelling begins with it. `spelled` is a spelling, a
    /// beginning of one, or a spelling and a beginning of the closing text.
    fn complete(&self, spelled: &[u8]) -> Option<usize> {
        let goes_on = |(text, _): &(String, usize)| {
            text.len() > spelled.len() && text.as_bytes().starts_with(spelled)
        };
        if self.spellings.iter().any(goes_on) {
            return None;
        }
        // Where a label is another one with closing text (`4` and `4}`), the longer one has the path.
        let ends = |text: &str| {
            spelled
                .strip_prefix(text.as_bytes())
                .is_some_and(|rest| self.closing.starts_with(rest))
                .then_some(text.len())
        };
        self.spellings
            .iter()
            .filter_map(|(text, label)| Some((ends(text)?, *label)))
            .max()
            .map(|(_, label)| label)
    }
}
