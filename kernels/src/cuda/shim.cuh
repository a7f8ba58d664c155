// What the kernels are written in, so that they compile for cards and for the host alike.
//
// With nvcc these are CUDA's own words. With any other C++ compiler the threads of a block are fibers of one thread (`host.cuh`), which is how the
// kernels are tested where no card is. Knows no kernel.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

#ifdef __CUDACC__

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define AT_MOST(threads) __launch_bounds__(threads)
// All shared memory is the launch's: it is counted in one place (`shapes.rs`), and poisoned by the host's tests.
#define SHARED(name) extern __shared__ uint4 shared_memory[]; u8* name = reinterpret_cast<u8*>(shared_memory)
#define UNROLL _Pragma("unroll")

DEVICE void block_barrier() { __syncthreads(); }

template <class T> DEVICE T from_lane_xor(T value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

#else

#include "host.cuh"
#define DEVICE inline
#define KERNEL extern "C" void
#define AT_MOST(threads)
#define SHARED(name) u8* name = host::shared_memory()
#define UNROLL

DEVICE void block_barrier() { host::block_barrier(); }

template <class T> DEVICE T from_lane_xor(T value, u32 mask) { return host::from_lane(value, host::lane() ^ mask); }

#endif

/// Threads of a warp.
constexpr u32 WARP = 32;
