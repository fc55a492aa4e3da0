// APA and AGLU, forward and backward.
//
//     apa(z)  = eta = (1 + lam e^(-kappa z))^(-1/lam)          aglu(z) = z eta
//
// With a = kappa z, E = e^(-a), t = lam E, s = 1/(1+t), q = E s, D = (ln(1+t)/lam - q)/lam:
//
//     d aglu/dz = eta (1 + a q)      d aglu/dkappa = z^2 eta q      d aglu/dlam = z eta D
//     d apa/dz  = eta kappa q        d apa/dkappa  = z eta q        d apa/dlam  = eta D
//
// eta and E are carried as squares of root_eta and root_E: products such as z^2 eta q are then right even where eta or
// E alone is too small for a float.
//
// Cost per element, f32 / 16 bit: forward reads and writes 8 / 4 bytes, backward 12 / 6. Only z is saved. Memory is the
// limit as long as the arithmetic stays below about 60 / 30 instructions forward and 90 / 47 backward, so the 16-bit
// kernels take ln(1+t) and the powers of two from the special-function unit (4 operations), and the f32 kernels from
// polynomials: near |ln eta| = 87 every relative error of E arrives in eta multiplied by 87.
//
// Launch: any number of blocks of 256 threads. "row": parameters are constant along contiguous rows (scalar parameters:
// one row); a warp takes one chunk of a row and, backward, leaves one partial sum per parameter. "column": parameters
// vary along the fastest dimension; a thread takes one pack of channels and walks down a chunk of rows. `aglu_reduce`
// adds the partial sums, one block per channel. No atomics: the same input gives the same bits.

#include "rows.cuh"

