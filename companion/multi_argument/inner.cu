// The shared inner network on every unit, forward and backward, in float32:
//
//     h_i = relu(sum_k v_ik x_k + a_i)        z_j = sum_i w_ji h_i + b_j        y = sum_j c_j relu(z_j) + d
//
// with n arguments x_k, 64 neurons i and 64 neurons j. Nothing but x is saved: backward computes h and z again. With
// g = dL/dy, e_j = g [z_j > 0], true at NaN, and sums over all units
//
//     delta_i = [h_i > 0] sum_j e_j c_j w_ji            dL/dx_k = sum_i delta_i v_ik
//     E_ji = sum e_j h_i     S_j = sum e_j              dL/dv_ik = sum delta_i x_k      dL/da_i = sum delta_i
//
// The other gradients follow from E and S alone, in kernel.py: dL/dw_ji = c_j E_ji, dL/db_j = c_j S_j, and because
// relu is homogeneous, dL/dc_j = sum g relu(z_j) = sum_i w_ji E_ji + b_j S_j.
//
// Cost. 64 (n + 65) multiply-adds a unit forward and about three times as many backward, for 4 (n + 1) and 4 (2 n + 1)
// bytes: arithmetic is the limit by far. Weights lie in shared memory and are read there as fours, the same for all
// units of a warp: forward, a thread has two units, so that one such access serves eight multiply-adds; backward, four
// neighbouring lanes share a unit, so that h and the sums on its way back stay in registers, and an access serves eight
// as well. In the long loop, on the neurons j, 130 of 163 and 128 of 201 instructions are multiply-adds (sm_90).
//
// Launch. Forward: 128 threads, 256 units at a time; backward: 128 threads, 32 units at a time, whose h, e and delta
// meet in shared memory, where every thread adds up its 4 × 8 of E. A block goes through the units with the stride of
// the grid and leaves its sums in `partial`, (blocks, 4096 + 64 + 64 (n + 1)): E, S, dL/dv by arguments, dL/da.
// `inner_reduce` adds them. Without `partial` there are no sums, only dL/dx. No atomics: the same input gives the same
// bits.

#include "rows.cuh"
#include "units.cuh"

