// Attention of a ragged batch over a paged cache in bf16, on tensor cores.
//
// A block of threads takes one item: up to 16 queries a warp, whichever rows they are of, over splits of 128 positions whose pages all of them share.
// Within a split it is softmax with a running maximum over blocks of 64 positions, from the first to the last; splits are merged in their order, either
// here or by `merge`. A query's bits depend on its own position and on what it sees, not on the other queries of its block.
//
// Queries and weights go through the tensor cores as two numbers in bf16 each, the second being what the first leaves over, so that what is rounded
// to bf16 is the cache alone.

#include "merge.cuh"
#include "paging.cuh"
#include "tile.cuh"

namespace {

constexpr float LOG2_E = 1.4426950408889634f;

/// Bytes of shared memory before each of its parts; `shapes.rs` counts the same.
template <u32 WIDE> struct Layout {
    // Eight elements between rows: then eight rows' words lie in different banks.
    static constexpr u32 STRIDE = WIDE + 8;
    static constexpr u32 TILE = BLOCK * STRIDE;
};

/// A pair of results, to where they are kept.
DEVICE void write_pair(void* out, size_t at, float a, float b, bool brief) {
    if (brief) {
        static_cast<u32*>(out)[at / 2] = to_brief_pair(a, b);
    } else {
        float* floats = static_cast<float*>(out);
        floats[at] = a;
        floats[at + 1] = b;
    }
}

/// Asks for a block's keys and values. What no query of the item sees is zero, and is not read: it may be anything, and zero times NaN is NaN.
template <u32 WIDE>
DEVICE void fetch(u16* keys_tile, u16* values_tile, const u16* keys, const u16* values, const u32* pages, u32 start, u32 from, u32 end, u32 head,
                  const Shape& shape) {
    constexpr u32 CHUNKS = WIDE / 8;
    for (u32 i = threadIdx.x; i < BLOCK * CHUNKS; i += blockDim.x) {
        u32 offset = i / CHUNKS, d = i % CHUNKS * 8, position = start + offset;
        bool there = position >= from && position < end && d < shape.dim;
        size_t at = there ? place(pages[position / PAGE], head, position, shape) + d : 0;
        u32 to = offset * Layout<WIDE>::STRIDE + d;
        copy_later(keys_tile + to, keys + at, there);
        copy_later(values_tile + to, values + at, there);
    }
}

template <u32 WIDE>
DEVICE void attend(const float* q, const u16* keys, const u16* values, const Item* items, const Entry* entries, const u32* page_table, float* sums,
                   Gathered* tops, void* out, const Shape& shape) {
    constexpr u32 STRIDE = Layout<WIDE>::STRIDE, STEPS = WIDE / 16, TILES = WIDE / 8, SCORES = BLOCK / 8;
    const Item item = items[blockIdx.x];
    const u32 kv = blockIdx.y, shared_by = shape.heads / shape.kv_heads;
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u32* pages = page_table + item.pages;

    SHARED(memory);
    u16* tiles = reinterpret_cast<u16*>(memory);
    u16* high = tiles + shape.stages * 2 * Layout<WIDE>::TILE;
    u16* low = high + blockDim.x / 2 * STRIDE;
    float* folded = reinterpret_cast<float*>(low + blockDim.x / 2 * STRIDE);

    // What any of the rows sees, within the item's splits.
    const u32 from = seen_from(item.lowest, shape.window);
    u32 end = item.end_split * SPLIT;
    if (end > item.highest + 1) end = item.highest + 1;
    u32 start = item.first_split * SPLIT;
    if (start < from) start = from / BLOCK * BLOCK;

    auto fetch_block = [&](u32 at, u32 stage) {
        u16* tile = tiles + stage * 2 * Layout<WIDE>::TILE;
        fetch<WIDE>(tile, tile + Layout<WIDE>::TILE, keys, values, pages, at, from, end, kv, shape);
    };
    if (start < end) fetch_block(start, 0);
    end_group();

    // The queries, scaled, in two parts.
    for (u32 i = threadIdx.x; i < blockDim.x / 2 * (WIDE / 2); i += blockDim.x) {
        u32 slot = i / (WIDE / 2), d = i % (WIDE / 2) * 2;
        float a = 0.0f, b = 0.0f;
        if (slot < item.queries && d < shape.dim) {
            u32 query = item.first_query + slot;
            u32 head = kv * shared_by + query % shared_by;
            const float* x = q + (static_cast<size_t>(entries[item.rows + query / shared_by].row) * shape.heads + head) * shape.dim + d;
            a = multiply(x[0], shape.scale);
            b = multiply(x[1], shape.scale);
        }
        u32 pair = to_brief_pair(a, b);
        u32 rest = to_brief_pair(plus(a, -low_of(pair)), plus(b, -high_of(pair)));
        *reinterpret_cast<u32*>(high + slot * STRIDE + d) = pair;
        *reinterpret_cast<u32*>(low + slot * STRIDE + d) = rest;
    }

    // This lane's two queries: what they see, and where they are of.
    u32 sees[2] = {0, 0}, sees_to[2] = {0, 0}, partial[2] = {DIRECT, DIRECT};
    size_t place_out[2] = {0, 0};
    bool used[2];
    UNROLL for (u32 i = 0; i < 2; i++) {
        u32 slot = warp * QUERIES + lane / 4 + 8 * i;
        used[i] = slot < item.queries;
        if (used[i]) {
            u32 query = item.first_query + slot;
            Entry entry = entries[item.rows + query / shared_by];
            u32 head = kv * shared_by + query % shared_by;
            sees[i] = seen_from(entry.position, shape.window);
            sees_to[i] = entry.position + 1;
            partial[i] = entry.partial;
            place_out[i] = (entry.partial == DIRECT ? static_cast<size_t>(entry.row) * shape.heads : static_cast<size_t>(entry.partial) * shape.heads) + head;
        }
    }
    const bool busy = warp * QUERIES < item.queries;

    Gathered all[2] = {{NEGATIVE_INFINITY, 0.0f}, {NEGATIVE_INFINITY, 0.0f}};
    Gathered split[2] = {{NEGATIVE_INFINITY, 0.0f}, {NEGATIVE_INFINITY, 0.0f}};
    float values_of[TILES][4];
    UNROLL for (u32 i = 0; i < TILES; i++)
        UNROLL for (u32 j = 0; j < 4; j++) values_of[i][j] = 0.0f;

    // Partial results of splits that no row sees say so.
    auto write_nothing = [&](u32 first, u32 last) {
        if (!busy || item.folded) return;
        for (u32 s = first; s < last; s++)
            UNROLL for (u32 i = 0; i < 2; i++)
                if (used[i] && lane % 4 == 0) tops[place_out[i] + static_cast<size_t>(s - item.first_split) * shape.heads] = {NEGATIVE_INFINITY, 0.0f};
    };
    write_nothing(item.first_split, start < end ? start / SPLIT : item.end_split);

    u32 stage = 0;
    for (u32 at = start; at < end; at += BLOCK) {
        const bool last = at + BLOCK >= end;
        if (shape.stages > 1) {
            if (!last) fetch_block(at + BLOCK, stage ^ 1);
            end_group();
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        block_barrier();
        const u16* keys_tile = tiles + stage * 2 * Layout<WIDE>::TILE;
        const u16* values_tile = keys_tile + Layout<WIDE>::TILE;

        if (busy) {
            float scores[SCORES][4];
            UNROLL for (u32 i = 0; i < SCORES; i++)
                UNROLL for (u32 j = 0; j < 4; j++) scores[i][j] = 0.0f;
            UNROLL for (u32 step = 0; step < STEPS; step++) {
                u32 query_high[4], query_low[4];
                const u32 of_query = (warp * QUERIES + lane % 16) * STRIDE + step * 16 + lane / 16 * 8;
                load_matrices(query_high, high + of_query);
                load_matrices(query_low, low + of_query);
                UNROLL for (u32 pair = 0; pair < SCORES / 2; pair++) {
                    u32 key[4];
                    load_matrices(key, keys_tile + (pair * 16 + lane / 16 * 8 + lane % 8) * STRIDE + step * 16 + lane / 8 % 2 * 8);
                    UNROLL for (u32 half = 0; half < 2; half++) {
                        multiply_tiles(scores[2 * pair + half], query_high, key[2 * half], key[2 * half + 1]);
                        multiply_tiles(scores[2 * pair + half], query_low, key[2 * half], key[2 * half + 1]);
                    }
                }
            }

            UNROLL for (u32 i = 0; i < 2; i++) {
                float top = split[i].top;
                UNROLL for (u32 t = 0; t < SCORES; t++)
                    UNROLL for (u32 j = 0; j < 2; j++) {
                        float& score = scores[t][2 * i + j];
                        u32 position = at + t * 8 + lane % 4 * 2 + j;
                        if (shape.soft_cap != 0.0f) score = bend(score, shape.soft_cap);
                        score = position >= sees[i] && position < sees_to[i] ? multiply(score, LOG2_E) : NEGATIVE_INFINITY;
                        top = largest(top, score);
                    }
                top = largest(top, from_lane_xor(top, 1));
                top = largest(top, from_lane_xor(top, 2));
                const float base = top == NEGATIVE_INFINITY ? 0.0f : top;
                const float keep = power_of_two(plus(split[i].top, -base));
                float total = multiply(split[i].total, keep);
                UNROLL for (u32 t = 0; t < SCORES; t++)
                    UNROLL for (u32 j = 0; j < 2; j++) {
                        float& score = scores[t][2 * i + j];
                        score = power_of_two(plus(score, -base));
                        total = plus(total, score);
                    }
                UNROLL for (u32 t = 0; t < TILES; t++)
                    UNROLL for (u32 j = 0; j < 2; j++) values_of[t][2 * i + j] = multiply(values_of[t][2 * i + j], keep);
                split[i] = {top, total};
            }

            UNROLL for (u32 step = 0; step < BLOCK / 16; step++) {
                u32 weight_high[4], weight_low[4];
                UNROLL for (u32 i = 0; i < 4; i++) {
                    float a = scores[2 * step + i / 2][i % 2 * 2], b = scores[2 * step + i / 2][i % 2 * 2 + 1];
                    weight_high[i] = to_brief_pair(a, b);
                    weight_low[i] = to_brief_pair(plus(a, -low_of(weight_high[i])), plus(b, -high_of(weight_high[i])));
                }
                UNROLL for (u32 pair = 0; pair < STEPS; pair++) {
                    u32 value[4];
                    load_matrices_turned(value, values_tile + (step * 16 + lane % 16) * STRIDE + pair * 16 + lane / 16 * 8);
                    UNROLL for (u32 half = 0; half < 2; half++) {
                        multiply_tiles(values_of[2 * pair + half], weight_high, value[2 * half], value[2 * half + 1]);
                        multiply_tiles(values_of[2 * pair + half], weight_low, value[2 * half], value[2 * half + 1]);
                    }
                }
            }

            if (last || (at + BLOCK) % SPLIT == 0) {
                UNROLL for (u32 i = 0; i < 2; i++) {
                    // So far each lane has the sum over its own columns.
                    split[i].total = plus(split[i].total, from_lane_xor(split[i].total, 1));
                    split[i].total = plus(split[i].total, from_lane_xor(split[i].total, 2));
                    if (item.folded) {
                        Factors factors = gather(all[i], split[i]);
                        UNROLL for (u32 t = 0; t < TILES; t++)
                            UNROLL for (u32 j = 0; j < 2; j++) {
                                float& so_far = folded[(t * 4 + 2 * i + j) * blockDim.x + threadIdx.x];
                                so_far = merged(so_far, values_of[t][2 * i + j], factors);
                            }
                    } else if (used[i]) {
                        size_t to = place_out[i] + static_cast<size_t>(at / SPLIT - item.first_split) * shape.heads;
                        if (lane % 4 == 0) tops[to] = split[i];
                        UNROLL for (u32 t = 0; t < TILES; t++) {
                            u32 d = t * 8 + lane % 4 * 2;
                            if (d < shape.dim) write_pair(sums, to * shape.dim + d, values_of[t][2 * i], values_of[t][2 * i + 1], false);
                        }
                    }
                    split[i] = {NEGATIVE_INFINITY, 0.0f};
                    UNROLL for (u32 t = 0; t < TILES; t++)
                        UNROLL for (u32 j = 0; j < 2; j++) values_of[t][2 * i + j] = 0.0f;
                }
            }
        }
        // Nobody reads this block any more.
        block_barrier();
        if (shape.stages > 1) {
            stage ^= 1;
        } else if (!last) {
            fetch_block(at + BLOCK, 0);
            end_group();
        }
    }
    wait_for_copies<0>();
    if (start < end) write_nothing((end - 1) / SPLIT + 1, item.end_split);
    if (!busy || !item.folded) return;

    UNROLL for (u32 i = 0; i < 2; i++) {
        if (!used[i]) continue;
        if (partial[i] != DIRECT && lane % 4 == 0) tops[place_out[i]] = all[i];
        // Where nothing was seen there is nothing to hand on.
        if (partial[i] != DIRECT && all[i].total == 0.0f) continue;
        UNROLL for (u32 t = 0; t < TILES; t++) {
            u32 d = t * 8 + lane % 4 * 2;
            if (d >= shape.dim) continue;
            float a = folded[(t * 4 + 2 * i) * blockDim.x + threadIdx.x], b = folded[(t * 4 + 2 * i + 1) * blockDim.x + threadIdx.x];
            if (partial[i] == DIRECT) write_pair(out, place_out[i] * shape.dim + d, divide(a, all[i].total), divide(b, all[i].total), shape.brief);
            else write_pair(sums, place_out[i] * shape.dim + d, a, b, false);
        }
    }
}

} // namespace

#define ATTEND(WIDE)                                                                                                                                  \
    KERNEL AT_MOST(256) attend_##WIDE(const float* q, const u16* keys, const u16* values, const Item* items, const Entry* entries, const u32* pages, \
                                      float* sums, Gathered* tops, void* out, const Shape shape) {                                                   \
        attend<WIDE>(q, keys, values, items, entries, pages, sums, tops, out, shape);                                                                 \
    }

ATTEND(64)
ATTEND(96)
ATTEND(128)
ATTEND(256)

/// One row and head a block of threads, one dimension or more a thread.
KERNEL AT_MOST(256) merge(const Merge* merges, const float* sums, const Gathered* tops, void* out, const Shape shape) {
    const Merge row = merges[blockIdx.x];
    for (u32 d = threadIdx.x * 2; d < shape.dim; d += blockDim.x * 2) {
        Gathered all = {NEGATIVE_INFINITY, 0.0f};
        float a = 0.0f, b = 0.0f;
        for (u32 i = 0; i < row.count; i++) {
            size_t at = static_cast<size_t>(row.partial + i) * shape.heads + blockIdx.y;
            Factors factors = gather(all, tops[at]);
            // What a result of nothing stands beside was never written.
            if (factors.nothing) continue;
            a = merged(a, sums[at * shape.dim + d], factors);
            b = merged(b, sums[at * shape.dim + d + 1], factors);
        }
        write_pair(out, (static_cast<size_t>(row.row) * shape.heads + blockIdx.y) * shape.dim + d, divide(a, all.total), divide(b, all.total), shape.brief);
    }
}
