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
// Pixels are flat. The padded pictures of all samples lie in rows of `pitch` places, `rows` rows a picture, so that the
// output at q meets the inputs at q + pitch p_y + p_x: right-hand pads are the left-hand pads of the next row, bottom
// pads the top pads of the next picture. Wide pictures are cut into several of `columns` outputs in a row, with both
// borders to themselves.
//
// Cost. One mma and two max make 1152 terms; with loads and addresses it is 5 instructions of a warp, a seventh of one
// for each term of a lane, where dac_conv.cu needs three. z of 6 × 8 pixels stays in registers for a few outputs, and
// weights serve 6 × 8 pixels. What is lost: the last 2 pitch + 2 of a block's 7 × 6 × 8 pixels see not all that they
// need, and pads are computed. Of the pixels, 76 % are outputs in pictures of 32 × 32 padded by one, 79 % of 16 × 16,
// 74 % of 8 × 8, 62 % of 4 × 4, 78 % of 224 × 224.
//
// Launch. One block of seven warps for a range of flat pixels and `block_outputs` outputs, two after two: the first two
// bring z into the first cache, the others find it there. Neighbouring blocks have the same pixels and other outputs. z
// (channels / 16, places, 16), places enough for all blocks; a lane has four channels in a row of each 16. Weights as
// fragments in the order of a warp's registers, (outputs / 2, channels / 16, 2 outputs, 32 lanes, 4 registers, 2);
// minus_bias (outputs / 2, channels / 16, 2, 16); constant (outputs, 9) = sum_j w b; f (N, outputs, out_height,
// out_width). From sm_80 on.

#include "common.cuh"

namespace companion {

constexpr int taps = 9;
constexpr int warps = 7;
constexpr int strips = 6;               // of eight pixels, for each warp
constexpr int strip = 8;
constexpr int pixels = warps * strips * strip;
constexpr int line = 344;               // of c in shared memory: 8 rows × 8 pixels of a strip lie in different banks
constexpr int outputs_at_once = 2;
constexpr int conv3x3_threads = warps * warp_size;
static_assert(line >= pixels && line % 2 == 0);

struct Pictures {
    int samples, places, channels, height, width, outputs, out_height, out_width, padding_y, padding_x, before, columns;
    Divisor pitch, rows, cuts;

    // Flat pixel q: its sample, and its place in the padded picture of the sample.
    struct Place {
        int sample, y, x, x_in_cut;
    };
    __device__ __forceinline__ Place at(int q) const {
        const int row = pitch.quotient(q), picture = rows.quotient(row), sample = cuts.quotient(picture);
        const int x = pitch.rest(q, row);
        return {sample, rows.rest(row, picture), cuts.rest(picture, sample) * columns + x, x};
    }
};

template <typename T>
__device__ __forceinline__ uint2 four_at(const T* address) {
    return *reinterpret_cast<const uint2*>(address);
}

// What a lane holds of 16 input channels: of its pixels, and of the biases and weights of its outputs.
struct Factors {
    uint2 z[strips], minus_b[outputs_at_once];
    uint4 w[outputs_at_once];
};

// sum += w max(z, -b): one maximum for the nine positions of the kernel, which are rows of the matrix w.
template <typename T>
__device__ __forceinline__ void accumulate(float (&sum)[outputs_at_once][strips][4], const Factors& with) {
#pragma unroll
    for (int o = 0; o < outputs_at_once; ++o) {
        const unsigned w[4] = {with.w[o].x, with.w[o].y, with.w[o].z, with.w[o].w};
#pragma unroll
        for (int s = 0; s < strips; ++s) {
            const unsigned active[2] = {packed_max<T>(with.z[s].x, with.minus_b[o].x),
                                        packed_max<T>(with.z[s].y, with.minus_b[o].y)};
            multiply_add<T>(sum[o][s], w, active);
        }
    }
}

// Two outputs at `useful` flat pixels from `first` on.
template <typename T>
__device__ __forceinline__ void conv3x3_outputs(const T* z, const uint4* weight, const T* minus_bias,
                                                const float* constant, T* f, int first_output, int first, int useful,
                                                float (&c)[outputs_at_once][taps][line], const Pictures& of) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size, group = lane / 4, place = lane % 4;

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

