// The shared inner network of inner.cu for elements of 16 bits, on tensor cores.
//
//     h = relu(V x + a)        z = W h + b        y = c . relu(z) + d
//     e = g [z > 0]            delta = [h > 0] (W^T diag(c)) e        dx = V^T delta
//     E = sum e h^T,  sum e,  sum delta x^T,  sum delta        over all units; kernel.py makes the gradients of them
//
// Units are rows of mma.m16n8k16, sixteen to a warp. A product leaves its rows just as the next one wants its first
// factor, so h and e go from one to the next in registers; weights are the second factors, in the order of a lane's
// registers. Where the sum is over units they have to lie along a row instead: h, e, delta and x go through shared
// memory, pairs of units (r, r + 8) in a word. Which pair is which term does not matter, as long as both factors agree.
//
// Rounding. Factors have 16 bits, sums 32. x and e are exact. V x takes V as the sum of two numbers of 16 bits: there is
// room, since eight arguments fill half of the sixteen terms. V^T, W, h, c_j w_ji and delta are rounded once. The last
// layer, relu and the slopes are float32. float16 overflows where h, delta or a weight does.
//
// Cost. A warp's 16 units take 40 mma forward, 8 for V and 32 for W, and 120 backward: 40 to compute h and z again, 32
// for delta, 4 for dx, 44 for the sums over units. W stays in registers, 64 of each lane. Beside the mma, forward has
// some 190 instructions for biases, relu, pairs and the last layer, and up to 190 that find the units (sm_90).
//
// Launch. 128 threads, 64 units at a time; a block goes through the units with the stride of the grid. From sm_80 on.

#include "units.cuh"

namespace companion {

constexpr int mma_threads = 128;
constexpr int warp_units = 16;
constexpr int tile_units = mma_threads / warp_size * warp_units;
constexpr int pairs = tile_units / 2;
constexpr int line = pairs + 4;  // of words: what a warp reads or writes at once lies in different banks
constexpr int blocks_of_8 = hidden / 8, blocks_of_16 = hidden / 16;
static_assert(mma_threads / warp_size == blocks_of_16, "the sums over units give each warp a block of 16 rows");

// --- pairs of numbers ---

template <typename T>
__device__ __forceinline__ unsigned pair_of(float low, float high) {
    if constexpr (is_half<T>) {
        const __half2 pair = __floats2half2_rn(low, high);
        return reinterpret_cast<const unsigned&>(pair);
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return reinterpret_cast<const unsigned&>(pair);
    }
}

template <typename T>
__device__ __forceinline__ float rest_of(float x) {
    return x - to_float(from_float<T>(x));
}

template <typename T>
__device__ __forceinline__ unsigned bits_of(T x) {
    return reinterpret_cast<const unsigned short&>(x);
}

// the numbers of a pair where a condition holds, and 0 elsewhere
__device__ __forceinline__ unsigned kept(unsigned pair, bool low, bool high) {
    return (low ? pair & 0xffffu : 0u) | (high ? pair & 0xffff0000u : 0u);
}

// --- 16 units of a warp: a lane has rows `group` and `group` + 8 ---

// First factor with 16 rows and 64 columns.
using Rows = unsigned[blocks_of_16][4];

struct Lane {
    int warp, lane, group, place;

    __device__ __forceinline__ Lane()
        : warp(threadIdx.x / warp_size), lane(threadIdx.x % warp_size), group(lane / 4), place(lane % 4) {}

