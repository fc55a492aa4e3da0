// ARR: how far responses lie from the moving mean of their class, and how a batch moves the means, in its order.
//
//     met_i = mu of the class of i      mu <- mu + m (x_i - mu)      loss = (1/N) sum_i sum_c share_c |x_ic - met_ic|
//
// share_c is 1/d. Layers of several widths may lie side by side: then each has its own. Over a batch the mean of a
// class that n samples move becomes (1 - m)^n mu + sum_r m (1 - m)^(n - 1 - r) x_r: only samples of one class meet,
// each column for itself, and a number that a thread keeps in a register and pulls towards one sample after the other
// is that sum. What is not finite moves no mean, for which a row has to be known whole.
//
// Two launches. `arr_forward`: the first sample of a class leads it, all other blocks end; four blocks at most share
// the columns. Targets go by in chunks, of each the class's rows are listed in order; warps look whether rows are
// finite; threads walk down their columns. `arr_finish`, one block: the sum of the loss, and which classes have a mean
// now. `arr_backward`, one launch: dL/dx = sign(x - met) share dL/dloss / N, from one byte an element.
//
// Bytes an element, f32 / 16 bit: forward x from memory once, 4 / 2, from the cache up to four times more, and a sign
// written, 1; backward 1 read and 4 / 2 written. The means of classes that are there are read and written once a
// chunk. Plain torch multiplies an N x N matrix with the batch, in some fifty operations. No atomics: the same input
// gives the same bits.

#include "rows.cuh"

namespace companion {

constexpr int arr_threads = 256;
constexpr int arr_warps = arr_threads / warp_size;
constexpr int rows_ahead = 4;  // loaded before the first of them is needed

// --- who is of a class ---

// Whether no sample before this one is of its class. All threads of the block ask together.
__device__ __forceinline__ bool leads(const int64* target, int64 sample) {
    const int64 k = target[sample];
    for (int64 from = 0; from < sample; from += arr_threads) {
        const int64 other = from + threadIdx.x;
        if (__syncthreads_or(other < sample && target[other] == k)) return false;
    }
    return true;
}

// The samples of one class in a chunk of the batch, in their order.
struct Members {
    int count;
    int place[arr_threads];  // in the chunk
    bool finite[arr_threads];
    int of_warp[arr_warps];
};

__device__ __forceinline__ void list(Members& members, const int64* target, int64 k, int64 from, int64 samples) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    const int64 sample = from + threadIdx.x;
    const unsigned found = __ballot_sync(full_warp, sample < samples && target[sample] == k);
    if (lane == 0) members.of_warp[warp] = __popc(found);
    __syncthreads();
    int before = 0, all = 0;
#pragma unroll
    for (int other = 0; other < arr_warps; ++other) {
        if (other < warp) before += members.of_warp[other];
        all += members.of_warp[other];
    }
    if (found >> lane & 1) members.place[before + __popc(found & ((1u << lane) - 1))] = threadIdx.x;
    if (threadIdx.x == 0) members.count = all;
    __syncthreads();
}

// --- what they do ---

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) < __int_as_float(0x7f800000); }

// Which of them are finite as a whole: a warp a row.
template <typename T, int width>
__device__ __forceinline__ void look(Members& members, const T* chunk, int64 length) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    for (int i = warp; i < members.count; i += arr_warps) {
        const T* const row = chunk + members.place[i] * length;
        bool finite = true;
#pragma unroll 4
        for (int64 column = lane * width; column < length; column += warp_size * width) {
            const auto x = *reinterpret_cast<const Columns<T, width>*>(row + column);
#pragma unroll
            for (int j = 0; j < width; ++j) finite = finite & is_finite(to_float(x.element[j]));
        }
        finite = __all_sync(full_warp, finite);
        if (lane == 0) members.finite[i] = finite;
    }
    __syncthreads();
}

// mu + m (x - mu), exact for m = 0 and m = 1
__device__ __forceinline__ float pulled(float mu, float x, float m) {
    return m < 0.5f ? fmaf(m, x - mu, mu) : fmaf(m - 1.0f, x - mu, x);
}

// What all samples are held by.
struct Pull {
    float m;
    bool after;  // compared with the mean that a sample leaves, not with the one that it meets
};

// One element: the mean moves, if its sample is finite; returned is how far x lies from what it is compared with.
__device__ __forceinline__ float follow(float& mu, float x, bool opens, bool moves, Pull pull) {
    if (opens) mu = x;
    const float left = pulled(mu, x, pull.m);
    const float distance = x - (pull.after ? left : mu);
    if (moves) mu = left;
    return opens ? 0.0f : distance;
}

