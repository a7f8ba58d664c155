//! Preferences over two orders: turning the answers round mirrors every bit, and a published preference is found again
//! from its log-probabilities.
//!
//! The published one is AlpacaEval's `weighted_alpaca_eval_gpt4_turbo`, whose rows lie in the shared data folder. Its
//! judge saw the outputs of a row in an order that was drawn by the row's instruction, and the published number was
//! turned back afterwards; `Draw` below draws that order again, as CPython's `random.Random(text).choices([False, True])` does.

mod common;

use assize::score::{Band, Decide, Order, Orders, Place, Prior, Winner, one_to_two};
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha512};

#[test]
fn the_published_preference_is_found_again() {
    let test = "the_published_preference_is_found_again";
    let Some(path) = common::shared(test, "data/alpaca-eval/weighted-annotations.json") else {
        return;
    };
    let text = std::fs::read_to_string(path).expect("the annotations are UTF-8");
    let rows: Vec<Value> = serde_json::from_str(&text).expect("the annotations are JSON");
    assert_eq!(rows.len(), 805);
    let (mut with, mut turned, mut unlisted) = (0, 0, 0);
    let mut worst: f64 = 0.0;
    for (at, row) in rows.iter().enumerate() {
        let published = row["preference"].as_f64().expect("a preference");
        let Some(top) = row["raw_completion"]["logprobs"]["content"][0]["top_logprobs"].as_array()
        else {
            // A row without log-probabilities was never judged, and its preference is no result.
            assert_eq!((published, &row["raw_completion"]), (1.5, &Value::Null));
            continue;
        };
        with += 1;
        let of = |token: &str| {
            let found = top.iter().find(|entry| entry["token"] == token);
            found.map(|entry| entry["logprob"].as_f64().expect("a log-probability"))
        };
        let [m, big_m] = ["m", "M"].map(of);
        unlisted += usize::from(m.is_none() || big_m.is_none());
        let [m, big_m] = [m, big_m].map(|log| log.unwrap_or(f64::NEG_INFINITY));
        let shown = one_to_two(m, big_m).unwrap_or_else(|error| panic!("row {at}: {error}"));
        let instruction = row["instruction"].as_str().expect("an instruction");
        let switched = Draw::new(&format!("is_switched_outputs{instruction}0")).fraction() >= 0.5;
        turned += usize::from(switched);
        let found = if switched { 3.0 - shown } else { shown };
        worst = worst.max((found - published).abs());
        assert!(
            (found - published).abs() < 1e-10,
            "row {at}: {found} is not {published}"
        );
    }
    // The published numbers have ten decimals.
    assert!(worst <= 5.1e-11, "{worst}");
    assert_eq!((with, turned, unlisted), (803, 404, 4));
}

proptest! {
    #[test]
    fn turning_the_answers_round_mirrors_every_bit(
        masses in prop::array::uniform6(mass()),
        band in 0.0..2.0f64,
    ) {
        let [first, second, tie, other_first, other_second, other_tie] = masses;
        let order = |shown, first, second, tie| Order::new(shown, first, second, Some(tie));
        // The same two prompts, and so the same masses of places: only the names of the answers change.
        let pair = |shown, other| Some(Orders::new(
            order(shown, first, second, tie).ok()?,
            order(other, other_first, other_second, other_tie).ok()?,
        ).expect("two orders"));
        let Some(pairs) = pair(Place::First, Place::Second).zip(pair(Place::Second, Place::First)) else {
            return Ok(());
        };
        let (one, turned) = pairs;
        prop_assert_eq!(one.mirrored(), turned);
        prop_assert_eq!((0.0 - one.mean_log_odds()).to_bits(), turned.mean_log_odds().to_bits());
        for (label, mirrored) in [(Winner::A, Winner::B), (Winner::B, Winner::A), (Winner::Tie, Winner::Tie)] {
            prop_assert_eq!(one.mean_probability(label).to_bits(), turned.mean_probability(mirrored).to_bits());
        }
        for how in [Decide::Strict, Decide::Weighted(Band::new(band).expect("a band"))] {
            prop_assert_eq!(one.decide(how).mirrored(), turned.decide(how));
        }
        prop_assert_eq!(one.winning_place(), turned.winning_place());
        let priors = [[one, one], [turned, one]].map(|pairs| Prior::estimate(&pairs).expect("a prior").log_odds.to_bits());
        prop_assert_eq!(priors[0], priors[1]);
    }
}

/// Log-masses as engines give them, with ties of bits and labels of no probability among them.
fn mass() -> impl Strategy<Value = f64> {
    prop_oneof![8 => -40.0..0.0f64, 1 => Just(f64::NEG_INFINITY), 1 => Just(-1.5), 1 => Just(-1e300)]
}

/// CPython's generator: MT19937, seeded by a text and the text's sha512 read as one big integer.
struct Draw {
    state: [u32; 624],
    at: usize,
}

impl Draw {
    fn new(text: &str) -> Draw {
        let mut bytes = text.as_bytes().to_vec();
        bytes.extend_from_slice(&Sha512::digest(text.as_bytes()));
        bytes.reverse();
        let mut key: Vec<u32> = bytes
            .chunks(4)
            .map(|word| {
                word.iter()
                    .rev()
                    .fold(0, |key, byte| key << 8 | u32::from(*byte))
            })
            .collect();
        while key.len() > 1 && key.last() == Some(&0) {
            key.pop();
        }
        let mut state = [0u32; 624];
        state[0] = 19_650_218;
        for i in 1..624 {
            let before = state[i - 1];
            state[i] = 1_812_433_253u32
                .wrapping_mul(before ^ before >> 30)
                .wrapping_add(i as u32);
        }
        let (mut i, mut j) = (1, 0);
        let wrap = |state: &mut [u32; 624], i: usize| {
            if i == 624 {
                state[0] = state[623];
                1
            } else {
                i
            }
        };
        for _ in 0..key.len().max(624) {
            let before = state[i - 1];
            state[i] = (state[i] ^ (before ^ before >> 30).wrapping_mul(1_664_525))
                .wrapping_add(key[j])
                .wrapping_add(j as u32);
            i = wrap(&mut state, i + 1);
            j = (j + 1) % key.len();
        }
        for _ in 0..623 {
            let before = state[i - 1];
            state[i] = (state[i] ^ (before ^ before >> 30).wrapping_mul(1_566_083_941))
                .wrapping_sub(i as u32);
            i = wrap(&mut state, i + 1);
        }
        state[0] = 0x8000_0000;
        Draw { state, at: 624 }
    }

    fn word(&mut self) -> u32 {
        if self.at == 624 {
            for i in 0..624 {
                let joined = self.state[i] & 0x8000_0000 | self.state[(i + 1) % 624] & 0x7fff_ffff;
                let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + 397) % 624] ^ joined >> 1 ^ odd;
            }
            self.at = 0;
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    /// From 0 to below 1, with 53 bits.
    fn fraction(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }
}

#[test]
fn the_draw_is_cpythons() {
    // Python 3.11: random.Random("a").random() and random.Random("is_switched_outputs").random().
    let check = |text: &str, want: f64| assert_eq!(Draw::new(text).fraction(), want, "{text}");
    check("a", 0.2720295377534757);
    check("is_switched_outputs", 0.5243259709034008);
}
