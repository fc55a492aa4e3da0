// What every kernel needs: conversions, approximate instructions, vectorised access.
//
// A kernel's arithmetic is float32 whatever its elements are. Elements are read and written in packs of 16 bytes,
// the widest access that a thread can make; `map_range`, and `Spread` in rows.cuh, see to ranges that begin or end inside a pack.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace companion {

using int64 = long long;

constexpr unsigned full_warp = 0xffffffffu;
constexpr int warp_size = 32;
constexpr int pack_bytes = 16;

constexpr float log2_e = 1.44269504088896341f;
constexpr float log2_e_rest = 1.925963e-8f;

// --- conversions ---

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
constexpr bool is_half = false;
template <>
constexpr bool is_half<__half> = true;

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) { return x; }
template <>
__device__ __forceinline__ __half from_float<__half>(float x) { return __float2half_rn(x); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

// --- whole numbers ---

// Division by a number that the host has prepared: 0 <= n < 2^31, n / d = (n + n magic / 2^32) / 2^shift with
// shift = ceil(log2 d) and magic = 1 + floor(2^32 (2^shift - d) / d) (Granlund and Montgomery 1994). It takes three
// instructions, a division by any other number some twenty.
struct Divisor {
    int d;
    unsigned magic;

    __device__ __forceinline__ int shift() const { return d == 1 ? 0 : 32 - __clz(d - 1); }
    __device__ __forceinline__ int quotient(int n) const {
        return (static_cast<unsigned>(n) + __umulhi(n, magic)) >> shift();
    }
    __device__ __forceinline__ int rest(int n, int quotient) const { return n - quotient * d; }
};

// --- the special-function unit: one instruction each, errors as the PTX manual states them ---

// 2^x, relative error 2^-22; a subnormal result is kept
__device__ __forceinline__ float approx_exp2(float x) {
#ifdef COMPANION_SIMULATOR
    return simulator::approx_exp2(x);
#else
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// 2^x, relative error 2^-22, in fewer instructions; a subnormal result becomes 0
__device__ __forceinline__ float approx_exp2_ftz(float x) {
#ifdef COMPANION_SIMULATOR
    return simulator::approx_exp2_ftz(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// log2(x) of a normal x, absolute error 2^-22 near 1
__device__ __forceinline__ float approx_log2_ftz(float x) {
#ifdef COMPANION_SIMULATOR
    return simulator::approx_log2_ftz(x);
#else
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// 1/x of a normal x, error one unit in the last place; a subnormal result becomes 0
__device__ __forceinline__ float approx_reciprocal_ftz(float x) {
#ifdef COMPANION_SIMULATOR
    return simulator::approx_reciprocal_ftz(x);
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// 2^x to 0.6 units in the last place, for -126 <= x <= 127: 2^n 2^f with |f| <= 1/2; 0 for -127.4 <= x <= -126.6.
// `correction` is added to f: what rounding took from x. `_rn`: if x is a product, the sums take it rounded, not fused.
__device__ __forceinline__ float accurate_exp2(float x, float correction) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which lands in the low bits
    const float shifted = __fadd_rn(x, magic);
    const float f = __fsub_rn(x, shifted - magic) + correction;
    const float scale = __int_as_float((__float_as_int(shifted) - __float_as_int(magic) + 127) << 23);
    // polynomial of 2^f on [-1/2, 1/2], relative error 9e-9 before rounding
    float p = 1.54614478e-4f;
    p = fmaf(p, f, 1.33908668e-3f);
    p = fmaf(p, f, 9.61805694e-3f);
    p = fmaf(p, f, 5.55035695e-2f);
    p = fmaf(p, f, 2.40226507e-1f);
    p = fmaf(p, f, 6.93147182e-1f);
    p = fmaf(p, f, 1.0f);
    return p * scale;
}

// ln(1 + t) to two units in the last place, for 0 <= t <= 2^125: 1 + t = 2^k (1 + f) with f in [-1/4, 1/2).
// f comes from t and not from the rounded 1 + t, so nothing of a small t is lost.
__device__ __forceinline__ float accurate_log1p(float t) {
    const int k_shifted = (__float_as_int(1.0f + t) - 0x3f400000) & 0xff800000;  // k 2^23; 0x3f400000 is 0.75
    const float scale = __int_as_float(0x3f800000 - k_shifted);                  // 2^-k
    const float f = fmaf(t, scale, scale - 1.0f);
    // polynomial of (ln(1 + f) - f)/f^2, relative error of the logarithm 2.8e-8 before rounding
    float p = 5.412071993e-2f;
    p = fmaf(p, f, -1.206634977e-1f);
    p = fmaf(p, f, 1.498388373e-1f);
    p = fmaf(p, f, -1.682295155e-1f);
    p = fmaf(p, f, 1.997709059e-1f);
    p = fmaf(p, f, -2.499343565e-1f);
    p = fmaf(p, f, 3.333354818e-1f);
    p = fmaf(p, f, -5.000006075e-1f);
    const float ln_2_shifted = 8.262958294e-8f;  // ln 2 / 2^23
    return fmaf(__int2float_rn(k_shifted), ln_2_shifted, fmaf(f * f, p, f));
}

// 1/sqrt(x) to one unit in the last place: a Newton step after the approximation. 0 at infinity, infinity at 0.
__device__ __forceinline__ float accurate_rsqrt(float x) {
    const float r = rsqrtf(x);
    const float refined = fmaf(0.5f * r, fmaf(-x * r, r, 1.0f), r);
    return x > 0.0f && x < __int_as_float(0x7f800000) ? refined : r;
}

// The smaller and the larger of two numbers; NaN if one is NaN, unlike fminf and fmaxf.
__device__ __forceinline__ float at_most(float x, float bound) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
    return y;
#else
    return x > bound ? bound : x;
#endif
}

__device__ __forceinline__ float at_least(float x, float bound) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
    return y;
#else
    return x < bound ? bound : x;
#endif
}

// Of two pairs of numbers, packed, the larger ones; NaN if one is NaN.
template <typename T>
__device__ __forceinline__ unsigned packed_max(unsigned x, unsigned y) {
#if defined(COMPANION_SIMULATOR) || __CUDA_ARCH__ >= 800
    if constexpr (is_half<T>) {
        const __half2 larger = __hmax2_nan(reinterpret_cast<const __half2&>(x), reinterpret_cast<const __half2&>(y));
        return reinterpret_cast<const unsigned&>(larger);
    } else {
        const __nv_bfloat162 larger =
            __hmax2_nan(reinterpret_cast<const __nv_bfloat162&>(x), reinterpret_cast<const __nv_bfloat162&>(y));
        return reinterpret_cast<const unsigned&>(larger);
    }
#else
    return 0;
#endif
}

// acc += t for those of two numbers, packed in z, that are larger than `bound`, or NaN.
template <typename T>
__device__ __forceinline__ void add_where_above(float& acc_0, float& acc_1, unsigned z, unsigned bound, float t_0,
                                                float t_1) {
#if !defined(COMPANION_SIMULATOR) && __CUDA_ARCH__ >= 800
    // one comparison makes two predicates
#define COMPANION_ADD_WHERE(type)                                                                                      \
    asm("{.reg .pred p, q; setp.gtu." type " p|q, %2, %3; @p add.f32 %0, %0, %4; @q add.f32 %1, %1, %5;}"              \
        : "+f"(acc_0), "+f"(acc_1)                                                                                     \
        : "r"(z), "r"(bound), "f"(t_0), "f"(t_1))
    if constexpr (is_half<T>) {
        COMPANION_ADD_WHERE("f16x2");
        return;
    } else if constexpr (__CUDA_ARCH__ >= 900) {
        COMPANION_ADD_WHERE("bf16x2");
        return;
    }
#undef COMPANION_ADD_WHERE
#endif
#ifndef COMPANION_SIMULATOR
    asm volatile("" : "+r"(z));  // else both numbers are held as floats from before a loop on
#endif
    const T* const of_z = reinterpret_cast<const T*>(&z);
    const T* const of_bound = reinterpret_cast<const T*>(&bound);
    if (!(to_float(of_z[0]) <= to_float(of_bound[0]))) acc_0 += t_0;
    if (!(to_float(of_z[1]) <= to_float(of_bound[1]))) acc_1 += t_1;
}

// Of two pairs of numbers, packed, 1 where x is larger than y or NaN, and 0 elsewhere; y is given as
// `bound_for_one_above` returns it. Where bfloat16 cannot be compared packed, that is the next number above y, and the
// sign of the difference tells: it may be rounded, but never to 0.
template <typename T>
constexpr bool compares_by_sign =
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 900
    !is_half<T>;
#else
    false;
#endif

template <typename T>
__device__ __forceinline__ unsigned bound_for_one_above(unsigned y) {
    if constexpr (compares_by_sign<T>) {
        const auto above = [](unsigned bits) {  // of a number with 16 bits
            if ((bits & 0x7fff) == 0) return 1u;                       // of 0, also of -0
            return bits & 0x8000 ? bits - 1 : min(bits + 1, 0x7f80u);  // of infinity, infinity
        };
        return above(y & 0xffff) | above(y >> 16) << 16;
    }
    return y;
}

template <typename T>
__device__ __forceinline__ unsigned packed_one_above(unsigned x, unsigned y) {
    if constexpr (is_half<T>) {
        const __half2 one = __hgtu2(reinterpret_cast<const __half2&>(x), reinterpret_cast<const __half2&>(y));
        return reinterpret_cast<const unsigned&>(one);
    } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 900
        unsigned below;  // the sign of x - y in all bits of a number
        asm("{.reg .b32 d; fma.rn.bf16x2 d, %1, %2, %3; prmt.b32 %0, d, d, 0xbb99;}"
            : "=r"(below)
            : "r"(y), "r"(0xbf80bf80u), "r"(x));  // y times -1 and x
        return ~below & 0x3f803f80u;
#else
        const __nv_bfloat162 one =
            __hgtu2(reinterpret_cast<const __nv_bfloat162&>(x), reinterpret_cast<const __nv_bfloat162&>(y));
        return reinterpret_cast<const unsigned&>(one);
#endif
    }
}

// Of two pairs of numbers, packed, the products.
template <typename T>
__device__ __forceinline__ unsigned packed_product(unsigned x, unsigned y) {
    if constexpr (is_half<T>) {
        const __half2 product = __hmul2(reinterpret_cast<const __half2&>(x), reinterpret_cast<const __half2&>(y));
        return reinterpret_cast<const unsigned&>(product);
    } else {
        const __nv_bfloat162 product =
            __hmul2(reinterpret_cast<const __nv_bfloat162&>(x), reinterpret_cast<const __nv_bfloat162&>(y));
        return reinterpret_cast<const unsigned&>(product);
    }
}

// --- tensor cores ---

// The line that calls, which the simulator compares: all lanes must execute the same instruction.
#ifdef COMPANION_SIMULATOR
#define COMPANION_CALLER , simulator::Where caller = simulator::Where::current()
#else
#define COMPANION_CALLER
#endif

// d += a b with matrices spread over a warp: a 16 × 16, b 16 × 8, d 16 × 8. Lane 4 r + c holds, two elements of T to a
// register of a and b: a[r][2c], a[r + 8][2c], a[r][2c + 8], a[r + 8][2c + 8]; b[2c][r], b[2c + 8][r]; and of d
// [r][2c], [r][2c + 1], [r + 8][2c], [r + 8][2c + 1]; a's second element is in the next column, b's in the next row.
template <typename T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2] COMPANION_CALLER) {
#if defined(COMPANION_SIMULATOR)
    simulator::mma_m16n8k16<T>(d, a, b, caller);
#elif __CUDA_ARCH__ >= 800
#define COMPANION_MMA(type)                                                                                            \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "   \
        "{%0, %1, %2, %3};"                                                                                            \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if constexpr (is_half<T>) COMPANION_MMA("f16");
    else COMPANION_MMA("bf16");
#undef COMPANION_MMA
#endif
}