namespace companion {

constexpr int inner_threads = 128;
constexpr int units_of_thread = 2;
constexpr int lanes_of_unit = 4;
constexpr int tile_units = inner_threads / lanes_of_unit;
constexpr int vector = 4;
constexpr int line = hidden + vector;  // in shared memory: neighbouring units begin in different banks

struct Parameters {
    const float *v, *a, *w, *b, *c, *d;
};

struct Network {
    float first[most_arguments + 1][hidden];  // v, by arguments, and a
    float second[hidden][hidden];
    float b[hidden], c[hidden];
};

__device__ __forceinline__ void load_network(Network& network, const Parameters& from, int arity) {
    const int thread = threadIdx.x;
    for (int n = thread; n < hidden * hidden; n += inner_threads) network.second[n / hidden][n % hidden] = from.w[n];
    for (int n = thread; n < hidden * arity; n += inner_threads) network.first[n % arity][n / arity] = from.v[n];
    if (thread < hidden) {
        network.first[arity][thread] = from.a[thread];
        network.b[thread] = from.b[thread];
        network.c[thread] = from.c[thread];
    }
    __syncthreads();
}

// --- a part of the 64 neurons: fours of them go round the lanes that share a unit ---

template <int lanes>
constexpr int held = hidden / lanes;

template <int lanes>
__device__ __forceinline__ void load_line(float (&x)[held<lanes>], const float* of_all, int place) {
#pragma unroll
    for (int q = 0; q < held<lanes>; q += vector) {
        const float4 four = *reinterpret_cast<const float4*>(of_all + q * lanes + place * vector);
        x[q] = four.x, x[q + 1] = four.y, x[q + 2] = four.z, x[q + 3] = four.w;
    }
}

template <int lanes>
__device__ __forceinline__ void store_line(float* of_all, const float (&x)[held<lanes>], int place) {
#pragma unroll
    for (int q = 0; q < held<lanes>; q += vector) {
        const float4 four = make_float4(x[q], x[q + 1], x[q + 2], x[q + 3]);
        *reinterpret_cast<float4*>(of_all + q * lanes + place * vector) = four;
    }
}

template <int count>
__device__ __forceinline__ void add_product(float (&sum)[count], float factor, const float (&x)[count]) {
#pragma unroll
    for (int m = 0; m < count; ++m) sum[m] = fmaf(factor, x[m], sum[m]);
}

// In four chains: an addition waits for the one before.
template <int count>
__device__ __forceinline__ float product(const float (&x)[count], const float (&y)[count]) {
    float sum[vector] = {};
#pragma unroll
    for (int m = 0; m < count; ++m) sum[m % vector] = fmaf(x[m], y[m], sum[m % vector]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

__device__ __forceinline__ float sum_of_unit(float x) {
    x += __shfl_xor_sync(full_warp, x, 1);
    return x + __shfl_xor_sync(full_warp, x, 2);
}

// h; a unit that does not exist has arguments 0
template <int lanes>
__device__ __forceinline__ void first_layer(float (&h)[held<lanes>], const Network& network, const float* x, int64 unit,
                                            bool exists, int arity, int64 inner, int place) {
    load_line<lanes>(h, network.first[arity], place);
    const float* const arguments = x + (exists ? first_argument(unit, arity, inner) : 0);
    for (int k = 0; k < arity; ++k) {
        float v[held<lanes>];
        load_line<lanes>(v, network.first[k], place);
        add_product(h, exists ? arguments[k * inner] : 0.0f, v);
    }
#pragma unroll
    for (int m = 0; m < held<lanes>; ++m) h[m] = at_least(h[m], 0.0f);
}

// --- forward ---

__device__ __forceinline__ void forward(const float* x, const Parameters& parameters, float* y, int64 units, int arity,
                                        int64 inner) {
    __shared__ __align__(16) Network network;
    load_network(network, parameters, arity);
    constexpr int step = inner_threads * units_of_thread;
    const float d = *parameters.d;
    for (int64 first = static_cast<int64>(blockIdx.x) * step; first < units;
         first += static_cast<int64>(gridDim.x) * step) {
        float h[units_of_thread][hidden], sum[units_of_thread];
#pragma unroll
        for (int s = 0; s < units_of_thread; ++s) {
            const int64 unit = first + s * inner_threads + threadIdx.x;
            first_layer<1>(h[s], network, x, unit, unit < units, arity, inner, 0);
            sum[s] = d;
        }
#pragma unroll 1
        for (int j = 0; j < hidden; ++j) {
            float w[hidden];
            load_line<1>(w, network.second[j], 0);
#pragma unroll
            for (int s = 0; s < units_of_thread; ++s)
                sum[s] = fmaf(network.c[j], at_least(product(h[s], w) + network.b[j], 0.0f), sum[s]);
        }
#pragma unroll
        for (int s = 0; s < units_of_thread; ++s) {
            const int64 unit = first + s * inner_threads + threadIdx.x;
            if (unit < units) y[unit] = sum[s];
        }
    }
}

// --- backward ---

struct Stage {
    float h[tile_units][line];  // and then delta
    float e[tile_units][line];
    float arguments[tile_units][most_arguments + 1];  // and 1
};

// A thread's part of the sums over units: E_ji for four j and eight i, dL/dv and dL/da for one i.
struct Sums {
    static constexpr int rows = 4, parts = 2, columns = 2 * vector;
    static constexpr int across = hidden / columns;
    static constexpr int every = inner_threads / hidden;                     // arguments of a thread: every second one
    static constexpr int arguments = (most_arguments + every) / every;

    float E[rows][columns], e[rows], first[arguments];

    static __device__ __forceinline__ int row() { return threadIdx.x / across * rows; }
    static __device__ __forceinline__ int column(int c) {
        return c / vector * (hidden / parts) + threadIdx.x % across * vector + c % vector;
    }

    __device__ __forceinline__ void add_second(const Stage& stage) {
#pragma unroll 2
        for (int u = 0; u < tile_units; ++u) {
            const float4 e_four = *reinterpret_cast<const float4*>(stage.e[u] + row());
            const float of_row[rows] = {e_four.x, e_four.y, e_four.z, e_four.w};
            float of_column[columns];
#pragma unroll
            for (int c = 0; c < columns; c += vector) {
                const float4 four = *reinterpret_cast<const float4*>(stage.h[u] + column(c));
                of_column[c] = four.x, of_column[c + 1] = four.y, of_column[c + 2] = four.z, of_column[c + 3] = four.w;
            }
#pragma unroll
            for (int r = 0; r < rows; ++r) {
                e[r] += of_row[r];
                add_product(E[r], of_row[r], of_column);
            }
        }
    }

    __device__ __forceinline__ void add_first(const Stage& stage, int arity) {
        const int i = threadIdx.x % hidden;
        for (int u = 0; u < tile_units; ++u) {
            const float delta = stage.h[u][i];
#pragma unroll
            for (int q = 0; q < arguments; ++q) {
                const int k = q * every + threadIdx.x / hidden;
                if (k <= arity) first[q] = fmaf(delta, stage.arguments[u][k], first[q]);
            }
        }
    }

    __device__ __forceinline__ void write(float* to, int arity) const {
#pragma unroll
        for (int r = 0; r < rows; ++r) {
#pragma unroll
            for (int c = 0; c < columns; ++c) to[(row() + r) * hidden + column(c)] = E[r][c];
            if (threadIdx.x % across == 0) to[hidden * hidden + row() + r] = e[r];
        }
#pragma unroll
        for (int q = 0; q < arguments; ++q) {
            const int k = q * every + threadIdx.x / hidden;
            if (k <= arity) to[hidden * (hidden + 1 + k) + threadIdx.x % hidden] = first[q];
        }
    }
};

__device__ __forceinline__ void backward(const float* g, const float* x, const Parameters& parameters, float* dx,
                                         float* partial, int64 units, int arity, int64 inner) {
    __shared__ __align__(16) Network network;
    __shared__ __align__(16) Stage stage;
    constexpr int lanes = lanes_of_unit;
    const int place = threadIdx.x % lanes, of_tile = threadIdx.x / lanes;
    load_network(network, parameters, arity);
    Sums sums = {};
    for (int64 first = static_cast<int64>(blockIdx.x) * tile_units; first < units;
         first += static_cast<int64>(gridDim.x) * tile_units) {
        const int64 unit = first + of_tile;
        const bool exists = unit < units;
        const float slope = exists ? g[unit] : 0.0f;
        const int64 at = exists ? first_argument(unit, arity, inner) : 0;
        for (int k = place; k < arity; k += lanes) stage.arguments[of_tile][k] = exists ? x[at + k * inner] : 0.0f;
        if (place == 0) stage.arguments[of_tile][arity] = 1.0f;

        float h[held<lanes>], delta[held<lanes>] = {};
        first_layer<lanes>(h, network, x, unit, exists, arity, inner, place);
        store_line<lanes>(stage.h[of_tile], h, place);
#pragma unroll 1
        for (int j = 0; j < hidden; j += lanes) {
            float mine = 0.0f;  // e of neuron j + place
#pragma unroll
            for (int r = 0; r < lanes; ++r) {
                float w[held<lanes>];
                load_line<lanes>(w, network.second[j + r], place);
                const float z = sum_of_unit(product(h, w)) + network.b[j + r];
                const float e = z <= 0.0f ? 0.0f : slope;
                if (r == place) mine = e;
                add_product(delta, e * network.c[j + r], w);
            }
            stage.e[of_tile][j + place] = mine;
        }
#pragma unroll
        for (int m = 0; m < held<lanes>; ++m) delta[m] = h[m] <= 0.0f ? 0.0f : delta[m];
        for (int k = 0; k < arity; ++k) {
            float v[held<lanes>];
            load_line<lanes>(v, network.first[k], place);
            const float sum = sum_of_unit(product(delta, v));
            if (exists && k % lanes == place) dx[at + k * inner] = sum;
        }
        if (partial == nullptr) continue;
        __syncthreads();
        sums.add_second(stage);
        __syncthreads();
        store_line<lanes>(stage.h[of_tile], delta, place);
        __syncthreads();
        sums.add_first(stage, arity);
        __syncthreads();
    }
    if (partial == nullptr) return;
    sums.write(partial + static_cast<int64>(blockIdx.x) * (hidden * (hidden + 2 + arity)), arity);
}

}  // namespace companion

// the sums over units, from what the blocks left
extern "C" __global__ void __launch_bounds__(1024)
inner_reduce(const float* partial, float* total, long long parts, long long sums) {
    companion::reduce_columns(partial, total, parts, sums);
}

extern "C" __global__ void __launch_bounds__(companion::inner_threads)
inner_forward_f32(const float* x, const float* v, const float* a, const float* w, const float* b, const float* c,
                  const float* d, float* y, long long units, int arity, long long inner) {
    companion::forward(x, {v, a, w, b, c, d}, y, units, arity, inner);
}

extern "C" __global__ void __launch_bounds__(companion::inner_threads)
inner_backward_f32(const float* g, const float* x, const float* v, const float* a, const float* w, const float* b,
                   const float* c, float* dx, float* partial, long long units, int arity, long long inner) {
    companion::backward(g, x, {v, a, w, b, c, nullptr}, dx, partial, units, arity, inner);
}
