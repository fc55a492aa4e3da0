// LayerAct, forward and backward, on rows y_1..y_d of contiguous elements.
//
//     mu = mean of y, v = sum (y - mu)^2 / D, r = 1/sqrt(v + alpha), n = (y - mu) r          D = d, or d - 1: unbiased
//     a  = y s(n)                    s the sigmoid, or clamp(n/6 + 1/2, 0, 1): "hard"
//
// With g = dL/da and h = g y s'(n):
//
//     dL/dy = g s(n) + r (h - sum h / d - n sum (h n) / D)
//
// Statistics. A mean of 1e4 deviations leaves no digits for them in one float, so the mean is a sum of two:
// with m = (sum of y)/d and c = y - m, correction = (sum of c)/d, mean = m + correction, and
// v D = sum c^2 - (sum of c)^2/d. Little cancels there, because m is the mean already but for its rounding.
// In a constant row all c are one and the same small multiple of a power of two: their sums, correction and
// sum c^2 - sum c correction are then exact, so v = 0 and n = 0 exactly. c is scaled by 2^-8, so that the sum of up to
// 2^15 squares overflows no earlier than v does. Where v is infinite r is NaN: 0 would make of every s(n) a half. Saved
// per row: the mean's two parts and r.
//
// Cost per element, f32 / 16 bit: forward reads and writes 8 / 4 bytes, backward 12 / 6, where a row stays on the chip;
// a row that does not is read twice: 12 / 6 and 20 / 10. Memory is the limit as long as the arithmetic stays below
// about 60 / 30 instructions forward and 90 / 47 backward. So the 16-bit kernels take e^-n from the special-function
// unit, and compute it twice in the backward pass rather than hold more registers; the f32 kernels take it from a
// polynomial, once, and hold n and g s + r h in the place of y and g.
//
// Launch. "short" and "warp": a row is held in registers by a power of two of neighbouring lanes, up to 4 and 8 packs
// of 16 bytes each, and a block takes as many rows as fit: no barriers, and every lane has work. "block": a row is held
// by one block of up to 512 threads with 8 packs each; few threads with many packs make sums cheap and leave room for
// several blocks on a multiprocessor. "long": a row is cut into chunks of one block each. `statistics` holds a chunk in
// registers and leaves its mean and sum of squares, `combine_statistics` joins those of a row, `forward_long` maps the
// elements; `sums`, `combine_sums` and `backward_long` likewise. The maps begin with the chunks that were read last,
// which a cache may still have. Tensors begin on a multiple of 16 bytes, rows anywhere. No atomics: the same input
// gives the same bits.

#include "gates.cuh"
#include "rows.cuh"

namespace companion {

constexpr float deviation_scale = 0.00390625f;  // 2^-8
constexpr float deviation_unscale = 256.0f;
constexpr double variance_unscale = 65536.0;

// --- statistics ---

struct Statistics {
    float mean, mean_rest, rstd;  // the mean is mean + mean_rest
};

// r, NaN for an infinite v
__device__ __forceinline__ float rstd_of(float variance, float alpha) {
    return variance < __int_as_float(0x7f800000) ? accurate_rsqrt(variance + alpha) : __int_as_float(0x7fffffff);
}

// n = (y - mean - mean_rest) rstd
struct Normalise {
    float mean, rstd, shift;
    __device__ __forceinline__ explicit Normalise(const Statistics& of)
        : mean(of.mean), rstd(of.rstd), shift(-of.mean_rest * of.rstd) {}
    __device__ __forceinline__ float operator()(float y) const { return fmaf(y - mean, rstd, shift); }
};

// The two parts of a mean, and the sum of squared deviations from it, times 2^-16.
struct Moments {
    float mean, mean_rest, squares;
};

// Pairs first, then pairs of pairs.
template <typename T, int size>
__device__ __forceinline__ float sum_of(const T (&part)[size]) {
    float x[size];
#pragma unroll
    for (int j = 0; j < size; ++j) x[j] = to_float(part[j]);
#pragma unroll
    for (int half = size / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; ++j) x[j] += x[j + half];
    }
    return x[0];
}

