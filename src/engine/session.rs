//! A session: one ask in flight, with its constraint, its output and what it wants of the next row.
//!
//! Consumes rows of logits and appends tokens. All that an answer depends on is in here: no batch, no page and no other
//! session, which is why an answer is the same in any company.

use crate::ask::{Answer, Decoding, Failure, Readout, Ticket};
use crate::constrain::{ConstrainError, Constraint, Mask, Next};
use crate::engine::frontend::Frontend;
use crate::engine::readout::{self, LabelPaths, Walk};
use crate::engine::sampler;
use crate::engine::sequence::{Branch, Sequence};
use std::sync::Arc;
use std::time::Instant;

/// One ask in flight.
pub struct Session {
    /// Names the ask.
    pub ticket: Ticket,
    /// Its tokens and pages.
    pub sequence: Sequence,
    constraint: Box<dyn Constraint>,
    decoding: Decoding,
    /// Most tokens that fit.
    context: usize,
    want: Want,
    text: Vec<u8>,
    started: Instant,
}

/// What is to be done with the next rows.
enum Want {
    /// Nothing is known yet: the constraint has to be asked.
    Undecided,
    /// Choose a token under this mask.
    Choose(Mask),
    /// Read out the labels.
    Readout(Reading),
}

struct Reading {
    walk: Walk,
    paths: Arc<dyn LabelPaths>,
    closing: String,
}

/// What became of a session.
pub type Outcome = Option<Result<Answer, Failure>>;

