// Correct kernels, one for each thing that the simulator models. They compile with NVRTC as well.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr unsigned whole_warp = 0xffffffffu;

// y[i] = a x[i], a grid of any size over n elements
extern "C" __global__ void __launch_bounds__(1024)
    scale(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
    const int threads = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) y[i] = a * __ldg(x + i);
}

__device__ __forceinline__ float warp_sum(float v) {
    for (int distance = 16; distance > 0; distance /= 2) v += __shfl_down_sync(whole_warp, v, distance);
    return v;
}

// sums[b] = the sum of row b of x, which has n elements; the block is a whole number of warps
extern "C" __global__ void block_sum(const float* x, float* sums, int n) {
    __shared__ float partial[32];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[static_cast<long long>(blockIdx.x) * n + i];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        v = warp_sum(v);
        if (threadIdx.x == 0) sums[blockIdx.x] = v;
    }
}

// Row s of out: what shuffle s gives lane after lane. Segments of eight lanes.
extern "C" __global__ void every_shuffle(int* out) {
    const int lane = threadIdx.x;
    out[lane] = __shfl_sync(whole_warp, lane, 3, 8);
    out[32 + lane] = __shfl_up_sync(whole_warp, lane, 2, 8);
    out[64 + lane] = __shfl_down_sync(whole_warp, lane, 2, 8);
    out[96 + lane] = __shfl_xor_sync(whole_warp, lane, 5, 8);
    out[128 + lane] = static_cast<int>(__shfl_sync(whole_warp, 1ll << 40 | lane, lane + 1) >> 40);
    const __half2 pair = __shfl_xor_sync(whole_warp, __floats2half2_rn(lane, -lane), 1);
    out[160 + lane] = static_cast<int>(__low2float(pair));
}

// Even lanes exit; the odd ones go on voting and shuffling among themselves.
extern "C" __global__ void votes(unsigned* out) {
    const unsigned odd = 0xaaaaaaaau;
    const int lane = threadIdx.x;
    if (lane % 2 == 0) return;
    out[lane] = __ballot_sync(odd, lane > 16);
    out[32 + lane] = __all_sync(odd, lane > 0) + 2 * __any_sync(odd, lane > 30) +
                     4 * __all_sync(odd, lane > 1) + 8 * __any_sync(odd, lane > 31);
    out[64 + lane] = __shfl_xor_sync(odd, lane, 2);
#if __CUDA_ARCH__ >= 800 || defined(COMPANION_SIMULATOR)
    out[96 + lane] = __reduce_add_sync(odd, lane) + __reduce_max_sync(odd, lane);
#endif
}

// counts[v]: how often v occurs. Shared bins for each block, then one atomic each.
extern "C" __global__ void histogram(const int* values, int* counts, int n) {
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[values[i] & 15], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}

// total[0] = the sum over all blocks, in the order of the blocks: the last one to finish adds up what the
// others left.
extern "C" __global__ void last_block_sums(const float* x, float* partial, unsigned* finished, float* total) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicInc(finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned b = 0; b < gridDim.x; ++b) sum += __ldcg(partial + b);
        *total = sum;
    }
}

extern "C" __global__ void every_atomic(int* i, float* f, __half* h, unsigned long long* u) {
    atomicAdd(i, 1);
    atomicSub(i + 1, 1);
    atomicMax(i + 2, static_cast<int>(threadIdx.x));
    atomicMin(i + 3, -static_cast<int>(threadIdx.x));
    atomicOr(i + 4, 1 << threadIdx.x % 31);
    const int me = 1 + static_cast<int>(threadIdx.x);
    if (atomicCAS(i + 5, 0, me) == 0) atomicExch(i + 6, me);
    atomicAdd(f, 0.5f);
    atomicAdd(h, __float2half(0.25f));
    atomicAdd(u, 1ull << 33);
}

// Every block turns its piece of x around, by way of shared memory whose size the launch gives.
extern "C" __global__ void reverse_each_block(const double* x, double* y) {
    extern __shared__ double tile[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    y[i] = tile[blockDim.x - 1 - threadIdx.x];
}

// Another kernel, another name and type: the same memory.
extern "C" __global__ void dynamic_bytes(int* out, int n) {
    extern __shared__ __align__(16) unsigned char bytes[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) bytes[i] = static_cast<unsigned char>(i);
    __syncthreads();
    out[threadIdx.x] = bytes[n - 1 - threadIdx.x];
}

// out[where a thread is in a grid and block of three dimensions] = a number made of its coordinates
extern "C" __global__ void coordinates(int* out) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const int z = blockIdx.z * blockDim.z + threadIdx.z;
    const int width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
    out[(z * height + y) * width + x] = x + 100 * y + 10000 * z;
}

