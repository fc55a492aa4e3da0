// DAC, dense, with ReLU: f_si = sum_j w_ij relu(b_ij + z_sj) for N samples s, m inputs j and n outputs i, and its
// gradients. The sums and their cost: dac.cuh. z (N, m), weight and bias (n, m), f and g = dL/df (N, n): contiguous.
//
// Launch. One block a tile of the result; the gradients of weight and bias are sums over samples, which are cut into
// parts if their tiles alone leave multiprocessors idle: `finish` adds the parts up, in a fixed order.

#include "dac.cuh"

namespace companion {

template <typename Tile, typename T>
__device__ __forceinline__ void linear_forward(const T* z, const T* weight, const T* bias, T* f, int64 N, int n,
                                               int m) {
    const TilePlace at = tile_of_block<Tile>(N, n);
    const MatrixView<T, true> z_view(z, N, m, at.row), w_view(weight, n, m, at.column),
        b_view(bias, n, m, at.column);
    weighted_sums<Tile>(z_view, w_view, b_view, at.row, at.column, m, [&](int64 s, int64 i, float value) {
        if (s < N && i < n) f[s * n + i] = from_float<T>(value);
    });
}

template <typename Tile, typename T>
__device__ __forceinline__ void linear_input(const T* g, const T* z, const T* weight, const T* bias, T* dz, int64 N,
                                             int n, int m) {
    const TilePlace at = tile_of_block<Tile>(N, m);
    const MatrixView<T, true> g_view(g, N, n, at.row);
    const MatrixView<T, false> w_view(weight, n, m, at.column), b_view(bias, n, m, at.column);
    const auto z_at = [&](int64 s, int64 j) { return s < N && j < m ? to_float(z[s * m + j]) : 0.0f; };
    masked_sums<Tile>(g_view, w_view, b_view, z_at, at.row, at.column, n, [&](int64 s, int64 j, float value) {
        if (s < N && j < m) dz[s * m + j] = from_float<T>(value);
    });
}

// partial[part][0] = sum_M g z, partial[part][1] = sum_M g over `samples` samples, a multiple of depth_step
template <typename Tile, typename T>
__device__ __forceinline__ void linear_weight(const T* g, const T* z, const T* bias, float* partial, int64 N, int n,
                                              int m, int samples) {
    const TilePlace at = tile_of_block<Tile>(n, m);
    const int64 begin = at.rest * samples;
    const int count = N - begin < samples ? N - begin : samples;
    const MatrixView<T, false> g_view(g + begin * n, count, n, at.row), z_view(z + begin * m, count, m, at.column);
    const auto b_at = [&](int64 i, int64 j) { return i < n && j < m ? to_float(bias[i * m + j]) : 0.0f; };
    const int64 weights = static_cast<int64>(n) * m;
    float* const gz_part = partial + 2 * at.rest * weights;
    float* const g_part = gz_part + weights;
    gradient_sums<Tile>(g_view, z_view, b_at, at.row, at.column, count,
                        [&](int64 i, int64 j, float gz_sum, float g_sum) {
                            if (i >= n || j >= m) return;
                            gz_part[i * m + j] = gz_sum;
                            g_part[i * m + j] = g_sum;
                        });
}

}  // namespace companion

// Two wide blocks, or four narrow ones, on a multiprocessor: up to 128 registers a thread.
#define COMPANION_WIDTH(width, Width, suffix, T)                                                                       \
    extern "C" __global__ void __launch_bounds__(companion::width##_threads, 512 / companion::width##_threads)         \
        dac_linear_forward_##width##_##suffix(const T* z, const T* weight, const T* bias, T* f, long long N,           \
                                              int n, int m) {                                              \
        companion::linear_forward<companion::Width##Forward>(z, weight, bias, f, N, n, m);                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::width##_threads, 512 / companion::width##_threads)         \
        dac_linear_input_##width##_##suffix(const T* g, const T* z, const T* weight, const T* bias, T* dz,             \
                                            long long N, int n, int m) {                                   \
        companion::linear_input<companion::Width##Input>(g, z, weight, bias, dz, N, n, m);                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::width##_threads, 512 / companion::width##_threads)         \
        dac_linear_weight_##width##_##suffix(const T* g, const T* z, const T* bias, float* partial, long long N,       \
                                             int n, int m, int samples) {                            \
        companion::linear_weight<companion::Width##Weight>(g, z, bias, partial, N, n, m, samples);                     \
    }

#define COMPANION_KERNELS(suffix, T)                                                                                   \
    COMPANION_WIDTH(wide, Wide, suffix, T)                                                                             \
    COMPANION_WIDTH(narrow, Narrow, suffix, T)                                                                         \
    extern "C" __global__ void __launch_bounds__(companion::finish_threads) dac_linear_finish_##suffix(                \
        const float* partial, const T* weight, const T* bias, T* d_weight, T* d_bias, long long biases, int shared,    \
        int parts) {                                                                                                   \
        companion::finish_gradients(partial, weight, bias, d_weight, d_bias, biases, shared, parts);                   \
    }

COMPANION_KERNELS(f32, float)
COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