// per_length is 1/length, rounded.
template <typename T, int packs, typename Group>
__device__ __forceinline__ Moments moments(Tile<T, packs>& tile, const Spread<T>& spread, Group& group, int length,
                                           float per_length) {
    // m = sum y / d
    float sum[1] = {0.0f};
    for_each_part(spread, [&](auto& y) { sum[0] += sum_of(y); }, tile);
    group.total(sum);
    const float m = __fmul_rn(sum[0], per_length);  // rounded: fused with what is added below, it would not be m there

    // c = (y - m) 2^-8, its sum and the sum of its squares
    const float scaled_m = -m * deviation_scale;
    float sums[2] = {0.0f, 0.0f};
    for_each_part(
        spread,
        [&](auto& y) {
            float c_sum = 0.0f, squares = 0.0f;
#pragma unroll
            for (int j = 0; j < size_of<decltype(y)>; ++j) {
                const float c = fmaf(to_float(y[j]), deviation_scale, scaled_m);
                c_sum += c;
                squares = fmaf(c, c, squares);
            }
            sums[0] += c_sum;
            sums[1] += squares;
        },
        tile);
    group.total(sums);

    // c's mean, correctly rounded: what the first quotient leaves is divided once more
    const float quotient = sums[0] * per_length;
    const float c_mean = fmaf(fmaf(-quotient, static_cast<float>(length), sums[0]), per_length, quotient);
    // m + correction, exactly, as the sum of two floats
    const float correction = c_mean * deviation_unscale;
    const float mean = m + correction;
    const float back = mean - m;
    const float mean_rest = (m - (mean - back)) + (correction - back);
    // sum c^2 - (sum c)^2/d
    return {mean, mean_rest, at_least(fmaf(-sums[0], c_mean, sums[1]), 0.0f)};
}

// --- the elements of a tile ---

// a = y s(n)
template <typename Scale, typename T, int packs>
__device__ __forceinline__ void activate(Tile<T, packs>& tile, const Spread<T>& spread, const Normalise& normalise) {
    for_each_part(
        spread,
        [&](auto& y) {
#pragma unroll
            for (int j = 0; j < size_of<decltype(y)>; ++j) {
                const float x = to_float(y[j]);
                y[j] = from_float<T>(x * Scale::value(normalise(x)));
            }
        },
        tile);
}

// sum h and sum h n over this thread's elements. With `keep`, y becomes n and g becomes g s + r h.
template <typename Scale, bool keep, typename T, int packs>
__device__ __forceinline__ void add_gradients(Tile<T, packs>& y_tile, Tile<T, packs>& g_tile, const Spread<T>& spread,
                                              const Normalise& normalise, float (&sums)[2]) {
    for_each_part(
        spread,
        [&](auto& y, auto& g) {
            float h_sum = 0.0f, hn_sum = 0.0f;
#pragma unroll
            for (int j = 0; j < size_of<decltype(y)>; ++j) {
                const float x = to_float(y[j]), dx = to_float(g[j]), n = normalise(x);
                float s, slope;
                Scale::value_and_slope(n, s, slope);
                const float h = dx * x * slope;
                h_sum += h;
                hn_sum = fmaf(h, n, hn_sum);
                if (keep) {
                    y[j] = from_float<T>(n);
                    g[j] = from_float<T>(fmaf(normalise.rstd, h, dx * s));
                }
            }
            sums[0] += h_sum;
            sums[1] += hn_sum;
        },
        y_tile, g_tile);
}

// g s + r h - base - n tilt, with base = r sum h / d and tilt = r sum (h n) / D
template <typename Scale>
__device__ __forceinline__ float gradient(float g, float y, const Normalise& normalise, float base, float tilt) {
    const float n = normalise(y);
    float s, slope;
    Scale::value_and_slope(n, s, slope);
    return fmaf(-n, tilt, fmaf(normalise.rstd, g * y * slope, g * s - base));
}

