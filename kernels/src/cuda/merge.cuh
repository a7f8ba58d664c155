// How results over parts of a sequence become one: the maximum and the sum of each, and its weighted values, which are not yet divided by the sum.
#pragma once

#include "number.cuh"

/// What a query has gathered: its largest score, in units of ln 2, and the sum of the powers of two of the scores less that. A sum of 0 says that it
/// saw nothing; a NaN among the scores is in the sum.
struct Gathered {
    float top, total;
};

/// What the values so far and those that come are multiplied with.
struct Factors {
    float keep, take;
    /// Nothing comes: the values so far stay. Or nothing was there: those that come replace them.
    bool nothing, first;
};

/// Adds `next` to what was gathered before.
DEVICE Factors gather(Gathered& all, Gathered next) {
    Factors factors = {1.0f, 1.0f, next.total == 0.0f, all.total == 0.0f};
    if (factors.nothing) return factors;
    if (factors.first) {
        all = next;
        return factors;
    }
    float top = largest(all.top, next.top);
    // Where all scores are minus infinity, nothing is taken from them, so that what they give is 0 or NaN, but no difference of infinities.
    float base = top == NEGATIVE_INFINITY ? 0.0f : top;
    factors.keep = power_of_two(plus(all.top, -base));
    factors.take = power_of_two(plus(next.top, -base));
    all.total = multiply_add(next.total, factors.take, multiply(all.total, factors.keep));
    all.top = top;
    return factors;
}

/// A value after `gather`.
DEVICE float merged(float so_far, float next, const Factors& factors) {
    if (factors.nothing) return so_far;
    if (factors.first) return next;
    return multiply_add(next, factors.take, multiply(so_far, factors.keep));
}
