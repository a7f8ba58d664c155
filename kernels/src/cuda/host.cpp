// The kernels for the host, as a library that the tests load. Each function runs all blocks of a launch and answers null, or what went wrong.

#include "../metal/host.h"

#include "attention.cu"
#include "dequantize.cu"
#include "readout.cu"
#include "rows.cu"

namespace {

struct Launch {
    u32 x, y, threads, bytes, order;
};

const char* run(const Launch& launch, const std::function<void()>& work) {
    return host::launch({launch.x, launch.y, 1}, launch.threads, launch.bytes, launch.order, work);
}

} // namespace

extern "C" {

const char* host_attend(const Launch* launch, u32 width, const float* q, const u16* keys, const u16* values, const Item* items, const Entry* entries,
                        const u32* pages, float* sums, Gathered* tops, void* out, const Shape* shape) {
    auto kernel = width == 64 ? attend_64 : width == 96 ? attend_96 : width == 128 ? attend_128 : width == 256 ? attend_256 : nullptr;
    if (!kernel) return "no such width";
    return run(*launch, [&] { kernel(q, keys, values, items, entries, pages, sums, tops, out, *shape); });
}

const char* host_merge(const Launch* launch, const Merge* merges, const float* sums, const Gathered* tops, void* out, const Shape* shape) {
    return run(*launch, [&] { merge(merges, sums, tops, out, *shape); });
}

const char* host_rms_norm(const Launch* launch, const float* x, const u32* rows, const float* other, float* sum, const float* weight, void* out, u32 columns,
                          float eps, u32 brief) {
    return run(*launch, [&] { rms_norm(x, rows, other, sum, weight, out, columns, eps, brief); });
}

const char* host_rope(const Launch* launch, const float* x, const float* cos, const float* sin, float* out, u32 heads, u32 dim, u32 pairs, u32 neox,
                      u64 count) {
    return run(*launch, [&] { rope(x, cos, sin, out, heads, dim, pairs, neox, count); });
}

const char* host_write_rows(const Launch* launch, u16* cache, const float* rows, const u32* slots, const float* cos, const float* sin, u32 heads, u32 dim,
                            u32 pairs, u32 neox, u32 end_slot, u64 count) {
    return run(*launch, [&] { write_rows(cache, rows, slots, cos, sin, heads, dim, pairs, neox, end_slot, count); });
}

const char* host_gated(const Launch* launch, const float* gate, const float* up, void* out, u32 columns, u32 stride, u32 gelu, u32 brief, u64 count) {
    return run(*launch, [&] { gated(gate, up, out, columns, stride, gelu, brief, count); });
}

const char* host_add(const Launch* launch, const float* a, const float* b, float* out, u64 count) {
    return run(*launch, [&] { add(a, b, out, count); });
}

const char* host_soft_cap(const Launch* launch, const float* x, float* out, float cap, u64 count) {
    return run(*launch, [&] { soft_cap(x, out, cap, count); });
}

const char* host_log_sum_exp(const Launch* launch, const float* logits, const u32* lists, const u32* excluded, double* out, u32 columns) {
    return run(*launch, [&] { log_sum_exp(logits, lists, excluded, out, columns); });
}

const char* host_gather(const Launch* launch, const float* logits, const u32* rows, const u32* tokens, float* out, u32 columns, u32 count) {
    return run(*launch, [&] { gather(logits, rows, tokens, out, columns, count); });
}

const char* host_argmax_masked(const Launch* launch, const float* logits, const u32* masks, const u32* lengths, const u32* words, u32* out, u32 columns) {
    return run(*launch, [&] { argmax_masked(logits, masks, lengths, words, out, columns); });
}

const char* host_dequantize(const Launch* launch, const u8* weights, void* out, u32 kind, u32 block, u32 bytes, u32 brief, u64 count) {
    return run(*launch, [&] { dequantize(weights, out, kind, block, bytes, brief, count); });
}

const char* host_metal_attend(const Launch* launch, const float* q, const u16* keys, const u16* values, const apple::Row* rows, const u32* pages,
                              float* out, const apple::Shape* shape) {
    return run(*launch, [&] { apple::attend(q, keys, values, rows, pages, out, *shape, {blockIdx.x, blockIdx.y}, threadIdx.x); });
}

const char* host_metal_write_rows(const Launch* launch, u16* cache, const float* rows, const u32* slots, const apple::Write* shape) {
    return run(*launch, [&] { apple::write_rows(cache, rows, slots, *shape, {blockIdx.x, blockIdx.y}, threadIdx.x); });
}

/// Constants that `shapes.rs` and `paging.cuh` both have.
void host_constants(u32* out) {
    const u32 all[] = {PAGE, BLOCK, SPLIT, QUERIES, WARP, DIRECT, sizeof(Item), sizeof(Entry), sizeof(Merge), sizeof(Shape)};
    for (u32 i = 0; i < sizeof all / sizeof all[0]; i++) out[i] = all[i];
}
}