// --- rows on the chip ---

template <typename Scale, typename T, int packs, typename Group>
__device__ __forceinline__ void backward_tiles(Tile<T, packs>& y, Tile<T, packs>& g, const Spread<T>& spread,
                                               Group& group, const Normalise& normalise, float per_length,
                                               float per_degrees) {
    constexpr bool keep = sizeof(T) == sizeof(float);
    float sums[2] = {0.0f, 0.0f};
    add_gradients<Scale, keep>(y, g, spread, normalise, sums);
    group.total(sums);
    const float base = normalise.rstd * (sums[0] * per_length);
    const float tilt = normalise.rstd * (sums[1] * per_degrees);
    for_each_part(
        spread,
        [&](auto& other, auto& result) {
#pragma unroll
            for (int j = 0; j < size_of<decltype(other)>; ++j) {
                const float x = to_float(other[j]), dx = to_float(result[j]);
                const float dy = keep ? fmaf(-x, tilt, dx - base) : gradient<Scale>(dx, x, normalise, base, tilt);
                result[j] = from_float<T>(dy);
            }
        },
        y, g);
}

// The sizes of a launch. A row that does not exist has no length, and its threads take part in the sums.
struct Shape {
    int64 rows;
    int length;
    float per_length, per_degrees;  // 1/d, 1/D

    __device__ __forceinline__ bool has(int64 row) const { return row < rows; }
};

template <typename T, int packs, typename Group>
__device__ __forceinline__ void forward_row(const T* y, T* a, float* statistics, int64 row, const Shape& shape,
                                            Group group, float alpha, bool hard) {
    const bool exists = shape.has(row);
    const int64 start = exists ? row * shape.length : 0;
    const Spread<T> spread(y + start, exists ? shape.length : 0, group.thread, group.threads);
    Tile<T, packs> tile;
    load_tile(tile, y + start, spread);
    const Moments of = moments(tile, spread, group, shape.length, shape.per_length);
    const float variance = of.squares * (static_cast<float>(variance_unscale) * shape.per_degrees);
    const Statistics result = {of.mean, of.mean_rest, rstd_of(variance, alpha)};
    const Normalise normalise(result);
    if (hard) activate<HardSigmoid>(tile, spread, normalise);
    else activate<Sigmoid<T>>(tile, spread, normalise);
    store_tile(a + start, tile, spread);
    if (exists && group.thread == 0) {
        statistics[row] = result.mean;
        statistics[shape.rows + row] = result.mean_rest;
        statistics[2 * shape.rows + row] = result.rstd;
    }
}

__device__ __forceinline__ Statistics read_statistics(const float* statistics, int64 row, int64 rows) {
    return {statistics[row], statistics[rows + row], statistics[2 * rows + row]};
}

template <typename T, int packs, typename Group>
__device__ __forceinline__ void backward_row(const T* g, const T* y, T* dy, const float* statistics, int64 row,
                                             const Shape& shape, Group group, bool hard) {
    const bool exists = shape.has(row);
    const int64 start = exists ? row * shape.length : 0;
    const Spread<T> spread(y + start, exists ? shape.length : 0, group.thread, group.threads);
    Tile<T, packs> y_tile, g_tile;
    load_tile(y_tile, y + start, spread);
    load_tile(g_tile, g + start, spread);
    const Normalise normalise(read_statistics(statistics, exists ? row : 0, shape.rows));
    if (hard) {
        backward_tiles<HardSigmoid>(y_tile, g_tile, spread, group, normalise, shape.per_length, shape.per_degrees);
    } else {
        backward_tiles<Sigmoid<T>>(y_tile, g_tile, spread, group, normalise, shape.per_length, shape.per_degrees);
    }
    store_tile(dy + start, g_tile, spread);
}

