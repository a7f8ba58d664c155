// Metal's words for the host: what `kernels.metal` uses of them. The threads of a threadgroup are the fibers of `../cuda/host.cuh`.
#pragma once

#define ASSIZE_HOST
#include "../cuda/host.cuh"
#include <algorithm>
#include <cmath>

namespace apple {

using uint = unsigned int;
using ushort = unsigned short;
using ulong = unsigned long long;

struct uint2 {
    uint x, y;
};

template <class T, class F> T as_type(F from) {
    static_assert(sizeof(T) == sizeof(F), "of one size");
    T to;
    memcpy(&to, &from, sizeof to);
    return to;
}

enum class mem_flags { mem_threadgroup };
inline void threadgroup_barrier(mem_flags) { host::block_barrier(); }
inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline uint max(uint a, uint b) { return std::max(a, b); }
namespace precise {
inline float exp(float x) { return std::exp(x); }
inline float tanh(float x) { return std::tanh(x); }
} // namespace precise

#define kernel inline
#define device
#define constant const
#define GROUP_POINTER(type) type*
// Of all threads of a group, which are one thread's fibers; each block begins with what the one before left.
#define threadgroup static thread_local

#pragma GCC diagnostic push
// The words in double brackets say where arguments come from, which is the launch's to do here.
#pragma GCC diagnostic ignored "-Wattributes"
#include "kernels.metal"
#pragma GCC diagnostic pop

#undef kernel
#undef device
#undef constant
#undef threadgroup
#undef THREADS
#undef PAGE
#undef WIDEST

} // namespace apple
