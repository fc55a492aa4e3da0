// RAA, forward and backward: every element times a gate whose threshold depends on the whole vector.
//
//     u_j = x_j + c,   c = sum_k w_k x_k + b          y_j = x_j s(u_j)          s: Phi, the sigmoid, or [u > 0]
//
// With g = dL/dy, h_j = g_j x_j s'(u_j) and H = sum_j h_j:
//
//     dL/dx_j = g_j s(u_j) + h_j + w_j H          dL/dw_j = sum over vectors of x_j H          dL/db = sum over vectors of H
//
// A sum along every vector, and one across all of them. c is the only number that is saved, H the only one that a
// backward pass leaves between its launches.
//
// Rows: the vectors are contiguous. "short", "warp", "block": a row stays in registers, so forward reads and writes
// 8 / 4 bytes an element (f32 / 16 bit) and backward 12 / 6; "long": in chunks, read twice. `raa_columns` then reads x
// once more, 4 / 2 bytes, and walks down the columns for dL/dw and dL/db.
//
// Maps: the elements of a vector lie a map apart (channels of images). A block takes 32 packs of neighbouring vectors;
// its warps share the channels, add their sums in shared memory, and read the elements again from the cache.
// dL/dw comes from the same pass: a partial sum for each block and channel.
//
// Memory is the limit as long as the arithmetic stays below about 60 / 30 instructions an element forward and 90 / 47
// backward. Phi and phi share one exponential. No atomics: the same input gives the same bits.

#include "gates.cuh"
#include "rows.cuh"

