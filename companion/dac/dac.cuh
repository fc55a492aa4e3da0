// The three sums of a layer with biases on its inputs (DAC, ReLU), each tiled like a matrix product:
//
//     f_si  = sum_k w_ik relu(b_ik + z_sk)                                             `weighted_sums`
//     dz_sj = sum_k g_sk w_kj [b_kj + z_sj > 0]                                        `masked_sums`
//     dw_ij = sum_s g_si relu(b_ij + z_sj),  db_ij = w_ij sum_s g_si [b_ij + z_sj > 0]  `gradient_sums`
//
// A matrix product reads z_sk and w_ik and spends one instruction a term. Here the activation depends on s, i and k, so
// no term can be shared and no tensor core helps. What can be saved is the addition of b: relu(b + z) = max(z, -b) + b,
//
//     f_si  = sum_k w_ik max(z_sk, -b_ik) + sum_k w_ik b_ik          the second sum once per output
//     dw_ij = sum_M g_si z_sj + b_ij sum_M g_si                      M: the samples s with b_ij + z_sj > 0
//
// which leaves two instructions a term forward (max, multiply-add), two for dz (compare, multiply-add under a
// predicate), three for dw and db together. Neither max nor the comparison rounds. The second sum runs through k in the
// order of the first, with the same roundings: an output whose inputs are all inactive is exactly 0. NaN in z is kept
// by max, and counts as active in the comparisons, !(z <= -b), as in torch. Biases must be finite.
//
// A block computes a tile of rows × columns results, a thread some 8 × 8 of them in registers. In each step the block
// brings `depth_step` terms of all operands to shared memory ("panels"), as float, while it computes the terms before
// them. A thread then reads a few values for many terms: 6 accesses of 16 bytes for 64 terms. What the operands are,
// elements of a matrix or a picture seen through the window of a convolution, is the business of a "view":
//
//     Line line(i)          what is known about row (or column) i of the tile, the same through all steps
//     Depth depth(k)        what is known about term k
//     load(x, line, depth)  x[0], x[1], ...: the value there and its neighbours in memory; beyond the end of a matrix,
//                           values that add nothing
//     depth_first           neighbours in memory are neighbouring terms, or else neighbouring lines
//     most                  how many neighbours can be loaded at once
#pragma once

#include "common.cuh"

namespace companion {

constexpr int depth_step = 8;
constexpr int vector = 4;  // floats in 16 bytes

// down × across threads, each with rows × columns results. A warp is 4 threads high and 8 wide: one access to
// shared memory then touches no more than 128 bytes.
template <int thread_rows_, int thread_columns_, int down_, int across_>
struct Tile2d {
    static constexpr int thread_rows = thread_rows_, thread_columns = thread_columns_;
    static constexpr int down = down_, across = across_, threads = down * across;
    static constexpr int rows = thread_rows * down, columns = thread_columns * across;

    static __device__ __forceinline__ int warp() { return threadIdx.x / warp_size; }
    static __device__ __forceinline__ int lane() { return threadIdx.x % warp_size; }
    static __device__ __forceinline__ int thread_down() { return warp() / (across / 8) * 4 + lane() / 8; }
    static __device__ __forceinline__ int thread_across() { return warp() % (across / 8) * 8 + lane() % 8; }

    // where the thread's r-th row and c-th column are: in fours, so that four are read at once
    static __device__ __forceinline__ int row(int r) {
        return r / vector * (vector * down) + thread_down() * vector + r % vector;
    }
    static __device__ __forceinline__ int column(int c) {
        return c / vector * (vector * across) + thread_across() * vector + c % vector;
    }
};

// `depth_step` terms of `length` lines. The padding spreads neighbouring terms over different banks.
template <int length>
using Slab = float[depth_step][length + vector];

// An operand on its way to shared memory: fetched into registers during one step, stored for the next.
template <typename View, int length, int threads>
class Panel {
   public:
    __device__ __forceinline__ Panel(const View& view, Slab<length> (&slabs)[2])
        : view_(view), slabs_(slabs) {
#pragma unroll
        for (int q = 0; q < lines; ++q) line_[q] = view.line(line_of(q));
    }

    __device__ __forceinline__ void fetch(int first_term) {
#pragma unroll
        for (int q = 0; q < loads; ++q)
            view_.load(value_[q], line_[q % lines], view_.depth(first_term + term_of(q)));
    }
    __device__ __forceinline__ void store(int stage) {
#pragma unroll
        for (int q = 0; q < loads; ++q) {
#pragma unroll
            for (int r = 0; r < each; ++r) {
                if (View::depth_first) slabs_[stage][term_of(q) + r][line_of(q)] = value_[q][r];
                else slabs_[stage][term_of(q)][line_of(q) + r] = value_[q][r];
            }
        }
    }