// --- rows cut into chunks, one to a block ---

// partial: mean, its rest and the scaled sum of squares of every chunk
template <typename T>
__device__ __forceinline__ void chunk_statistics(const T* y, float* partial, int64 row_length, int chunk_length,
                                                 int64 chunks_per_row) {
    __shared__ float scratch[3][warp_size];
    const auto chunk = chunk_at(blockIdx.x, row_length, chunk_length, chunks_per_row);
    BlockGroup group = whole_block(scratch);
    const Spread<T> spread(y + chunk.start, chunk.length, group.thread, group.threads);
    Tile<T, most_packs> tile;
    load_tile(tile, y + chunk.start, spread);
    const Moments of = moments(tile, spread, group, chunk.length, 1.0f / static_cast<float>(chunk.length));
    if (group.thread == 0) {
        partial[blockIdx.x] = of.mean;
        partial[gridDim.x + blockIdx.x] = of.mean_rest;
        partial[2 * static_cast<int64>(gridDim.x) + blockIdx.x] = of.squares;
    }
}

// Chan's formula in double, for all chunks of a row at once. With b = a chunk's mean - the first chunk's mean:
//     mean = first + sum (k b)/d        v D = sum squares + sum (k b^2) - (sum (k b))^2/d        k a chunk's length
__device__ __forceinline__ void combine_statistics(const float* partial, float* statistics, int64 row_length,
                                                   int chunk_length, int64 chunks_per_row, double degrees,
                                                   double alpha) {
    __shared__ double scratch[warp_size];
    const int64 rows = gridDim.x, chunks = rows * chunks_per_row;
    const float* const mean = partial + blockIdx.x * chunks_per_row;
    const double first = static_cast<double>(mean[0]) + mean[chunks];
    double sum = 0.0, squares = 0.0;
    for (int64 i = threadIdx.x; i < chunks_per_row; i += blockDim.x) {
        const int64 rest = row_length - i * chunk_length;
        const double k = static_cast<double>(rest < chunk_length ? rest : chunk_length);
        const double b = static_cast<double>(mean[i]) + mean[chunks + i] - first;
        sum += k * b;
        squares += variance_unscale * mean[2 * chunks + i] + k * b * b;
    }
    sum = block_sum(sum, scratch);
    squares = block_sum(squares, scratch);
    if (threadIdx.x == 0) {
        const double shift = sum / static_cast<double>(row_length), exact = first + shift;
        const double deviation = squares - sum * shift;
        const double variance = (deviation < 0.0 ? 0.0 : deviation) / degrees;
        const float high = static_cast<float>(exact);
        statistics[blockIdx.x] = high;
        statistics[rows + blockIdx.x] = static_cast<float>(exact - high);
        const double rstd = 1.0 / sqrt(variance + alpha);  // 0 for an infinite variance
        statistics[2 * rows + blockIdx.x] = rstd > 0.0 ? static_cast<float>(rstd) : __int_as_float(0x7fffffff);
    }
}

// partial: sum h and sum h n of every chunk
template <typename T>
__device__ __forceinline__ void chunk_sums(const T* g, const T* y, const float* statistics, float* partial, int64 rows,
                                           int64 row_length, int chunk_length, int64 chunks_per_row, bool hard) {
    __shared__ float scratch[2][warp_size];
    const auto chunk = chunk_at(blockIdx.x, row_length, chunk_length, chunks_per_row);
    BlockGroup group = whole_block(scratch);
    const Spread<T> spread(y + chunk.start, chunk.length, group.thread, group.threads);
    Tile<T, most_packs> y_tile, g_tile;
    load_tile(y_tile, y + chunk.start, spread);
    load_tile(g_tile, g + chunk.start, spread);
    const Normalise normalise(read_statistics(statistics, chunk.row, rows));
    float sums[2] = {0.0f, 0.0f};
    if (hard) add_gradients<HardSigmoid, false>(y_tile, g_tile, spread, normalise, sums);
    else add_gradients<Sigmoid<T>, false>(y_tile, g_tile, spread, normalise, sums);
    group.total(sums);
    if (group.thread == 0) {
        partial[blockIdx.x] = sums[0];
        partial[gridDim.x + blockIdx.x] = sums[1];
    }
}