namespace companion {

constexpr int map_warps = 8;

// f(a gate of the number `gate`)
template <typename T, typename F>
__device__ __forceinline__ void with_gate(int gate, F f) {
    if (gate == 0) f(Normal<T>());
    else if (gate == 1) f(Sigmoid<T>());
    else f(Step());
}

// `size` weights from w[at] on; in packs where the elements that they belong to are.
template <int size>
__device__ __forceinline__ void load_weights(float (&weight)[size], const float* w, int at, bool packed) {
    if constexpr (size % 4 == 0) {
        if (packed) {
#pragma unroll
            for (int j = 0; j < size; j += 4) {
                const float4 four = *reinterpret_cast<const float4*>(w + at + j);
                weight[j] = four.x;
                weight[j + 1] = four.y;
                weight[j + 2] = four.z;
                weight[j + 3] = four.w;
            }
            return;
        }
    }
#pragma unroll
    for (int j = 0; j < size; ++j) weight[j] = w[at + j];
}

// --- rows ---

// sum w x over this thread's elements
template <typename T, int packs>
__device__ __forceinline__ float weighted_sum(Tile<T, packs>& tile, const Spread<T>& spread, const float* w) {
    float sum = 0.0f;
    for_each_part_at(
        spread,
        [&](int at, auto& x) {
            constexpr int size = size_of<decltype(x)>;
            float weight[size], part = 0.0f;
            load_weights(weight, w, at, spread.head == 0);
#pragma unroll
            for (int j = 0; j < size; ++j) part = fmaf(weight[j], to_float(x[j]), part);
            sum += part;
        },
        tile);
    return sum;
}

template <typename T, int packs>
__device__ __forceinline__ void activate(Tile<T, packs>& tile, const Spread<T>& spread, float c, int gate) {
    with_gate<T>(gate, [&](auto s) {
        for_each_part(
            spread,
            [&](auto& x) {
#pragma unroll
                for (int j = 0; j < size_of<decltype(x)>; ++j) {
                    const float value = to_float(x[j]);
                    x[j] = from_float<T>(value * s.value(value + c));
                }
            },
            tile);
    });
}

// g s + h, and h
template <typename Gate>
__device__ __forceinline__ float direct(float g, float x, float c, float& h) {
    float s, slope;
    Gate::value_and_slope(x + c, s, slope);
    h = g * x * slope;
    return fmaf(g, s, h);
}

// sum h over this thread's elements. Of float, g becomes g s + h: 16 bits could not hold it.
template <typename T, int packs>
__device__ __forceinline__ float slope_sum(Tile<T, packs>& x_tile, Tile<T, packs>& g_tile, const Spread<T>& spread,
                                           float c, int gate) {
    float sum = 0.0f;
    with_gate<T>(gate, [&](auto s) {
        for_each_part(
            spread,
            [&](auto& x, auto& g) {
                float part = 0.0f;
#pragma unroll
                for (int j = 0; j < size_of<decltype(x)>; ++j) {
                    float h;
                    const float kept = direct<decltype(s)>(to_float(g[j]), to_float(x[j]), c, h);
                    part += h;
                    if constexpr (sizeof(T) == sizeof(float)) g[j] = kept;
                }
                sum += part;
            },
            x_tile, g_tile);
    });
    return sum;
}

// g becomes dL/dx, after slope_sum
template <typename T, int packs>
__device__ __forceinline__ void differentiate(Tile<T, packs>& x_tile, Tile<T, packs>& g_tile, const Spread<T>& spread,
                                              const float* w, float c, float H, int gate) {
    const auto finish = [&](auto kept) {
        for_each_part_at(
            spread,
            [&](int at, auto& x, auto& g) {
                constexpr int size = size_of<decltype(x)>;
                float weight[size];
                load_weights(weight, w, at, spread.head == 0);
#pragma unroll
                for (int j = 0; j < size; ++j) {
                    g[j] = from_float<T>(fmaf(weight[j], H, kept(to_float(g[j]), to_float(x[j]))));
                }
            },
            x_tile, g_tile);
    };
    if constexpr (sizeof(T) == sizeof(float)) {
        finish([](float g, float) { return g; });
    } else {
        with_gate<T>(gate, [&](auto s) {
            finish([&](float g, float x) {
                float h;
                return direct<decltype(s)>(g, x, c, h);
            });
        });
    }
}

// A row that does not exist has no length, and its threads take part in the
// sums.
template <typename T, int packs, typename Group>
__device__ __forceinline__ void forward_row(
    const T* x, const float* w, const float* b, T* y, float* offset,
    int64 row, int64 rows, int length, Group group, int gate) {
    const bool exists = row < rows;
    const int64 start = exists ? row * length : 0;
    const Spread<T> spread(
        x + start, exists ? length : 0, group.thread, group.threads);
    Tile<T, packs> tile;
    load_tile(tile, x + start, spread);
    float sum[1] = {weighted_sum(tile, spread, w)};
    group.total(sum);
    const float c = sum[0] + *b;
    activate(tile, spread, c, gate);
    store_tile(y + start, tile, spread);
    if (exists && group.thread == 0) offset[row] = c;
}

template <typename T, int packs, typename Group>
__device__ __forceinline__ void backward_row(
    const T* g, const T* x, const float* w, const float* offset, T* dx,
    float* slopes, int64 row, int64 rows, int length, Group group, int gate) {
    const bool exists = row < rows;
    const int64 start = exists ? row * length : 0;
    const Spread<T> spread(
        x + start, exists ? length : 0, group.thread, group.threads);
    Tile<T, packs> x_tile, g_tile;
    load_tile(x_tile, x + start, spread);
    load_tile(g_tile, g + start, spread);
    const float c = offset[exists ? row : 0];
    float sum[1] = {slope_sum(x_tile, g_tile, spread, c, gate)};
    group.total(sum);
    differentiate(x_tile, g_tile, spread, w, c, sum[0], gate);
    store_tile(dx + start, g_tile, spread);
    if (exists && group.thread == 0) slopes[row] = sum[0];
}

// --- rows cut into chunks, one to a block ---

// partial: sum w x of every chunk
template <typename T>
__device__ __forceinline__ void chunk_offsets(const T* x, const float* w, float* partial, int64 row_length,
                                              int chunk_length, int64 chunks_per_row) {
    __shared__ float scratch[1][warp_size];
    const auto chunk = chunk_at(blockIdx.x, row_length, chunk_length, chunks_per_row);
    BlockGroup group = whole_block(scratch);
    const Spread<T> spread(x + chunk.start, chunk.length, group.thread, group.threads);
    Tile<T, most_packs> tile;
    load_tile(tile, x + chunk.start, spread);
    const float* const weights = w + (chunk.start - chunk.row * row_length);
    float sum[1] = {0.0f};
    for_each_part_at(
        spread,
        [&](int at, auto& x) {
#pragma unroll
            for (int j = 0; j < size_of<decltype(x)>; ++j) sum[0] = fmaf(weights[at + j], to_float(x[j]), sum[0]);
        },
        tile);
    group.total(sum);
    if (group.thread == 0) partial[blockIdx.x] = sum[0];
}

// partial: sum h of every chunk
template <typename T>
__device__ __forceinline__ void chunk_slopes(const T* g, const T* x, const float* offset, float* partial,
                                             int64 row_length, int chunk_length, int64 chunks_per_row, int gate) {
    __shared__ float scratch[1][warp_size];
    const auto chunk = chunk_at(blockIdx.x, row_length, chunk_length, chunks_per_row);
    BlockGroup group = whole_block(scratch);
    const Spread<T> spread(x + chunk.start, chunk.length, group.thread, group.threads);
    Tile<T, most_packs> x_tile, g_tile;
    load_tile(x_tile, x + chunk.start, spread);
    load_tile(g_tile, g + chunk.start, spread);
    float sum[1] = {slope_sum(x_tile, g_tile, spread, offset[chunk.row], gate)};
    group.total(sum);
    if (group.thread == 0) partial[blockIdx.x] = sum[0];
}

// The sum of every row's chunks, one block a row; with b added, if there is one.
__device__ __forceinline__ void join_chunks(const float* partial, const float* b, float* total, int64 chunks_per_row) {
    __shared__ double scratch[warp_size];
    double sum = 0.0;
    for (int64 i = threadIdx.x; i < chunks_per_row; i += blockDim.x) sum += partial[blockIdx.x * chunks_per_row + i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) total[blockIdx.x] = static_cast<float>(b ? sum + *b : sum);
}

template <typename T>
__device__ __forceinline__ void forward_chunk(const T* x, const float* offset, T* y, int64 row_length,
                                              int chunk_length, int64 chunks_per_row, int gate) {
    const auto chunk = chunk_at(gridDim.x - 1 - blockIdx.x, row_length, chunk_length, chunks_per_row);
    const Spread<T> spread(x + chunk.start, chunk.length, threadIdx.x, blockDim.x);
    Tile<T, most_packs> tile;
    load_tile(tile, x + chunk.start, spread);
    activate(tile, spread, offset[chunk.row], gate);
    store_tile(y + chunk.start, tile, spread);
}

template <typename T>
__device__ __forceinline__ void backward_chunk(const T* g, const T* x, const float* w, const float* offset,
                                               const float* slopes, T* dx, int64 row_length, int chunk_length,
                                               int64 chunks_per_row, int gate) {
    const auto chunk = chunk_at(gridDim.x - 1 - blockIdx.x, row_length, chunk_length, chunks_per_row);
    const float* const weights = w + (chunk.start - chunk.row * row_length);
    const float c = offset[chunk.row], H = slopes[chunk.row];
    const Spread<T> spread(x + chunk.start, chunk.length, threadIdx.x, blockDim.x);
    Tile<T, most_packs> x_tile, g_tile;
    load_tile(x_tile, x + chunk.start, spread);
    load_tile(g_tile, g + chunk.start, spread);
    with_gate<T>(gate, [&](auto s) {
        for_each_part_at(
            spread,
            [&](int at, auto& x, auto& g) {
#pragma unroll
                for (int j = 0; j < size_of<decltype(x)>; ++j) {
                    float h;
                    const float kept = direct<decltype(s)>(to_float(g[j]), to_float(x[j]), c, h);
                    g[j] = from_float<T>(fmaf(weights[at + j], H, kept));
                }
            },
            x_tile, g_tile);
    });
    store_tile(dx + chunk.start, g_tile, spread);
}

// partial, of every chunk of rows: sum x_j H for each column j, and sum H
template <typename T, int width>
__device__ __forceinline__ void columns(
    const T* x, const float* slopes, float* partial, int64 rows,
    int64 channels, int64 rows_per_chunk) {
    const int64 thread =
        static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64 channel = thread * width;
    if (channel >= channels) return;
    float sums[width] = {}, sum = 0.0f;
    for_each_row(rows, rows_per_chunk, [&](int64 row) {
        const auto of_row = *reinterpret_cast<const Columns<T, width>*>(
            x + row * channels + channel);
        const float H = slopes[row];
        sum += H;
#pragma unroll
        for (int j = 0; j < width; ++j)
            sums[j] = fmaf(to_float(of_row.element[j]), H, sums[j]);
    });
    float* const of_chunk = partial + blockIdx.y * (channels + 1);
#pragma unroll
    for (int j = 0; j < width; ++j) of_chunk[channel + j] = sums[j];
    if (channel == 0) of_chunk[channels] = sum;
}

// --- maps: x is (outer, channels, inner), and a vector has one element in each of the maps of its image ---

// The vectors of a thread: `width` neighbours.
template <int width>
struct MapPlace {
    bool exists;
    int64 vector, start;  // start: of their elements in the first map

