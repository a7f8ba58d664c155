//! The readout: how much probability the model puts on each label, exactly.
//!
//! A [`Walk`] goes breadth first along all token paths that spell a label. Each round wants the logits after each open
//! path; the engine computes them as branches. Every probability is a full softmax in f64 over the raw f32 logits,
//! before temperature and mask. The mass of a label is the sum over its paths of the product of the path's token
//! probabilities; a label that is also the beginning of another one (`1` and `10`) gets, where it ends, what does not go
//! on to the longer one.
//!
//! A path is dropped once its probability is below [`NEGLIGIBLE`] times all the probability still in play. Each dropped
//! path takes less than that share from one label, and [`Walk::dropped`] tells how much it was in all. Knows no pages, no
//! batch and no model.

use crate::ask::Readout;
use crate::constrain::{LabelTrie, NodeId, Step};
use std::sync::Arc;

/// The share of the probability in play below which a path is dropped.
pub const NEGLIGIBLE: f64 = 1e-9;

/// All token paths that spell one of a closed set of labels.
pub trait LabelPaths: Send + Sync {
    /// The labels, in the order asked.
    fn labels(&self) -> &[String];
    /// A label as it stands in the output.
    fn text(&self, label: usize) -> &str;
    /// Where all paths start.
    fn root(&self) -> NodeId;
    /// The tokens that go on from a node, each at most once.
    fn edges(&self, node: NodeId) -> &[(u32, Step)];
    /// The label that is spelled in full at a node, and that other labels go on from.
    fn label_at(&self, node: NodeId) -> Option<usize>;
}

impl LabelPaths for LabelTrie {
    fn labels(&self) -> &[String] {
        LabelTrie::labels(self)
    }
    fn text(&self, label: usize) -> &str {
        LabelTrie::text(self, label)
    }
    fn root(&self) -> NodeId {
        LabelTrie::root(self)
    }
    fn edges(&self, node: NodeId) -> &[(u32, Step)] {
        LabelTrie::edges(self, node)
    }
    fn label_at(&self, node: NodeId) -> Option<usize> {
        LabelTrie::label_at(self, node)
    }
}

/// A readout under way.
pub struct Walk {
    paths: Arc<dyn LabelPaths>,
    open: Vec<Open>,
    /// For each label, the logarithms of the probabilities of the paths that ended in it.
    ended: Vec<Vec<f64>>,
    dropped: f64,
}

/// A path that has not come to its end.
struct Open {
    node: NodeId,
    tokens: Vec<u32>,
    log_probability: f64,
    seen: Option<Seen>,
}

/// What the row after a path says.
struct Seen {
    /// Log-probabilities, in the order of the node's edges.
    edges: Vec<f64>,
    /// Log-probability of everything else.
    rest: f64,
}

impl Walk {
    /// Starts with one open path: the empty one, whose row is the one after the sequence itself.
    pub fn new(paths: Arc<dyn LabelPaths>) -> Self {
        let root = Open {
            node: paths.root(),
            tokens: Vec::new(),
            log_probability: 0.0,
            seen: None,
        };
        Walk {
            ended: vec![Vec::new(); paths.labels().len()],
            open: vec![root],
            paths,
            dropped: 0.0,
        }
    }

    /// The open paths of this round whose rows are still wanted, as slot and tokens.
    pub fn wanted(&self) -> impl Iterator<Item = (usize, &[u32])> {
        self.open
            .iter()
            .enumerate()
            .filter(|(_, open)| open.seen.is_none())
            .map(|(slot, open)| (slot, open.tokens.as_slice()))
    }

    /// Supplies the logits after the path in `slot`, all finite. With the last one of a round the next round begins.
    /// Answers whether a new round has begun, or the walk has ended.
    pub fn supply(&mut self, slot: usize, logits: &[f32]) -> bool {
        if let Some(open) = self.open.get_mut(slot) {
            open.seen = Some(look(
                logits,
                self.paths.edges(open.node),
                self.paths.label_at(open.node).is_some(),
            ));
        }
        let complete = self.open.iter().all(|open| open.seen.is_some());
        if complete {
            self.next_round();
        }
        complete
    }

