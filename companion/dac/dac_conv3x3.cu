// DAC, 3 × 3 kernels with stride 1, one bias a pair of channels, 16 bits, with ReLU, on tensor cores.
//
// The activation of output i, input j and pixel q, relu(b_ij + z_jq), is met by nine weights, one for each position p
// of the kernel. For one output the nine sums over j are a product of two matrices: positions × inputs, the weights,
// times inputs × pixels, the activations.
//
//     c_p(q) = sum_j w_ijp max(z_jq, -b_ij) + sum_j w_ijp b_ij           = sum_j w_ijp relu(b_ij + z_jq)
//     f_i(y, x) = sum_p c_p((y, x) + p - padding)                        shift and add
//
// so mma.m16n8k16 takes the positions as rows, nine of 16, sixteen inputs at once, and eight pixels. One packed max
// makes two activations and does not round; weights and biases have 16 bits, all sums are float32. The sum of w b is
// what c begins with. Pixels outside the picture have z = 0, which is right where padding comes before the activation;
// where it comes after, their c counts as 0. A NaN in z is kept by the max.
//
// Cost. One mma and two max make 1152 terms; with loads and addresses it is 11 instructions of a warp, a third of one
// for each term of a lane, where dac_conv.cu needs three. z of 6 × 8 pixels stays in registers for a few outputs, and
// weights serve 6 × 8 pixels. What is lost: 256 pixels of a block need 18 × 18, and 42 × 8 are computed.
//
// Launch. One block of seven warps for 16 × 16 pixels of `outputs_at_once` outputs of one sample; neighbouring blocks
// have the same pixels and other outputs. z (N, height, width, channels), channels a multiple of 16; weights as
// fragments in the order of a warp's registers, (outputs, channels / 16, 32 lanes, 4 registers, 2); minus_bias
// (outputs, channels); constant (outputs, 9) = sum_j w b; f (N, outputs, out_height, out_width). From sm_80 on.

#include "common.cuh"

