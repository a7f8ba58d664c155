// Blocks of threads on the host: each thread of a block is a fiber, and one fiber runs until it waits for others.
//
// Made to find faults. Shared memory is poisoned before each block and ends in a guard; copies that a card would make later are made when they are
// waited for, and not before; threads may be run in rising or in falling order,
// in step or warp after warp, between which a race shows; threads that wait at different barriers
// are an error. Linux alone. Knows no kernel.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace host {

struct Index {
    unsigned x = 0, y = 0, z = 0;
};

/// A copy that was asked for and not yet waited for.
struct Copy {
    unsigned group;
    void* to;
    const void* from;
    bool there;
};

/// Threads that wait for each other.
struct Gate {
    unsigned waiting = 0, round = 0;
};

/// What a warp's lanes show each other: two boards in turn, so that a lane which is ahead does not wipe what another still reads.
struct Warp {
    Gate gate;
    unsigned char board[2][32][64];
};

struct Fiber {
    jmp_buf place;
    ucontext_t start;
    std::unique_ptr<char[]> stack;
    bool begun = false, ended = false;
    unsigned turn = 0, group = 0;
    std::vector<Copy> copies;
};

constexpr size_t STACK = 256 * 1024, GUARD = 256;
constexpr unsigned char POISON = 0xff, GUARDED = 0xa5;

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Gate gate;
    std::vector<uint64_t> memory;
    const std::function<void()>* work = nullptr;
    jmp_buf scheduler;
    unsigned running = 0;
    bool stirred = false;
};

inline thread_local Block block;

} // namespace host

inline thread_local host::Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

inline unsigned char* shared_memory() { return reinterpret_cast<unsigned char*>(block.memory.data()); }

inline unsigned lane() { return threadIdx.x % 32; }

/// Lets the others run.
__attribute__((noinline)) inline void pass() {
    unsigned self = block.running;
    if (!_setjmp(block.fibers[self].place)) _longjmp(block.scheduler, 1);
}

inline void wait(Gate& gate, unsigned members) {
    block.stirred = true;
    unsigned round = gate.round;
    if (++gate.waiting == members) {
        gate.waiting = 0;
        gate.round++;
        return;
    }
    while (gate.round == round) pass();
}

inline void block_barrier() { wait(block.gate, blockDim.x); }

/// Shows `mine` to the warp. What the lanes show can be read until this lane shows something for the second time after.
template <class T> unsigned char (*show(const T& mine))[64] {
    static_assert(sizeof(T) <= 64, "a board's line has 64 bytes");
    Warp& warp = block.warps[threadIdx.x / 32];
    unsigned turn = block.fibers[threadIdx.x].turn++ % 2;
    memcpy(warp.board[turn][lane()], &mine, sizeof mine);
    wait(warp.gate, 32);
    return warp.board[turn];
}

template <class T> T from_lane(const T& mine, unsigned lane) {
    T value;
    memcpy(&value, show(mine)[lane], sizeof value);
    return value;
}

inline void copy_later(void* to, const void* from, bool there) {
    Fiber& fiber = block.fibers[threadIdx.x];
    fiber.copies.push_back({fiber.group, to, from, there});
}

inline void end_group() { block.fibers[threadIdx.x].group++; }

/// Makes the copies of all groups but the last `pending`.
inline void wait_for_copies(unsigned pending) {
    Fiber& fiber = block.fibers[threadIdx.x];
    std::vector<Copy> rest;
    for (const Copy& copy : fiber.copies) {
        if (copy.group + pending >= fiber.group) rest.push_back(copy);
        else if (copy.there) memcpy(copy.to, copy.from, 16);
        else memset(copy.to, 0, 16);
    }
    fiber.copies = rest;
}

inline void enter() {
    (*block.work)();
    block.fibers[block.running].ended = true;
    _longjmp(block.scheduler, 1);
}

/// Runs fiber `index` until it waits.
__attribute__((noinline)) inline void resume(unsigned index) {
    Fiber& fiber = block.fibers[index];
    block.running = index;
    threadIdx = {index, 0, 0};
    if (_setjmp(block.scheduler)) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.start);
}

/// Runs `work` for every thread of every block: in falling order where bit 0 of `order` is set, and each warp as far as it gets before the next one where
/// bit 1 is. Null where all went well, or what went wrong.
inline const char* launch(Index grid, unsigned threads, size_t bytes, unsigned order, const std::function<void()>& work) {
    if (threads == 0 || threads % 32 != 0 || threads > 1024) return "a block is no whole number of warps";
    const bool falling = order & 1, eager = order & 2;
    const unsigned each = eager ? 32 : threads;
    gridDim = grid;
    blockDim = {threads, 1, 1};
    block.work = &work;
    block.fibers.resize(threads);
    block.warps.assign(threads / 32, Warp());
    for (Fiber& fiber : block.fibers)
        if (!fiber.stack) fiber.stack.reset(new char[STACK]);
    for (unsigned index = 0; index < grid.x * grid.y; index++) {
        unsigned at = falling ? grid.x * grid.y - 1 - index : index;
        blockIdx = {at % grid.x, at / grid.x, 0};
        block.memory.assign((bytes + GUARD + 7) / 8, 0);
        memset(shared_memory(), POISON, bytes);
        memset(shared_memory() + bytes, GUARDED, GUARD);
        block.gate = Gate();
        for (Warp& warp : block.warps) warp.gate = Gate();
        for (Fiber& fiber : block.fibers) {
            fiber.begun = fiber.ended = false;
            fiber.turn = fiber.group = 0;
            fiber.copies.clear();
            getcontext(&fiber.start);
            fiber.start.uc_stack.ss_sp = fiber.stack.get();
            fiber.start.uc_stack.ss_size = STACK;
            fiber.start.uc_link = nullptr;
            makecontext(&fiber.start, enter, 0);
        }
        for (unsigned left = threads; left > 0;) {
            bool moved = false;
            for (unsigned part = 0; part < threads / each; part++) {
                // An eager warp goes on until all its lanes wait for others.
                do {
                    block.stirred = false;
                    for (unsigned i = part * each; i < (part + 1) * each; i++) {
                        unsigned next = falling ? threads - 1 - i : i;
                        if (block.fibers[next].ended) continue;
                        resume(next);
                        if (block.fibers[next].ended) {
                            left--;
                            block.stirred = true;
                        }
                    }
                    moved = moved || block.stirred;
                } while (eager && block.stirred);
            }
            if (!moved) return "threads wait at different barriers";
        }
        for (const Fiber& fiber : block.fibers)
            for (const Copy& copy : fiber.copies)
                if (copy.there) return "a copy was never waited for";
        for (size_t i = 0; i < GUARD; i++)
            if (shared_memory()[bytes + i] != GUARDED) return "a write beyond the shared memory";
    }
    return nullptr;
}

} // namespace host
