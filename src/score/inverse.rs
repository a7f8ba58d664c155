//! The inverse of a small dense matrix. Knows nothing of what its rows mean.

/// The inverse of a symmetric positive matrix, by its Cholesky factor.
pub(super) fn inverse(matrix: &[f64], size: usize) -> Vec<f64> {
    let mut factor = vec![0.0; size * size];
    for i in 0..size {
        for j in 0..=i {
            let (row, other) = (&factor[i * size..][..j], &factor[j * size..][..j]);
            let dot: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
            let rest = matrix[i * size + j] - dot;
            factor[i * size + j] = if i == j {
                rest.sqrt()
            } else {
                rest / factor[j * size + j]
            };
        }
    }
    // The factor's inverse, a row at a time; it is a lower triangle, too.
    let mut lower = vec![0.0; size * size];
    for i in 0..size {
        let (done, row) = lower.split_at_mut(i * size);
        let pivot = factor[i * size + i];
        for k in 0..i {
            let scale = factor[i * size + k];
            for (cell, above) in row[..=k].iter_mut().zip(&done[k * size..][..=k]) {
                *cell -= scale * above;
            }
        }
        row[..i].iter_mut().for_each(|cell| *cell /= pivot);
        row[i] = 1.0 / pivot;
    }
    let mut result = vec![0.0; size * size];
    for row in lower.chunks(size) {
        for (i, left) in row.iter().enumerate().filter(|(_, left)| **left != 0.0) {
            for (cell, right) in result[i * size..].iter_mut().zip(row) {
                *cell += left * right;
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::inverse;

    #[test]
    fn a_matrix_and_its_inverse_are_the_identity() {
        let matrix = [4.0, 2.0, -1.0, 2.0, 5.0, 0.5, -1.0, 0.5, 3.0];
        let found = inverse(&matrix, 3);
        for i in 0..3 {
            for j in 0..3 {
                let cell: f64 = (0..3).map(|k| matrix[i * 3 + k] * found[k * 3 + j]).sum();
                let want = if i == j { 1.0 } else { 0.0 };
                assert!((cell - want).abs() < 1e-14, "{i} {j}: {cell}");
            }
        }
    }
}