namespace companion {

constexpr float ln_2 = 0.69314718055994531f;
// log2(e)/2 as the sum of two floats
constexpr float half_log2_e = 0.721347510814666748046875f;
constexpr float half_log2_e_rest = 9.6297e-9f;

constexpr float largest = 1099511627776.0f;           // 2^40: |z| and |kappa| inside the gate
constexpr float lam_smallest = 9.094947017729282e-13f; // 2^-40: the Gumbel limit to rounding
constexpr float lam_largest = 1.152921504606847e18f;   // 2^60: the identity to rounding
constexpr float float_max = 3.402823466e38f;

// h(t) = (ln(1+t) - t/(1+t))/t^2 on [0, 0.09], least squares, relative error 7.5e-7
constexpr float series_threshold = 0.09f;
__device__ __forceinline__ float series_h(float t) {
    return fmaf(t, fmaf(t, fmaf(t, -0.66754146138f, 0.74286059114f), -0.66654086896f), 0.49999965067f);
}

__device__ __forceinline__ float finite(float x) { return at_least(at_most(x, largest), -largest); }

// What depends on the parameters alone; computed once per thread.
struct Parameters {
    float kappa, lam, log_lam, per_lam2;
    float exponent;           // times ln(1+t) it is log2 of root_eta
    float scale, scale_rest;  // their sum times z is log2 of root_E
    float largest_exponent;   // of root_E: neither E nor lam E overflows
    float lowest, highest;    // AGLU(-+inf) = -+0: the side on which the gate closes must be finite
};

__device__ __forceinline__ Parameters make_parameters(float kappa, float lam) {
    const float infinity = __int_as_float(0x7f800000), nan = __int_as_float(0x7fffffff);
    Parameters c;
    kappa = lam == infinity ? 0.0f : finite(kappa);  // the identity, at z = -+inf too
    lam = lam < 0.0f ? nan : at_least(at_most(lam, lam_largest), lam_smallest);
    c.kappa = kappa;
    c.lam = lam;
    c.log_lam = logf(lam);
    c.per_lam2 = 1.0f / (lam * lam);
    c.exponent = -0.5f * log2_e / lam;
    c.scale = -kappa * half_log2_e;
    c.scale_rest = fmaf(-kappa, half_log2_e, -c.scale) - kappa * half_log2_e_rest;
    c.largest_exponent = fminf(50.0f, 60.0f - 0.5f * log2_e * c.log_lam);
    c.lowest = kappa > 0.0f ? -float_max : -infinity;
    c.highest = kappa < 0.0f ? float_max : infinity;
    return c;
}

// The parts of one element, z finite. `Element` chooses between the accurate and the short arithmetic.
struct Curve {
    float root_E, t, log_u, root_eta;
};

template <typename Element>
__device__ __forceinline__ Curve curve(float z, const Parameters& c);

template <>
__device__ __forceinline__ Curve curve<float>(float z, const Parameters& c) {
    Curve v;
    // log2 root_E = z (scale + scale_rest), with what the product's rounding took
    const float x = z * c.scale;
    const float cut = at_least(at_most(x, c.largest_exponent), -125.0f);
    const float rest = cut == x ? fmaf(z, c.scale_rest, fmaf(z, c.scale, -x)) : 0.0f;
    v.root_E = accurate_exp2(cut, rest);
    v.t = v.root_E * v.root_E * c.lam;
    // ln(1+t), or its asymptote ln lam - kappa z where E was cut
    v.log_u = fmaxf(accurate_log1p(v.t), fmaf(-c.kappa, z, c.log_lam));
    v.root_eta = approx_exp2_ftz(v.log_u * c.exponent);
    return v;
}

// For results of 8 or 11 bits: error of ln(1+t) below 1e-5, of every power of two below 5e-7
__device__ __forceinline__ Curve short_curve(float z, const Parameters& c) {
    Curve v;
    v.root_E = approx_exp2_ftz(at_most(z * c.scale, c.largest_exponent));
    v.t = v.root_E * v.root_E * c.lam;
    const float small = v.t * fmaf(v.t, fmaf(v.t, 0.33333333f, -0.5f), 1.0f);
    const float log_u = v.t < 0.03125f ? small : ln_2 * approx_log2_ftz(1.0f + v.t);
    v.log_u = fmaxf(log_u, fmaf(-c.kappa, z, c.log_lam));
    v.root_eta = approx_exp2_ftz(v.log_u * c.exponent);
    return v;
}
template <>
__device__ __forceinline__ Curve curve<__half>(float z, const Parameters& c) { return short_curve(z, c); }
template <>
__device__ __forceinline__ Curve curve<__nv_bfloat16>(float z, const Parameters& c) { return short_curve(z, c); }

template <typename Element, bool gated>
__device__ __forceinline__ float value(float z, const Parameters& c) {
    const Curve v = curve<Element>(finite(z), c);
    if (!gated) return v.root_eta * v.root_eta;
    return fmaxf(fminf(z, c.highest), c.lowest) * v.root_eta * v.root_eta;  // NaN comes back through root_eta
}

struct Sums {
    float kappa = 0.0f, lam = 0.0f;
};

// The gradient of z; those of kappa and lam are added to the sums.
template <typename Element, bool gated>
__device__ __forceinline__ float gradient(float g, float z, const Parameters& c, Sums& sums) {
    z = finite(z);
    const Curve v = curve<Element>(z, c);
    const float s = approx_reciprocal_ftz(1.0f + v.t);
    const float E = v.root_E * v.root_E;
    const float series = E * E * series_h(v.t);  // infinite where it is not used
    const float closed = (v.log_u - v.t * s) * c.per_lam2;
    const float D = v.t < series_threshold ? series : closed;
    const float r = g * v.root_eta;
    const float D_root_eta = D * v.root_eta;
    const float z_root_E = z * v.root_E;
    if (gated) {
        const float z_root_E_s = z_root_E * s;
        sums.kappa += r * (z_root_E * z_root_E_s * v.root_eta);
        sums.lam += r * z * D_root_eta;
        return r * fmaf(c.kappa * z_root_E_s, v.root_E, 1.0f) * v.root_eta;
    }
    const float root_E_s = v.root_E * s;
    sums.kappa += r * (z_root_E * root_E_s * v.root_eta);
    sums.lam += r * D_root_eta;
    return r * (c.kappa * v.root_E * root_E_s * v.root_eta);
}

// A parameter is an array of one value per channel, or, where there is no array, a number.
__device__ __forceinline__ Parameters channel_parameters(const float* kappa, const float* lam, float kappa_number,
                                                         float lam_number, int64 channel) {
    return make_parameters(kappa ? kappa[channel] : kappa_number, lam ? lam[channel] : lam_number);
}

// --- parameters constant along contiguous rows ---

template <typename T, bool gated>
__device__ __forceinline__ void forward_row(const T* z, T* y, const float* kappa, const float* lam, float kappa_number,
                                            float lam_number, int64 rows, int64 row_length, int64 channels,
                                            int64 chunk_length, int64 chunks_per_row) {
    const int64 warp = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) / warp_size;
    if (warp >= rows * chunks_per_row) return;
    const auto chunk = chunk_at(warp, row_length, chunk_length, chunks_per_row);
    const Parameters c = channel_parameters(kappa, lam, kappa_number, lam_number, chunk.row % channels);
    const T* const in[] = {z + chunk.start};
    map_range(y + chunk.start, in, chunk.length, threadIdx.x % warp_size, warp_size,
              [&](const float(&x)[1]) { return value<T, gated>(x[0], c); });
}

