//! Functions of single numbers over vectors: exponential, hyperbolic tangent, gated units. A few units in the last place off at most.

use crate::Activation;
use crate::vector::{LANES, Vector};
use half::f16;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// Adding this to a number below 2^22 rounds it to an integer, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The logarithm of 2 in two parts; multiples of the first by small integers are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Between these the result is a normal number. Beyond, it is taken for 0 and for infinity.
const LOWEST: f32 = -87.0;
const HIGHEST: f32 = 88.0;

/// `e^x`: 0 below -87, infinity above 88, NaN for NaN.
#[inline(always)]
pub fn exp<V: Vector>(v: V, x: V::F) -> V::F {
    let rounded = v.fma(x, v.splat(LOG2_E), v.splat(ROUND));
    let n = v.sub(rounded, v.splat(ROUND));
    let r = v.fma(n, v.splat(-LN_2_HIGH), x);
    let r = v.fma(n, v.splat(-LN_2_LOW), r);
    // Taylor's series up to the seventh power: |r| is at most ln(2) / 2, so what is left out is below 1e-8 of the sum.
    let mut sum = v.splat(1.0 / 5040.0);
    for factor in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = v.fma(sum, r, v.splat(factor));
    }
    let power = v.add_exponent(sum, rounded);
    let power = v.select_le(x, v.splat(LOWEST), v.splat(0.0), power);
    // Above the highest, and for NaN, the product is infinity or NaN.
    v.select_le(x, v.splat(HIGHEST), power, v.mul(x, v.splat(f32::INFINITY)))
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<V: Vector>(v: V, x: V::F) -> V::F {
    let zero = v.splat(0.0);
    let size = v.max(v.negate(x), x);
    // Away from zero through the exponential; near it, where that would cancel, through its own series.
    let power = exp(v, v.add(size, size));
    let far = v.sub(
        v.splat(1.0),
        v.div(v.splat(2.0), v.add(power, v.splat(1.0))),
    );
    let far = v.select_le(zero, x, far, v.negate(far));
    let square = v.mul(x, x);
    let mut sum = v.splat(TANH_SERIES[0]);
    for factor in &TANH_SERIES[1..] {
        sum = v.fma(sum, square, v.splat(*factor));
    }
    let near = v.fma(v.mul(sum, square), x, x);
    v.select_le(size, v.splat(0.25), near, far)
}

/// Coefficients of x^11, x^9, x^7, x^5 and x^3 in Taylor's series of tanh.
const TANH_SERIES: [f32; 5] = [
    -1382.0 / 155_925.0,
    62.0 / 2835.0,
    -17.0 / 315.0,
    2.0 / 15.0,
    -1.0 / 3.0,
];

/// `cap * tanh(x / cap)`.
#[inline(always)]
pub fn soft_cap<V: Vector>(v: V, x: V::F, cap: V::F) -> V::F {
    v.mul(cap, tanh(v, v.div(x, cap)))
}

/// `activation(x)`.
#[inline(always)]
pub fn activate<V: Vector>(v: V, x: V::F, activation: Activation) -> V::F {
    let exponent = match activation {
        Activation::Silu => v.negate(x),
        // (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)).
        Activation::GeluTanh => {
            let cube = v.mul(v.mul(x, x), x);
            let inner = v.fma(cube, v.splat(0.044_715), x);
            v.mul(inner, v.splat(-1.595_769))
        }
    };
    v.div(x, v.add(v.splat(1.0), exp(v, exponent)))
}

/// The first `LANES` elements of `x`, or, where there are fewer, those and zeros.
#[inline(always)]
pub fn load<V: Vector>(v: V, x: &[f32]) -> V::F {
    match x.first_chunk::<LANES>() {
        Some(all) => v.load(all),
        None => {
            let mut padded = [0f32; LANES];
            padded[..x.len()].copy_from_slice(x);
            v.load(&padded)
        }
    }
}

/// As [`load`], of numbers in half precision.
#[inline(always)]
pub fn load_half<V: Vector>(v: V, x: &[f16]) -> V::F {
    match x.first_chunk::<LANES>() {
        Some(all) => v.load_half(all),
        None => {
            let mut padded = [f16::ZERO; LANES];
            padded[..x.len()].copy_from_slice(x);
            v.load_half(&padded)
        }
    }
}

/// Writes as many lanes as `to` has elements, all of them at most.
#[inline(always)]
pub fn store<V: Vector>(v: V, x: V::F, to: &mut [f32]) {
    match to.first_chunk_mut::<LANES>() {
        Some(all) => v.store(x, all),
        None => {
            let mut lanes = [0f32; LANES];
            v.store(x, &mut lanes);
            let count = to.len();
            to.copy_from_slice(&lanes[..count]);
        }
    }
}