   private:
    static constexpr int held = length * depth_step / threads;
    static constexpr int each = View::most < held ? View::most : held, loads = held / each;
    // loads that belong together in a row of the slab's longer side: so many; the next threads take the next row
    static constexpr int across = (View::depth_first ? depth_step : length) / each;
    static_assert(held > 0 && threads % across == 0);
    static constexpr int lines = View::depth_first ? loads : 1;

    static __device__ __forceinline__ int term_of(int q) {
        return View::depth_first ? threadIdx.x % across * each : threadIdx.x / across + q * (threads / across);
    }
    static __device__ __forceinline__ int line_of(int q) {
        return View::depth_first ? threadIdx.x / across + q * (threads / across) : threadIdx.x % across * each;
    }

    const View& view_;
    Slab<length> (&slabs_)[2];
    typename View::Line line_[lines];
    float value_[loads][each];
};

// The first elements from `data` on as floats; there are `there`, and 0 stands for the others. `aligned`: they begin at
// a multiple of their size together.
template <typename T, int count>
__device__ __forceinline__ void load_floats(float (&x)[count], const T* data, int there, bool aligned) {
    struct alignas(count * sizeof(T)) Together {
        T element[count];
    };
    if (aligned && there >= count) {
        const Together all = *reinterpret_cast<const Together*>(data);
#pragma unroll
        for (int r = 0; r < count; ++r) x[r] = to_float(all.element[r]);
    } else {
#pragma unroll
        for (int r = 0; r < count; ++r) x[r] = r < there ? to_float(data[r]) : 0.0f;
    }
}

// Part of a matrix with contiguous rows, `stride` elements long, from line `first` on. Its lines are the rows, or
// (depth_first = false) the columns. 128 rows have fewer than 2^31 elements.
template <typename T, bool depth_first_>
class MatrixView {
   public:
    static constexpr bool depth_first = depth_first_;
    static constexpr int most = vector;
    using Line = int;  // in elements from the beginning; negative beyond the end
    using Depth = int64;

    __device__ __forceinline__ MatrixView(const T* data, int64 rows, int stride, int64 first)
        : data_(data + (depth_first ? first * stride : first)),
          rows_(at_most_int(depth_first ? rows - first : rows)),
          columns_(depth_first ? stride : stride - static_cast<int>(first)),
          stride_(stride),
          aligned_(stride % vector == 0 && reinterpret_cast<unsigned long long>(data) % (vector * sizeof(T)) == 0) {}

    __device__ __forceinline__ Line line(int i) const {
        if (depth_first) return i < rows_ ? i * stride_ : -1;
        return i;
    }
    __device__ __forceinline__ Depth depth(int k) const {
        if (depth_first) return k;
        return k < rows_ ? static_cast<int64>(k) * stride_ : -1;
    }
    template <int count>
    __device__ __forceinline__ void load(float (&x)[count], Line line, Depth depth) const {
        const bool exists = depth_first ? line >= 0 : depth >= 0;
        const int column = depth_first ? static_cast<int>(depth) : line;
        load_floats(x, data_ + depth + line, exists ? columns_ - column : 0, aligned_);
    }

   private:
    static __device__ __forceinline__ int at_most_int(int64 x) { return x < 1 << 30 ? x : 1 << 30; }

