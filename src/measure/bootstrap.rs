//! Seeded draws with replacement, and the percentiles of what they give.

/// A generator of 64-bit numbers (SplitMix64): a counter, mixed. Small, and the same everywhere.
#[derive(Clone, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`, which is not 0. The high half of a product: uneven by less than bound / 2⁶⁴.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// The value below which a share of `sorted` lies, between two neighbours on a straight line. `sorted` is not empty.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_neighbours() {
        let check = |share, want| assert_eq!(percentile(&[1.0, 2.0, 4.0], share), want);
        check(0.0, 1.0);
        check(0.25, 1.5);
        check(0.75, 3.0);
        check(1.0, 4.0);
        assert_eq!(percentile(&[7.0], 0.3), 7.0);
    }

    #[test]
    fn draws_are_seeded_and_even() {
        let of = |seed| {
            let mut draws = Draws::new(seed);
            (0..6000).map(|_| draws.below(6)).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        for face in 0..6 {
            let count = of(3).iter().filter(|drawn| **drawn == face).count();
            assert!((900..1100).contains(&count), "{face}: {count}");
        }
    }
}
