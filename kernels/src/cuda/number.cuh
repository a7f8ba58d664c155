// Numbers: bf16 beside single precision, and arithmetic of which the compiler may change nothing.
//
// What decides a row's bits is written with these, so that two kernels that do the same sums give the same bits, whatever the compiler would fuse.
#pragma once

#include "shim.cuh"

#ifdef __CUDACC__
#define NEGATIVE_INFINITY __int_as_float(0xff800000)
DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }
DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
DEVICE float square_root(float x) { return __fsqrt_rn(x); }
DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE double to_exponential(double x) { return exp(x); }
DEVICE float exponential(float x) { return expf(x); }
DEVICE float hyperbolic_tangent(float x) { return tanhf(x); }
/// 2 to the power of `x`, within 2 units of the last place; what is below the smallest normal number is 0.
DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/// Both in bf16, to nearest even: the first in the low half.
DEVICE u32 to_brief_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE float largest(float a, float b) { return fmaxf(a, b); }
#else
#include <cmath>
#include <limits>
#define NEGATIVE_INFINITY (-std::numeric_limits<float>::infinity())
// The host's compiler is told to fuse nothing (`-ffp-contract=off`).
DEVICE float multiply(float a, float b) { return a * b; }
DEVICE float plus(float a, float b) { return a + b; }
DEVICE float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
DEVICE float divide(float a, float b) { return a / b; }
DEVICE float square_root(float x) { return std::sqrt(x); }
DEVICE u32 bits_of(float x) {
    u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
}
DEVICE float float_of(u32 bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
DEVICE double to_exponential(double x) { return std::exp(x); }
DEVICE float exponential(float x) { return std::exp(x); }
DEVICE float hyperbolic_tangent(float x) { return std::tanh(x); }
DEVICE float power_of_two(float x) { return std::exp2(x); }
DEVICE float largest(float a, float b) { return std::fmax(a, b); }
DEVICE u32 nearest_brief(float x) {
    u32 bits = bits_of(x);
    if (x != x) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
DEVICE u32 to_brief_pair(float low, float high) { return nearest_brief(low) | nearest_brief(high) << 16; }
#endif

DEVICE u16 to_brief(float x) { return static_cast<u16>(to_brief_pair(x, 0.0f) & 0xffff); }
DEVICE float low_of(u32 pair) { return float_of(pair << 16); }
DEVICE float high_of(u32 pair) { return float_of(pair & 0xffff0000u); }
DEVICE float from_brief(u16 brief) { return float_of(static_cast<u32>(brief) << 16); }

DEVICE bool is_finite(float x) { return (bits_of(x) & 0x7f800000u) != 0x7f800000u; }

/// `cap * tanh(x / cap)`.
DEVICE float bend(float x, float cap) { return multiply(cap, hyperbolic_tangent(divide(x, cap))); }