namespace companion {

constexpr int side = 16;                // of the pixels that a block computes
constexpr int halo_side = side + 2;
constexpr int pixels = halo_side * halo_side;
constexpr int taps = 9;
constexpr int warps = 7;
constexpr int strips = 6;               // of eight pixels, for each warp
constexpr int strip = 8;
constexpr int pitch = 344;              // of c in shared memory: 8 rows × 8 pixels of a strip lie in different banks
constexpr int outputs_at_once = 2;
constexpr int conv3x3_threads = warps * warp_size;
static_assert(warps * strips * strip >= pixels && pitch >= warps * strips * strip);

struct Picture {
    int channels, height, width, outputs, out_height, out_width, padding_y, padding_x, before;
};

template <typename T>
__device__ __forceinline__ unsigned pair_at(const T* address) {
    return *reinterpret_cast<const unsigned*>(address);
}

template <typename T>
__device__ __forceinline__ void conv3x3_forward(const T* z, const uint4* weight, const T* minus_bias,
                                                const float* constant, T* f, const Picture& of) {
    __shared__ float c[outputs_at_once][taps][pitch];
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size, group = lane / 4, place = lane % 4;

    // which pixels and outputs
    const int across = (of.out_width + side - 1) / side, down = (of.out_height + side - 1) / side;
    const int output_blocks = (of.outputs + outputs_at_once - 1) / outputs_at_once;
    const int first_output = blockIdx.x % output_blocks * outputs_at_once, tile = blockIdx.x / output_blocks;
    const int first_x = tile % across * side, first_y = tile / across % down * side;
    const int64 sample = tile / (across * down);
    const auto pixel_y = [&](int q) { return first_y + q / halo_side - of.padding_y; };
    const auto pixel_x = [&](int q) { return first_x + q % halo_side - of.padding_x; };
    const auto is_inside = [&](int q) {
        const int y = pixel_y(q), x = pixel_x(q);
        return q < pixels && y >= 0 && y < of.height && x >= 0 && x < of.width;
    };

    // c begins with the constants: row `group`, and row 8 in the lanes of the first group
    float sum[outputs_at_once][strips][4];
#pragma unroll
    for (int o = 0; o < outputs_at_once; ++o) {
        const float* const of_output = constant + min(first_output + o, of.outputs - 1) * taps;
        const float upper = of_output[group], lower = group == 0 ? of_output[8] : 0.0f;
#pragma unroll
        for (int s = 0; s < strips; ++s) {
            sum[o][s][0] = sum[o][s][1] = upper;
            sum[o][s][2] = sum[o][s][3] = lower;
        }
    }

    // the lane's pixel of each strip, as an offset in the sample; negative outside
    int offset[strips];
#pragma unroll
    for (int s = 0; s < strips; ++s) {
        const int q = (warp * strips + s) * strip + group;
        offset[s] = is_inside(q) ? (pixel_y(q) * of.width + pixel_x(q)) * of.channels + place * 2 : -1;
    }

    z += sample * of.height * of.width * of.channels;
    const int blocks_of_channels = of.channels / 16;
    for (int block = 0; block < blocks_of_channels; ++block) {
        const T* const channels = z + block * 16;
        unsigned z_pair[strips][2];
#pragma unroll
        for (int s = 0; s < strips; ++s) {
            z_pair[s][0] = offset[s] >= 0 ? pair_at(channels + offset[s]) : 0;
            z_pair[s][1] = offset[s] >= 0 ? pair_at(channels + offset[s] + 8) : 0;
        }
#pragma unroll
        for (int o = 0; o < outputs_at_once; ++o) {
            const int64 output = min(first_output + o, of.outputs - 1);
            const uint4 four = weight[(output * blocks_of_channels + block) * warp_size + lane];
            const unsigned w[4] = {four.x, four.y, four.z, four.w};
            const T* const b = minus_bias + output * of.channels + (block * 16 + place * 2);
            const unsigned minus_b[2] = {pair_at(b), pair_at(b + 8)};
#pragma unroll
            for (int s = 0; s < strips; ++s) {
                const unsigned active[2] = {packed_max<T>(z_pair[s][0], minus_b[0]),
                                            packed_max<T>(z_pair[s][1], minus_b[1])};
                multiply_add<T>(sum[o][s], w, active);
            }
        }
    }

    // to shared memory
#pragma unroll
    for (int s = 0; s < strips; ++s) {
        const int q = (warp * strips + s) * strip + 2 * place;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const bool counts = of.before || is_inside(q + h);
#pragma unroll
            for (int o = 0; o < outputs_at_once; ++o) {
                c[o][group][q + h] = counts ? sum[o][s][h] : 0.0f;
                if (group == 0) c[o][8][q + h] = counts ? sum[o][s][2 + h] : 0.0f;
            }
        }
    }
    __syncthreads();

    // shift and add
    for (int i = threadIdx.x; i < outputs_at_once * side * side; i += conv3x3_threads) {
        const int o = i / (side * side), y = i / side % side, x = i % side, output = first_output + o;
        if (output >= of.outputs || first_y + y >= of.out_height || first_x + x >= of.out_width) continue;
        float total = 0.0f;
#pragma unroll
        for (int p = 0; p < taps; ++p) total += c[o][p][(y + p / 3) * halo_side + x + p % 3];
        f[((sample * of.outputs + output) * of.out_height + first_y + y) * of.out_width + first_x + x] =
            from_float<T>(total);
    }
}

}  // namespace companion

#define COMPANION_KERNELS(suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(companion::conv3x3_threads, 2) dac_conv3x3_forward_##suffix(          \
        const T* z, const uint4* weight, const T* minus_bias, const float* constant, T* f, int channels, int height,   \
        int width, int outputs, int out_height, int out_width, int padding_y, int padding_x, int before) {             \
        companion::conv3x3_forward<T>(                                                                                 \
            z, weight, minus_bias, constant, f,                                                                        \
            {channels, height, width, outputs, out_height, out_width, padding_y, padding_x, before});                  \
    }

COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