    __device__ __forceinline__ MapPlace(int64 outer, int64 channels, int64 inner) {
        vector = (static_cast<int64>(blockIdx.x) * warp_size + threadIdx.x % warp_size) * width;
        exists = vector < outer * inner;
        const int64 image = exists ? vector / inner : 0;
        start = exists ? image * channels * inner + (vector - image * inner) : 0;
    }
};

// The sums of the block's warps, in every warp; `scratch` holds a value for
// each thread and vector.
template <int width>
__device__ __forceinline__ void total_of_warps(
    float (&sum)[width], float (*scratch)[warp_size][width]) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
#pragma unroll
    for (int j = 0; j < width; ++j) scratch[warp][lane][j] = sum[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < width; ++j) sum[j] = scratch[0][lane][j];
    for (int other = 1; other < map_warps; ++other) {
#pragma unroll
        for (int j = 0; j < width; ++j) sum[j] += scratch[other][lane][j];
    }
}

template <typename T, int width>
__device__ __forceinline__ void forward_maps(const T* x, const float* w, const float* b, T* y, float* offset,
                                             int64 outer, int channels, int64 inner, int gate) {
    __shared__ float scratch[map_warps][warp_size][width];
    const MapPlace<width> place(outer, channels, inner);
    const int warp = threadIdx.x / warp_size;
    float c[width] = {};
    if (place.exists) {
        for (int channel = warp; channel < channels; channel += map_warps) {
            const float weight = w[channel];
            const auto at = *reinterpret_cast<const Columns<T, width>*>(x + place.start + channel * inner);
#pragma unroll
            for (int j = 0; j < width; ++j) c[j] = fmaf(weight, to_float(at.element[j]), c[j]);
        }
    }
    total_of_warps(c, scratch);
    if (!place.exists) return;
#pragma unroll
    for (int j = 0; j < width; ++j) c[j] += *b;
    if (warp == 0) {
#pragma unroll
        for (int j = 0; j < width; ++j) offset[place.vector + j] = c[j];
    }
    with_gate<T>(gate, [&](auto s) {
        for (int channel = warp; channel < channels; channel += map_warps) {
            const auto at = *reinterpret_cast<const Columns<T, width>*>(x + place.start + channel * inner);
            Columns<T, width> result;
#pragma unroll
            for (int j = 0; j < width; ++j) {
                const float value = to_float(at.element[j]);
                result.element[j] = from_float<T>(value * s.value(value + c[j]));
            }
            *reinterpret_cast<Columns<T, width>*>(y + place.start + channel * inner) = result;
        }
    });
}

