//! What is read of logits, beside the processor's own reading of them.

use crate::common::Random;
use crate::library::{Answer, Launch, expect, function};
use assize_kernels::cuda::shapes::{REDUCE_BYTES, THREADS};
use assize_kernels::rows;
use std::ptr::null;

const NONE: u32 = u32::MAX;
const NOT_FINITE: u32 = u32::MAX - 1;

fn launches(rows: usize) -> [Launch; 4] {
    Launch::new(rows, 1, THREADS, REDUCE_BYTES).ordered()
}

#[test]
fn sums_of_exponentials() {
    let mut random = Random(41);
    let sums: unsafe extern "C" fn(
        *const Launch,
        *const f32,
        *const u32,
        *const u32,
        *mut f64,
        u32,
    ) -> Answer = function("host_log_sum_exp");
    for columns in [1, 31, 256, 1000, 32003] {
        let mut logits = random.normals(6 * columns);
        logits[columns] = f32::NEG_INFINITY;
        logits[2 * columns] = f32::INFINITY;
        logits[4 * columns - 1] = f32::NAN;
        logits[4 * columns..5 * columns].fill(f32::NEG_INFINITY);
        // Lists that rise, the last row's being of all tokens.
        let lists: [Vec<u32>; 6] = [
            vec![0, columns as u32 / 2, columns as u32 - 1],
            vec![],
            vec![],
            vec![0],
            vec![0],
            (0..columns as u32).collect(),
        ];
        let mut beginnings = vec![0u32];
        for list in &lists {
            beginnings.push(beginnings[beginnings.len() - 1] + list.len() as u32);
        }
        let excluded = lists.concat();
        for launch in launches(6) {
            let (mut all, mut rest) = ([f64::MAX; 6], [f64::MAX; 6]);
            // SAFETY: the arguments are those of the kernel, for six rows.
            expect(unsafe {
                sums(
                    &launch,
                    logits.as_ptr(),
                    null(),
                    null(),
                    all.as_mut_ptr(),
                    columns as u32,
                )
            });
            // SAFETY: as above; the lists are where the beginnings say.
            expect(unsafe {
                sums(
                    &launch,
                    logits.as_ptr(),
                    beginnings.as_ptr(),
                    excluded.as_ptr(),
                    rest.as_mut_ptr(),
                    columns as u32,
                )
            });
            for (row, logits) in logits.chunks(columns).enumerate() {
                let truth = rows::log_sum_exp(logits);
                let near =
                    |x: f64, y: f64| x == y || (x - y).abs() < 1e-12 || (x.is_nan() && y.is_nan());
                assert!(
                    near(all[row], truth),
                    "{columns}, row {row}: {} for {truth}",
                    all[row]
                );
                // Where the row has a NaN or infinity, so it is said of the rest.
                if truth.is_finite() {
                    let left: Vec<f32> = logits
                        .iter()
                        .enumerate()
                        .filter(|(token, _)| !lists[row].contains(&(*token as u32)))
                        .map(|(_, x)| *x)
                        .collect();
                    let truth = rows::log_sum_exp(&left);
                    assert!(
                        near(rest[row], truth),
                        "{columns}, row {row}: {} for {truth}",
                        rest[row]
                    );
                } else {
                    assert!(near(rest[row], truth));
                }
            }
        }
    }
}

#[test]
fn the_rest_stays_exact_where_it_is_tiny() {
    let sums: unsafe extern "C" fn(
        *const Launch,
        *const f32,
        *const u32,
        *const u32,
        *mut f64,
        u32,
    ) -> Answer = function("host_log_sum_exp");
    let mut logits = vec![-60.0f32; 700];
    logits[300] = 40.0;
    let (beginnings, excluded, mut out) = ([0u32, 1], [300u32], [0f64]);
    // SAFETY: the arguments are those of the kernel, for one row.
    expect(unsafe {
        sums(
            &launches(1)[0],
            logits.as_ptr(),
            beginnings.as_ptr(),
            excluded.as_ptr(),
            out.as_mut_ptr(),
            700,
        )
    });
    assert!((out[0] - (699f64.ln() - 60.0)).abs() < 1e-12);
}

