// The tables of a ragged batch over a paged cache, and where things lie. The structures are those of `tables.rs` and `attention.rs`, field by field.
#pragma once

#include "shim.cuh"

/// Positions of a page.
constexpr u32 PAGE = 16;
/// Positions that a block of threads has in shared memory at a time.
constexpr u32 BLOCK = 64;
/// Positions, counted from the beginning of the sequence, whose softmax is computed by itself and then merged with those before: every row's bits
/// follow from this cut and from nothing else, whoever computes which part together with whom.
constexpr u32 SPLIT = 128;
/// Queries of a warp.
constexpr u32 QUERIES = 16;
/// Instead of a number of a partial result: the result is whole and goes out.
constexpr u32 DIRECT = 0xffffffffu;

/// What a block of threads does for one head of the cache: some queries over some splits of pages that are the same for all of them.
struct Item {
    /// Its queries are `queries` of its rows' from `first_query` on, a row having as many as heads share a head of the cache.
    u32 first_query, queries;
    /// Where its rows begin in the table of rows.
    u32 rows;
    /// Where the list of pages begins, that of position 0, in the table of pages.
    u32 pages;
    u32 first_split, end_split;
    /// Lowest and highest position of its rows.
    u32 lowest, highest;
    /// Whether its splits are merged into one result, which only the first splits of a sequence may be; else each is a partial result by itself.
    u32 folded;
};

/// A row that an item has.
struct Entry {
    /// Row of the batch.
    u32 row;
    u32 position;
    /// Number of the partial result of the item's first split; the others' follow. Or `DIRECT`.
    u32 partial;
};

/// A row whose partial results are merged, in their order.
struct Merge {
    u32 row, partial, count;
};

/// What is the same for the whole of a launch.
struct Shape {
    u32 heads, kv_heads, dim;
    /// Positions that a row sees at most, itself among them; 0 where it sees all.
    u32 window;
    float scale;
    /// 0 for none.
    float soft_cap;
    /// Whether results go out in bf16.
    u32 brief;
    /// Copies of a block's keys and values in shared memory: with 2, the next are on their way while one is worked on.
    u32 stages;
};

/// The first position that a row sees.
DEVICE u32 seen_from(u32 position, u32 window) { return window == 0 || position + 1 < window ? 0 : position + 1 - window; }

/// Where a position's keys, or values, of a head begin: the cache is `[pages, kv_heads, PAGE, dim]`.
DEVICE size_t place(u32 page, u32 head, u32 position, const Shape& shape) {
    return ((static_cast<size_t>(page) * shape.kv_heads + head) * PAGE + position % PAGE) * shape.dim;
}

/// A slot is `page * PAGE + offset`.
DEVICE size_t place_of_slot(u32 slot, u32 head, u32 heads, u32 dim) {
    return ((static_cast<size_t>(slot / PAGE) * heads + head) * PAGE + slot % PAGE) * dim;
}