// total: r sum h / d and r sum (h n) / D of every row
__device__ __forceinline__ void combine_sums(const float* partial, const float* statistics, float* total,
                                             int64 chunks_per_row, double length, double degrees) {
    __shared__ double scratch[warp_size];
    const int64 rows = gridDim.x;
    const float* const h = partial + blockIdx.x * chunks_per_row;
    double sum_h = 0.0, sum_hn = 0.0;
    for (int64 i = threadIdx.x; i < chunks_per_row; i += blockDim.x) {
        sum_h += h[i];
        sum_hn += h[rows * chunks_per_row + i];
    }
    sum_h = block_sum(sum_h, scratch);
    sum_hn = block_sum(sum_hn, scratch);
    if (threadIdx.x == 0) {
        const double rstd = statistics[2 * rows + blockIdx.x];
        total[blockIdx.x] = static_cast<float>(rstd * (sum_h / length));
        total[rows + blockIdx.x] = static_cast<float>(rstd * (sum_hn / degrees));
    }
}

// The chunk that a block of a map takes: the last ones first.
__device__ __forceinline__ Chunk<int> chunk_of_map(int64 row_length, int chunk_length, int64 chunks_per_row) {
    return chunk_at(gridDim.x - 1 - blockIdx.x, row_length, chunk_length, chunks_per_row);
}

template <typename T>
__device__ __forceinline__ void forward_chunk(const T* y, T* a, const float* statistics, int64 rows, int64 row_length,
                                              int chunk_length, int64 chunks_per_row, bool hard) {
    const auto chunk = chunk_of_map(row_length, chunk_length, chunks_per_row);
    const Normalise normalise(read_statistics(statistics, chunk.row, rows));
    const T* const in[] = {y + chunk.start};
    const auto map = [&](auto f) { map_range(a + chunk.start, in, chunk.length, threadIdx.x, blockDim.x, f); };
    if (hard) map([&](const float(&x)[1]) { return x[0] * HardSigmoid::value(normalise(x[0])); });
    else map([&](const float(&x)[1]) { return x[0] * Sigmoid<T>::value(normalise(x[0])); });
}

template <typename T>
__device__ __forceinline__ void backward_chunk(const T* g, const T* y, T* dy, const float* statistics,
                                               const float* total, int64 rows, int64 row_length, int chunk_length,
                                               int64 chunks_per_row, bool hard) {
    const auto chunk = chunk_of_map(row_length, chunk_length, chunks_per_row);
    const Normalise normalise(read_statistics(statistics, chunk.row, rows));
    const float base = total[chunk.row], tilt = total[rows + chunk.row];
    const T* const in[] = {g + chunk.start, y + chunk.start};
    const auto map = [&](auto f) { map_range(dy + chunk.start, in, chunk.length, threadIdx.x, blockDim.x, f); };
    if (hard) map([&](const float(&x)[2]) { return gradient<HardSigmoid>(x[0], x[1], normalise, base, tilt); });
    else map([&](const float(&x)[2]) { return gradient<Sigmoid<T>>(x[0], x[1], normalise, base, tilt); });
}

}  // namespace companion

extern "C" __global__ void __launch_bounds__(companion::long_threads)
layeract_combine_statistics(const float* partial, float* statistics, long long row_length, int chunk_length,
                            long long chunks_per_row, double degrees, double alpha) {
    companion::combine_statistics(partial, statistics, row_length, chunk_length, chunks_per_row, degrees, alpha);
}