    const int blocks = of.channels / 16;
    const T* from_z = z + (static_cast<int64>(first) + warp * strips * strip + group) * 16 + place * 4;
    const int64 first_factor = static_cast<int64>(first_output) * blocks;
    const uint4* from_w = weight + first_factor * warp_size + lane;
    const T* from_b = minus_bias + first_factor * 16 + place * 4;
    const auto load = [&](Factors& to) {
#pragma unroll
        for (int s = 0; s < strips; ++s) to.z[s] = four_at(from_z + s * strip * 16);
#pragma unroll
        for (int o = 0; o < outputs_at_once; ++o) {
            to.w[o] = from_w[o * warp_size];
            to.minus_b[o] = four_at(from_b + o * 16);
        }
        from_z += static_cast<int64>(of.places) * 16;
        from_w += outputs_at_once * warp_size;
        from_b += outputs_at_once * 16;
    };
    // the next block of channels is loaded while one is computed
    Factors even, odd;
    load(even);
#pragma unroll 1
    for (int block = 0; block < blocks; block += 2) {
        if (block + 1 < blocks) load(odd);
        accumulate<T>(sum, even);
        if (block + 1 == blocks) break;
        if (block + 2 < blocks) load(even);
        accumulate<T>(sum, odd);
    }

    // to shared memory
    const auto is_inside = [&](int q) {
        const Pictures::Place at = of.at(first + q);
        const int y = at.y - of.padding_y, x = at.x - of.padding_x;
        return at.sample < of.samples && y >= 0 && y < of.height && x >= 0 && x < of.width;
    };
#pragma unroll
    for (int s = 0; s < strips; ++s) {
        const int q = (warp * strips + s) * strip + 2 * place;
        const unsigned inside = of.before ? full_warp : __ballot_sync(full_warp, is_inside(q - 2 * place + group));
        // two neighbouring pixels in one store; four lanes looked at each pixel
        const bool first_counts = inside >> 8 * place & 1, second_counts = inside >> (8 * place + 4) & 1;
        const auto store = [&](float* to, float x, float y) {
            *reinterpret_cast<float2*>(to) = make_float2(first_counts ? x : 0.0f, second_counts ? y : 0.0f);
        };
#pragma unroll
        for (int o = 0; o < outputs_at_once; ++o) {
            store(&c[o][group][q], sum[o][s][0], sum[o][s][1]);
            if (group == 0) store(&c[o][8][q], sum[o][s][2], sum[o][s][3]);
        }
    }
    __syncthreads();

    // shift and add
    for (int i = threadIdx.x; i < useful; i += conv3x3_threads) {
        const Pictures::Place at = of.at(first + i);
        if (at.sample >= of.samples || at.y >= of.out_height || at.x >= of.out_width || at.x_in_cut >= of.columns)
            continue;
#pragma unroll
        for (int o = 0; o < outputs_at_once; ++o) {
            const int output = first_output + o;
            if (output >= of.outputs) break;
            float total = 0.0f;
#pragma unroll
            for (int p = 0; p < taps; ++p) total += c[o][p][i + p / 3 * of.pitch.d + p % 3];
            const int64 channel = static_cast<int64>(at.sample) * of.outputs + output;
            f[(channel * of.out_height + at.y) * of.out_width + at.x] = from_float<T>(total);
        }
    }
}

template <typename T>
__device__ __forceinline__ void conv3x3_forward(const T* z, const uint4* weight, const T* minus_bias,
                                                const float* constant, T* f, const Pictures& of, int block_outputs) {
    __shared__ __align__(8) float c[outputs_at_once][taps][line];
    const int output_blocks = (of.outputs + block_outputs - 1) / block_outputs;
    const int first_output = blockIdx.x % output_blocks * block_outputs;
    const int useful = pixels - 2 * of.pitch.d - 2, first = blockIdx.x / output_blocks * useful;
#pragma unroll 1
    for (int o = first_output; o < min(first_output + block_outputs, of.outputs); o += outputs_at_once) {
        if (o > first_output) __syncthreads();  // c has been read
        conv3x3_outputs<T>(z, weight, minus_bias, constant, f, o, first, useful, c, of);
    }
}

}  // namespace companion

#define COMPANION_KERNELS(suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(companion::conv3x3_threads, 2) dac_conv3x3_forward_##suffix(          \
        const T* z, const uint4* weight, const T* minus_bias, const float* constant, T* f, int samples, int places,    \
        int channels, int height, int width, int outputs, int out_height, int out_width, int padding_y, int padding_x, \
        int before, int columns, int pitch, unsigned by_pitch, int rows, unsigned by_rows, int cuts,                   \
        unsigned by_cuts, int block_outputs) {                                                                         \
        companion::conv3x3_forward<T>(                                                                                 \
            z, weight, minus_bias, constant, f,                                                                        \
            {samples, places, channels, height, width, outputs, out_height, out_width, padding_y, padding_x, before,   \
             columns, {pitch, by_pitch}, {rows, by_rows}, {cuts, by_cuts}},                                            \
            block_outputs);                                                                                            \
    }

COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
