// Where the arguments of a unit lie, and the sizes of the inner network.
//
// x is contiguous with shape (outer, units arity, inner), the result with (outer, units, inner): inner is 1 for tokens,
// height times width for images. Unit u of the result, counted through all of it, takes its arguments `inner` apart.
#pragma once

#include "common.cuh"

namespace companion {

constexpr int hidden = 64;
constexpr int most_arguments = 8;

__device__ __forceinline__ int64 first_argument(int64 unit, int arity, int64 inner) {
    if (inner == 1) return unit * arity;
    const int64 map = unit / inner;
    return map * arity * inner + (unit - map * inner);
}

}  // namespace companion
