// How rows and columns are spread over threads, and added up.
//
// A row whose sum is needed before its elements are computed is held in registers: by a power of two of neighbouring
// lanes ("short", "warp"), by a block ("block"), or in chunks of one block each, of which another kernel adds the sums
// ("long"). Columns are walked down: a thread takes a pack of neighbours in every row of a chunk of rows. rows.py makes
// the plans. No atomics: sizes and the alignment of a row fix every order of additions, so the same input at the same
// alignment gives the same bits.
#pragma once

#include "common.cuh"

namespace companion {

constexpr int short_packs = 4;
constexpr int most_packs = 8;
constexpr int warp_threads = 128;
constexpr int block_threads = 512;
constexpr int long_threads = 256;

// --- sums ---

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(full_warp, x, distance);
    return x;
}

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(full_warp, x, distance);
    return x;
}

// The sum over a block whose size is a multiple of 32, known to thread 0 alone. `scratch` holds one value per warp.
template <typename T>
__device__ __forceinline__ T block_sum(T x, T* scratch) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    x = warp_sum(x);
    __syncthreads();  // an earlier sum may still be reading scratch
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    if (warp == 0) {
        x = lane < static_cast<int>(blockDim.x) / warp_size ? scratch[lane] : T(0);
        x = warp_sum(x);
    }
    return x;
}

// total[c] = sum over o and i of partial[(o channels + c) inner + i], by one block per channel, in double
__device__ __forceinline__ void reduce(const float* partial, float* total, int64 outer, int64 channels, int64 inner) {
    __shared__ double scratch[warp_size];
    const int64 channel = blockIdx.x;
    double sum = 0.0;
    for (int64 i = threadIdx.x; i < outer * inner; i += blockDim.x) {
        sum += partial[((i / inner) * channels + channel) * inner + i % inner];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) total[channel] = static_cast<float>(sum);
}

// total[c] = sum over the parts of partial[part columns + c], in double. A lane has a column, the warps of a block, 32 at
// most, share the parts: neighbours are read together.
__device__ __forceinline__ void reduce_columns(const float* partial, float* total, int64 parts, int64 columns) {
    __shared__ double scratch[warp_size][warp_size];
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size, warps = blockDim.x / warp_size;
    const int64 column = static_cast<int64>(blockIdx.x) * warp_size + lane;
    double sum = 0.0;
    if (column < columns) {
        for (int64 part = warp; part < parts; part += warps) sum += partial[part * columns + column];
    }
    scratch[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= columns) return;
    for (int other = 1; other < warps; ++other) sum += scratch[other][lane];
    total[column] = static_cast<float>(sum);
}

// --- rows in registers ---

// A power of two of neighbouring lanes, several groups to a warp. All 32 lanes must call `total` together.
struct LaneGroup {
    int thread, threads;

    // every x[v] becomes its sum over the group, in every thread of it
    template <int values>
    __device__ __forceinline__ void total(float (&x)[values]) {
#pragma unroll
        for (int distance = warp_size / 2; distance > 0; distance /= 2) {
            if (distance < threads) {
#pragma unroll
                for (int v = 0; v < values; ++v) x[v] += __shfl_xor_sync(full_warp, x[v], distance);
            }
        }
    }
};

// A whole block, of a multiple of 32 threads. Each sum has a row of `scratch` to itself, so one barrier is enough.
struct BlockGroup {
    int thread, threads;
    float (*scratch)[warp_size];

    template <int values>
    __device__ __forceinline__ void total(float (&x)[values]) {
        const int warp = thread / warp_size, lane = thread % warp_size;
#pragma unroll
        for (int v = 0; v < values; ++v) {
            x[v] = warp_sum(x[v]);
            if (lane == 0) scratch[v][warp] = x[v];
        }
        __syncthreads();
#pragma unroll
        for (int v = 0; v < values; ++v) x[v] = warp_sum(lane < threads / warp_size ? scratch[v][lane] : 0.0f);
        scratch += values;
    }
};

// The part of a row that one thread of a group holds.
template <typename T, int packs>
struct Tile {
    Pack<T> pack[packs];
    T edge[1];
};

// How a row is spread over the tiles of a group of at least 2 (size - 1) threads, or of any number if all rows begin
// and end with a pack. Whole packs go round the threads; the edges, single elements before the first whole pack and
// after the last, are fewer than the threads.
template <typename T>
struct Spread {
    static constexpr int size = Pack<T>::size;
    int thread, threads, head, packs, edges;

    __device__ __forceinline__ Spread(const T* row, int length, int thread, int threads)
        : thread(thread), threads(threads) {
        head = (pack_bytes - misalignment(row)) % pack_bytes / sizeof(T);
        head = head < length ? head : length;
        packs = (length - head) / size;
        edges = length - packs * size;
    }

