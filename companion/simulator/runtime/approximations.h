// Functions that a GPU computes with a documented error, and that a CPU would compute too well.
//
// A test that passes with an exact __expf says little. So each of these computes the exact value in double
// precision and moves it, within the documented bound, by an amount that depends on the bits of the input
// alone: two runs agree, neighbouring inputs do not. The error of a real GPU is smaller at most inputs, and
// another one. Who passes here has shown that the algorithm bears the documented error; nothing has been
// shown about the functions that C's library provides here exactly (expf, logf, tanhf …), whose documented
// errors on a GPU are 1 or 2 ulp.
//
// Bounds
//   * PTX ISA, "Floating Point Instructions": ex2.approx: relative 2^-22; lg2.approx: absolute 2^-22 for
//     inputs in [1/2, 2], relative 2^-22 elsewhere; rcp.approx: 1 ulp; tanh.approx: relative 2^-11. The
//     values at 0, infinity and NaN are those of the tables there; a subnormal input of ex2 gives 1.
//   * CUDA C++ Programming Guide, "Mathematical Functions", table of intrinsic functions: the others.
// A result that is subnormal is rounded correctly: a relative bound below half the spacing of such numbers has
// no other meaning.
// An ulp is the distance of neighbouring floats at the exact value.
#pragma once

namespace simulator {

constexpr double smallest_normal = 0x1p-126;

inline double ulp_at(double exact) {
    return std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
}

// A number in [-1, 1) that looks random, the same each time for the same inputs and function.
inline double noise(float x, float y, std::uint64_t function) {
    const std::uint64_t low = std::bit_cast<std::uint32_t>(x), high = std::bit_cast<std::uint32_t>(y);
    return static_cast<double>(static_cast<std::int64_t>(mix(mix(low | high << 32) ^ function))) * 0x1p-63;
}
inline double noise(float x, std::uint64_t function) { return noise(x, 0, function); }

// `exact`, moved by up to `bound`. Rounding to a float must not leave the bound; where it does, the nearest
// float is taken.
inline float moved(double exact, double bound, double noise) {
    if (!std::isfinite(exact) || bound == 0) return static_cast<float>(exact);
    const float result = static_cast<float>(exact + bound * noise);
    const bool within = std::abs(static_cast<double>(result) - exact) <= bound;
    return within ? result : static_cast<float>(exact);
}
inline float moved_relatively(double exact, double bound, double noise) {
    return moved(exact, bound * std::abs(exact), noise);
}
inline float moved_by_ulps(double exact, double ulps, double noise) {
    return moved(exact, exact == 0 ? 0 : ulps * ulp_at(exact), noise);
}
inline float flushed(float x) { return std::abs(x) < smallest_normal ? std::copysign(0.0f, x) : x; }

// --- PTX instructions, for kernels that reach them through inline assembly ---
// With .ftz (flush to zero), subnormal inputs and results become a zero of the same sign.

// ex2.approx.f32
inline float approx_exp2(float x) {
    if (std::abs(x) < smallest_normal) return 1;
    return moved_relatively(std::exp2(static_cast<double>(x)), 0x1p-22, noise(x, 1));
}
// ex2.approx.ftz.f32
inline float approx_exp2_ftz(float x) { return flushed(approx_exp2(flushed(x))); }

// A logarithm: absolute error for inputs in [1/2, 2], where the value passes through zero.
inline float moved_logarithm(float x, double exact, double absolute, double elsewhere, double noise) {
    return x >= 0.5f && x <= 2 ? moved(exact, absolute, noise) : moved(exact, elsewhere, noise);
}
// lg2.approx.f32
inline float approx_log2(float x) {
    const double exact = std::log2(static_cast<double>(x));
    return moved_logarithm(x, exact, 0x1p-22, 0x1p-22 * std::abs(exact), noise(x, 2));
}
// lg2.approx.ftz.f32
inline float approx_log2_ftz(float x) { return flushed(approx_log2(flushed(x))); }

// rcp.approx.f32
inline float approx_reciprocal(float x) { return moved_by_ulps(1 / static_cast<double>(x), 1, noise(x, 3)); }
// rcp.approx.ftz.f32
inline float approx_reciprocal_ftz(float x) { return flushed(approx_reciprocal(flushed(x))); }

// tanh.approx.f32
inline float approx_tanh(float x) {
    return moved_relatively(std::tanh(static_cast<double>(x)), 0x1p-11, noise(x, 4));
}

}  // namespace simulator

// --- CUDA's intrinsics ---

inline float __expf(float x) {
    const double ulps = 2 + std::floor(std::abs(1.173 * static_cast<double>(x)));
    return simulator::moved_by_ulps(std::exp(static_cast<double>(x)), ulps, simulator::noise(x, 5));
}
inline float __exp10f(float x) {
    const double ulps = 2 + std::floor(std::abs(2.97 * static_cast<double>(x)));
    return simulator::moved_by_ulps(std::pow(10.0, static_cast<double>(x)), ulps, simulator::noise(x, 6));
}
inline float __logf(float x) {
    const double exact = std::log(static_cast<double>(x));
    const double absolute = std::exp2(-21.41), elsewhere = 3 * simulator::ulp_at(exact);
    return simulator::moved_logarithm(x, exact, absolute, elsewhere, simulator::noise(x, 7));
}
inline float __log2f(float x) {
    const double exact = std::log2(static_cast<double>(x));
    return simulator::moved_logarithm(x, exact, 0x1p-22, 2 * simulator::ulp_at(exact), simulator::noise(x, 8));
}
inline float __log10f(float x) {
    const double exact = std::log10(static_cast<double>(x));
    return simulator::moved_logarithm(x, exact, 0x1p-24, 3 * simulator::ulp_at(exact), simulator::noise(x, 9));
}
inline float __fdividef(float x, float y) {
    if (std::abs(y) > 0x1p126f && std::isfinite(y)) return 0 * x;  // NaN if x is infinite
    const double exact = static_cast<double>(x) / static_cast<double>(y);
    return simulator::moved_by_ulps(exact, 2, simulator::noise(x, y, 10));
}
// Documented for [-pi, pi]; beyond, the guide says no more than that the error is larger. We let it grow
// with |x|.
namespace simulator {
inline double growth_beyond_pi(double x) { return std::max(1.0, std::abs(x) / 3.14159265358979); }
}  // namespace simulator
inline float __sinf(float x) {
    const double bound = std::exp2(-21.41) * simulator::growth_beyond_pi(x);
    return simulator::moved(std::sin(static_cast<double>(x)), bound, simulator::noise(x, 12));
}
inline float __cosf(float x) {
    const double bound = std::exp2(-21.19) * simulator::growth_beyond_pi(x);
    return simulator::moved(std::cos(static_cast<double>(x)), bound, simulator::noise(x, 13));
}
inline void __sincosf(float x, float* sine, float* cosine) {
    *sine = __sinf(x);
    *cosine = __cosf(x);
}
inline float __tanf(float x) { return __fdividef(__sinf(x), __cosf(x)); }
inline float __tanhf(float x) { return simulator::approx_tanh(x); }
inline float __powf(float x, float y) { return simulator::approx_exp2(y * __log2f(x)); }
inline float rsqrtf(float x) {
    return simulator::moved_by_ulps(1 / std::sqrt(static_cast<double>(x)), 2, simulator::noise(x, 14));
}
