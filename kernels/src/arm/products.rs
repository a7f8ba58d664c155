//! Three ways to multiply bytes on AArch64, by what the machine has. Knows registers, no vectors of sixteen lanes.

use crate::dispatch::Operation;
use crate::vector::Vector;
use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

/// A way to multiply bytes: a value that exists only where the machine has its instructions.
pub trait Products: Copy + Send + Sync + 'static {
    /// The way, where the machine has it.
    fn detect() -> Option<Self>;

    /// Runs the operation in code compiled for these instructions.
    fn enter<V: Vector, O: Operation>(self, v: V, operation: O) -> O::Output;

    /// What [`Vector::dot`] does, on one register.
    fn dot(self, sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t;

    /// What [`Vector::dot_narrow`] does, on one register.
    #[inline(always)]
    fn dot_narrow(self, sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
        self.dot(sum, x, w)
    }
}

/// What every AArch64 machine with vectors has.
#[derive(Clone, Copy, Debug)]
pub struct Plain(());

impl Products for Plain {
    fn detect() -> Option<Plain> {
        // The bytes of a word are in their places only where its low end comes first.
        let found = cfg!(target_endian = "little") && is_aarch64_feature_detected!("neon");
        found.then_some(Plain(()))
    }

    fn enter<V: Vector, O: Operation>(self, v: V, operation: O) -> O::Output {
        operation.run(v)
    }

    #[inline(always)]
    fn dot(self, sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
        // SAFETY: `self` exists, so the machine has NEON.
        unsafe { dot(sum, x, w) }
    }

    #[inline(always)]
    fn dot_narrow(self, sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
        // SAFETY: `self` exists, so the machine has NEON.
        unsafe { dot_narrow(sum, x, w) }
    }
}

/// Even and odd bytes are widened and multiplied apart: a product of at most 255 * 128 fits 16 bits.
#[inline]
#[target_feature(enable = "neon")]
fn dot(sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
    let ([even, odd], [even_weights, odd_weights]) = (widen(x), widen_signed(w));
    let sum = vpadalq_s16(sum, vmulq_s16(even, even_weights));
    vpadalq_s16(sum, vmulq_s16(odd, odd_weights))
}

/// Two products of at most 255 * 64 fit 16 bits too.
#[inline]
#[target_feature(enable = "neon")]
fn dot_narrow(sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
    let ([even, odd], [even_weights, odd_weights]) = (widen(x), widen_signed(w));
    let products = vmulq_s16(even, even_weights);
    vpadalq_s16(sum, vmlaq_s16(products, odd, odd_weights))
}

/// The even and the odd bytes, which are unsigned.
#[inline]
#[target_feature(enable = "neon")]
fn widen(x: int32x4_t) -> [int16x8_t; 2] {
    let x = vreinterpretq_u16_s32(x);
    let even = vandq_u16(x, vdupq_n_u16(255));
    let odd = vshrq_n_u16::<8>(x);
    [vreinterpretq_s16_u16(even), vreinterpretq_s16_u16(odd)]
}

/// The even and the odd bytes, which are signed.
#[inline]
#[target_feature(enable = "neon")]
fn widen_signed(w: int32x4_t) -> [int16x8_t; 2] {
    let w = vreinterpretq_s16_s32(w);
    let even = vshrq_n_s16::<8>(vshlq_n_s16::<8>(w));
    [even, vshrq_n_s16::<8>(w)]
}

/// Exists only where the machine multiplies bytes of one sign.
#[derive(Clone, Copy, Debug)]
pub struct Dotprod(());

impl Products for Dotprod {
    fn detect() -> Option<Dotprod> {
        let found = Plain::detect().is_some() && is_aarch64_feature_detected!("dotprod");
        found.then_some(Dotprod(()))
    }

    fn enter<V: Vector, O: Operation>(self, v: V, operation: O) -> O::Output {
        // SAFETY: `self` exists, so `detect` found every feature that `enter_dotprod` is compiled with.
        unsafe { enter_dotprod(v, operation) }
    }

    #[inline(always)]
    fn dot(self, sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
        // SAFETY: `self` exists, so the machine has the instruction.
        unsafe { dot_unsigned(sum, x, w) }
    }
}

#[target_feature(enable = "neon,dotprod")]
fn enter_dotprod<V: Vector, O: Operation>(v: V, operation: O) -> O::Output {
    operation.run(v)
}

/// `w + 128` is unsigned too: what it gives too much is `x` times 128. The latter is the same for many weights, and a compiler that
/// sees it takes it once.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot_unsigned(sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
    let top = vdupq_n_s32(0x8080_8080_u32.cast_signed());
    let excess = udot(vdupq_n_s32(0), x, top);
    vsubq_s32(udot(sum, x, veorq_s32(w, top)), excess)
}

/// Adds to each lane of `sum` four products of unsigned bytes. In assembly, as the intrinsic is not stable.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn udot(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: this function is compiled for the instruction, which touches three registers and nothing else.
    unsafe {
        asm!(
            "udot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Exists only where the machine multiplies unsigned bytes with signed ones.
#[derive(Clone, Copy, Debug)]
pub struct I8mm(());

impl Products for I8mm {
    fn detect() -> Option<I8mm> {
        let found = Plain::detect().is_some() && is_aarch64_feature_detected!("i8mm");
        found.then_some(I8mm(()))
    }

    fn enter<V: Vector, O: Operation>(self, v: V, operation: O) -> O::Output {
        // SAFETY: `self` exists, so `detect` found every feature that `enter_i8mm` is compiled with.
        unsafe { enter_i8mm(v, operation) }
    }

    #[inline(always)]
    fn dot(self, sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
        // SAFETY: `self` exists, so the machine has the instruction.
        unsafe { usdot(sum, x, w) }
    }
}

#[target_feature(enable = "neon,i8mm")]
fn enter_i8mm<V: Vector, O: Operation>(v: V, operation: O) -> O::Output {
    operation.run(v)
}

/// Adds to each lane of `sum` four products of unsigned bytes with signed ones. In assembly, as the intrinsic is not stable.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn usdot(mut sum: int32x4_t, x: int32x4_t, w: int32x4_t) -> int32x4_t {
    // SAFETY: this function is compiled for the instruction, which touches three registers and nothing else.
    unsafe {
        asm!(
            "usdot {sum:v}.4s, {x:v}.16b, {w:v}.16b",
            sum = inout(vreg) sum,
            x = in(vreg) x,
            w = in(vreg) w,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
