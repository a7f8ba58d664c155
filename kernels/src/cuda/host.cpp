// The kernels for the host, as a library that the tests load. Each function runs all blocks of a launch and answers null, or what went wrong.

#include "attention.cu"

namespace {

struct Launch {
    u32 x, y, threads, bytes, falling;
};

const char* run(const Launch& launch, const std::function<void()>& work) {
    return host::launch({launch.x, launch.y, 1}, launch.threads, launch.bytes, launch.falling != 0, work);
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

/// Constants that `shapes.rs` and `paging.cuh` both have.
void host_constants(u32* out) {
    const u32 all[] = {PAGE, BLOCK, SPLIT, QUERIES, WARP, DIRECT, sizeof(Item), sizeof(Entry), sizeof(Merge), sizeof(Shape)};
    for (u32 i = 0; i < sizeof all / sizeof all[0]; i++) out[i] = all[i];
}
}
