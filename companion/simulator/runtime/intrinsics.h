// CUDA's functions that C++ does not have and that are exact: bits, conversions, rounding, cache hints.
// Those that are approximate on a GPU are in approximations.h; fmaf, expf, log1pf, rintf and so on come
// from C's library.
#pragma once

// --- the same bits, another type ---
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// --- counting and moving bits ---
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned chosen = selector >> 4 * i & 7;
        result |= static_cast<unsigned>(bytes >> 8 * chosen & 0xff) << 8 * i;
    }
    return result;
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }

// --- arithmetic that rounds to nearest and is never fused with its neighbours ---
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return std::fmin(std::fmax(x, 0.0f), 1.0f); }  // NaN becomes 0

// --- conversions, which saturate on a GPU and turn NaN into 0 ---
namespace simulator {
template <class To>
To saturated(double rounded) {
    if (std::isnan(rounded)) return 0;
    if (rounded <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (rounded >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(rounded);
}
}  // namespace simulator
inline int __float2int_rn(float x) { return simulator::saturated<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return simulator::saturated<int>(std::trunc(x)); }
inline int __float2int_ru(float x) { return simulator::saturated<int>(std::ceil(x)); }
inline int __float2int_rd(float x) { return simulator::saturated<int>(std::floor(x)); }
inline unsigned __float2uint_rn(float x) { return simulator::saturated<unsigned>(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return simulator::saturated<unsigned>(std::trunc(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

// --- min and max: CUDA has them for every pair of arithmetic types; of a number and NaN they take the
// number ---
template <class A, class B>
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
auto min(A a, B b) {
    using Common = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<Common>) return std::fmin(Common(a), Common(b));
    else return Common(b) < Common(a) ? Common(b) : Common(a);
}
template <class A, class B>
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
auto max(A a, B b) {
    using Common = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<Common>) return std::fmax(Common(a), Common(b));
    else return Common(a) < Common(b) ? Common(b) : Common(a);
}

// --- functions of C's library that only CUDA has ---
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
inline float normcdff(float x) { return static_cast<float>(normcdf(static_cast<double>(x))); }

// --- loads and stores with a hint for the cache ---
#define SIMULATOR_LOAD(NAME) \
    template <class T>       \
    T NAME(const T* address) { return *address; }
SIMULATOR_LOAD(__ldg)
SIMULATOR_LOAD(__ldca)
SIMULATOR_LOAD(__ldcg)
SIMULATOR_LOAD(__ldcs)
SIMULATOR_LOAD(__ldlu)
SIMULATOR_LOAD(__ldcv)
#undef SIMULATOR_LOAD
#define SIMULATOR_STORE(NAME) \
    template <class T>        \
    void NAME(T* address, std::type_identity_t<T> value) { *address = value; }
SIMULATOR_STORE(__stwb)
SIMULATOR_STORE(__stcg)
SIMULATOR_STORE(__stcs)
SIMULATOR_STORE(__stwt)
#undef SIMULATOR_STORE