// The walk of a block's columns down the members of a chunk; returns this thread's part of the loss.
// mean: of this class. signs: of the samples from `first` to `last`, which alone count in the loss.
template <typename T, int width>
__device__ __forceinline__ double walk(const Members& members, const T* chunk, int64 from, float* mean,
                                       const float* share, signed char* signs, int64 length, int64 first, int64 last,
                                       bool known, Pull pull) {
    double sum = 0.0;
    const int64 step = static_cast<int64>(gridDim.y) * arr_threads * width;
    for (int64 column = (static_cast<int64>(blockIdx.y) * arr_threads + threadIdx.x) * width; column < length;
         column += step) {
        float mu[width], weight[width];
#pragma unroll
        for (int j = 0; j < width; ++j) {
            mu[j] = mean[column + j];
            weight[j] = share ? share[column + j] : 1.0f;
        }
        bool has_mean = known;
        for (int i = 0; i < members.count; i += rows_ahead) {
            Columns<T, width> x[rows_ahead];
#pragma unroll
            for (int a = 0; a < rows_ahead; ++a) {
                if (i + a < members.count)
                    x[a] = *reinterpret_cast<const Columns<T, width>*>(chunk + members.place[i + a] * length + column);
            }
#pragma unroll
            for (int a = 0; a < rows_ahead; ++a) {
                if (i + a >= members.count) continue;
                const bool finite = members.finite[i + a], opens = finite && !has_mean;
                Columns<signed char, width> sign;
                float part = 0.0f;
#pragma unroll
                for (int j = 0; j < width; ++j) {
                    const float distance = follow(mu[j], to_float(x[a].element[j]), opens, finite, pull);
                    part = fmaf(weight[j], fabsf(distance), part);
                    sign.element[j] = (distance > 0.0f) - (distance < 0.0f);
                }
                has_mean = has_mean || finite;
                const int64 sample = from + members.place[i + a];
                if (sample < first || sample >= last) continue;
                sum += part;
                *reinterpret_cast<Columns<signed char, width>*>(signs + (sample - first) * length + column) = sign;
            }
        }
#pragma unroll
        for (int j = 0; j < width; ++j) mean[column + j] = mu[j];
    }
    return sum;
}

// partial: of every block its part of the loss. opened: of every sample whether it leads a class that has a mean now.
template <typename T, int width>
__device__ __forceinline__ void follow_class(const T* x, const int64* target, float* mean, const bool* seen,
                                             const float* share, signed char* signs, double* partial, bool* opened,
                                             int64 samples, int64 length, int64 classes, int64 first, int64 last,
                                             float m, int from_first, int after) {
    __shared__ Members members;
    __shared__ double scratch[warp_size];
    const int64 leader = blockIdx.x, k = target[leader];
    assert(k >= 0 && k < classes);
    double sum = 0.0;
    bool moved = false;
    if (leads(target, leader)) {
        const bool known = !from_first || seen[k];
        for (int64 from = leader; from < samples; from += arr_threads) {
            list(members, target, k, from, samples);
            const T* const chunk = x + from * length;
            look<T, width>(members, chunk, length);
            sum += walk<T, width>(members, chunk, from, mean + k * length, share, signs, length, first, last,
                                  known || moved, {m, after != 0});
            for (int i = 0; i < members.count; ++i) moved = moved || members.finite[i];
        }
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x > 0) return;
    partial[leader * gridDim.y + blockIdx.y] = sum;
    if (blockIdx.y == 0) opened[leader] = moved;
}

// --- what needs all blocks ---

__device__ __forceinline__ void finish(const double* partial, const int64* target, const bool* opened, bool* seen,
                                       float* loss, int64 samples, int64 blocks, double terms) {
    __shared__ double scratch[warp_size];
    double sum = 0.0;
    for (int64 i = threadIdx.x; i < blocks; i += arr_threads) sum += partial[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *loss = static_cast<float>(sum / terms);
    for (int64 i = threadIdx.x; i < samples; i += arr_threads) {
        if (opened[i]) seen[target[i]] = true;
    }
}

// --- backward ---

template <typename T>
__device__ __forceinline__ void backward(const float* grad, const signed char* signs, const float* share, T* dx,
                                         int64 count, int64 length, float terms) {
    constexpr int size = Pack<T>::size;
    const int64 at = (static_cast<int64>(blockIdx.x) * arr_threads + threadIdx.x) * size;
    if (at >= count) return;
    const float force = *grad / terms;
    int64 column = share ? at % length : 0;
    const auto of = [&](signed char sign) {
        float result = force * static_cast<float>(sign);
        if (share) {
            result *= share[column];
            column = column + 1 < length ? column + 1 : 0;
        }
        return from_float<T>(result);
    };
    if (at + size <= count) {
        const auto sign = *reinterpret_cast<const Columns<signed char, size>*>(signs + at);
        Pack<T> result;
#pragma unroll
        for (int j = 0; j < size; ++j) result.element[j] = of(sign.element[j]);
        store_pack(dx + at, result);
    } else {
        for (int64 i = at; i < count; ++i) dx[i] = of(signs[i]);
    }
}

}  // namespace companion

extern "C" __global__ void __launch_bounds__(companion::arr_threads)
arr_finish(const double* partial, const long long* target, const bool* opened, bool* seen, float* loss,
           long long samples, long long blocks, double terms) {
    companion::finish(partial, target, opened, seen, loss, samples, blocks, terms);
}

// Two blocks to an SM: without a word about it the compiler keeps to 64 registers, and a few land on the stack.
#define COMPANION_KERNELS(suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(companion::arr_threads, 2) arr_forward_##suffix(                      \
        const T* x, const long long* target, float* mean, const bool* seen, const float* share, signed char* signs,    \
        double* partial, bool* opened, long long samples, long long length, long long classes, long long first,        \
        long long last, float m, int from_first, int after, int packed) {                                              \
        if (packed)                                                                                                    \
            companion::follow_class<T, companion::Pack<T>::size>(x, target, mean, seen, share, signs, partial, opened, \
                                                                 samples, length, classes, first, last, m, from_first, \
                                                                 after);                                               \
        else                                                                                                           \
            companion::follow_class<T, 1>(x, target, mean, seen, share, signs, partial, opened, samples, length,       \
                                          classes, first, last, m, from_first, after);                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::arr_threads) arr_backward_##suffix(                        \
        const float* grad, const signed char* signs, const float* share, T* dx, long long count, long long length,     \
        float terms) {                                                                                                 \
        companion::backward(grad, signs, share, dx, count, length, terms);                                             \
    }

COMPANION_KERNELS(f32, float)
COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
