//! AVX2 with FMA and F16C, and, where the machine has it, VNNI on the same registers: a vector is two of them.

use crate::dispatch::Operation;
use crate::vector::{LANES, Line, Vector};
use half::f16;
use std::arch::x86_64::*;

/// Exists only where the machine has AVX2, FMA and F16C, and, if `VNNI`, AVX-VNNI too.
#[derive(Clone, Copy, Debug)]
pub struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// The vectors, where the machine has them.
    pub fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avxvnni"));
        found.then_some(Self(()))
    }
}

impl Avx2<false> {
    /// Runs the operation in code compiled for these instructions.
    pub fn run<O: Operation>(self, operation: O) -> O::Output {
        // SAFETY: `self` exists, so `detect` found every feature that `enter` is compiled with.
        unsafe { enter(self, operation) }
    }
}

impl Avx2<true> {
    /// Runs the operation in code compiled for these instructions.
    pub fn run<O: Operation>(self, operation: O) -> O::Output {
        // SAFETY: `self` exists, so `detect` found every feature that `enter_vnni` is compiled with.
        unsafe { enter_vnni(self, operation) }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn enter<O: Operation>(v: Avx2<false>, operation: O) -> O::Output {
    operation.run(v)
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn enter_vnni<O: Operation>(v: Avx2<true>, operation: O) -> O::Output {
    operation.run(v)
}

macro_rules! has {
    ($call:expr) => {
        // SAFETY: a value of `Avx2` exists only where `detect` found the features of this instruction (those of VNNI are
        // called only where `VNNI`), and each load or store is of half an array of sixteen lanes; a prefetch touches nothing.
        unsafe { $call }
    };
}

/// Both registers through one instruction.
macro_rules! both {
    ($op:path, $($x:expr),+) => {
        [has!($op($($x[0]),+)), has!($op($($x[1]),+))]
    };
}

/// What [`Vector::top`] does from its second step on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn top_of_eight(x: __m256) -> f32 {
    let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
}

impl<const VNNI: bool> Vector for Avx2<VNNI> {
    const SUMS: usize = 6;

    type F = [__m256; 2];
    type I = [__m256i; 2];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [has!(_mm256_set1_ps(x)); 2]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        [
            has!(_mm256_loadu_ps(from.as_ptr())),
            has!(_mm256_loadu_ps(from.as_ptr().add(8))),
        ]
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        has!(_mm256_storeu_ps(to.as_mut_ptr(), x[0]));
        has!(_mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]));
    }

    #[inline(always)]
    fn fetch<T>(self, from: &T) {
        has!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()));
    }

    #[inline(always)]
    fn load_half(self, from: &[f16; LANES]) -> Self::F {
        let halves = [
            has!(_mm_loadu_si128(from.as_ptr().cast())),
            has!(_mm_loadu_si128(from.as_ptr().add(8).cast())),
        ];
        both!(_mm256_cvtph_ps, halves)
    }

    #[inline(always)]
    fn load_upper(self, from: &[u16; LANES]) -> Self::F {
        let halves = [
            has!(_mm_loadu_si128(from.as_ptr().cast())),
            has!(_mm_loadu_si128(from.as_ptr().add(8).cast())),
        ];
        let wide = both!(_mm256_cvtepu16_epi32, halves);
        let moved = both!(_mm256_slli_epi32::<16>, wide);
        both!(_mm256_castsi256_ps, moved)
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps, a, b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps, a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fmadd_ps, a, b, c)
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps, a, b)
    }

    #[inline(always)]
    fn select_le(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        let below = both!(_mm256_cmp_ps::<_CMP_LE_OQ>, a, b);
        both!(_mm256_blendv_ps, no, yes, below)
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        [has!(_mm256_set1_epi32(x)); 2]
    }

    #[inline(always)]
    fn load_halves(self, from: &[u32; LANES / 2]) -> Self::F {
        let halves = [
            has!(_mm_loadu_si128(from.as_ptr().cast())),
            has!(_mm_loadu_si128(from.as_ptr().add(4).cast())),
        ];
        both!(_mm256_cvtph_ps, halves)
    }

    #[inline(always)]
    fn load_signed(self, from: &[u32; LANES / 4]) -> Self::F {
        let bytes = has!(_mm_loadu_si128(from.as_ptr().cast()));
        let halves = [bytes, has!(_mm_srli_si128::<8>(bytes))];
        let wide = both!(_mm256_cvtepi8_epi32, halves);
        both!(_mm256_cvtepi32_ps, wide)
    }

    #[inline(always)]
    fn load_line(self, from: &Line) -> Self::I {
        let at = from.0.as_ptr();
        [
            has!(_mm256_loadu_si256(at.cast())),
            has!(_mm256_loadu_si256(at.add(8).cast())),
        ]
    }

    #[inline(always)]
    fn prefetch(self, line: &Line) {
        has!(_mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(line).cast()));
    }

    #[inline(always)]
    fn store_line(self, x: Self::I, to: &mut Line) {
        let at = to.0.as_mut_ptr();
        has!(_mm256_storeu_si256(at.cast(), x[0]));
        has!(_mm256_storeu_si256(at.add(8).cast(), x[1]));
    }

    #[inline(always)]
    fn shift_left(self, x: Self::I, n: u32) -> Self::I {
        both!(_mm256_sllv_epi32, x, self.splat_int(n as i32))
    }

    #[inline(always)]
    fn shift_right(self, x: Self::I, n: u32) -> Self::I {
        both!(_mm256_srlv_epi32, x, self.splat_int(n as i32))
    }

    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_and_si256, a, b)
    }

    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_or_si256, a, b)
    }

    #[inline(always)]
    fn add_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_add_epi8, a, b)
    }

    #[inline(always)]
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_sub_epi8, a, b)
    }

    /// One instruction with VNNI. Without it, the one that multiplies bytes saturates at 16 bits, so even and odd bytes are widened
    /// and multiplied apart.
    #[inline(always)]
    fn dot(self, sum: Self::I, x: Self::I, w: Self::I) -> Self::I {
        if VNNI {
            return both!(_mm256_dpbusd_avx_epi32, sum, x, w);
        }
        let even = self.and(x, [has!(_mm256_set1_epi16(255)); 2]);
        let odd = both!(_mm256_srli_epi16::<8>, x);
        let even_weights = both!(_mm256_slli_epi16::<8>, w);
        let even_weights = both!(_mm256_srai_epi16::<8>, even_weights);
        let odd_weights = both!(_mm256_srai_epi16::<8>, w);
        let even = both!(_mm256_madd_epi16, even, even_weights);
        let odd = both!(_mm256_madd_epi16, odd, odd_weights);
        let products = both!(_mm256_add_epi32, even, odd);
        both!(_mm256_add_epi32, sum, products)
    }

    /// Two products of at most 255 * 64 fit 16 bits, so here the saturating instruction is exact too.
    #[inline(always)]
    fn dot_narrow(self, sum: Self::I, x: Self::I, w: Self::I) -> Self::I {
        if VNNI {
            return self.dot(sum, x, w);
        }
        let pairs = both!(_mm256_maddubs_epi16, x, w);
        let ones = [has!(_mm256_set1_epi16(1)); 2];
        let products = both!(_mm256_madd_epi16, pairs, ones);
        both!(_mm256_add_epi32, sum, products)
    }

    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        both!(_mm256_cvtepi32_ps, x)
    }

    #[inline(always)]
    fn to_bytes(self, x: Self::F) -> [u32; LANES / 4] {
        let mut words = [0; LANES / 4];
        let wide = both!(_mm256_cvtps_epi32, x);
        for (wide, words) in wide.into_iter().zip(words.as_chunks_mut::<2>().0) {
            let high = has!(_mm256_extracti128_si256::<1>(wide));
            let halves = has!(_mm_packus_epi32(_mm256_castsi256_si128(wide), high));
            let bytes = has!(_mm_packus_epi16(halves, halves));
            has!(_mm_storel_epi64(words.as_mut_ptr().cast(), bytes));
        }
        words
    }

    #[inline(always)]
    fn add_exponent(self, x: Self::F, n: Self::F) -> Self::F {
        let (x, n) = (both!(_mm256_castps_si256, x), both!(_mm256_castps_si256, n));
        let n = both!(_mm256_slli_epi32::<23>, n);
        let sum = both!(_mm256_add_epi32, x, n);
        both!(_mm256_castsi256_ps, sum)
    }

    #[inline(always)]
    fn top(self, x: Self::F) -> f32 {
        has!(top_of_eight(_mm256_max_ps(x[0], x[1])))
    }
}