impl Session {
    /// A session at its start. `context` is the most tokens that prompt, output and branches may have.
    pub fn new(
        ticket: Ticket,
        prompt: Vec<u32>,
        constraint: Box<dyn Constraint>,
        decoding: Decoding,
        context: usize,
    ) -> Self {
        Session {
            ticket,
            sequence: Sequence::new(prompt),
            constraint,
            decoding,
            context,
            want: Want::Undecided,
            text: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Appends what the shape forces, up to where the model has to be asked. `Some` where the output is complete
    /// already, or has failed.
    pub fn start(&mut self, frontend: &dyn Frontend) -> Outcome {
        self.proceed(frontend).transpose()
    }

    /// Whether the logits after the last token are wanted, once a pass gets there.
    pub fn wants_row(&self) -> bool {
        match &self.want {
            Want::Undecided => false,
            Want::Choose(_) => true,
            Want::Readout(reading) => reading.walk.wanted().any(|(_, tokens)| tokens.is_empty()),
        }
    }

    /// Whether the next rows are read out, rather than a token chosen by them.
    pub fn reads_labels(&self) -> bool {
        matches!(self.want, Want::Readout(_))
    }

    /// Consumes the logits after the last token of the sequence.
    pub fn consume(&mut self, logits: &[f32], frontend: &dyn Frontend) -> Outcome {
        self.take(None, logits, frontend).transpose()
    }

    /// Consumes the logits after a branch.
    pub fn consume_branch(
        &mut self,
        slot: usize,
        logits: &[f32],
        frontend: &dyn Frontend,
    ) -> Outcome {
        self.take(Some(slot), logits, frontend).transpose()
    }

    fn take(
        &mut self,
        slot: Option<usize>,
        logits: &[f32],
        frontend: &dyn Frontend,
    ) -> Result<Option<Answer>, Failure> {
        if !sampler::is_finite(logits) {
            return Err(Failure::NonFiniteLogits);
        }
        match std::mem::replace(&mut self.want, Want::Undecided) {
            Want::Undecided => Err(Failure::Engine(
                "a row came that nobody asked for".to_owned(),
            )),
            Want::Choose(mask) => {
                let index = self.sequence.output().len();
                let Some(token) = sampler::choose(logits, &mask, &self.decoding, index) else {
                    return Err(Failure::Grammar("no token may come next".to_owned()));
                };
                self.sequence.counts.generated += 1;
                if frontend.is_stop(token) {
                    return Ok(Some(self.answer(None)));
                }
                self.append(&[token], frontend)?;
                self.proceed(frontend)
            }
            Want::Readout(mut reading) => {
                self.sequence
                    .branches
                    .retain(|branch| Some(branch.slot) != slot);
                if reading.walk.supply(slot.unwrap_or(0), logits) {
                    if reading.walk.is_done() {
                        return Ok(Some(self.close(reading)));
                    }
                    let branches = reading.walk.wanted();
                    self.sequence.branches = branches
                        .map(|(slot, tokens)| Branch {
                            slot,
                            tokens: tokens.to_vec(),
                        })
                        .collect();
                    self.check_branches()?;
                }
                self.want = Want::Readout(reading);
                Ok(None)
            }
        }
    }

    /// Asks the constraint what comes, until a row of logits is needed.
    fn proceed(&mut self, frontend: &dyn Frontend) -> Result<Option<Answer>, Failure> {
        loop {
            let left = self
                .decoding
                .max_tokens
                .saturating_sub(self.sequence.output().len());
            let length = Failure::Length {
                max_tokens: self.decoding.max_tokens,
            };
            match self.constraint.next().map_err(grammar)? {
                Next::Done => return Ok(Some(self.answer(None))),
                Next::Forced(tokens) if tokens.is_empty() => {
                    return Err(Failure::Grammar("the grammar forced nothing".to_owned()));
                }
                Next::Forced(tokens) if tokens.len() > left => return Err(length),
                Next::Forced(tokens) => {
                    self.sequence.counts.forced += tokens.len();
                    self.append(&tokens, frontend)?;
                }
                Next::Choose(_) if left == 0 => return Err(length),
                Next::Choose(mask) => {
                    self.want = Want::Choose(mask);
                    return Ok(None);
                }
                // A bare distribution takes no room, but a label within a text does.
                Next::Labels {
                    opening, closing, ..
                } if left == 0 && !(opening.is_empty() && closing.is_empty()) => {
                    return Err(length);
                }
                Next::Labels {
                    labels,
                    opening,
                    closing,
                } => {
                    let paths = frontend.label_paths(&labels, &opening, &closing)?;
                    self.want = Want::Readout(Reading {
                        walk: Walk::new(Arc::clone(&paths)),
                        paths,
                        closing,
                    });
                    return Ok(None);
                }
            }
        }
    }

    fn append(&mut self, tokens: &[u32], frontend: &dyn Frontend) -> Result<(), Failure> {
        self.sequence.append(tokens);
        for token in tokens {
            self.text.extend_from_slice(frontend.bytes(*token));
        }
        self.constraint.advance(tokens).map_err(grammar)
    }

    /// Admission leaves room for the longest label, so this only fails where paths are longer than their label.
    fn check_branches(&self) -> Result<(), Failure> {
        let tokens = self.sequence.tokens().len();
        let longest = self
            .sequence
            .branches
            .iter()
            .map(|branch| branch.tokens.len())
            .max()
            .unwrap_or(0);
        if tokens + longest > self.context {
            let prompt = self.sequence.prompt();
            let answer = tokens - prompt + longest;
            return Err(Failure::ContextOverflow {
                prompt,
                answer,
                context: self.context,
            });
        }
        Ok(())
    }

    /// Appends the best label and what follows it as text, without a pass. The label counts as one generated token
    /// however many the model would have needed; the closing text counts as none, since no token of it is ever made.
    fn close(&mut self, reading: Reading) -> Answer {
        let readout = reading.walk.finish();
        tracing::debug!(
            ticket = self.ticket,
            dropped = reading.walk.dropped(),
            "read out"
        );
        self.text
            .extend_from_slice(reading.paths.text(readout::best(&readout)).as_bytes());
        self.text.extend_from_slice(reading.closing.as_bytes());
        self.sequence.counts.generated += 1;
        self.answer(Some(readout))
    }

    fn answer(&mut self, readout: Option<Readout>) -> Answer {
        Answer {
            // A grammar only admits whole characters; free text may end in the middle of one.
            text: String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned(),
            readout,
            hidden: None,
            tokens: self.sequence.counts,
            milliseconds: self.started.elapsed().as_secs_f64() * 1e3,
        }
    }
}

fn grammar(error: ConstrainError) -> Failure {
    Failure::Grammar(error.to_string())
}