extern "C" __global__ void __launch_bounds__(companion::long_threads)
layeract_combine_sums(const float* partial, const float* statistics, float* total, long long chunks_per_row,
                      double length, double degrees) {
    companion::combine_sums(partial, statistics, total, chunks_per_row, length, degrees);
}

// Rows on the chip, several to a block.
#define COMPANION_LANES(layout, packs, suffix, T)                                                                      \
    extern "C" __global__ void __launch_bounds__(companion::warp_threads) layeract_forward_##layout##_##suffix(        \
        const T* y, T* a, float* statistics, long long rows, int length, float per_length, float per_degrees,          \
        int lanes, float alpha, int hard) {                                                                \
        companion::forward_row<T, companion::packs>(y, a, statistics, companion::row_of_lane(lanes),                   \
                                                    {rows, length, per_length, per_degrees},                           \
                                                    companion::lane_group(lanes), alpha, hard);                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::warp_threads) layeract_backward_##layout##_##suffix(       \
        const T* g, const T* y, T* dy, const float* statistics, long long rows, int length, float per_length,          \
        float per_degrees, int lanes, int hard) {                                                          \
        companion::backward_row<T, companion::packs>(g, y, dy, statistics, companion::row_of_lane(lanes),              \
                                                     {rows, length, per_length, per_degrees},                          \
                                                     companion::lane_group(lanes), hard);                      \
    }

#define COMPANION_KERNELS(suffix, T)                                                                                   \
    COMPANION_LANES(short, short_packs, suffix, T)                                                                     \
    COMPANION_LANES(warp, most_packs, suffix, T)                                                                       \
    extern "C" __global__ void __launch_bounds__(companion::block_threads) layeract_forward_block_##suffix(            \
        const T* y, T* a, float* statistics, long long rows, int length, float per_length, float per_degrees,          \
        float alpha, int hard) {                                                                           \
        __shared__ float scratch[3][companion::warp_size];                                                             \
        companion::forward_row<T, companion::most_packs>(y, a, statistics, blockIdx.x,                                 \
                                                         {rows, length, per_length, per_degrees},                      \
                                                         companion::whole_block(scratch), alpha, hard);        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::block_threads) layeract_backward_block_##suffix(           \
        const T* g, const T* y, T* dy, const float* statistics, long long rows, int length, float per_length,          \
        float per_degrees, int hard) {                                                                     \
        __shared__ float scratch[2][companion::warp_size];                                                             \
        companion::backward_row<T, companion::most_packs>(g, y, dy, statistics, blockIdx.x,                            \
                                                          {rows, length, per_length, per_degrees},                     \
                                                          companion::whole_block(scratch), hard);              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::long_threads) layeract_statistics_##suffix(                \
        const T* y, float* partial, long long row_length, int chunk_length, long long chunks_per_row) {                \
        companion::chunk_statistics(y, partial, row_length, chunk_length, chunks_per_row);                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::long_threads) layeract_forward_long_##suffix(              \
        const T* y, T* a, const float* statistics, long long rows, long long row_length, int chunk_length,             \
        long long chunks_per_row, int hard) {                                                                          \
        companion::forward_chunk(y, a, statistics, rows, row_length, chunk_length, chunks_per_row, hard);              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::long_threads) layeract_sums_##suffix(                      \
        const T* g, const T* y, const float* statistics, float* partial, long long rows, long long row_length,         \
        int chunk_length, long long chunks_per_row, int hard) {                                            \
        companion::chunk_sums(g, y, statistics, partial, rows, row_length, chunk_length, chunks_per_row,       \
                              hard);                                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::long_threads) layeract_backward_long_##suffix(             \
        const T* g, const T* y, T* dy, const float* statistics, const float* total, long long rows,                    \
        long long row_length, int chunk_length, long long chunks_per_row, int hard) {                                  \
        companion::backward_chunk(g, y, dy, statistics, total, rows, row_length, chunk_length, chunks_per_row, hard);  \
    }

COMPANION_KERNELS(f32, float)
COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
