//! The expected score, Σ s·p(s), summed with compensation.

use super::distribution::Distribution;

/// The expected value, where `values[i]` is the worth of label `i`. Values beyond the labels are ignored.
pub fn expected(distribution: &Distribution, values: &[f64]) -> f64 {
    sum(distribution
        .probabilities
        .iter()
        .zip(values)
        .map(|(probability, value)| probability * value))
}

/// Neumaier's compensated sum: the error does not grow with the number of terms.
pub(super) fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0f64, 0.0f64);
    for term in terms {
        let next = total + term;
        lost += if total.abs() >= term.abs() {
            (total - next) + term
        } else {
            (term - next) + total
        };
        total = next;
    }
    total + lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations() {
        let check = |masses: &[f64], values: &[f64], want: f64| {
            let labels: Vec<String> = (0..masses.len()).map(|label| label.to_string()).collect();
            let found = expected(&Distribution::new(&labels, masses).unwrap(), values);
            assert!((found - want).abs() < 1e-12, "{found} is not {want}");
        };
        check(&[0.5f64.ln(), 0.5f64.ln()], &[1.0, 0.0], 0.5);
        check(&[0.1f64.ln(), 0.3f64.ln()], &[1.0, 5.0], 4.0);
        check(&[f64::NEG_INFINITY, -700.0], &[1.0, 5.0], 5.0);
    }

    #[test]
    fn small_terms_are_not_lost() {
        assert_eq!(sum([1.0, 1e100, 1.0, -1e100].into_iter()), 2.0);
        let tenths = sum(std::iter::repeat_n(0.1, 10_000_000));
        assert!((tenths - 1e6).abs() < 1e-9, "{tenths}");
    }
}
