// The quadratic form of two arguments, and its derivatives:
//
//     y = c_1 x_1^2 + c_2 x_2^2 + c_3 x_1 x_2 + c_4 x_1 + c_5 x_2 + c_6
//     dL/dx_1 = g (2 c_1 x_1 + c_3 x_2 + c_4)          dL/dx_2 = g (2 c_2 x_2 + c_3 x_1 + c_5)
//     dL/dc = sum over all units of g (x_1^2, x_2^2, x_1 x_2, x_1, x_2, 1)
//
// Cost. Forward reads and writes 12 / 6 bytes a unit (f32 / 16 bit) for 5 multiply-adds, backward 20 / 10 bytes for
// some 16 operations: memory is the limit.
//
// Launch. A thread takes as many neighbouring units as a pack has elements, their arguments in two packs: one of each
// argument in maps, or else pairs of arguments in turn. Where packs do not fit it takes one unit. Backward goes through
// the units with the stride of the grid, and a block leaves six sums; `quadratic_reduce` adds them in double. No
// atomics: the same input gives the same bits.

#include "rows.cuh"
#include "units.cuh"

namespace companion {

constexpr int coefficients = 6;

template <typename T, int width>
struct Arguments {
    Columns<T, width> first, second;
};

template <typename T, int width>
__device__ __forceinline__ Arguments<T, width> load_arguments(const T* x, int64 unit, int64 inner) {
    Arguments<T, width> of;
    const T* const at = x + first_argument(unit, 2, inner);
    of.first = *reinterpret_cast<const Columns<T, width>*>(at);
    of.second = *reinterpret_cast<const Columns<T, width>*>(at + (inner == 1 ? width : inner));
    if (width == 1 || inner > 1) return of;
    const Arguments<T, width> pairs = of;
    constexpr int half = (width + 1) / 2;
#pragma unroll
    for (int n = 0; n < width; ++n) {
        const Columns<T, width>& from = n < half ? pairs.first : pairs.second;
        of.first.element[n] = from.element[2 * n % width];
        of.second.element[n] = from.element[(2 * n + 1) % width];
    }
    return of;
}

template <typename T, int width>
__device__ __forceinline__ void store_arguments(T* x, const Arguments<T, width>& of, int64 unit, int64 inner) {
    Arguments<T, width> pairs = of;
    if (width > 1 && inner == 1) {
        constexpr int half = (width + 1) / 2;
#pragma unroll
        for (int n = 0; n < width; ++n) {
            Columns<T, width>& to = n < half ? pairs.first : pairs.second;
            to.element[2 * n % width] = of.first.element[n];
            to.element[(2 * n + 1) % width] = of.second.element[n];
        }
    }
    T* const at = x + first_argument(unit, 2, inner);
    *reinterpret_cast<Columns<T, width>*>(at) = pairs.first;
    *reinterpret_cast<Columns<T, width>*>(at + (inner == 1 ? width : inner)) = pairs.second;
}

template <typename T, int width>
__device__ __forceinline__ void forward(const T* x, const float* c, T* y, int64 units, int64 inner) {
    const int64 unit = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
    if (unit >= units) return;
    const Arguments<T, width> of = load_arguments<T, width>(x, unit, inner);
    Columns<T, width> result;
#pragma unroll
    for (int n = 0; n < width; ++n) {
        const float x_1 = to_float(of.first.element[n]), x_2 = to_float(of.second.element[n]);
        const float with_first = fmaf(c[0], x_1, fmaf(c[2], x_2, c[3]));
        result.element[n] = from_float<T>(fmaf(x_1, with_first, fmaf(x_2, fmaf(c[1], x_2, c[4]), c[5])));
    }
    *reinterpret_cast<Columns<T, width>*>(y + unit) = result;
}

template <typename T, int width>
__device__ __forceinline__ void backward(const T* g, const T* x, const float* c, T* dx, float* partial, int64 units,
                                         int64 inner) {
    __shared__ float scratch[coefficients][warp_size];
    float sum[coefficients] = {};
    const int64 step = static_cast<int64>(gridDim.x) * blockDim.x * width;
    for (int64 unit = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) * width; unit < units; unit += step) {
        const Arguments<T, width> of = load_arguments<T, width>(x, unit, inner);
        const auto slopes = *reinterpret_cast<const Columns<T, width>*>(g + unit);
        Arguments<T, width> result;
#pragma unroll
        for (int n = 0; n < width; ++n) {
            const float x_1 = to_float(of.first.element[n]), x_2 = to_float(of.second.element[n]);
            const float slope = to_float(slopes.element[n]);
            result.first.element[n] = from_float<T>(slope * fmaf(2.0f * c[0], x_1, fmaf(c[2], x_2, c[3])));
            result.second.element[n] = from_float<T>(slope * fmaf(2.0f * c[1], x_2, fmaf(c[2], x_1, c[4])));
            const float of_first = slope * x_1, of_second = slope * x_2;
            sum[0] = fmaf(of_first, x_1, sum[0]);
            sum[1] = fmaf(of_second, x_2, sum[1]);
            sum[2] = fmaf(of_first, x_2, sum[2]);
            sum[3] += of_first;
            sum[4] += of_second;
            sum[5] += slope;
        }
        store_arguments<T, width>(dx, result, unit, inner);
    }
    whole_block(scratch).total(sum);
    if (threadIdx.x == 0) {
#pragma unroll
        for (int n = 0; n < coefficients; ++n) partial[static_cast<int64>(blockIdx.x) * coefficients + n] = sum[n];
    }
}

}  // namespace companion

extern "C" __global__ void __launch_bounds__(1024)
quadratic_reduce(const float* partial, float* total, long long parts, long long sums) {
    companion::reduce_columns(partial, total, parts, sums);
}

#define COMPANION_KERNELS(suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) quadratic_forward_##suffix(                                      \
        const T* x, const float* c, T* y, long long units, long long inner, int packed) {                              \
        if (packed) companion::forward<T, companion::Pack<T>::size>(x, c, y, units, inner);                            \
        else companion::forward<T, 1>(x, c, y, units, inner);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) quadratic_backward_##suffix(                                     \
        const T* g, const T* x, const float* c, T* dx, float* partial, long long units, long long inner, int packed) { \
        if (packed) companion::backward<T, companion::Pack<T>::size>(g, x, c, dx, partial, units, inner);              \
        else companion::backward<T, 1>(g, x, c, dx, partial, units, inner);                                            \
    }

COMPANION_KERNELS(f32, float)
COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