    const T* data_;
    int rows_, columns_, stride_;
    bool aligned_;
};

// compute(stage) for each step of the terms, while the panels bring what the next step needs.
// The two stages take turns, so one barrier a step is enough.
template <typename Compute, typename... Panels>
__device__ __forceinline__ void for_each_step(int terms, Compute compute, Panels&... panels) {
    (panels.fetch(0), ...);
    (panels.store(0), ...);
    __syncthreads();
    int stage = 0;
    for (int k = 0; k < terms; k += depth_step) {
        const bool more = k + depth_step < terms;
        if (more) (panels.fetch(k + depth_step), ...);
        compute(stage);
        stage ^= 1;
        if (more) (panels.store(stage), ...);
        __syncthreads();
    }
}

// The thread's values of one term, 16 bytes at a time.
template <int threads, int count>
__device__ __forceinline__ void read_line(float (&x)[count], const float* line, int thread) {
#pragma unroll
    for (int q = 0; q < count / vector; ++q) {
        const float4 four = *reinterpret_cast<const float4*>(line + (q * threads + thread) * vector);
        x[vector * q] = four.x;
        x[vector * q + 1] = four.y;
        x[vector * q + 2] = four.z;
        x[vector * q + 3] = four.w;
    }
}

// z > -b, or NaN: the input is active.
__device__ __forceinline__ bool is_above(float z, float minus_b) { return !(z <= minus_b); }

// write(s, i, f_si) for the tile that begins at (first_row, first_column). z: rows s, terms k; w and b: columns i.
template <typename Tile, typename Z, typename W, typename B, typename Write>
__device__ __forceinline__ void weighted_sums(const Z& z_view, const W& w_view, const B& b_view, int64 first_row,
                                              int64 first_column, int terms, Write write) {
    __shared__ __align__(16) Slab<Tile::rows> z_slab[2];
    __shared__ __align__(16) Slab<Tile::columns> w_slab[2], b_slab[2];
    __shared__ float constant[Tile::columns];
    Panel<Z, Tile::rows, Tile::threads> z_panel(z_view, z_slab);
    Panel<W, Tile::columns, Tile::threads> w_panel(w_view, w_slab);
    Panel<B, Tile::columns, Tile::threads> b_panel(b_view, b_slab);

    float sum[Tile::thread_rows][Tile::thread_columns] = {};
    float wb_sum = 0.0f;  // of the column that has the thread's number
    const auto compute = [&](int stage) {
#pragma unroll 1  // more would need more than 128 registers
        for (int k = 0; k < depth_step; ++k) {
            float z[Tile::thread_rows], w[Tile::thread_columns], b[Tile::thread_columns];
            read_line<Tile::down>(z, z_slab[stage][k], Tile::thread_down());
            read_line<Tile::across>(w, w_slab[stage][k], Tile::thread_across());
            read_line<Tile::across>(b, b_slab[stage][k], Tile::thread_across());
#pragma unroll
            for (int r = 0; r < Tile::thread_rows; ++r) {
#pragma unroll
                for (int c = 0; c < Tile::thread_columns; ++c) sum[r][c] = fmaf(w[c], at_least(z[r], -b[c]), sum[r][c]);
            }
        }
        if (threadIdx.x < Tile::columns) {
#pragma unroll
            for (int k = 0; k < depth_step; ++k)
                wb_sum = fmaf(w_slab[stage][k][threadIdx.x], b_slab[stage][k][threadIdx.x], wb_sum);
        }
    };
    for_each_step(terms, compute, z_panel, w_panel, b_panel);

    if (threadIdx.x < Tile::columns) constant[threadIdx.x] = wb_sum;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < Tile::thread_rows; ++r) {
#pragma unroll
        for (int c = 0; c < Tile::thread_columns; ++c)
            write(first_row + Tile::row(r), first_column + Tile::column(c), sum[r][c] + constant[Tile::column(c)]);
    }
}

// write(s, j, dz_sj). g: rows s, terms k; w and b: columns j; z(s, j) is read once.
template <typename Tile, typename G, typename W, typename B, typename Z, typename Write>
__device__ __forceinline__ void masked_sums(const G& g_view, const W& w_view, const B& b_view, Z z_at, int64 first_row,
                                            int64 first_column, int terms, Write write) {
    __shared__ __align__(16) Slab<Tile::rows> g_slab[2];
    __shared__ __align__(16) Slab<Tile::columns> w_slab[2], b_slab[2];
    Panel<G, Tile::rows, Tile::threads> g_panel(g_view, g_slab);
    Panel<W, Tile::columns, Tile::threads> w_panel(w_view, w_slab);
    Panel<B, Tile::columns, Tile::threads> b_panel(b_view, b_slab);

    float z[Tile::thread_rows][Tile::thread_columns], sum[Tile::thread_rows][Tile::thread_columns] = {};
#pragma unroll
    for (int r = 0; r < Tile::thread_rows; ++r) {
#pragma unroll
        for (int c = 0; c < Tile::thread_columns; ++c)
            z[r][c] = z_at(first_row + Tile::row(r), first_column + Tile::column(c));
    }
    const auto compute = [&](int stage) {
#pragma unroll 1
        for (int k = 0; k < depth_step; ++k) {
            float g[Tile::thread_rows], w[Tile::thread_columns], b[Tile::thread_columns];
            read_line<Tile::down>(g, g_slab[stage][k], Tile::thread_down());
            read_line<Tile::across>(w, w_slab[stage][k], Tile::thread_across());
            read_line<Tile::across>(b, b_slab[stage][k], Tile::thread_across());
#pragma unroll
            for (int r = 0; r < Tile::thread_rows; ++r) {
#pragma unroll
                for (int c = 0; c < Tile::thread_columns; ++c)
                    if (is_above(z[r][c], -b[c])) sum[r][c] = fmaf(g[r], w[c], sum[r][c]);
            }
        }
    };
    for_each_step(terms, compute, g_panel, w_panel, b_panel);
#pragma unroll
    for (int r = 0; r < Tile::thread_rows; ++r) {
#pragma unroll
        for (int c = 0; c < Tile::thread_columns; ++c)
            write(first_row + Tile::row(r), first_column + Tile::column(c), sum[r][c]);
    }
}