    // number of its first unit in a tile; the second one is 8 further on
    __device__ __forceinline__ int64 unit(int64 first) const { return first + warp * warp_units + group; }
};

struct Parameters {
    const float *v, *a, *w, *b, *c, *d;
};

struct Vectors {
    uint2 v[blocks_of_8][warp_size];  // second factor: arguments × neurons, and below them what rounding took from it
    float a[hidden], b[hidden], c[hidden];
};

template <typename T>
__device__ __forceinline__ void load_vectors(Vectors& vectors, const Parameters& from, int arity) {
    for (int n = threadIdx.x; n < blocks_of_8 * warp_size; n += mma_threads) {
        const int lane = n % warp_size, i = n / warp_size * 8 + lane / 4, k = 2 * (lane % 4);
        const float low = k < arity ? from.v[i * arity + k] : 0.0f;
        const float high = k + 1 < arity ? from.v[i * arity + k + 1] : 0.0f;
        vectors.v[n / warp_size][lane] =
            make_uint2(pair_of<T>(low, high), pair_of<T>(rest_of<T>(low), rest_of<T>(high)));
    }
    if (threadIdx.x < hidden) {
        vectors.a[threadIdx.x] = from.a[threadIdx.x];
        vectors.b[threadIdx.x] = from.b[threadIdx.x];
        vectors.c[threadIdx.x] = from.c[threadIdx.x];
    }
}

// W as a second factor, neurons i × neurons j
using Second = unsigned[blocks_of_8][blocks_of_16][2];

template <typename T>
__device__ __forceinline__ void load_second(Second& second, const float* w, const Lane& of) {
#pragma unroll
    for (int block = 0; block < blocks_of_8; ++block) {
#pragma unroll
        for (int k = 0; k < blocks_of_16; ++k) {
            const float* const row = w + (block * 8 + of.group) * hidden + k * 16 + 2 * of.place;
            second[block][k][0] = pair_of<T>(row[0], row[1]);
            second[block][k][1] = pair_of<T>(row[8], row[9]);
        }
    }
}

// Two arguments of the lane's units; 0 where there are none.
template <typename T>
__device__ __forceinline__ void load_arguments(unsigned (&x_pair)[2], const T* x, int64 unit, int64 units, int arity,
                                               int64 inner, int place) {
#pragma unroll
    for (int half = 0; half < 2; ++half, unit += 8) {
        x_pair[half] = 0;
        const int k = 2 * place;
        if (unit >= units || k >= arity) continue;
        const T* const at = x + first_argument(unit, arity, inner) + k * inner;
        x_pair[half] = bits_of(at[0]) | (k + 1 < arity ? bits_of(at[inner]) << 16 : 0u);
    }
}

template <typename T>
__device__ __forceinline__ void first_layer(Rows& h, const unsigned (&x_pair)[2], const Vectors& vectors,
                                            const Lane& of) {
    const unsigned x[4] = {x_pair[0], x_pair[1], x_pair[0], x_pair[1]};  // once for V, once for its rest
#pragma unroll
    for (int block = 0; block < blocks_of_8; ++block) {
        const float2 a = *reinterpret_cast<const float2*>(vectors.a + block * 8 + 2 * of.place);
        const uint2 two = vectors.v[block][of.lane];
        const unsigned v[2] = {two.x, two.y};
        float sum[4] = {a.x, a.y, a.x, a.y};
        multiply_add<T>(sum, x, v);
#pragma unroll
        for (int half = 0; half < 2; ++half)
            h[block / 2][block % 2 * 2 + half] = packed_max<T>(pair_of<T>(sum[2 * half], sum[2 * half + 1]), 0);
    }
}

// z of 8 neurons: 2 of them in rows `group` and `group` + 8
template <typename T>
__device__ __forceinline__ void second_layer(float (&z)[4], const Rows& h, const unsigned (&w)[blocks_of_16][2],
                                             const float* b, int place) {
    const float2 two = *reinterpret_cast<const float2*>(b + 2 * place);
    z[0] = z[2] = two.x;
    z[1] = z[3] = two.y;
#pragma unroll
    for (int k = 0; k < blocks_of_16; ++k) multiply_add<T>(z, h[k], w[k]);
}

// --- forward ---

template <typename T>
__device__ __forceinline__ void forward(const T* x, const Parameters& parameters, T* y, int64 units, int arity,
                                        int64 inner) {
    __shared__ __align__(16) Vectors vectors;
    const Lane of;
    Second second;
    load_vectors<T>(vectors, parameters, arity);
    load_second<T>(second, parameters.w, of);
    const float d = *parameters.d;
    __syncthreads();
    for (int64 first = static_cast<int64>(blockIdx.x) * tile_units; first < units;
         first += static_cast<int64>(gridDim.x) * tile_units) {
        unsigned x_pair[2];
        Rows h;
        load_arguments(x_pair, x, of.unit(first), units, arity, inner, of.place);
        first_layer<T>(h, x_pair, vectors, of);
        float sum[2] = {};
#pragma unroll
        for (int block = 0; block < blocks_of_8; ++block) {
            float z[4];
            second_layer<T>(z, h, second[block], vectors.b + block * 8, of.place);
            const float2 c = *reinterpret_cast<const float2*>(vectors.c + block * 8 + 2 * of.place);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                sum[half] = fmaf(c.x, at_least(z[2 * half], 0.0f), sum[half]);
                sum[half] = fmaf(c.y, at_least(z[2 * half + 1], 0.0f), sum[half]);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            sum[half] += __shfl_xor_sync(full_warp, sum[half], 1);
            sum[half] += __shfl_xor_sync(full_warp, sum[half], 2);
            const int64 unit = of.unit(first) + 8 * half;
            if (of.place == 0 && unit < units) y[unit] = from_float<T>(sum[half] + d);
        }
    }
}

// --- backward ---

// Columns of 64 units: word r + 8 q of a row has units 16 q + r and 16 q + r + 8.
struct Stage {
    unsigned h[hidden][line], e[hidden][line], delta[hidden][line], x[most_arguments][line];
};

// Two columns of the lane's units, `upper` and `lower` of them.
__device__ __forceinline__ void stage_columns(unsigned (*to)[line], unsigned upper, unsigned lower, const Lane& of) {
    const int word = of.warp * 8 + of.group;
    to[2 * of.place][word] = __byte_perm(upper, lower, 0x5410);
    to[2 * of.place + 1][word] = __byte_perm(upper, lower, 0x7632);
}

__device__ __forceinline__ void stage_rows(unsigned (*to)[line], const Rows& rows, const Lane& of) {
#pragma unroll
    for (int k = 0; k < blocks_of_16; ++k) {
        stage_columns(to + k * 16, rows[k][0], rows[k][1], of);
        stage_columns(to + k * 16 + 8, rows[k][2], rows[k][3], of);
    }
}

// Columns from `row` on, 16 of them, as a first factor: terms are units 16 k to 16 k + 15.
__device__ __forceinline__ void load_first_factor(unsigned (&a)[4], const unsigned (*columns)[line], int row, int k,
                                                  const Lane& of) {
    const unsigned* const at = columns[row + of.group] + k * 8 + of.place;
    a[0] = at[0], a[1] = at[8 * line], a[2] = at[4], a[3] = at[8 * line + 4];
}

__device__ __forceinline__ void load_second_factor(unsigned (&b)[2], const unsigned (*columns)[line], int row, int k,
                                                   const Lane& of) {
    const unsigned* const at = columns[row + of.group] + k * 8 + of.place;
    b[0] = at[0], b[1] = at[4];
}

// A warp's part of the sums over units: 32 × 32 of E, and 16 rows of the others.
struct Sums {
    static constexpr int rows = 2, columns = 4;  // blocks of 16 and of 8