// partial, of every block: sum x_j H for each channel j, and sum H
template <typename T, int width>
__device__ __forceinline__ void backward_maps(const T* g, const T* x, const float* w, const float* offset, T* dx,
                                              float* partial, int64 outer, int channels, int64 inner, int gate) {
    __shared__ float scratch[map_warps][warp_size][width];
    const MapPlace<width> place(outer, channels, inner);
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    float c[width], H[width] = {};
#pragma unroll
    for (int j = 0; j < width; ++j) c[j] = place.exists ? offset[place.vector + j] : 0.0f;
    with_gate<T>(gate, [&](auto s) {
        if (place.exists) {
            for (int channel = warp; channel < channels; channel += map_warps) {
                const int64 start = place.start + channel * inner;
                const auto at_x = *reinterpret_cast<const Columns<T, width>*>(x + start);
                const auto at_g = *reinterpret_cast<const Columns<T, width>*>(g + start);
#pragma unroll
                for (int j = 0; j < width; ++j) {
                    float h;
                    direct<decltype(s)>(to_float(at_g.element[j]), to_float(at_x.element[j]), c[j], h);
                    H[j] += h;
                }
            }
        }
        total_of_warps(H, scratch);
        float* const of_block = partial + static_cast<int64>(blockIdx.x) * (channels + 1);
        for (int channel = warp; channel < channels; channel += map_warps) {
            float sum = 0.0f;
            if (place.exists) {
                const float weight = w[channel];
                const int64 start = place.start + channel * inner;
                const auto at_x = *reinterpret_cast<const Columns<T, width>*>(x + start);
                const auto at_g = *reinterpret_cast<const Columns<T, width>*>(g + start);
                Columns<T, width> result;
#pragma unroll
                for (int j = 0; j < width; ++j) {
                    const float value = to_float(at_x.element[j]);
                    float h;
                    const float kept = direct<decltype(s)>(to_float(at_g.element[j]), value, c[j], h);
                    result.element[j] = from_float<T>(fmaf(weight, H[j], kept));
                    sum = fmaf(value, H[j], sum);
                }
                *reinterpret_cast<Columns<T, width>*>(dx + start) = result;
            }
            sum = warp_sum(sum);
            if (lane == 0) of_block[channel] = sum;
        }
        if (warp == 0) {
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < width; ++j) sum += H[j];
            sum = warp_sum(sum);
            if (lane == 0) of_block[channels] = sum;
        }
    });
}

}  // namespace companion

