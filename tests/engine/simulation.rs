//! What an ask's answer must be: a plain loop over tokens without pages, batches or a scheduler.

use crate::fake::{FakeFrontend, STOP, logits, step, vocabulary};
use assize::ask::{Ask, Failure, Labels};
use assize::constrain::Next;
use assize::constrain::Step;
use assize::engine::frontend::Frontend;
use assize::engine::sampler;

/// Every token path to every label, one after the other, without a trie and without leaving any out.
pub fn brute_force(history: &[u32], labels: &Labels, closing: &str) -> Vec<f64> {
    fn walk(
        history: &[u32],
        spelled: &[u8],
        p: f64,
        labels: &Labels,
        closing: &str,
        masses: &mut [f64],
    ) {
        let logits: Vec<f64> = logits(history).into_iter().map(f64::from).collect();
        let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
        let mut on = 0.0;
        for (token, word) in vocabulary()
            .iter()
            .enumerate()
            .filter(|(_, word)| !word.is_empty())
        {
            let next = [spelled, word].concat();
            let Some(step) = step(&labels.names, closing, &next, spelled.len()) else {
                continue;
            };
            let q = logits[token].exp() / total;
            on += q;
            match step {
                Some(Step::Complete(label)) => masses[label] += p * q,
                _ => walk(
                    &[history, &[token as u32]].concat(),
                    &next,
                    p * q,
                    labels,
                    closing,
                    masses,
                ),
            }
        }
        if let Some(label) = labels
            .names
            .iter()
            .position(|name| name.as_bytes() == spelled)
        {
            masses[label] += p * (1.0 - on);
        }
    }
    let mut masses = vec![0.0; labels.names.len()];
    walk(history, &[], 1.0, labels, closing, &mut masses);
    masses
}

/// The text and label masses of an ask.
pub fn simulate(ask: &Ask) -> Result<(String, Option<Vec<f64>>), Failure> {
    let prompt = FakeFrontend.encode(&ask.prompt)?;
    let mut tokens = prompt.clone();
    let mut text = Vec::new();
    let mut constraint = FakeFrontend.constrain(&ask.shape)?;
    let bound = ask.decoding.max_tokens;
    loop {
        let used = tokens.len() - prompt.len();
        let length = Failure::Length { max_tokens: bound };
        let new = match constraint
            .next()
            .map_err(|error| Failure::Grammar(error.to_string()))?
        {
            Next::Done => return Ok((String::from_utf8_lossy(&text).into_owned(), None)),
            Next::Forced(forced) if used + forced.len() > bound => return Err(length),
            Next::Forced(forced) => forced,
            Next::Choose(_) if used >= bound => return Err(length),
            Next::Labels { closing, .. } if used >= bound && !closing.is_empty() => {
                return Err(length);
            }
            Next::Choose(mask) => {
                let logits = logits(&tokens);
                if logits.iter().any(|logit| !logit.is_finite()) {
                    return Err(Failure::NonFiniteLogits);
                }
                let token = sampler::choose(&logits, &mask, &ask.decoding, used).unwrap();
                if token == STOP {
                    return Ok((String::from_utf8_lossy(&text).into_owned(), None));
                }
                vec![token]
            }
            Next::Labels {
                labels, closing, ..
            } => {
                if logits(&tokens).iter().any(|logit| !logit.is_finite()) {
                    return Err(Failure::NonFiniteLogits);
                }
                let masses = brute_force(&tokens, &labels, &closing);
                let mut best = 0;
                for (label, mass) in masses.iter().enumerate() {
                    if *mass > masses[best] {
                        best = label;
                    }
                }
                text.extend_from_slice(labels.names[best].as_bytes());
                text.extend_from_slice(closing.as_bytes());
                return Ok((String::from_utf8_lossy(&text).into_owned(), Some(masses)));
            }
        };
        for token in &new {
            text.extend_from_slice(FakeFrontend.bytes(*token));
        }
        constraint.advance(&new).unwrap();
        tokens.extend(new);
    }
}
