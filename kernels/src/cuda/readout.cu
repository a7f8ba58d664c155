// What is read of a row of logits, so that the row itself stays on the card. The semantics are those of the engine on the CPU.

#include "reduce.cuh"

namespace {

/// Instead of a token: the mask admits none of the row's, or a logit is not finite.
constexpr u32 NONE = 0xffffffffu, NOT_FINITE = 0xfffffffeu;

/// A token and its logit.
struct Leader {
    float logit;
    u32 token;
};

DEVICE Leader from_lane_xor(Leader leader, u32 mask) {
    return {::from_lane_xor(leader.logit, mask), ::from_lane_xor(leader.token, mask)};
}

struct Better {
    DEVICE Leader operator()(Leader a, Leader b) const {
        bool second = a.token == NONE || (b.token != NONE && (b.logit > a.logit || (b.logit == a.logit && b.token < a.token)));
        return second ? b : a;
    }
};

/// The end of the tokens below `token` in a rising list.
DEVICE u32 below(const u32* tokens, u32 count, u32 token) {
    u32 low = 0;
    while (low < count) {
        u32 middle = low + (count - low) / 2;
        if (tokens[middle] < token) low = middle + 1;
        else count = middle;
    }
    return low;
}

} // namespace

/// A row a block: the logarithm of the sum of the exponentials, in double precision, of the row but the tokens of its list, which rise. The list of row
/// `i` is `excluded[lists[i]..lists[i + 1]]`; without lists there are none.
KERNEL AT_MOST(THREADS) log_sum_exp(const float* logits, const u32* lists, const u32* excluded, double* out, u32 columns) {
    SHARED(memory);
    const float* row = logits + static_cast<size_t>(blockIdx.x) * columns;
    const u32* list = nullptr;
    u32 count = 0;
    if (lists) {
        list = excluded + lists[blockIdx.x];
        count = lists[blockIdx.x + 1] - lists[blockIdx.x];
    }
    float top = NEGATIVE_INFINITY;
    u32 odd = 0;
    for (u32 i = threadIdx.x; i < columns; i += THREADS) {
        top = largest(top, row[i]);
        odd |= row[i] != row[i];
    }
    top = over_block(top, reinterpret_cast<float*>(memory), Larger());
    odd = over_block(odd, reinterpret_cast<u32*>(memory), Larger());
    double sum = 0.0;
    u32 next = count == 0 ? 0 : below(list, count, threadIdx.x);
    for (u32 i = threadIdx.x; i < columns; i += THREADS) {
        while (next < count && list[next] < i) next++;
        if (next < count && list[next] == i) continue;
        sum += to_exponential(static_cast<double>(row[i]) - static_cast<double>(top));
    }
    sum = over_block(sum, reinterpret_cast<double*>(memory), Sum());
    if (threadIdx.x != 0) return;
    double result = static_cast<double>(top) + log(sum);
    if (!is_finite(top)) result = static_cast<double>(top);
    if (odd) result = static_cast<double>(float_of(0x7fc00000u));
    out[blockIdx.x] = result;
}

/// Element `tokens[i]` of row `rows[i]`.
KERNEL AT_MOST(THREADS) gather(const float* logits, const u32* rows, const u32* tokens, float* out, u32 columns, u32 count) {
    u32 at = blockIdx.x * THREADS + threadIdx.x;
    if (at < count) out[at] = logits[static_cast<size_t>(rows[at]) * columns + tokens[at]];
}

/// A row a block: the token of the largest logit that the row's mask admits, the lowest of equals. Row `i`'s mask begins at word `masks[i]`, where all
/// ones says that all are admitted; bit `t % 32` of word `t / 32` admits token `t`, and a mask of fewer words admits none of the others.
KERNEL AT_MOST(THREADS) argmax_masked(const float* logits, const u32* masks, const u32* lengths, const u32* words, u32* out, u32 columns) {
    SHARED(memory);
    const float* row = logits + static_cast<size_t>(blockIdx.x) * columns;
    const bool all = masks[blockIdx.x] == NONE;
    const u32 end = all ? columns : lengths[blockIdx.x] * 32 < columns ? lengths[blockIdx.x] * 32 : columns;
    const u32* mask = words + (all ? 0 : masks[blockIdx.x]);
    Leader leader = {0.0f, NONE};
    u32 odd = 0;
    for (u32 i = threadIdx.x; i < columns; i += THREADS) {
        float logit = row[i];
        odd |= !is_finite(logit);
        bool admitted = i < end && (all || (mask[i / 32] >> i % 32 & 1));
        if (admitted) leader = Better()(leader, Leader{logit, i});
    }
    odd = over_block(odd, reinterpret_cast<u32*>(memory), Larger());
    leader = over_block(leader, reinterpret_cast<Leader*>(memory), Better());
    if (threadIdx.x == 0) out[blockIdx.x] = odd ? NOT_FINITE : leader.token;
}
