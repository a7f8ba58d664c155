// Tensor cores, each instruction behind one function with a plain twin of the same layout of fragments.
//
// A fragment lies across the lanes of a warp. Lane `l` holds of A, 16 by 16, rows `l / 4` and `l / 4 + 8`, of B, 16 by 8, column `l / 4`, in both
// the inner indices `2 (l % 4)`, that plus 1, and 8 more; and of C, 16 by 8, rows `l / 4` and `l / 4 + 8` at columns `2 (l % 4)` and that plus 1.
#pragma once

#include "number.cuh"

#ifdef __CUDACC__

/// c += A B, with A and B in bf16 and sums in single precision.
DEVICE void multiply_tiles(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 by 8 matrices of 16-bit numbers out of shared memory: lane `l` says where row `l % 8` of matrix `l / 8` is, and gets of each matrix row
/// `l / 4` at `2 (l % 4)` and that plus 1.
DEVICE void load_matrices(u32 (&m)[4], const u16* row) {
    u32 at = static_cast<u32>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

/// As `load_matrices`, each matrix turned over: lane `l` gets column `l / 4` at rows `2 (l % 4)` and that plus 1.
DEVICE void load_matrices_turned(u32 (&m)[4], const u16* row) {
    u32 at = static_cast<u32>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

/// Copies 16 bytes to shared memory, later; zeros where they are not there, and then `from` is not read.
DEVICE void copy_later(void* to, const void* from, bool there) {
    u32 at = static_cast<u32>(__cvta_generic_to_shared(to));
    u32 bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(bytes) : "memory");
}

/// The copies since the last call are a group.
DEVICE void end_group() { asm volatile("cp.async.commit_group;" : : : "memory"); }

/// Waits for this thread's groups, all but the last `PENDING`.
template <int PENDING> DEVICE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory"); }

#else

namespace host {

struct Fragments {
    u32 a[4], b[2];
};

/// Element `inner` of row (of A) or column (of B) `outer % 8`; `word` is the first of the fragment's two words that it may be in, `step` words apart.
inline float element(unsigned char (*lines)[64], size_t word, size_t step, unsigned outer, unsigned inner) {
    u32 pair;
    const unsigned char* line = lines[outer % 8 * 4 + inner % 8 / 2];
    memcpy(&pair, line + 4 * (word + inner / 8 * step), 4);
    return inner % 2 ? high_of(pair) : low_of(pair);
}

} // namespace host

DEVICE void multiply_tiles(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    host::Fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    auto lines = host::show(mine);
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = host::lane() / 4 + 8 * (i / 2), column = host::lane() % 4 * 2 + i % 2;
        double sum = c[i];
        for (unsigned k = 0; k < 16; k++)
            sum += static_cast<double>(host::element(lines, row / 8, 2, row, k)) * host::element(lines, 4, 1, column, k);
        c[i] = static_cast<float>(sum);
    }
}

DEVICE void load_matrices(u32 (&m)[4], const u16* row) {
    auto lines = host::show(row);
    for (unsigned i = 0; i < 4; i++) {
        const u16* from;
        memcpy(&from, lines[8 * i + host::lane() / 4], sizeof from);
        memcpy(&m[i], from + host::lane() % 4 * 2, 4);
    }
    host::show(row);
}

DEVICE void load_matrices_turned(u32 (&m)[4], const u16* row) {
    auto lines = host::show(row);
    for (unsigned i = 0; i < 4; i++) {
        const u16 *even, *odd;
        memcpy(&even, lines[8 * i + host::lane() % 4 * 2], sizeof even);
        memcpy(&odd, lines[8 * i + host::lane() % 4 * 2 + 1], sizeof odd);
        m[i] = even[host::lane() / 4] | static_cast<u32>(odd[host::lane() / 4]) << 16;
    }
    host::show(row);
}

DEVICE void copy_later(void* to, const void* from, bool there) { host::copy_later(to, from, there); }
DEVICE void end_group() { host::end_group(); }
template <int PENDING> DEVICE void wait_for_copies() { host::wait_for_copies(PENDING); }

#endif
