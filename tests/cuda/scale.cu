// A kernel for the tests of compiling and launching: out[i] = 3 in[i].
#include "common.cuh"
#include "scale.cuh"

extern "C" __global__ void scale(const float* in, float* out, long long n) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = companion_test::factor * in[i];
}