template <class T>
__device__ float wide(T v);
template <>
__device__ float wide(__half v) { return __half2float(v); }
template <>
__device__ float wide(__nv_bfloat16 v) { return __bfloat162float(v); }
template <class T>
__device__ T narrow(float v);
template <>
__device__ __half narrow(float v) { return __float2half_rn(v); }
template <>
__device__ __nv_bfloat16 narrow(float v) { return __float2bfloat16_rn(v); }

// y = 3x, eight elements of two bytes in one access
template <class T>
__device__ void triple_eight(const T* x, T* y, long long vectors) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    union {
        uint4 bits;
        unsigned short part[8];
    } v;
    v.bits = __ldg(reinterpret_cast<const uint4*>(x) + i);
    for (unsigned short& part : v.part) {
        T element;
        memcpy(&element, &part, 2);
        element = narrow<T>(3 * wide(element));
        memcpy(&part, &element, 2);
    }
    reinterpret_cast<uint4*>(y)[i] = v.bits;
}
extern "C" __global__ void triple_f16(const __half* x, __half* y, long long vectors) {
    triple_eight(x, y, vectors);
}
extern "C" __global__ void triple_bf16(const __nv_bfloat16* x, __nv_bfloat16* y, long long vectors) {
    triple_eight(x, y, vectors);
}

// What shared memory holds before anybody has written to it
extern "C" __global__ void read_unwritten(float* statics, float* dynamics, int* first_of_block) {
    extern __shared__ double tile[];
    __shared__ float untouched[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    statics[i] = untouched[threadIdx.x];
    dynamics[i] = static_cast<float>(tile[threadIdx.x]);
    __syncthreads();
    untouched[threadIdx.x] = 1;
    tile[threadIdx.x] = 1;
    if (threadIdx.x == 0) first_of_block[blockIdx.x] = 1;
}

extern "C" __global__ void block_votes(int* out, int threshold) {
    const int big = static_cast<int>(threadIdx.x) >= threshold;
    const int count = __syncthreads_count(big), any = __syncthreads_or(big), all = __syncthreads_and(big);
    out[threadIdx.x] = count * 100 + (any ? 10 : 0) + (all ? 1 : 0);
}

extern "C" __global__ void every_kind(float* out, bool flag, short small, unsigned long long large,
                                      double real, __half tiny) {
    out[0] = flag;
    out[1] = small;
    out[2] = static_cast<float>(large >> 40);
    out[3] = static_cast<float>(real);
    out[4] = __half2float(tiny);
}

// Conversions and bits whose results the test knows
extern "C" __global__ void exact_intrinsics(const float* x, int* out) {
    out[0] = __float2int_rn(x[0]);  // 2.5
    out[1] = __float2int_rz(x[1]);  // 1e20
    out[2] = __float2int_rn(x[2]);  // NaN
    out[3] = __float_as_int(x[3]);  // 1
    out[4] = static_cast<int>(__int_as_float(0x40000000));
    out[5] = __popc(0xf0f0u) + 100 * __clz(1) + 10000 * __ffs(8);
    out[6] = static_cast<int>(__brev(0x80000000u)) + static_cast<int>(10 * __umulhi(1u << 31, 4));
    out[7] = static_cast<int>(__byte_perm(0x33221100, 0x77665544, 0x7430));
    out[8] = static_cast<int>(fmaxf(x[2], 7.0f)) + max(3, 2) + min(1u, 2u);
    out[9] = static_cast<int>(ldexpf(rintf(x[0]), 3)) + (isnan(log1pf(x[2])) ? 1 : 0);
}

// Sums over rows with a barrier between the rows: the block passes many barriers
extern "C" __global__ void many_barriers(float* x, int steps) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    for (int s = 0; s < steps; ++s) {
        __syncthreads();
        const float v = tile[(threadIdx.x + 1) % 128];
        __syncthreads();
        tile[threadIdx.x] = v;
    }
    x[threadIdx.x] = tile[threadIdx.x];
}