#[test]
fn logits_of_tokens() {
    let mut random = Random(42);
    let gather: unsafe extern "C" fn(
        *const Launch,
        *const f32,
        *const u32,
        *const u32,
        *mut f32,
        u32,
        u32,
    ) -> Answer = function("host_gather");
    let (rows, columns, count) = (5usize, 700usize, 300usize);
    let logits = random.normals(rows * columns);
    let of_rows: Vec<u32> = (0..count)
        .map(|_| (random.bits() % rows as u64) as u32)
        .collect();
    let tokens: Vec<u32> = (0..count)
        .map(|_| (random.bits() % columns as u64) as u32)
        .collect();
    let mut out = vec![f32::NAN; count + 1];
    let launch = Launch::new(count.div_ceil(THREADS), 1, THREADS, 0);
    // SAFETY: the arguments are those of the kernel; all rows and tokens are there.
    expect(unsafe {
        gather(
            &launch,
            logits.as_ptr(),
            of_rows.as_ptr(),
            tokens.as_ptr(),
            out.as_mut_ptr(),
            columns as u32,
            count as u32,
        )
    });
    assert!(out[count].is_nan());
    for i in 0..count {
        assert_eq!(
            out[i],
            logits[of_rows[i] as usize * columns + tokens[i] as usize]
        );
    }
}

/// The engine's rule, read plainly.
fn most_probable(logits: &[f32], mask: Option<&[u32]>) -> u32 {
    if logits.iter().any(|x| !x.is_finite()) {
        return NOT_FINITE;
    }
    let mut best = NONE;
    for token in 0..logits.len() {
        let admitted = mask.is_none_or(|words| {
            words
                .get(token / 32)
                .is_some_and(|word| word >> (token % 32) & 1 == 1)
        });
        if admitted && (best == NONE || logits[token] > logits[best as usize]) {
            best = token as u32;
        }
    }
    best
}

#[test]
fn the_largest_admitted_logit() {
    let mut random = Random(43);
    let argmax: unsafe extern "C" fn(
        *const Launch,
        *const f32,
        *const u32,
        *const u32,
        *const u32,
        *mut u32,
        u32,
    ) -> Answer = function("host_argmax_masked");
    for columns in [1usize, 33, 257, 5000] {
        let words = columns.div_ceil(32);
        let mut rows: Vec<(Vec<f32>, Option<Vec<u32>>)> = Vec::new();
        for round in 0..14 {
            // Few different values, so that there are ties.
            let logits: Vec<f32> = (0..columns)
                .map(|_| (random.bits() % 7) as f32 - 9.0)
                .collect();
            let dense: Vec<u32> = (0..words).map(|_| random.bits() as u32).collect();
            let mask = match round % 7 {
                0 => None,
                1 => Some(vec![0; words]),
                2 => Some(dense),
                3 => Some(dense[..words / 2].to_vec()),
                4 => Some(Vec::new()),
                5 => Some(vec![u32::MAX; words]),
                _ => {
                    let mut one = vec![0; words];
                    one[words - 1] = 1 << ((columns - 1) % 32);
                    Some(one)
                }
            };
            rows.push((logits, mask));
        }
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut logits = vec![1.0; columns];
            logits[columns / 2] = odd;
            rows.push((logits, Some(vec![0; words])));
        }
        let (mut beginnings, mut lengths, mut table, mut logits) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (row, mask) in &rows {
            logits.extend(row);
            beginnings.push(mask.as_ref().map_or(NONE, |_| table.len() as u32));
            lengths.push(mask.as_ref().map_or(NONE, |mask| mask.len() as u32));
            table.extend(mask.iter().flatten());
        }
        for launch in launches(rows.len()) {
            let mut out = vec![7u32; rows.len()];
            // SAFETY: the arguments are those of the kernel; the masks are where the beginnings say.
            expect(unsafe {
                argmax(
                    &launch,
                    logits.as_ptr(),
                    beginnings.as_ptr(),
                    lengths.as_ptr(),
                    table.as_ptr(),
                    out.as_mut_ptr(),
                    columns as u32,
                )
            });
            for (index, (row, mask)) in rows.iter().enumerate() {
                assert_eq!(
                    out[index],
                    most_probable(row, mask.as_deref()),
                    "{columns}, row {index}"
                );
            }
        }
    }
}