    __device__ __forceinline__ bool has_pack(int p) const { return p * threads + thread < packs; }
    __device__ __forceinline__ int pack_at(int p) const { return head + (p * threads + thread) * size; }
    __device__ __forceinline__ bool has_edge() const { return thread < edges; }
    __device__ __forceinline__ int edge_at() const { return thread < head ? thread : thread + packs * size; }
};

template <typename T, int packs>
__device__ __forceinline__ void load_tile(Tile<T, packs>& tile, const T* row, const Spread<T>& spread) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        if (spread.has_pack(p)) tile.pack[p] = load_pack(row + spread.pack_at(p));
    }
    if (spread.has_edge()) tile.edge[0] = row[spread.edge_at()];
}

template <typename T, int packs>
__device__ __forceinline__ void store_tile(T* row, const Tile<T, packs>& tile, const Spread<T>& spread) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        if (spread.has_pack(p)) store_pack(row + spread.pack_at(p), tile.pack[p]);
    }
    if (spread.has_edge()) row[spread.edge_at()] = tile.edge[0];
}

// The compiler would rather convert 16-bit elements once, ahead of all loops, and hold twice the registers; so it is
// told that a pack may have changed.
template <typename T>
__device__ __forceinline__ void stay_packed([[maybe_unused]] Pack<T>& pack) {
#ifndef COMPANION_SIMULATOR
    if constexpr (sizeof(T) == 2) {
        uint4& bits = *reinterpret_cast<uint4*>(pack.element);
        asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    }
#endif
}

template <typename Array>
constexpr int size_of = 0;
template <typename T, int size>
constexpr int size_of<T (&)[size]> = size;

// f(at, x...) for each pack and for the edge that this thread has; x: arrays of the elements at one place of all
// tiles, at: the place in the row of the first of them. A loop over them runs to `size_of<decltype(x)>`.
template <typename T, typename F, int packs, typename... Others>
__device__ __forceinline__ void for_each_part_at(const Spread<T>& spread, F f, Tile<T, packs>& tile,
                                                 Others&... others) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        if (!spread.has_pack(p)) continue;
        stay_packed(tile.pack[p]);
        (stay_packed(others.pack[p]), ...);
        f(spread.pack_at(p), tile.pack[p].element, others.pack[p].element...);
    }
    if (spread.has_edge()) f(spread.edge_at(), tile.edge, others.edge...);
}

// f(x...) for each pack and for the edge that this thread has; x: arrays of the elements at one place of all tiles.
// A loop over them runs to `size_of<decltype(x)>`.
template <typename T, typename F, int packs, typename... Others>
__device__ __forceinline__ void for_each_part(const Spread<T>& spread, F f, Tile<T, packs>& tile, Others&... others) {
    for_each_part_at(spread, [&](int, auto&... x) { f(x...); }, tile, others...);
}

// The group of `lanes` lanes that this thread belongs to, and the row that it takes.
__device__ __forceinline__ LaneGroup lane_group(int lanes) {
    return {static_cast<int>(threadIdx.x) & (lanes - 1), lanes};
}
__device__ __forceinline__ int64 row_of_lane(int lanes) {
    return (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
}

__device__ __forceinline__ BlockGroup whole_block(float (*scratch)[warp_size]) {
    return {static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), scratch};
}

// --- rows cut into chunks ---

template <typename Length>
struct Chunk {
    int64 row, start;  // start: of the chunk, in the whole tensor
    Length length;
};

// The chunk of this number, counted through all rows.
template <typename Length>
__device__ __forceinline__ Chunk<Length> chunk_at(int64 number, int64 row_length, Length chunk_length,
                                                  int64 chunks_per_row) {
    const int64 row = number / chunks_per_row;
    const int64 offset = (number - row * chunks_per_row) * chunk_length;
    const int64 rest = row_length - offset;
    return {row, row * row_length + offset, rest < chunk_length ? static_cast<Length>(rest) : chunk_length};
}

// --- columns ---

template <typename T, int width>
struct alignas(width * sizeof(T)) Columns {
    T element[width];
};

// The rows of a chunk, whose number is blockIdx.y.
template <typename F>
__device__ __forceinline__ void for_each_row(int64 rows, int64 rows_per_chunk, F f) {
    const int64 first = static_cast<int64>(blockIdx.y) * rows_per_chunk;
    const int64 last = first + rows_per_chunk < rows ? first + rows_per_chunk : rows;
    for (int64 row = first; row < last; ++row) f(row);
}

}  // namespace companion
