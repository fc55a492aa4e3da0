// Gates by which a number is multiplied: s(n), and s'(n) without cancellation.
#pragma once

#include "common.cuh"

namespace companion {

template <typename T>
struct Sigmoid {
    // e^-n; infinity for a large -n
    static __device__ __forceinline__ float exponential(float n) { return approx_exp2_ftz(n * -log2_e); }
    // e^-n, never infinite: s' = e^-n s^2 needs it
    static __device__ __forceinline__ float finite_exponential(float n) {
        return approx_exp2_ftz(at_most(n * -log2_e, 127.0f));
    }

    // s = 1/(1 + e^-n); 0 where it would be subnormal
    static __device__ __forceinline__ float value(float n) { return approx_reciprocal_ftz(1.0f + exponential(n)); }

    static __device__ __forceinline__ void value_and_slope(float n, float& s, float& slope) {
        const float E = finite_exponential(n);
        s = approx_reciprocal_ftz(1.0f + E);
        slope = E * s * s;
    }
};

template <>
__device__ __forceinline__ float Sigmoid<float>::finite_exponential(float n) {
    // beyond the first s is 1, beyond the second subnormal; there 2^-127.1 is 0, and s' with it
    n = at_least(at_most(n, 88.1f), -88.0f);
    const float x = __fmul_rn(n, -log2_e);  // `*` would be computed twice, for x and for -x
    return accurate_exp2(x, fmaf(n, -log2_e_rest, fmaf(n, -log2_e, -x)));
}
template <>
__device__ __forceinline__ float Sigmoid<float>::exponential(float n) { return finite_exponential(n); }

struct HardSigmoid {
    static __device__ __forceinline__ float value(float n) {
        return at_least(at_most((n + 3.0f) * (1.0f / 6.0f), 1.0f), 0.0f);
    }
    static __device__ __forceinline__ void value_and_slope(float n, float& s, float& slope) {
        s = value(n);
        slope = n > -3.0f && n < 3.0f ? 1.0f / 6.0f : 0.0f;
    }
};

// 1 where n is positive, 0 elsewhere; NaN for NaN.
struct Step {
    static __device__ __forceinline__ float value(float n) { return n > 0.0f ? 1.0f : n == n ? 0.0f : n; }
    static __device__ __forceinline__ void value_and_slope(float n, float& s, float& slope) {
        s = value(n);
        slope = 0.0f;
    }
};

// The normal distribution's function Phi(n) and its density phi(n), which share E = e^(-n^2/2): with x = |n| and
// t = 1/(1 + p x), Phi(-x) = E t (c_1 + c_2 t + ...), a weighted least-squares fit for x up to 14. So the small values
// of Phi are right relative to themselves, where 1 + erf would cancel.
constexpr float per_root_2_pi = 0.3989422804014327f;

template <typename T>
struct Normal {
    // E, relative error 1e-6, and Phi(-x)/E, relative error 9e-6
    static __device__ __forceinline__ float exponential(float n) {
        return approx_exp2_ftz(n * n * (-0.5f * log2_e));
    }
    static __device__ __forceinline__ float ratio(float x) {
        const float t = approx_reciprocal_ftz(fmaf(0.3f, x, 1.0f));
        float c = -7.67005963e-2f;
        c = fmaf(c, t, 2.14848999e-1f);
        c = fmaf(c, t, -1.55976014e-2f);
        c = fmaf(c, t, 1.43473400e-1f);
        c = fmaf(c, t, 1.13922822e-1f);
        c = fmaf(c, t, 1.20057418e-1f);
        return c * t;
    }

    static __device__ __forceinline__ float value(float n) {
        const float tail = exponential(n) * ratio(fabsf(n));
        return n > 0.0f ? 1.0f - tail : tail;
    }
    static __device__ __forceinline__ void value_and_slope(float n, float& s, float& slope) {
        const float E = exponential(n);
        const float tail = E * ratio(fabsf(n));
        s = n > 0.0f ? 1.0f - tail : tail;
        slope = E * per_root_2_pi;
    }
};

// For float: E to one unit in the last place, 0 where it would be subnormal, and the ratio to 3e-7.
template <>
__device__ __forceinline__ float Normal<float>::exponential(float n) {
    const float square = n * n;
    const float cut = at_most(square, 174.0f);  // E = 2^-125.5
    const float x = cut * (-0.5f * log2_e);
    // what rounding took from the product, from log2 e and from the square
    const float rest = fmaf(cut, -0.5f * log2_e, -x) + fmaf(n, n, -square) * (-0.5f * log2_e);
    const float E = accurate_exp2(x, fmaf(cut, -0.5f * log2_e_rest, rest));
    return square > 174.0f ? 0.0f : E;
}
template <>
__device__ __forceinline__ float Normal<float>::ratio(float x) {
    const float t = approx_reciprocal_ftz(fmaf(0.35f, x, 1.0f));
    float c = -2.91578856e-2f;
    c = fmaf(c, t, 1.44030919e-1f);
    c = fmaf(c, t, -2.55839029e-1f);
    c = fmaf(c, t, 1.59319692e-1f);
    c = fmaf(c, t, -2.32123510e-2f);
    c = fmaf(c, t, 1.05552501e-1f);
    c = fmaf(c, t, 1.19821288e-1f);
    c = fmaf(c, t, 1.39863515e-1f);
    c = fmaf(c, t, 1.39621307e-1f);
    return c * t;
}

}  // namespace companion