extern "C" __global__ void __launch_bounds__(companion::long_threads)
raa_join_chunks(const float* partial, const float* b, float* total, long long chunks_per_row) {
    companion::join_chunks(partial, b, total, chunks_per_row);
}

// dL/dw and, after it, dL/db, from what the blocks left
extern "C" __global__ void __launch_bounds__(1024)
raa_reduce(const float* partial, float* total, long long parts, long long sums) {
    companion::reduce_columns(partial, total, parts, sums);
}

#define COMPANION_LANES(layout, packs, suffix, T)                                                                      \
    extern "C" __global__ void __launch_bounds__(companion::warp_threads) raa_forward_##layout##_##suffix(             \
        const T* x, const float* w, const float* b, T* y, float* offset, long long rows, int length, int lanes,        \
        int gate) {                                                                                                    \
        companion::forward_row<T, companion::packs>(x, w, b, y, offset, companion::row_of_lane(lanes), rows, length,   \
                                                    companion::lane_group(lanes), gate);                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::warp_threads) raa_backward_##layout##_##suffix(            \
        const T* g, const T* x, const float* w, const float* offset, T* dx, float* slopes, long long rows, int length, \
        int lanes, int gate) {                                                                                         \
        companion::backward_row<T, companion::packs>(g, x, w, offset, dx, slopes, companion::row_of_lane(lanes), rows, \
                                                     length, companion::lane_group(lanes), gate);                      \
    }

