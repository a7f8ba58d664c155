// What is done to each row or element by itself: norm, rope, the write to the cache, gated units, sums and soft cap.

#include "paging.cuh"
#include "reduce.cuh"

namespace {

/// Elements of a thread, `THREADS` apart.
constexpr u32 EACH = 4;

template <class Work> DEVICE void for_each(size_t count, Work work) {
    size_t first = static_cast<size_t>(blockIdx.x) * THREADS * EACH + threadIdx.x;
    UNROLL for (u32 i = 0; i < EACH; i++) {
        size_t at = first + i * THREADS;
        if (at < count) work(at);
    }
}

DEVICE void write_one(void* out, size_t at, float x, bool brief) {
    if (brief) static_cast<u16*>(out)[at] = to_brief(x);
    else static_cast<float*>(out)[at] = x;
}

DEVICE float activate(float x, bool gelu) {
    if (!gelu) return divide(x, plus(1.0f, exponential(-x)));
    // sqrt(2 / pi) times the polynomial.
    float inner = multiply(0.7978845608028654f, multiply_add(multiply(0.044715f, multiply(x, x)), x, x));
    return multiply(multiply(x, 0.5f), plus(1.0f, hyperbolic_tangent(inner)));
}

/// Element `d` of a head that is turned by a row's angles: of the first `2 * pairs`, each with its partner.
DEVICE float turned(const float* head, u32 d, const float* cos, const float* sin, u32 pairs, bool neox) {
    if (d >= 2 * pairs) return head[d];
    u32 pair = neox ? d % pairs : d / 2;
    bool second = neox ? d >= pairs : d % 2 == 1;
    float a = head[neox ? pair : 2 * pair], b = head[neox ? pair + pairs : 2 * pair + 1];
    return second ? multiply_add(b, cos[pair], multiply(a, sin[pair])) : multiply_add(a, cos[pair], -multiply(b, sin[pair]));
}

} // namespace

/// A row a block: `x / sqrt(mean(x^2) + eps) * weight`. With `rows`, row `i` is that of those of `x`: what only needs some rows norms no others. With
/// `other`, rows of `x + other` are normed and written to `sum`.
KERNEL AT_MOST(THREADS) rms_norm(const float* x, const u32* rows, const float* other, float* sum, const float* weight, void* out, u32 columns, float eps,
                                 u32 brief) {
    SHARED(memory);
    const size_t from = static_cast<size_t>(rows ? rows[blockIdx.x] : blockIdx.x) * columns, to = static_cast<size_t>(blockIdx.x) * columns;
    // Four sums side by side keep the rounding short.
    float squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    u32 turn = 0;
    for (u32 i = threadIdx.x; i < columns; i += THREADS) {
        float value = x[from + i];
        if (other) {
            value = plus(value, other[from + i]);
            sum[to + i] = value;
        }
        squares[turn % 4] = multiply_add(value, value, squares[turn % 4]);
        turn++;
    }
    float mine = plus(plus(squares[0], squares[1]), plus(squares[2], squares[3]));
    float total = over_block(mine, reinterpret_cast<float*>(memory), Sum());
    float scale = divide(1.0f, square_root(plus(divide(total, static_cast<float>(columns)), eps)));
    for (u32 i = threadIdx.x; i < columns; i += THREADS) {
        float value = other ? sum[to + i] : x[from + i];
        write_one(out, to + i, multiply(multiply(value, scale), weight[i]), brief);
    }
}

/// `x` is `[rows, heads, dim]`, `cos` and `sin` are `[rows, pairs]`.
KERNEL AT_MOST(THREADS) rope(const float* x, const float* cos, const float* sin, float* out, u32 heads, u32 dim, u32 pairs, u32 neox, u64 count) {
    for_each(count, [=](size_t at) {
        size_t head = at / dim, row = head / heads;
        out[at] = turned(x + head * dim, at % dim, cos + row * pairs, sin + row * pairs, pairs, neox);
    });
}

/// Row `i` of `rows`, `[count, heads, dim]`, to slot `slots[i]` of a cache `[pages, heads, PAGE, dim]` in bf16, turned first where there are pairs. A
/// slot beyond the cache is passed over.
KERNEL AT_MOST(THREADS) write_rows(u16* cache, const float* rows, const u32* slots, const float* cos, const float* sin, u32 heads, u32 dim, u32 pairs,
                                   u32 neox, u32 end_slot, u64 count) {
    for_each(count, [=](size_t at) {
        size_t head = at / dim, row = head / heads;
        u32 d = at % dim, slot = slots[row];
        if (slot >= end_slot) return;
        cache[place_of_slot(slot, head % heads, heads, dim) + d] =
            to_brief(turned(rows + head * dim, d, cos + row * pairs, sin + row * pairs, pairs, neox));
    });
}

/// `activation(gate) * up`. Both lie in rows of `stride`, of which `columns` count, so that they may be halves of one product.
KERNEL AT_MOST(THREADS) gated(const float* gate, const float* up, void* out, u32 columns, u32 stride, u32 gelu, u32 brief, u64 count) {
    for_each(count, [=](size_t at) {
        size_t from = columns == stride ? at : at / columns * stride + at % columns;
        write_one(out, at, multiply(activate(gate[from], gelu), up[from]), brief);
    });
}

KERNEL AT_MOST(THREADS) add(const float* a, const float* b, float* out, u64 count) {
    for_each(count, [=](size_t at) { out[at] = plus(a[at], b[at]); });
}

KERNEL AT_MOST(THREADS) soft_cap(const float* x, float* out, float cap, u64 count) {
    for_each(count, [=](size_t at) { out[at] = bend(x[at], cap); });
}