template <typename T, bool gated>
__device__ __forceinline__ void backward_row(const T* g, const T* z, T* dz, float* partial_kappa, float* partial_lam,
                                             const float* kappa, const float* lam, float kappa_number, float lam_number,
                                             int64 rows, int64 row_length, int64 channels, int64 chunk_length,
                                             int64 chunks_per_row) {
    const int64 warp = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) / warp_size;
    if (warp >= rows * chunks_per_row) return;
    const auto chunk = chunk_at(warp, row_length, chunk_length, chunks_per_row);
    const Parameters c = channel_parameters(kappa, lam, kappa_number, lam_number, chunk.row % channels);
    Sums sums;
    const T* const in[] = {g + chunk.start, z + chunk.start};
    map_range(dz + chunk.start, in, chunk.length, threadIdx.x % warp_size, warp_size,
              [&](const float(&x)[2]) { return gradient<T, gated>(x[0], x[1], c, sums); });
    sums.kappa = warp_sum(sums.kappa);
    sums.lam = warp_sum(sums.lam);
    if (threadIdx.x % warp_size == 0) {
        partial_kappa[warp] = sums.kappa;
        partial_lam[warp] = sums.lam;
    }
}

// --- parameters that vary along the fastest dimension ---

template <typename T, bool gated, int width>
__device__ __forceinline__ void forward_columns(const T* z, T* y, const float* kappa, const float* lam,
                                                float kappa_number, float lam_number, int64 rows, int64 channels,
                                                int64 rows_per_chunk) {
    const int64 channel = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
    if (channel >= channels) return;
    Parameters c[width];
#pragma unroll
    for (int j = 0; j < width; ++j) c[j] = channel_parameters(kappa, lam, kappa_number, lam_number, channel + j);
    for_each_row(rows, rows_per_chunk, [&](int64 row) {
        const int64 at = row * channels + channel;
        const Columns<T, width> x = *reinterpret_cast<const Columns<T, width>*>(z + at);
        Columns<T, width> result;
#pragma unroll
        for (int j = 0; j < width; ++j) result.element[j] = from_float<T>(value<T, gated>(to_float(x.element[j]), c[j]));
        *reinterpret_cast<Columns<T, width>*>(y + at) = result;
    });
}

template <typename T, bool gated, int width>
__device__ __forceinline__ void backward_columns(const T* g, const T* z, T* dz, float* partial_kappa,
                                                 float* partial_lam, const float* kappa, const float* lam,
                                                 float kappa_number, float lam_number, int64 rows, int64 channels,
                                                 int64 rows_per_chunk) {
    const int64 channel = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
    if (channel >= channels) return;
    Parameters c[width];
    Sums sums[width];
#pragma unroll
    for (int j = 0; j < width; ++j) c[j] = channel_parameters(kappa, lam, kappa_number, lam_number, channel + j);
    for_each_row(rows, rows_per_chunk, [&](int64 row) {
        const int64 at = row * channels + channel;
        const Columns<T, width> gradient_y = *reinterpret_cast<const Columns<T, width>*>(g + at);
        const Columns<T, width> x = *reinterpret_cast<const Columns<T, width>*>(z + at);
        Columns<T, width> result;
#pragma unroll
        for (int j = 0; j < width; ++j) {
            result.element[j] = from_float<T>(
                gradient<T, gated>(to_float(gradient_y.element[j]), to_float(x.element[j]), c[j], sums[j]));
        }
        *reinterpret_cast<Columns<T, width>*>(dz + at) = result;
    });
#pragma unroll
    for (int j = 0; j < width; ++j) {
        partial_kappa[blockIdx.y * channels + channel + j] = sums[j].kappa;
        partial_lam[blockIdx.y * channels + channel + j] = sums[j].lam;
    }
}

}  // namespace companion

