//! NEON: a vector is four registers. How bytes are multiplied is the business of [`Products`].

use super::products::Products;
use crate::dispatch::Operation;
use crate::vector::{LANES, Line, Vector};
use half::f16;
use std::arch::aarch64::*;
use std::arch::asm;

/// Exists only where the machine has NEON and what `P` needs.
#[derive(Clone, Copy, Debug)]
pub struct Neon<P>(P);

impl<P: Products> Neon<P> {
    /// The vectors, where the machine has them.
    pub fn detect() -> Option<Neon<P>> {
        P::detect().map(Neon)
    }

    /// Runs the operation in code compiled for these instructions.
    pub fn run<O: Operation>(self, operation: O) -> O::Output {
        self.0.enter(self, operation)
    }
}

macro_rules! has {
    ($call:expr) => {
        // SAFETY: a value of `Neon` exists only where `detect` found NEON, and each load or store is of a quarter of an array of
        // sixteen lanes, or of sixteen bytes.
        unsafe { $call }
    };
}

/// All four registers through one instruction.
macro_rules! four {
    ($op:path, $($x:expr),+) => {
        [
            has!($op($($x[0]),+)),
            has!($op($($x[1]),+)),
            has!($op($($x[2]),+)),
            has!($op($($x[3]),+)),
        ]
    };
}

