// Sums over a block of threads, in an order that its number of threads alone decides.
#pragma once

#include "number.cuh"

/// Threads of a block of the kernels that have a fixed number; `THREADS` of `shapes.rs`.
constexpr u32 THREADS = 256;

struct Sum {
    template <class T> DEVICE T operator()(T a, T b) const { return a + b; }
};

struct Larger {
    template <class T> DEVICE T operator()(T a, T b) const { return a > b ? a : b; }
};

/// Joins what the threads have, the same for all of them. `room` is shared memory for a number of each warp; it can be used again afterwards.
template <class T, class Join> DEVICE T over_block(T mine, T* room, Join join) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) mine = join(mine, from_lane_xor(mine, mask));
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = mine;
    block_barrier();
    T all = room[0];
    for (u32 warp = 1; warp < blockDim.x / WARP; warp++) all = join(all, room[warp]);
    block_barrier();
    return all;
}