// Both parameters in one launch: blockIdx.y chooses.
extern "C" __global__ void __launch_bounds__(1024)
aglu_reduce(const float* partial_kappa, const float* partial_lam, float* kappa, float* lam, long long outer,
            long long channels, long long inner) {
    if (blockIdx.y == 0) companion::reduce(partial_kappa, kappa, outer, channels, inner);
    else companion::reduce(partial_lam, lam, outer, channels, inner);
}

#define COMPANION_KERNELS(name, gated, suffix, T)                                                                     \
    extern "C" __global__ void __launch_bounds__(256) name##_forward_row_##suffix(                                    \
        const T* z, T* y, const float* kappa, const float* lam, float kappa_number, float lam_number, long long rows, \
        long long row_length, long long channels, long long chunk_length, long long chunks_per_row) {                 \
        companion::forward_row<T, gated>(z, y, kappa, lam, kappa_number, lam_number, rows, row_length, channels,      \
                                         chunk_length, chunks_per_row);                                               \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) name##_backward_row_##suffix(                                   \
        const T* g, const T* z, T* dz, float* partial_kappa, float* partial_lam, const float* kappa,                  \
        const float* lam, float kappa_number, float lam_number, long long rows, long long row_length,                 \
        long long channels, long long chunk_length, long long chunks_per_row) {                                       \
        companion::backward_row<T, gated>(g, z, dz, partial_kappa, partial_lam, kappa, lam, kappa_number, lam_number, \
                                          rows, row_length, channels, chunk_length, chunks_per_row);                  \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) name##_forward_column_##suffix(                                 \
        const T* z, T* y, const float* kappa, const float* lam, float kappa_number, float lam_number, long long rows, \
        long long channels, long long rows_per_chunk, int packed) {                                                   \
        if (packed)                                                                                                   \
            companion::forward_columns<T, gated, companion::Pack<T>::size>(z, y, kappa, lam, kappa_number,            \
                                                                           lam_number, rows, channels,                \
                                                                           rows_per_chunk);                           \
        else                                                                                                          \
            companion::forward_columns<T, gated, 1>(z, y, kappa, lam, kappa_number, lam_number, rows, channels,       \
                                                    rows_per_chunk);                                                  \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) name##_backward_column_##suffix(                                \
        const T* g, const T* z, T* dz, float* partial_kappa, float* partial_lam, const float* kappa,                  \
        const float* lam, float kappa_number, float lam_number, long long rows, long long channels,                   \
        long long rows_per_chunk, int packed) {                                                                       \
        if (packed)                                                                                                   \
            companion::backward_columns<T, gated, companion::Pack<T>::size>(g, z, dz, partial_kappa, partial_lam,     \
                                                                            kappa, lam, kappa_number, lam_number,     \
                                                                            rows, channels, rows_per_chunk);          \
        else                                                                                                          \
            companion::backward_columns<T, gated, 1>(g, z, dz, partial_kappa, partial_lam, kappa, lam, kappa_number,  \
                                                     lam_number, rows, channels, rows_per_chunk);                     \
    }

#define COMPANION_DTYPES(name, gated)                    \
    COMPANION_KERNELS(name, gated, f32, float)           \
    COMPANION_KERNELS(name, gated, f16, __half)          \
    COMPANION_KERNELS(name, gated, bf16, __nv_bfloat16)

COMPANION_DTYPES(apa, false)
COMPANION_DTYPES(aglu, true)