/// Four halves as singles. In assembly, as there is no stable type of a half.
#[inline]
#[target_feature(enable = "neon")]
fn widen(halves: uint16x4_t) -> float32x4_t {
    let wide;
    // SAFETY: this function is compiled for the instruction, which touches two registers and nothing else.
    unsafe {
        asm!(
            "fcvtl {wide:v}.4s, {halves:v}.4h",
            wide = lateout(vreg) wide,
            halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    wide
}

/// `a` where it is greater, else `b`. The instruction of this name gives NaN where either is.
#[inline]
#[target_feature(enable = "neon")]
fn greater(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcgtq_f32(a, b), a, b)
}

/// Asks for the memory at `at`; an address that is not there does no harm.
#[inline(always)]
fn ask<T>(at: *const T) {
    // SAFETY: a prefetch touches neither registers nor memory, and does not fault.
    unsafe {
        asm!("prfm pldl1keep, [{at}]", at = in(reg) at.addr(), options(nomem, nostack, preserves_flags));
    }
}

/// What [`Vector::top`] does.
#[inline]
#[target_feature(enable = "neon")]
fn top(x: [float32x4_t; 4]) -> f32 {
    let x = greater(greater(x[0], x[2]), greater(x[1], x[3]));
    let x = greater(x, vextq_f32::<2>(x, x));
    vgetq_lane_f32::<0>(greater(x, vextq_f32::<1>(x, x)))
}

/// Sixteen signed bytes, widened.
#[inline]
#[target_feature(enable = "neon")]
fn widen_bytes(bytes: int8x16_t) -> [int32x4_t; 4] {
    let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
    [
        vmovl_s16(vget_low_s16(low)),
        vmovl_high_s16(low),
        vmovl_s16(vget_low_s16(high)),
        vmovl_high_s16(high),
    ]
}

/// Sixteen numbers as bytes.
#[inline]
#[target_feature(enable = "neon")]
fn narrow(wide: [uint32x4_t; 4]) -> uint8x16_t {
    let low = vcombine_u16(vqmovn_u32(wide[0]), vqmovn_u32(wide[1]));
    let high = vcombine_u16(vqmovn_u32(wide[2]), vqmovn_u32(wide[3]));
    vcombine_u8(vqmovn_u16(low), vqmovn_u16(high))
}

/// Sixteen numbers of two bytes, four to a register.
#[inline]
#[target_feature(enable = "neon")]
fn load_pairs(from: &[u16; LANES]) -> [uint16x4_t; 4] {
    let at = from.as_ptr();
    // SAFETY: each load is of a quarter of an array of sixteen.
    unsafe {
        [
            vld1_u16(at),
            vld1_u16(at.add(4)),
            vld1_u16(at.add(8)),
            vld1_u16(at.add(12)),
        ]
    }
}

impl<P: Products> Vector for Neon<P> {
    const SUMS: usize = 6;

    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [has!(vdupq_n_f32(x)); 4]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        let at = from.as_ptr();
        [
            has!(vld1q_f32(at)),
            has!(vld1q_f32(at.add(4))),
            has!(vld1q_f32(at.add(8))),
            has!(vld1q_f32(at.add(12))),
        ]
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        let at = to.as_mut_ptr();
        has!(vst1q_f32(at, x[0]));
        has!(vst1q_f32(at.add(4), x[1]));
        has!(vst1q_f32(at.add(8), x[2]));
        has!(vst1q_f32(at.add(12), x[3]));
    }

    #[inline(always)]
    fn fetch<T>(self, from: &T) {
        ask(from);
    }

    #[inline(always)]
    fn load_half(self, from: &[f16; LANES]) -> Self::F {
        // SAFETY: a half is transparent over its bits, which may be any.
        let bits = unsafe { &*from.as_ptr().cast::<[u16; LANES]>() };
        let halves = has!(load_pairs(bits));
        four!(widen, halves)
    }

    #[inline(always)]
    fn load_upper(self, from: &[u16; LANES]) -> Self::F {
        let halves = has!(load_pairs(from));
        let moved = four!(vshll_n_u16::<16>, halves);
        four!(vreinterpretq_f32_u32, moved)
    }

    #[inline(always)]
    fn load_halves(self, from: &[u32; LANES / 2]) -> Self::F {
        // SAFETY: eight words are as large as sixteen halves, aligned better, and those may be any bits; the low half of a word
        // lies first, as `detect` has seen to.
        let bits = unsafe { &*from.as_ptr().cast::<[u16; LANES]>() };
        let halves = has!(load_pairs(bits));
        four!(widen, halves)
    }

    #[inline(always)]
    fn load_signed(self, from: &[u32; LANES / 4]) -> Self::F {
        let wide = has!(widen_bytes(vld1q_s8(from.as_ptr().cast())));
        four!(vcvtq_f32_s32, wide)
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        four!(vaddq_f32, a, b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        four!(vsubq_f32, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        four!(vmulq_f32, a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        four!(vdivq_f32, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        four!(vfmaq_f32, c, a, b)
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        four!(greater, a, b)
    }

    #[inline(always)]
    fn select_le(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        let below = four!(vcleq_f32, a, b);
        four!(vbslq_f32, below, yes, no)
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        [has!(vdupq_n_s32(x)); 4]
    }

    #[inline(always)]
    fn load_line(self, from: &Line) -> Self::I {
        let at = from.0.as_ptr().cast::<i32>();
        [
            has!(vld1q_s32(at)),
            has!(vld1q_s32(at.add(4))),
            has!(vld1q_s32(at.add(8))),
            has!(vld1q_s32(at.add(12))),
        ]
    }

    #[inline(always)]
    fn prefetch(self, line: &Line) {
        ask(std::ptr::from_ref(line));
    }

    #[inline(always)]
    fn store_line(self, x: Self::I, to: &mut Line) {
        let at = to.0.as_mut_ptr().cast::<i32>();
        has!(vst1q_s32(at, x[0]));
        has!(vst1q_s32(at.add(4), x[1]));
        has!(vst1q_s32(at.add(8), x[2]));
        has!(vst1q_s32(at.add(12), x[3]));
    }

    #[inline(always)]
    fn shift_left(self, x: Self::I, n: u32) -> Self::I {
        let n = [has!(vdupq_n_s32(n.cast_signed())); 4];
        four!(vshlq_s32, x, n)
    }

    /// The instruction shifts left, and by a negative number the other way.
    #[inline(always)]
    fn shift_right(self, x: Self::I, n: u32) -> Self::I {
        let n = [has!(vdupq_n_s32(-n.cast_signed())); 4];
        let x = four!(vreinterpretq_u32_s32, x);
        let moved = four!(vshlq_u32, x, n);
        four!(vreinterpretq_s32_u32, moved)
    }

    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        four!(vandq_s32, a, b)
    }

    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        four!(vorrq_s32, a, b)
    }

    #[inline(always)]
    fn add_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (
            four!(vreinterpretq_s8_s32, a),
            four!(vreinterpretq_s8_s32, b),
        );
        let bytes = four!(vaddq_s8, a, b);
        four!(vreinterpretq_s32_s8, bytes)
    }

    #[inline(always)]
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (
            four!(vreinterpretq_s8_s32, a),
            four!(vreinterpretq_s8_s32, b),
        );
        let bytes = four!(vsubq_s8, a, b);
        four!(vreinterpretq_s32_s8, bytes)
    }

    #[inline(always)]
    fn dot(self, sum: Self::I, x: Self::I, w: Self::I) -> Self::I {
        [
            self.0.dot(sum[0], x[0], w[0]),
            self.0.dot(sum[1], x[1], w[1]),
            self.0.dot(sum[2], x[2], w[2]),
            self.0.dot(sum[3], x[3], w[3]),
        ]
    }

    #[inline(always)]
    fn dot_narrow(self, sum: Self::I, x: Self::I, w: Self::I) -> Self::I {
        [
            self.0.dot_narrow(sum[0], x[0], w[0]),
            self.0.dot_narrow(sum[1], x[1], w[1]),
            self.0.dot_narrow(sum[2], x[2], w[2]),
            self.0.dot_narrow(sum[3], x[3], w[3]),
        ]
    }

    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        four!(vcvtq_f32_s32, x)
    }

    #[inline(always)]
    fn to_bytes(self, x: Self::F) -> [u32; LANES / 4] {
        let wide = four!(vcvtnq_u32_f32, x);
        let mut words = [0; LANES / 4];
        has!(vst1q_u8(words.as_mut_ptr().cast(), narrow(wide)));
        words
    }

    #[inline(always)]
    fn add_exponent(self, x: Self::F, n: Self::F) -> Self::F {
        let (x, n) = (
            four!(vreinterpretq_u32_f32, x),
            four!(vreinterpretq_u32_f32, n),
        );
        let n = four!(vshlq_n_u32::<23>, n);
        let sum = four!(vaddq_u32, x, n);
        four!(vreinterpretq_f32_u32, sum)
    }

    #[inline(always)]
    fn top(self, x: Self::F) -> f32 {
        has!(top(x))
    }
}
