// Products of matrices on tensor cores. It compiles with NVRTC as well.
#include "common.cuh"

// d += a b: a 16 × 16 and d 16 × 8 by rows, b 16 × 8 by columns; `lanes` of the warp take part
template <typename T>
__device__ void multiply(const T* a, const T* b, float* d, int lanes) {
    const int row = threadIdx.x / 4, column = threadIdx.x % 4 * 2;
    const auto pair = [](const T* address) { return *reinterpret_cast<const unsigned*>(address); };
    const unsigned a_part[4] = {pair(a + row * 16 + column), pair(a + (row + 8) * 16 + column),
                                pair(a + row * 16 + column + 8), pair(a + (row + 8) * 16 + column + 8)};
    const unsigned b_part[2] = {pair(b + row * 16 + column), pair(b + row * 16 + column + 8)};
    float* const upper = d + row * 8 + column;
    float* const lower = upper + 8 * 8;
    float d_part[4] = {upper[0], upper[1], lower[0], lower[1]};
    if (static_cast<int>(threadIdx.x) >= lanes) return;
    companion::multiply_add<T>(d_part, a_part, b_part);
    upper[0] = d_part[0];
    upper[1] = d_part[1];
    lower[0] = d_part[2];
    lower[1] = d_part[3];
}

extern "C" __global__ void multiply_f16(const __half* a, const __half* b, float* d, int lanes) {
    multiply(a, b, d, lanes);
}
extern "C" __global__ void multiply_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d, int lanes) {
    multiply(a, b, d, lanes);
}