    float E[rows][columns][4], e[4], delta_x[4], delta[4];

    template <typename T>
    __device__ __forceinline__ void add(const Stage& stage, const Lane& of) {
        const unsigned ones[2] = {pair_of<T>(1.0f, 1.0f), pair_of<T>(1.0f, 1.0f)};
#pragma unroll
        for (int k = 0; k < tile_units / 16; ++k) {
            unsigned a[rows][4], b[2];
#pragma unroll
            for (int r = 0; r < rows; ++r) load_first_factor(a[r], stage.e, first_row(of) + r * 16, k, of);
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                load_second_factor(b, stage.h, first_column(of) + c * 8, k, of);
#pragma unroll
                for (int r = 0; r < rows; ++r) multiply_add<T>(E[r][c], a[r], b);
            }
            load_first_factor(a[0], stage.e, of.warp * 16, k, of);
            multiply_add<T>(e, a[0], ones);
            load_first_factor(a[0], stage.delta, of.warp * 16, k, of);
            multiply_add<T>(delta, a[0], ones);
            load_second_factor(b, stage.x, 0, k, of);
            multiply_add<T>(delta_x, a[0], b);
        }
    }

    // in the order of inner.cu
    __device__ __forceinline__ void write(float* to, int arity, const Lane& of) const {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int row = of.group + n / 2 * 8, column = 2 * of.place + n % 2;
#pragma unroll
            for (int r = 0; r < rows; ++r) {
#pragma unroll
                for (int c = 0; c < columns; ++c)
                    to[(first_row(of) + r * 16 + row) * hidden + first_column(of) + c * 8 + column] = E[r][c][n];
            }
            const int neuron = of.warp * 16 + row;
            if (column == 0) {  // all columns are the same
                to[hidden * hidden + neuron] = e[n];
                to[hidden * (hidden + 1 + arity) + neuron] = delta[n];
            }
            if (column < arity) to[hidden * (hidden + 1 + column) + neuron] = delta_x[n];
        }
    }

   private:
    static __device__ __forceinline__ int first_row(const Lane& of) { return of.warp / 2 * (rows * 16); }
    static __device__ __forceinline__ int first_column(const Lane& of) { return of.warp % 2 * (columns * 8); }
};

// Second factors on the way back: W^T diag(c), neurons j × neurons i, and V^T, neurons i × arguments.
struct Back {
    uint2 second[blocks_of_8][blocks_of_16][warp_size], first[blocks_of_16][warp_size];
};

