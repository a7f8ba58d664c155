// Blocks of quantized weights to bf16 or single precision, once, for dense products. The same operations in the same order as the scalar truth, so that
// in single precision they are equal to the last bit.

#include "reduce.cuh"

namespace {

/// The types, as GGUF numbers them.
enum Kind : u32 { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30 };

/// Half precision, at any address.
DEVICE float half_at(const u8* block, u32 at) {
    u32 bits = block[at] | static_cast<u32>(block[at + 1]) << 8;
    u32 sign = (bits & 0x8000u) << 16, power = bits >> 10 & 31, rest = bits & 1023;
    if (power == 31) return float_of(sign | 0x7f800000u | rest << 13);
    if (power > 0) return float_of(sign | (power + 112) << 23 | rest << 13);
    // Below the smallest normal number: as many steps of 2^-24.
    float small = multiply(static_cast<float>(rest), 5.9604644775390625e-8f);
    return float_of(bits_of(small) | sign);
}

/// Byte `i % 16`: its low nibble for the first 16 weights, its high nibble for the others.
DEVICE float nibble(const u8* codes, u32 i) { return static_cast<float>(codes[i % 16] >> 4 * (i / 16) & 15); }

DEVICE float nibble_and_bit(const u8* codes, const u8* bits, u32 i) {
    u32 code = (codes[i % 16] >> 4 * (i / 16) & 15) | (bits[i / 8] >> i % 8 & 1) << 4;
    return static_cast<float>(code);
}

/// The 6-bit scale and minimum of sub-block `j` in 12 bytes.
DEVICE void scale_and_minimum(const u8* packed, u32 j, float& scale, float& minimum) {
    if (j < 4) {
        scale = static_cast<float>(packed[j] & 63);
        minimum = static_cast<float>(packed[j + 4] & 63);
    } else {
        scale = static_cast<float>((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
        minimum = static_cast<float>(packed[j + 4] >> 4 | (packed[j] >> 6) << 4);
    }
}

/// `a * b - c * d`, both products rounded.
DEVICE float less(float a, float b, float c, float d) { return plus(multiply(a, b), -multiply(c, d)); }

/// Weight `i` of a block.
DEVICE float weight(u32 kind, const u8* block, u32 i) {
    float s, m;
    switch (kind) {
    case F32: return float_of(block[0] | static_cast<u32>(block[1]) << 8 | static_cast<u32>(block[2]) << 16 | static_cast<u32>(block[3]) << 24);
    case F16: return half_at(block, 0);
    case BF16: return float_of(static_cast<u32>(block[0] | block[1] << 8) << 16);
    case Q4_0: return multiply(half_at(block, 0), nibble(block + 2, i) - 8.0f);
    case Q4_1: return plus(multiply(half_at(block, 0), nibble(block + 4, i)), half_at(block, 2));
    case Q5_0: return multiply(half_at(block, 0), nibble_and_bit(block + 6, block + 2, i) - 16.0f);
    case Q5_1: return plus(multiply(half_at(block, 0), nibble_and_bit(block + 8, block + 4, i)), half_at(block, 2));
    case Q8_0: return multiply(half_at(block, 0), static_cast<float>(static_cast<signed char>(block[2 + i])));
    case Q2_K: {
        u32 code = block[16 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3, both = block[i / 16];
        return less(multiply(half_at(block, 80), static_cast<float>(both & 15)), static_cast<float>(code), half_at(block, 82),
                    static_cast<float>(both >> 4));
    }
    case Q3_K: {
        const u8* scales = block + 96;
        u32 code = (block[32 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3) | (block[i % 32] >> i / 32 & 1) << 2;
        u32 j = i / 16, six = (scales[j % 8] >> 4 * (j / 8) & 15) | (scales[8 + j % 4] >> 2 * (j / 4) & 3) << 4;
        return multiply(multiply(half_at(block, 108), static_cast<float>(six) - 32.0f), static_cast<float>(code) - 4.0f);
    }
    case Q4_K: {
        u32 code = block[16 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
        scale_and_minimum(block + 4, i / 32, s, m);
        return less(multiply(half_at(block, 0), s), static_cast<float>(code), half_at(block, 2), m);
    }
    case Q5_K: {
        u32 code = (block[48 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15) | (block[16 + i % 32] >> i / 32 & 1) << 4;
        scale_and_minimum(block + 4, i / 32, s, m);
        return less(multiply(half_at(block, 0), s), static_cast<float>(code), half_at(block, 2), m);
    }
    case Q6_K: {
        u32 low = block[i / 128 * 64 + i % 64] >> 4 * (i / 64 % 2) & 15, pair = block[128 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
        float scale = static_cast<float>(static_cast<signed char>(block[192 + i / 16]));
        return multiply(multiply(half_at(block, 208), scale), static_cast<float>(low | pair << 4) - 32.0f);
    }
    default: return float_of(0x7fc00000u);
    }
}

} // namespace

/// Four weights a thread, `THREADS` apart. A block of weights has `block` of them in `bytes` bytes.
KERNEL AT_MOST(THREADS) dequantize(const u8* weights, void* out, u32 kind, u32 block, u32 bytes, u32 brief, u64 count) {
    for (u32 i = 0; i < 4; i++) {
        size_t at = static_cast<size_t>(blockIdx.x) * THREADS * 4 + i * THREADS + threadIdx.x;
        if (at >= count) return;
        float x = weight(kind, weights + at / block * bytes, at % block);
        if (brief) static_cast<u16*>(out)[at] = to_brief(x);
        else static_cast<float*>(out)[at] = x;
    }
}
