//! AVX-512 with VNNI: a vector is one register.

use super::avx2::top_of_eight;
use crate::dispatch::Operation;
use crate::vector::{LANES, Line, Vector};
use half::f16;
use std::arch::x86_64::*;

/// Exists only where the machine has AVX-512 F, BW, DQ, VL and VNNI, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx512 {
    block_rows: usize,
}

impl Avx512 {
    /// The vectors, where the machine has them.
    pub fn detect() -> Option<Avx512> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        // Zen 4 starts one product of bytes in a cycle and has its result after four, so that eight sums hide the wait, and 4 rows need no
        // register that there is not: 280 GOPS a thread on Q4_K where 6 rows reached 252. Sapphire Rapids starts two, and waits five: 12 sums gave
        // 473 where 8 gave 415.
        let block_rows = if is_amd() { 4 } else { 6 };
        found.then_some(Avx512 { block_rows })
    }

    /// Rows that a product works on at a time.
    pub fn block_rows(self) -> usize {
        self.block_rows
    }

    /// Runs the operation in code compiled for these instructions.
    pub fn run<O: Operation>(self, operation: O) -> O::Output {
        // SAFETY: `self` exists, so `detect` found every feature that `enter` is compiled with.
        unsafe { enter(self, operation) }
    }
}

/// Whether the maker of the processor is AMD.
fn is_amd() -> bool {
    let leaf = __cpuid(0);
    (
        leaf.ebx.to_le_bytes(),
        leaf.edx.to_le_bytes(),
        leaf.ecx.to_le_bytes(),
    ) == (*b"Auth", *b"enti", *b"cAMD")
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn enter<O: Operation>(v: Avx512, operation: O) -> O::Output {
    operation.run(v)
}

macro_rules! has {
    ($call:expr) => {
        // SAFETY: a value of `Avx512` exists only where `detect` found the features of this instruction, and each load
        // or store is of an array as long as the register; a prefetch touches nothing.
        unsafe { $call }
    };
}

impl Vector for Avx512 {
    const SUMS: usize = 24;

    type F = __m512;
    type I = __m512i;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        has!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        has!(_mm512_loadu_ps(from.as_ptr()))
    }

    #[inline(always)]
    fn store(self, x: __m512, to: &mut [f32; LANES]) {
        has!(_mm512_storeu_ps(to.as_mut_ptr(), x))
    }

    #[inline(always)]
    fn fetch<T>(self, from: &T) {
        has!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()));
    }

    #[inline(always)]
    fn load_half(self, from: &[f16; LANES]) -> __m512 {
        has!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn load_upper(self, from: &[u16; LANES]) -> __m512 {
        has!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()))
        )))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        has!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn select_le(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        has!(_mm512_mask_blend_ps(
            _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b),
            no,
            yes
        ))
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> __m512i {
        has!(_mm512_set1_epi32(x))
    }

    #[inline(always)]
    fn load_halves(self, from: &[u32; LANES / 2]) -> __m512 {
        has!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn load_signed(self, from: &[u32; LANES / 4]) -> __m512 {
        has!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(
            from.as_ptr().cast()
        ))))
    }

    #[inline(always)]
    fn load_line(self, from: &Line) -> __m512i {
        has!(_mm512_loadu_si512(from.0.as_ptr().cast()))
    }

    #[inline(always)]
    fn prefetch(self, line: &Line) {
        has!(_mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(line).cast()));
    }

    #[inline(always)]
    fn store_line(self, x: __m512i, to: &mut Line) {
        has!(_mm512_storeu_si512(to.0.as_mut_ptr().cast(), x))
    }

    #[inline(always)]
    fn shift_left(self, x: __m512i, n: u32) -> __m512i {
        has!(_mm512_sllv_epi32(x, _mm512_set1_epi32(n as i32)))
    }

    #[inline(always)]
    fn shift_right(self, x: __m512i, n: u32) -> __m512i {
        has!(_mm512_srlv_epi32(x, _mm512_set1_epi32(n as i32)))
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        has!(_mm512_and_si512(a, b))
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        has!(_mm512_or_si512(a, b))
    }

    #[inline(always)]
    fn add_bytes(self, a: __m512i, b: __m512i) -> __m512i {
        has!(_mm512_add_epi8(a, b))
    }

    #[inline(always)]
    fn sub_bytes(self, a: __m512i, b: __m512i) -> __m512i {
        has!(_mm512_sub_epi8(a, b))
    }

    #[inline(always)]
    fn dot(self, sum: __m512i, x: __m512i, w: __m512i) -> __m512i {
        has!(_mm512_dpbusd_epi32(sum, x, w))
    }

    #[inline(always)]
    fn dot_narrow(self, sum: __m512i, x: __m512i, w: __m512i) -> __m512i {
        self.dot(sum, x, w)
    }

    #[inline(always)]
    fn to_float(self, x: __m512i) -> __m512 {
        has!(_mm512_cvtepi32_ps(x))
    }

    #[inline(always)]
    fn to_bytes(self, x: __m512) -> [u32; LANES / 4] {
        let mut words = [0; LANES / 4];
        let bytes = has!(_mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x)));
        has!(_mm_storeu_si128(words.as_mut_ptr().cast(), bytes));
        words
    }

    #[inline(always)]
    fn add_exponent(self, x: __m512, n: __m512) -> __m512 {
        has!(_mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_castps_si512(x),
            _mm512_slli_epi32::<23>(_mm512_castps_si512(n))
        )))
    }

    #[inline(always)]
    fn top(self, x: __m512) -> f32 {
        has!(top_of_eight(_mm256_max_ps(
            _mm512_castps512_ps256(x),
            _mm512_extractf32x8_ps::<1>(x)
        )))
    }
}
