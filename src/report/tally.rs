//! What a run found of pairs, claims, panels and cascades.

use crate::journal::Facts;
use crate::score::{Band, Kept, Orders, Place, Prior, Winner};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Counts over the items of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Of a pair's mean log-odds, in nats.
    band: f64,
    pairs: Vec<Orders>,
    /// Pairs that were asked in one order.
    single: usize,
    flipped: usize,
    /// Pairs whose strict decision names an answer, and those whose weighted one does.
    decided: [usize; 2],
    claims: [usize; 3],
    panels: usize,
    review: usize,
    entropy: f64,
    cascades: [usize; 2],
    handed_on: BTreeMap<String, usize>,
    compared: [usize; 2],
    cost: [usize; 2],
}

impl Tally {
    /// Of a rubric whose pairs tie within this band.
    pub fn new(band: f64) -> Tally {
        Tally {
            band,
            ..Tally::default()
        }
    }

    /// Counts one verdict.
    pub fn add(&mut self, facts: &Facts) {
        match facts {
            Facts::Checked => (),
            Facts::Pairwise {
                orders,
                flipped,
                strict,
                weighted,
            } => {
                match orders[..] {
                    [one, other] => self.pairs.extend(Orders::new(one, other)),
                    _ => self.single += 1,
                }
                self.flipped += usize::from(*flipped == Some(true));
                let decided = |label: &str| usize::from(label != Winner::Tie.name());
                self.decided[0] += strict.as_deref().map_or(0, decided);
                self.decided[1] += decided(weighted);
            }
            Facts::Claims(counts) => {
                for (sum, count) in self.claims.iter_mut().zip(counts) {
                    *sum += count;
                }
            }
            Facts::Panel {
                vote_entropy,
                review,
            } => {
                self.panels += 1;
                self.entropy += vote_entropy;
                self.review += usize::from(*review);
            }
            Facts::Cascade {
                settled_by,
                handed_on,
                agree,
                cost,
                inner,
            } => {
                if let Some(inner) = inner {
                    self.add(inner);
                }
                self.cascades[usize::from(*settled_by > 0)] += 1;
                if let Some(reason) = handed_on {
                    *self.handed_on.entry(reason.clone()).or_default() += 1;
                }
                if let Some(agree) = agree {
                    self.compared[0] += 1;
                    self.compared[1] += usize::from(*agree);
                }
                for (sum, cost) in self.cost.iter_mut().zip(cost) {
                    *sum += cost;
                }
            }
        }
    }

    /// In both orders, how often an answer wins that stands first.
    fn first_wins(&self) -> [usize; 2] {
        let wins = |of: fn(&Orders) -> Option<Place>| {
            let won = self
                .pairs
                .iter()
                .filter(|pair| of(pair) == Some(Place::First));
            won.count()
        };
        [
            wins(|pair| pair.a_first.place()),
            wins(|pair| pair.b_first.place()),
        ]
    }

    fn prior(&self) -> Option<(Prior, Option<Kept>)> {
        let band = Band::new(self.band).ok()?;
        Some((
            Prior::estimate(&self.pairs)?,
            Prior::kept(&self.pairs, band),
        ))
    }

    /// For people: a few lines, or none.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let pairs = self.pairs.len();
        if let Some((prior, kept)) = self.prior() {
            let [a, b] = self.first_wins();
            let flips = percent(self.flipped, pairs);
            let [strict, weighted] = self.decided;
            let _ = writeln!(
                text,
                "  orders     flips {flips}: one place wins in both orders; the first answer wins {} with A first, {} with B first",
                percent(a, pairs),
                percent(b, pairs)
            );
            let _ = writeln!(
                text,
                "  decided    {strict} by both orders, {weighted} by mean log-odds"
            );
            let _ = writeln!(
                text,
                "  prior      the first place is worth {:+.3} nats (n = {pairs})",
                prior.log_odds
            );
            if let Some(kept) = kept {
                let _ = writeln!(
                    text,
                    "             one order alone names the winner of both in {}, less the prior in {}",
                    percent(kept.raw, kept.orders),
                    percent(kept.debiased, kept.orders)
                );
            }
        }
        if self.single > 0 {
            let [_, weighted] = self.decided;
            let _ = writeln!(
                text,
                "  one order  {} pairs, {weighted} decided",
                self.single
            );
        }
        if self.claims.iter().any(|count| *count > 0) {
            let [supported, contradicted, not_found] = self.claims;
            let _ = writeln!(
                text,
                "  claims     {supported} supported, {contradicted} contradicted, {not_found} not found"
            );
        }
        if self.panels > 0 {
            let mean = self.entropy / self.panels as f64;
            let _ = writeln!(
                text,
                "  panel      vote entropy {mean:.3} nats in the mean, {} for review",
                self.review
            );
        }
        let [first, second] = self.cascades;
        if first + second > 0 {
            let reasons: Vec<String> = self
                .handed_on
                .iter()
                .map(|(reason, count)| format!("{reason} {count}"))
                .collect();
            let _ = writeln!(
                text,
                "  cascade    {first} settled by the first judge, {second} by the second ({})",
                reasons.join(", ")
            );
            let [both, agree] = self.compared;
            if both > 0 {
                let _ = writeln!(
                    text,
                    "             both asked: {both}, of which {} agree",
                    percent(agree, both)
                );
            }
            let [one, two] = self.cost;
            let _ = writeln!(
                text,
                "             tokens computed: {one} by the first, {two} by the second"
            );
        }
        text
    }

    /// For programs: what was counted.
    pub fn json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        if let Some((prior, kept)) = self.prior() {
            let [a, b] = self.first_wins();
            let kept = kept.map(
                |kept| json!({ "orders": kept.orders, "raw": kept.raw, "debiased": kept.debiased }),
            );
            object.insert(
                "pairs".into(),
                json!({
                    "both_orders": self.pairs.len(),
                    "flipped": self.flipped,
                    "first_wins": { "a_first": a, "b_first": b },
                    "decided": { "strict": self.decided[0], "weighted": self.decided[1] },
                    "order_prior": prior.log_odds,
                    "one_order_agrees": kept,
                }),
            );
        }
        if self.single > 0 {
            let decided = self.decided[1];
            object.insert(
                "one_order".into(),
                json!({ "pairs": self.single, "decided": decided }),
            );
        }
        if self.claims.iter().any(|count| *count > 0) {
            let [supported, contradicted, not_found] = self.claims;
            object.insert(
                "claims".into(),
                json!({ "supported": supported, "contradicted": contradicted, "not_found": not_found }),
            );
        }
        if self.panels > 0 {
            object.insert(
                "panel".into(),
                json!({ "items": self.panels, "mean_vote_entropy": self.entropy / self.panels as f64, "review": self.review }),
            );
        }
        let [first, second] = self.cascades;
        if first + second > 0 {
            object.insert(
                "cascade".into(),
                json!({
                    "settled_by_first": first,
                    "settled_by_second": second,
                    "handed_on": self.handed_on,
                    "both_asked": self.compared[0],
                    "agree": self.compared[1],
                    "tokens": self.cost,
                }),
            );
        }
        object
    }
}

fn percent(part: usize, whole: usize) -> String {
    match whole {
        0 => "–".into(),
        whole => format!(
            "{:.0} % ({part} of {whole})",
            100.0 * part as f64 / whole as f64
        ),
    }
}
