// out[i] = function(x[i]), for functions whose error on a GPU is documented. A kernel reaches PTX
// instructions through inline assembly on a GPU and through the simulator's functions here.
#ifdef COMPANION_SIMULATOR
using simulator::approx_exp2;
using simulator::approx_exp2_ftz;
using simulator::approx_log2;
using simulator::approx_log2_ftz;
using simulator::approx_reciprocal;
using simulator::approx_reciprocal_ftz;
using simulator::approx_tanh;
#else
#define INSTRUCTION(NAME, PTX)                         \
    __device__ float NAME(float x) {                   \
        float y;                                       \
        asm(PTX ".f32 %0, %1;" : "=f"(y) : "f"(x));    \
        return y;                                      \
    }
INSTRUCTION(approx_exp2, "ex2.approx")
INSTRUCTION(approx_exp2_ftz, "ex2.approx.ftz")
INSTRUCTION(approx_log2, "lg2.approx")
INSTRUCTION(approx_log2_ftz, "lg2.approx.ftz")
INSTRUCTION(approx_reciprocal, "rcp.approx")
INSTRUCTION(approx_reciprocal_ftz, "rcp.approx.ftz")
INSTRUCTION(approx_tanh, "tanh.approx")
#endif

__device__ float one_over(float x) { return __fdividef(1.0f, x); }

#define APPLY(NAME, FUNCTION)                                                       \
    extern "C" __global__ void NAME(const float* x, float* out, int n) {            \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                        \
        if (i < n) out[i] = FUNCTION(x[i]);                                         \
    }
APPLY(apply_exp2, approx_exp2)
APPLY(apply_exp2_ftz, approx_exp2_ftz)
APPLY(apply_log2, approx_log2)
APPLY(apply_log2_ftz, approx_log2_ftz)
APPLY(apply_reciprocal, approx_reciprocal)
APPLY(apply_reciprocal_ftz, approx_reciprocal_ftz)
APPLY(apply_tanh, approx_tanh)
APPLY(apply_expf, __expf)
APPLY(apply_exp10f, __exp10f)
APPLY(apply_logf, __logf)
APPLY(apply_log2f, __log2f)
APPLY(apply_log10f, __log10f)
APPLY(apply_sinf, __sinf)
APPLY(apply_cosf, __cosf)
APPLY(apply_fdividef, one_over)
APPLY(apply_rsqrtf, rsqrtf)
APPLY(apply_tanhf, __tanhf)