// --- vectorised access ---

template <typename T>
struct alignas(pack_bytes) Pack {
    static constexpr int size = pack_bytes / sizeof(T);
    T element[size];
};

template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* address) {
    const uint4 bits = *reinterpret_cast<const uint4*>(address);
    Pack<T> pack;
    *reinterpret_cast<uint4*>(pack.element) = bits;
    return pack;
}

template <typename T>
__device__ __forceinline__ void store_pack(T* address, const Pack<T>& pack) {
    const uint4 bits = *reinterpret_cast<const uint4*>(pack.element);
#ifdef COMPANION_SIMULATOR
    *reinterpret_cast<uint4*>(address) = bits;
#else
    // NVRTC 13.2 splits an ordinary store of four floats into two of two
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(address)), "r"(bits.x),
                 "r"(bits.y), "r"(bits.z), "r"(bits.w)
                 : "memory");
#endif
}

__device__ __forceinline__ unsigned misalignment(const void* address) {
    return static_cast<unsigned>(reinterpret_cast<unsigned long long>(address) % pack_bytes);
}

// out[i] = f({in[0][i], in[1][i], ...}) for i in [0, length), by `threads` threads of which this is number `thread`.
// Packs where all pointers share an alignment; single elements before the first pack, after the last, and where
// the pointers disagree. The next pack is loaded before the present one is computed: memory and arithmetic overlap.
template <int inputs, typename T, typename F>
__device__ __forceinline__ void map_range(T* out, const T* const (&in)[inputs], int64 length, int thread, int threads,
                                          F f) {
    constexpr int size = Pack<T>::size;
    const unsigned offset = misalignment(out);
    bool packable = true;
#pragma unroll
    for (int k = 0; k < inputs; ++k) packable = packable && misalignment(in[k]) == offset;
    int64 head = packable ? (pack_bytes - offset) % pack_bytes / sizeof(T) : length;
    head = head < length ? head : length;
    const int64 packs = (length - head) / size;

    Pack<T> present[inputs], next[inputs];
    auto load = [&](Pack<T>(&pack)[inputs], int64 p) {
#pragma unroll
        for (int k = 0; k < inputs; ++k) pack[k] = load_pack(in[k] + head + p * size);
    };
    if (thread < packs) load(present, thread);
    for (int64 p = thread; p < packs; p += threads) {
        if (p + threads < packs) load(next, p + threads);
        Pack<T> result;
#pragma unroll
        for (int j = 0; j < size; ++j) {
            float x[inputs];
#pragma unroll
            for (int k = 0; k < inputs; ++k) x[k] = to_float(present[k].element[j]);
            result.element[j] = from_float<T>(f(x));
        }
        store_pack(out + head + p * size, result);
#pragma unroll
        for (int k = 0; k < inputs; ++k) present[k] = next[k];
    }

    const int64 singles = length - packs * size;
    for (int64 n = thread; n < singles; n += threads) {
        const int64 i = n < head ? n : n + packs * size;
        float x[inputs];
#pragma unroll
        for (int k = 0; k < inputs; ++k) x[k] = to_float(in[k][i]);
        out[i] = from_float<T>(f(x));
    }
}

}  // namespace companion