#define COMPANION_KERNELS(suffix, T)                                                                                   \
    COMPANION_LANES(short, short_packs, suffix, T)                                                                     \
    COMPANION_LANES(warp, most_packs, suffix, T)                                                                       \
    extern "C" __global__ void __launch_bounds__(companion::block_threads) raa_forward_block_##suffix(                 \
        const T* x, const float* w, const float* b, T* y, float* offset, long long rows, int length, int gate) {       \
        __shared__ float scratch[1][companion::warp_size];                                                             \
        companion::forward_row<T, companion::most_packs>(x, w, b, y, offset, blockIdx.x, rows, length,                 \
                                                         companion::whole_block(scratch), gate);                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::block_threads) raa_backward_block_##suffix(                \
        const T* g, const T* x, const float* w, const float* offset, T* dx, float* slopes, long long rows, int length, \
        int gate) {                                                                                                    \
        __shared__ float scratch[1][companion::warp_size];                                                             \
        companion::backward_row<T, companion::most_packs>(g, x, w, offset, dx, slopes, blockIdx.x, rows, length,       \
                                                          companion::whole_block(scratch), gate);                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::long_threads) raa_offsets_##suffix(                        \
        const T* x, const float* w, float* partial, long long row_length, int chunk_length,                            \
        long long chunks_per_row) {                                                                                    \
        companion::chunk_offsets(x, w, partial, row_length, chunk_length, chunks_per_row);                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::long_threads) raa_forward_long_##suffix(                   \
        const T* x, const float* offset, T* y, long long row_length, int chunk_length, long long chunks_per_row,       \
        int gate) {                                                                                                    \
        companion::forward_chunk(x, offset, y, row_length, chunk_length, chunks_per_row, gate);                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::long_threads) raa_slopes_##suffix(                         \
        const T* g, const T* x, const float* offset, float* partial, long long row_length, int chunk_length,           \
        long long chunks_per_row, int gate) {                                                                          \
        companion::chunk_slopes(g, x, offset, partial, row_length, chunk_length, chunks_per_row, gate);                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::long_threads) raa_backward_long_##suffix(                  \
        const T* g, const T* x, const float* w, const float* offset, const float* slopes, T* dx, long long row_length, \
        int chunk_length, long long chunks_per_row, int gate) {                                                        \
        companion::backward_chunk(g, x, w, offset, slopes, dx, row_length, chunk_length, chunks_per_row, gate);        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) raa_columns_##suffix(                                            \
        const T* x, const float* slopes, float* partial, long long rows, long long channels,                           \
        long long rows_per_chunk, int packed) {                                                                        \
        if (packed)                                                                                                    \
            companion::columns<T, companion::Pack<T>::size>(x, slopes, partial, rows, channels, rows_per_chunk);       \
        else                                                                                                           \
            companion::columns<T, 1>(x, slopes, partial, rows, channels, rows_per_chunk);                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) raa_forward_maps_##suffix(                                       \
        const T* x, const float* w, const float* b, T* y, float* offset, long long outer, int channels,                \
        long long inner, int packed, int gate) {                                                                       \
        if (packed)                                                                                                    \
            companion::forward_maps<T, companion::Pack<T>::size>(x, w, b, y, offset, outer, channels, inner, gate);    \
        else                                                                                                           \
            companion::forward_maps<T, 1>(x, w, b, y, offset, outer, channels, inner, gate);                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) raa_backward_maps_##suffix(                                      \
        const T* g, const T* x, const float* w, const float* offset, T* dx, float* partial, long long outer,           \
        int channels, long long inner, int packed, int gate) {                                                         \
        if (packed)                                                                                                    \
            companion::backward_maps<T, companion::Pack<T>::size>(g, x, w, offset, dx, partial, outer, channels,       \
                                                                  inner, gate);                                        \
        else                                                                                                           \
            companion::backward_maps<T, 1>(g, x, w, offset, dx, partial, outer, channels, inner, gate);                \
    }

COMPANION_KERNELS(f32, float)
COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
