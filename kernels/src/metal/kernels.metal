// What a pass needs on Apple silicon and candle does not have: attention of a ragged batch over a paged cache in bf16, and the write to it. Plain and
// correct; compiled when it is first needed. Compiles for the host, too (`host.h`), where it is tested.
//
// A threadgroup takes one row and head. It meets blocks of 128 positions in their order, with a running maximum, so that a row's bits depend on the row
// alone. bf16 is read and written as 16 bits, since not every chip has the type.
#ifndef ASSIZE_HOST
#include <metal_stdlib>
using namespace metal;
#define GROUP_POINTER(type) threadgroup type*
#endif

/// Threads of a threadgroup, and positions of a block.
#define THREADS 128
#define PAGE 16
/// The most dimensions of a head.
#define WIDEST 256

/// A row of the batch: where it is, its position, and where its pages begin in the table of pages.
struct Row {
    uint row, position, pages;
};

struct Shape {
    uint heads, kv_heads, dim, window;
    float scale, soft_cap;
};

struct Write {
    uint heads, dim, end_slot, count;
};

static inline float from_brief(ushort brief) { return as_type<float>(uint(brief) << 16); }

static inline ushort to_brief(float x) {
    uint bits = as_type<uint>(x);
    // A NaN stays one; all else to nearest even. Read from the bits, since a compiler may take it that there is no NaN.
    if ((bits & 0x7fffffffu) > 0x7f800000u) return ushort(0x7fff);
    return ushort((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// The largest, or the sum, of what the threads have, the same for all of them.
static inline float over_group(float mine, bool sum, GROUP_POINTER(float) room, uint thread) {
    room[thread] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint half_of = THREADS / 2; half_of > 0; half_of /= 2) {
        if (thread < half_of) {
            float other = room[thread + half_of];
            room[thread] = sum ? room[thread] + other : max(room[thread], other);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float all = room[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return all;
}

kernel void attend(device const float* q [[buffer(0)]], device const ushort* keys [[buffer(1)]], device const ushort* values [[buffer(2)]],
                   device const Row* rows [[buffer(3)]], device const uint* pages [[buffer(4)]], device float* out [[buffer(5)]],
                   constant Shape& shape [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]], uint thread [[thread_index_in_threadgroup]]) {
    threadgroup float query[WIDEST];
    threadgroup float weights[THREADS];
    threadgroup float room[THREADS];
    const Row row = rows[group.x];
    const uint head = group.y, kv = head / (shape.heads / shape.kv_heads), dim = shape.dim;
    const ulong own = (ulong(row.row) * shape.heads + head) * dim;
    const uint from = shape.window == 0 || row.position + 1 < shape.window ? 0 : row.position + 1 - shape.window;
    for (uint d = thread; d < dim; d += THREADS) query[d] = q[own + d] * shape.scale;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float top = -INFINITY, total = 0.0f;
    float sums[WIDEST / THREADS] = {0.0f, 0.0f};
    for (uint start = from / THREADS * THREADS; start <= row.position; start += THREADS) {
        const uint position = start + thread;
        const bool seen = position >= from && position <= row.position;
        float score = -INFINITY;
        if (seen) {
            ulong at = ((ulong(pages[row.pages + position / PAGE]) * shape.kv_heads + kv) * PAGE + position % PAGE) * dim;
            score = 0.0f;
            for (uint d = 0; d < dim; d++) score = fma(query[d], from_brief(keys[at + d]), score);
            if (shape.soft_cap != 0.0f) score = shape.soft_cap * precise::tanh(score / shape.soft_cap);
        }
        // Every block has a position that is seen, so that the maximum is a number, unless scores overflow.
        const float highest = max(top, over_group(score, false, room, thread));
        const float keep = top == -INFINITY ? 0.0f : precise::exp(top - highest);
        const float weight = seen ? precise::exp(score - highest) : 0.0f;
        weights[thread] = weight;
        total = total * keep + over_group(weight, true, room, thread);
        top = highest;
        for (uint i = 0; i < WIDEST / THREADS; i++) {
            const uint d = thread + i * THREADS;
            if (d >= dim) continue;
            float sum = sums[i] * keep;
            for (uint p = max(start, from); p < start + THREADS && p <= row.position; p++) {
                ulong at = ((ulong(pages[row.pages + p / PAGE]) * shape.kv_heads + kv) * PAGE + p % PAGE) * dim;
                sum = fma(weights[p - start], from_brief(values[at + d]), sum);
            }
            sums[i] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i = 0; i < WIDEST / THREADS; i++) {
        const uint d = thread + i * THREADS;
        if (d < dim) out[own + d] = sums[i] / total;
    }
}

/// One element a thread. A slot beyond the cache is passed over.
kernel void write_rows(device ushort* cache [[buffer(0)]], device const float* rows [[buffer(1)]], device const uint* slots [[buffer(2)]],
                       constant Write& shape [[buffer(3)]], uint2 group [[threadgroup_position_in_grid]], uint thread [[thread_index_in_threadgroup]]) {
    const uint at = group.x * THREADS + thread;
    if (at >= shape.count) return;
    const uint head = at / shape.dim % shape.heads, slot = slots[at / shape.dim / shape.heads];
    if (slot >= shape.end_slot) return;
    cache[((ulong(slot / PAGE) * shape.heads + head) * PAGE + slot % PAGE) * shape.dim + at % shape.dim] = to_brief(rows[at]);
}
