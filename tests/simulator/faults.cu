// Kernels with one planted fault each. Tests look for the lines that carry a mark.
constexpr unsigned whole_warp = 0xffffffffu;

extern "C" __global__ void missing_barrier(float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    // here
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

// in all orders in which threads take turns, each warp arrives before the first one goes on
extern "C" __global__ void missing_barrier_in_step(float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    __syncwarp();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

extern "C" __global__ void skipped_barrier(float* out) {
    if (threadIdx.x < 40) __syncthreads();  // mark: skipped_barrier
    out[threadIdx.x] = 1;
}

// in every block, and in the first one long after the others
extern "C" __global__ void skipped_late(float* out) {
    if (blockIdx.x == 0)
        for (volatile int i = 0; i < 1000000; ++i) {}
    if (threadIdx.x < 40) __syncthreads();
    out[threadIdx.x] = 1;
}

extern "C" __global__ void two_barriers(float* out) {
    if (threadIdx.x < 40)
        __syncthreads();  // mark: two_barriers
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

// Warp 0 waits for warp 1 at the barrier; lane 0 of warp 1 waits there too, and the others wait for lane 0.
extern "C" __global__ void deadlock(float* out) {
    if (threadIdx.x <= 32) __syncthreads();  // mark: deadlock
    else out[threadIdx.x] = __shfl_sync(whole_warp, 1.0f, 0);
}

extern "C" __global__ void shuffle_with_exited_lane(float* out) {
    const int lane = threadIdx.x;
    if (lane >= 20) return;
    out[lane] = __shfl_down_sync(whole_warp, 1.0f, 16);  // mark: shuffle_with_exited_lane
}

extern "C" __global__ void shuffle_from_outside_the_mask(float* out) {
    const int lane = threadIdx.x;
    if (lane < 16) out[lane] = __shfl_xor_sync(0xffffu, 1.0f, 16);  // mark: shuffle_from_outside_the_mask
}

extern "C" __global__ void shuffle_without_own_lane(float* out) {
    out[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, 0);  // mark: shuffle_without_own_lane
}

extern "C" __global__ void shuffle_of_odd_width(float* out) {
    out[threadIdx.x] = __shfl_sync(whole_warp, 1.0f, 0, 12);  // mark: shuffle_of_odd_width
}

extern "C" __global__ void out_of_bounds_write(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = 2;  // mark: out_of_bounds_write
}

extern "C" __global__ void out_of_bounds_read(const float* x, float* out, int offset) {
    out[threadIdx.x] = x[static_cast<int>(threadIdx.x) + offset];  // mark: out_of_bounds_read
}

extern "C" __global__ void shared_out_of_bounds(float* out, int n) {
    __shared__ float tile[32];
    if (static_cast<int>(threadIdx.x) < n) tile[threadIdx.x] = 1;  // mark: shared_out_of_bounds
    __syncthreads();
    out[threadIdx.x] = 1;
}

extern "C" __global__ void dynamic_shared_overrun(float* out) {
    extern __shared__ float dynamic_tile[];
    dynamic_tile[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = dynamic_tile[0];
}

extern "C" __global__ void misaligned_vector(const float* x, float4* out) {
    out[0] = *reinterpret_cast<const float4*>(x);  // mark: misaligned_vector
}

extern "C" __global__ void null_pointer(float* out) {
    out[threadIdx.x] = 1;  // mark: null_pointer
}

extern "C" __global__ void wild_pointer(float* out) {
    out[-(1ll << 40)] = 1;  // mark: wild_pointer
}

extern "C" __global__ void division_by_zero(int* out) {
    out[0] = 7 / out[0];  // mark: division_by_zero
}

extern "C" __global__ void trap(float* out) {
    if (threadIdx.x == 3) __trap();  // mark: trap
}

extern "C" __global__ void endless_stack(float* out) {
    volatile float hoard[40000];
    for (int i = 0; i < 40000; ++i) hoard[i] = 1;
    out[threadIdx.x] = hoard[39999];
}

// Adds in whatever order the threads come
extern "C" __global__ void unordered_sum(float* out) {
    atomicAdd(out, 1.0f / (1 + threadIdx.x));
}

extern "C" __global__ void write_before(float* out) {
    out[static_cast<int>(threadIdx.x) - 1] = 1;
}

extern "C" __global__ void failed_assertion(float* out) {
    assert(threadIdx.x < 9);  // mark: failed_assertion
}