// write(i, j, sum_M g_si z_sj, sum_M g_si) over the views' samples. g: rows i, terms s; z: columns j, terms s;
// b(i, j) is read once.
template <typename Tile, typename G, typename Z, typename B, typename Write>
__device__ __forceinline__ void gradient_sums(const G& g_view, const Z& z_view, B b_at, int64 first_row,
                                              int64 first_column, int terms, Write write) {
    __shared__ __align__(16) Slab<Tile::rows> g_slab[2];
    __shared__ __align__(16) Slab<Tile::columns> z_slab[2];
    Panel<G, Tile::rows, Tile::threads> g_panel(g_view, g_slab);
    Panel<Z, Tile::columns, Tile::threads> z_panel(z_view, z_slab);

    float minus_b[Tile::thread_rows][Tile::thread_columns];
    float gz_sum[Tile::thread_rows][Tile::thread_columns] = {}, g_sum[Tile::thread_rows][Tile::thread_columns] = {};
#pragma unroll
    for (int r = 0; r < Tile::thread_rows; ++r) {
#pragma unroll
        for (int c = 0; c < Tile::thread_columns; ++c)
            minus_b[r][c] = -b_at(first_row + Tile::row(r), first_column + Tile::column(c));
    }
    const auto compute = [&](int stage) {
#pragma unroll 4
        for (int k = 0; k < depth_step; ++k) {
            float g[Tile::thread_rows], z[Tile::thread_columns];
            read_line<Tile::down>(g, g_slab[stage][k], Tile::thread_down());
            read_line<Tile::across>(z, z_slab[stage][k], Tile::thread_across());
#pragma unroll
            for (int r = 0; r < Tile::thread_rows; ++r) {
#pragma unroll
                for (int c = 0; c < Tile::thread_columns; ++c) {
                    if (is_above(z[c], minus_b[r][c])) {
                        gz_sum[r][c] = fmaf(g[r], z[c], gz_sum[r][c]);
                        g_sum[r][c] += g[r];
                    }
                }
            }
        }
    };
    for_each_step(terms, compute, g_panel, z_panel);
#pragma unroll
    for (int r = 0; r < Tile::thread_rows; ++r) {
#pragma unroll
        for (int c = 0; c < Tile::thread_columns; ++c)
            write(first_row + Tile::row(r), first_column + Tile::column(c), gz_sum[r][c], g_sum[r][c]);
    }
}

// dw = sum_M g z + b sum_M g and db = w sum_M g, from the parts that `gradient_sums` left: [part][2][weights].
// `shared` weights in a row have one bias: 1, or the positions of a convolution's kernel.
template <typename T>
__device__ __forceinline__ void finish_gradients(const float* partial, const T* weight, const T* bias, T* d_weight,
                                                 T* d_bias, int64 biases, int shared, int parts) {
    const int64 of_bias = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (of_bias >= biases) return;
    const int64 weights = biases * shared;
    const float b = to_float(bias[of_bias]);
    float db = 0.0f;
    for (int p = 0; p < shared; ++p) {
        const int64 i = of_bias * shared + p;
        float gz_sum = 0.0f, g_sum = 0.0f;
        for (int part = 0; part < parts; ++part) {
            gz_sum += partial[2 * part * weights + i];
            g_sum += partial[(2 * part + 1) * weights + i];
        }
        d_weight[i] = from_float<T>(fmaf(b, g_sum, gz_sum));
        db = fmaf(to_float(weight[i]), g_sum, db);
    }
    d_bias[of_bias] = from_float<T>(db);
}

// Which tile a block has: columns first, so that neighbouring blocks share their rows.
struct TilePlace {
    int64 row, column, rest;
};
template <typename Tile>
__device__ __forceinline__ TilePlace tile_of_block(int64 rows, int64 columns) {
    const unsigned down = (rows + Tile::rows - 1) / Tile::rows, across = (columns + Tile::columns - 1) / Tile::columns;
    const unsigned block = blockIdx.x, line = block / across;
    return {static_cast<int64>(line % down) * Tile::rows, static_cast<int64>(block % across) * Tile::columns,
            line / down};
}

// The tiles: wide ones, and narrow ones for layers with few outputs and for small sizes.
using WideForward = Tile2d<8, 8, 16, 16>;    // 128 × 128, 256 threads
using NarrowForward = Tile2d<8, 4, 16, 8>;   // 128 × 32, 128 threads
using WideInput = Tile2d<8, 4, 16, 16>;      // 128 × 64, 256 threads
using NarrowInput = Tile2d<8, 4, 16, 8>;     // 128 × 32, 128 threads
using WideWeight = Tile2d<4, 4, 16, 16>;     // 64 × 64, 256 threads
using NarrowWeight = Tile2d<4, 4, 8, 16>;    // 32 × 64, 128 threads

constexpr int wide_threads = 256;
constexpr int narrow_threads = 128;
constexpr int finish_threads = 128;

}  // namespace companion