    /// Whether every path has come to its end.
    pub fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    /// The probability of all dropped paths together: no label's mass is short by more.
    pub fn dropped(&self) -> f64 {
        self.dropped
    }

    /// The distribution, once the walk is done.
    pub fn finish(&self) -> Readout {
        Readout {
            labels: self.paths.labels().to_vec(),
            log_masses: self
                .ended
                .iter()
                .map(|logs| log_sum(logs.iter().copied()))
                .collect(),
        }
    }

    fn next_round(&mut self) {
        let mut next: Vec<Open> = Vec::new();
        for open in std::mem::take(&mut self.open) {
            let Some(seen) = &open.seen else { continue };
            for ((token, step), edge) in self.paths.edges(open.node).iter().zip(&seen.edges) {
                let log_probability = open.log_probability + edge;
                match step {
                    Step::Complete(label) => {
                        if let Some(logs) = self.ended.get_mut(*label) {
                            logs.push(log_probability);
                        }
                    }
                    Step::Continue(node) => {
                        let tokens = [open.tokens.as_slice(), &[*token]].concat();
                        next.push(Open {
                            node: *node,
                            tokens,
                            log_probability,
                            seen: None,
                        });
                    }
                }
            }
            if let Some(logs) = self
                .paths
                .label_at(open.node)
                .and_then(|label| self.ended.get_mut(label))
            {
                logs.push(open.log_probability + seen.rest);
            }
        }
        let ended = self.ended.iter().flatten().copied();
        let in_play = log_sum(ended.chain(next.iter().map(|open| open.log_probability)));
        let least = in_play + NEGLIGIBLE.ln();
        next.retain(|open| {
            let keeps = open.log_probability > f64::NEG_INFINITY && open.log_probability >= least;
            if !keeps {
                self.dropped += open.log_probability.exp();
            }
            keeps
        });
        self.open = next;
    }
}

/// The index of the most probable label, the first one on ties.
pub fn best(readout: &Readout) -> usize {
    let mut best = 0;
    for (index, log_mass) in readout.log_masses.iter().enumerate() {
        if *log_mass > readout.log_masses[best] {
            best = index;
        }
    }
    best
}

/// Log-probabilities of the edges' tokens and, where `rest` is wanted, of all other tokens together. The rest is a sum of
/// its own, not one minus the others, so that it stays exact when it is tiny.
fn look(logits: &[f32], edges: &[(u32, Step)], rest: bool) -> Seen {
    let highest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let weight = |logit: f32| (f64::from(logit) - highest).exp();
    let total: f64 = logits.iter().map(|logit| weight(*logit)).sum();
    let log_probability = |token: u32| match logits.get(token as usize) {
        Some(logit) => f64::from(*logit) - highest - total.ln(),
        None => f64::NEG_INFINITY,
    };
    let rest = if rest {
        let mut tokens: Vec<usize> = edges.iter().map(|(token, _)| *token as usize).collect();
        tokens.sort_unstable();
        let mut start = 0;
        let mut sum = 0.0;
        for end in tokens.into_iter().chain([logits.len()]) {
            let end = end.min(logits.len());
            sum += logits
                .get(start..end)
                .unwrap_or(&[])
                .iter()
                .map(|logit| weight(*logit))
                .sum::<f64>();
            start = end + 1;
        }
        sum.ln() - total.ln()
    } else {
        f64::NEG_INFINITY
    };
    Seen {
        edges: edges
            .iter()
            .map(|(token, _)| log_probability(*token))
            .collect(),
        rest,
    }
}

/// ln Σ exp(log), −∞ for none.
fn log_sum(logs: impl Iterator<Item = f64> + Clone) -> f64 {
    let highest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    if highest == f64::NEG_INFINITY {
        return highest;
    }
    highest + logs.map(|log| (log - highest).exp()).sum::<f64>().ln()
}