template <typename T>
__device__ __forceinline__ void load_back(Back& back, const Parameters& from, int arity) {
    for (int n = threadIdx.x; n < blocks_of_8 * blocks_of_16 * warp_size; n += mma_threads) {
        const int lane = n % warp_size, k = n / warp_size % blocks_of_16, block = n / warp_size / blocks_of_16;
        const int i = block * 8 + lane / 4, j = k * 16 + 2 * (lane % 4);
        const auto at = [&](int row) { return from.c[row] * from.w[row * hidden + i]; };
        back.second[block][k][lane] = make_uint2(pair_of<T>(at(j), at(j + 1)), pair_of<T>(at(j + 8), at(j + 9)));
    }
    for (int n = threadIdx.x; n < blocks_of_16 * warp_size; n += mma_threads) {
        const int lane = n % warp_size, argument = lane / 4, i = n / warp_size * 16 + 2 * (lane % 4);
        const auto at = [&](int row) { return argument < arity ? from.v[row * arity + argument] : 0.0f; };
        back.first[n / warp_size][lane] = make_uint2(pair_of<T>(at(i), at(i + 1)), pair_of<T>(at(i + 8), at(i + 9)));
    }
}

template <typename T>
__device__ __forceinline__ void backward(const T* g, const T* x, const Parameters& parameters, T* dx, float* partial,
                                         int64 units, int arity, int64 inner) {
    __shared__ __align__(16) Vectors vectors;
    __shared__ __align__(16) Back back;
    __shared__ Stage stage;
    const Lane of;
    Second second;
    load_vectors<T>(vectors, parameters, arity);
    load_back<T>(back, parameters, arity);
    load_second<T>(second, parameters.w, of);
    __syncthreads();
    Sums sums = {};
    for (int64 first = static_cast<int64>(blockIdx.x) * tile_units; first < units;
         first += static_cast<int64>(gridDim.x) * tile_units) {
        unsigned x_pair[2], g_pair[2];
        Rows h, e, delta;
        load_arguments(x_pair, x, of.unit(first), units, arity, inner, of.place);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64 unit = of.unit(first) + 8 * half;
            g_pair[half] = unit < units ? bits_of(g[unit]) * 0x10001u : 0u;
        }
        stage_columns(stage.x, x_pair[0], x_pair[1], of);

        first_layer<T>(h, x_pair, vectors, of);
        stage_rows(stage.h, h, of);
#pragma unroll
        for (int block = 0; block < blocks_of_8; ++block) {
            float z[4];
            second_layer<T>(z, h, second[block], vectors.b + block * 8, of.place);
#pragma unroll
            for (int half = 0; half < 2; ++half)
                e[block / 2][block % 2 * 2 + half] =
                    kept(g_pair[half], !(z[2 * half] <= 0.0f), !(z[2 * half + 1] <= 0.0f));
        }
        stage_rows(stage.e, e, of);

#pragma unroll
        for (int block = 0; block < blocks_of_8; ++block) {
            float sum[4] = {};
#pragma unroll
            for (int k = 0; k < blocks_of_16; ++k) {
                const uint2 two = back.second[block][k][of.lane];
                const unsigned w[2] = {two.x, two.y};
                multiply_add<T>(sum, e[k], w);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int at = block % 2 * 2 + half;
                const unsigned active = h[block / 2][at];  // not below 0
                delta[block / 2][at] =
                    kept(pair_of<T>(sum[2 * half], sum[2 * half + 1]), active & 0x7fffu, active & 0x7fff0000u);
            }
        }
        stage_rows(stage.delta, delta, of);

        float sum[4] = {};
#pragma unroll
        for (int k = 0; k < blocks_of_16; ++k) {
            const uint2 two = back.first[k][of.lane];
            const unsigned v[2] = {two.x, two.y};
            multiply_add<T>(sum, delta[k], v);
        }
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int64 unit = of.unit(first) + n / 2 * 8;
            const int k = 2 * of.place + n % 2;
            if (unit < units && k < arity) dx[first_argument(unit, arity, inner) + k * inner] = from_float<T>(sum[n]);
        }
        if (partial == nullptr) continue;
        __syncthreads();
        sums.add<T>(stage, of);
        __syncthreads();
    }
    if (partial == nullptr) return;
    sums.write(partial + static_cast<int64>(blockIdx.x) * (hidden * (hidden + 2 + arity)), arity, of);
}

}  // namespace companion

#define COMPANION_KERNELS(suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(companion::mma_threads, 3) inner_mma_forward_##suffix(                \
        const T* x, const float* v, const float* a, const float* w, const float* b, const float* c, const float* d,    \
        T* y, long long units, int arity, long long inner) {                                                           \
        companion::forward<T>(x, {v, a, w, b, c, d}, y, units, arity, inner);                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::mma_threads, 2) inner_mma_backward_##suffix(               \
        const T* g, const T* x, const float* v, const float* a, const float* w, const float* b, const float* c, T* dx, \
        float* partial, long long units, int arity, long long inner) {                                                 \
        companion::backward<T>(g, x, {v, a, w, b, c, nullptr}, dx, partial, units, arity, inner);                      \
    }

COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
