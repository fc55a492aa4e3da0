// The gradients of dac_conv3x3.cu on tensor cores: 3 × 3 kernels with stride 1, one bias a pair of channels, 16 bits.
//
// Pixels are flat. The pictures of all samples lie in rows of `pitch` places, `rows` rows a sample, so that the output
// at q meets the inputs at q + s_p, s_p = pitch p_y + p_x for the positions p of the kernel: right-hand pads are the
// left-hand pads of the next row, bottom pads the top pads of the next sample. g is 0 where no output is. Pads of z are
// 0 where padding comes before the activation, and else a number that no bias lifts above 0. With M = (b_ij + z_j > 0),
// true at NaN, which compares and does not round,
//
//     t_ij(q) = sum_p w_ijp g_i(q - s_p)                    dz_j(q) = sum_i M_ij(q) t_ij(q)
//     dw_ijp  = sum_q g_i(q - s_p) M z + b sum_q g_i(q - s_p) M        db_ij = sum_p w_ijp sum_q g_i(q - s_p) M
//
// dz: mma.m16n8k16 with 16 channels j as rows, positions as terms, eight pixels as columns. Lane place p_y takes the
// three positions of one row of the kernel: its factor is a record {g(x), g(x + 1), g(x + 2), 0} of 8 bytes, and one
// load brings it. The records of a few outputs are made in shared memory for all warps of a block. The last of the
// four terms is 0, so its weight may be any number: there -b comes along. One comparison makes two predicates for two
// additions. 1152 terms: one mma, two comparisons, four additions, half a load, and what an output brings, 9
// instructions of a warp, a fourth of one for each term of a lane; dac_conv.cu needs 2.4.
//
// dw, db: positions as rows, 16 pixels as terms, eight channels as columns. Of the activations' side there are two,
// z M and M, with M as 1 and 0; a comparison and a product make two pixels of both. The terms of a lane are eight
// neighbouring pixels, four in each of two mma: one load of 16 bytes. g lies in shared memory nine times, shifted by
// s_p, in fours of pixels that are a lane's registers: those of a position and, for the first lanes, of position 8.
// 1152 terms of both sums: 8 instructions of a warp, a fifth of one for each term of a lane; dac_conv.cu needs 3.2.
// A zero of g where no output is, times an infinite z or NaN, is NaN: where a sum is NaN, it is taken again, term by
// term, over outputs only; where g itself is not finite, NaN stays. The sums go to `partial`, for dac_conv_finish in
// dac_conv.cu.
//
// Of the flat pixels, 86 % are inputs in pictures of 32 × 32 padded by one, 75 % of 16 × 16, 71 % of 8 × 8, 53 % of
// 4 × 4, 98 % of 224 × 224: the pitch is even, and such that the three rows of a strip lie in different banks of
// shared memory.
//
// Launch. Blocks of eight warps. dz: a warp has 32 channels and 6 × 8 pixels, `pixel_warps` lie side by side and the
// others have other channels. dw: a warp has two outputs and 32 channels, `channel_warps` have the same outputs.
// z (channels, length); g (outputs, lead + length) with lead = 2 pitch + 2 places before q = 0; length is a multiple
// of 32. weight for dz: fragments (outputs, channels / 16, 32 lanes, 4 registers, 2). From sm_80 on.

#include "common.cuh"

namespace companion {

constexpr int warps = 8;
constexpr int threads = warps * warp_size;
constexpr int taps = 9;
constexpr int warp_channels = 32;

constexpr int strips = 6;               // dz: of eight pixels, for each warp
constexpr int strip = 8;
constexpr int blocks_of_16 = warp_channels / 16;
constexpr int buffer_records = 2432;    // in each of two buffers

constexpr int outputs_at_once = 2;      // dw: of a warp
constexpr int blocks_of_8 = warp_channels / 8;
constexpr int step = 32;                // pixels of two mma
constexpr int staged = 1024;            // outputs × pixels that lie in shared memory: four for each thread
constexpr int most_outputs = warps * outputs_at_once;
constexpr int lines = 8;                // of fours of pixels for each output in shared memory
constexpr int gap = 1;                  // behind a line, so that neighbouring ones begin in different banks

struct Flat {
    int samples, channels, outputs, height, width, out_height, out_width, padding_y, padding_x, pitch, rows, length;

    __device__ __forceinline__ int lead() const { return 2 * pitch + 2; }
};

template <typename T>
__device__ __forceinline__ unsigned pair_at(const T* address) {
    return *reinterpret_cast<const unsigned*>(address);
}

// {upper half of low, lower half of high}
__device__ __forceinline__ unsigned middle_of(unsigned low, unsigned high) { return __byte_perm(low, high, 0x5432); }

// The thread's number, as if it were not known yet: what is computed from it here is not held in registers from before.
__device__ __forceinline__ int thread_anew() {
    int thread = threadIdx.x;
#ifndef COMPANION_SIMULATOR
    asm volatile("" : "+r"(thread));
#endif
    return thread;
}

// --- dz ---

// The records of one output, from place `first` of g on: two neighbouring ones of each lane at a time.
template <typename T>
__device__ __forceinline__ void make_records(uint2* record, const T* g, int first, int places, int count, int lane) {
    for (int r = 2 * lane; r < count; r += 2 * warp_size) {
        const int x = first + r;
        const unsigned low = x < places ? pair_at(g + x) : 0, high = x + 2 < places ? pair_at(g + x + 2) : 0;
        *reinterpret_cast<uint4*>(record + r) = make_uint4(low, high & 0xffff, middle_of(low, high), high >> 16);
    }
}

template <typename T>
__device__ __forceinline__ void conv3x3_input(const T* g, const T* z, const uint4* weight, T* dz, const Flat& of,
                                              int pixel_warps, int at_once) {
    __shared__ __align__(16) uint2 records[2][buffer_records];
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size, group = lane / 4, place = lane % 4;

    // which pixels and channels
    const int block_channels = warps / pixel_warps * warp_channels;
    const int channel_blocks = (of.channels + block_channels - 1) / block_channels;
    const int first_pixel = blockIdx.x / channel_blocks * pixel_warps * strips * strip;
    const int block_channel = blockIdx.x % channel_blocks * block_channels;
    const auto channel_of = [&](int thread) {  // of the first block of 16
        return block_channel + thread / warp_size / pixel_warps * warp_channels + thread % warp_size / 4;
    };
    const auto pixel_of = [&](int thread) {  // of the first strip
        return first_pixel + thread / warp_size % pixel_warps * strips * strip + 2 * (thread % 4);
    };

    unsigned z_pair[blocks_of_16][strips][2];
    float sum[blocks_of_16][strips][4];
#pragma unroll
    for (int block = 0; block < blocks_of_16; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int j = min(channel_of(threadIdx.x) + block * 16 + half * 8, of.channels - 1);
            const T* const channel = z + static_cast<int64>(j) * of.length;
#pragma unroll
            for (int s = 0; s < strips; ++s) {
                const int q = pixel_of(threadIdx.x) + s * strip;
                z_pair[block][s][half] = q < of.length ? pair_at(channel + q) : 0;
                sum[block][s][2 * half] = sum[block][s][2 * half + 1] = 0.0f;
            }
        }
    }

    // output `first_output` + w is the matter of warp w
    const int count = pixel_warps * strips * strip + 2 * of.pitch, places = of.lead() + of.length;
    const auto stage = [&](int buffer, int first_output) {
        const int thread = thread_anew(), number = thread / warp_size, output = first_output + number;
        if (number >= at_once || output >= of.outputs) return;
        make_records(records[buffer] + number * count, g + static_cast<int64>(output) * places, first_pixel, places,
                     count, thread % warp_size);
    };
    const int blocks = (of.channels + 15) / 16;
    const uint4* fragment[blocks_of_16];
#pragma unroll
    for (int block = 0; block < blocks_of_16; ++block)
        fragment[block] = weight + min(channel_of(threadIdx.x) / 16 + block, blocks - 1) * warp_size + lane;
    const int in_records = warp % pixel_warps * strips * strip + group + (2 - min(place, 2)) * of.pitch;

    stage(0, 0);
    __syncthreads();
    for (int first = 0, buffer = 0; first < of.outputs; first += at_once, buffer ^= 1) {
        stage(buffer ^ 1, first + at_once);
        const int here = min(at_once, of.outputs - first);
        const uint2* record = records[buffer] + in_records;
#pragma unroll 1
        for (int o = 0; o < here; ++o, record += count) {
            unsigned w[blocks_of_16][4], minus_b[blocks_of_16][2];
#pragma unroll
            for (int block = 0; block < blocks_of_16; ++block) {
                const uint4 four = *fragment[block];
                fragment[block] += blocks * warp_size;
                w[block][0] = four.x, w[block][1] = four.y, w[block][2] = four.z, w[block][3] = four.w;
                minus_b[block][0] = __byte_perm(four.z, 0, 0x3232);
                minus_b[block][1] = __byte_perm(four.w, 0, 0x3232);
            }
#pragma unroll
            for (int s = 0; s < strips; ++s) {
                const uint2 two = record[s * strip];
                const unsigned around[2] = {two.x, two.y};
#pragma unroll
                for (int block = 0; block < blocks_of_16; ++block) {
                    float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                    multiply_add<T>(t, w[block], around);
                    float(&to)[4] = sum[block][s];
                    add_where_above<T>(to[0], to[1], z_pair[block][s][0], minus_b[block][0], t[0], t[1]);
                    add_where_above<T>(to[2], to[3], z_pair[block][s][1], minus_b[block][1], t[2], t[3]);
                }
            }
        }
        __syncthreads();
    }

    // to the picture; a pair of pixels is in one row
    const int thread = thread_anew();
#pragma unroll
    for (int s = 0; s < strips; ++s) {
        const int q = pixel_of(thread) + s * strip, row = q / of.pitch, sample = row / of.rows;
        const int y = row - sample * of.rows - of.padding_y, x = q - row * of.pitch - of.padding_x;
        if (sample >= of.samples || y < 0 || y >= of.height) continue;
#pragma unroll
        for (int block = 0; block < blocks_of_16; ++block) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int channel = channel_of(thread) + block * 16 + half * 8;
                if (channel >= of.channels) continue;
                T* const to = dz + ((static_cast<int64>(sample) * of.channels + channel) * of.height + y) * of.width;
                const float* const of_pair = sum[block][s] + 2 * half;
                if (x >= 0 && x < of.width) to[x] = from_float<T>(of_pair[0]);
                if (x + 1 >= 0 && x + 1 < of.width) to[x + 1] = from_float<T>(of_pair[1]);
            }
        }
    }
}

// --- dw and db ---

// sum_q g(q - shift) M z, or without z, over outputs only: for the flat pixels from `begin` to `end`. `finite`: whether
// g is; otherwise the sum is left.
template <typename T>
__device__ float sum_over_outputs(const T* g, const T* z, bool with_z, float minus_b, int shift, int begin, int end,
                                  const Flat& of, bool& finite) {
    float sum = 0.0f;
    for (int q = max(begin, shift); q < end && !isnan(sum); ++q) {
        const int row = (q - shift) / of.pitch, x = q - shift - row * of.pitch;
        if (x >= of.out_width || row % of.rows >= of.out_height || row / of.rows >= of.samples) continue;
        const float z_q = to_float(z[q]), g_q = to_float(g[q - shift]);
        finite = isfinite(g_q);
        if (!finite) break;
        if (!(z_q <= minus_b)) sum = fmaf(g_q, with_z ? z_q : 1.0f, sum);
    }
    return sum;
}

template <typename T>
__device__ __forceinline__ void conv3x3_weight(const T* g, const T* z, const T* bias, float* partial, const Flat& of,
                                               int channel_warps, int part_length) {
    __shared__ uint4 shifted[lines * (staged / 4 + most_outputs * gap)];
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size, group = lane / 4, place = lane % 4;

    // which outputs, channels and pixels
    const int block_outputs = warps / channel_warps * outputs_at_once, block_channels = channel_warps * warp_channels;
    const int output_blocks = (of.outputs + block_outputs - 1) / block_outputs;
    const int channel_blocks = (of.channels + block_channels - 1) / block_channels;
    const int first_output = blockIdx.x % output_blocks * block_outputs;
    const int tile = blockIdx.x / output_blocks, part = tile / channel_blocks;
    const int first_channel = tile % channel_blocks * block_channels + warp % channel_warps * warp_channels;
    const int warp_output = warp / channel_warps * outputs_at_once;
    const int begin = part * part_length, end = min(begin + part_length, of.length);
    const int places = of.lead() + of.length;

    unsigned minus_b[outputs_at_once][blocks_of_8];
    int from_first[blocks_of_8];
    const auto channel_of = [&](int block) { return min(first_channel + block * 8 + group, of.channels - 1); };
    const T* z_first = z + static_cast<int64>(channel_of(0)) * of.length + begin + place * 8;
#pragma unroll
    for (int block = 0; block < blocks_of_8; ++block) {
        const int j = channel_of(block);
        from_first[block] = (j - channel_of(0)) * of.length;
#pragma unroll
        for (int o = 0; o < outputs_at_once; ++o) {
            const int64 i = min(first_output + warp_output + o, of.outputs - 1);
            const T value = from_float<T>(-to_float(bias[i * of.channels + j]));
            const T two[2] = {value, value};
            minus_b[o][block] = bound_for_one_above<T>(pair_at(two));
        }
    }

    float gz_sum[outputs_at_once][blocks_of_8][4] = {}, g_sum[outputs_at_once][blocks_of_8][4] = {};
    const int chunk = staged / block_outputs, line = chunk / 4 + gap;
    const uint4* const of_warp = shifted + (warp_output * lines + group) * line + 2 * place;

    for (int first = begin; first < end; first += chunk) {
        const int here = min(chunk, end - first);
        __syncthreads();
        // a thread moves four pixels of one output to all lines
        const int thread = thread_anew(), moved = thread / (chunk / 4), moved_four = thread % (chunk / 4);
        if (4 * moved_four < here) {
            const int64 output = min(first_output + moved, of.outputs - 1);
            const T* const from = g + output * places + (first + 4 * moved_four);
            uint4* const to = shifted + moved * lines * line + moved_four;
            uint2 four[taps];
#pragma unroll
            for (int y = 0; y < 3; ++y) {
                const T* const source = from + (2 - y) * of.pitch;  // at the shift of position (y, 2)
                const unsigned pair[3] = {pair_at(source), pair_at(source + 2), pair_at(source + 4)};
                four[3 * y] = make_uint2(pair[1], pair[2]);
                four[3 * y + 1] = make_uint2(middle_of(pair[0], pair[1]), middle_of(pair[1], pair[2]));
                four[3 * y + 2] = make_uint2(pair[0], pair[1]);
            }
#pragma unroll
            for (int p = 0; p < lines; ++p) to[p * line] = make_uint4(four[p].x, four[8].x, four[p].y, four[8].y);
        }
        __syncthreads();
        const uint4* factor = of_warp;
#pragma unroll 1
        for (int in_chunk = 0; in_chunk < here; in_chunk += step, factor += step / 4, z_first += step) {
            unsigned g_pair[outputs_at_once][2][4];
#pragma unroll
            for (int o = 0; o < outputs_at_once; ++o) {
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const uint4 four = factor[o * lines * line + k];
                    g_pair[o][k][0] = four.x, g_pair[o][k][1] = four.y;
                    g_pair[o][k][2] = four.z, g_pair[o][k][3] = four.w;
                }
            }
#pragma unroll
            for (int block = 0; block < blocks_of_8; ++block) {
                const uint4 eight = *reinterpret_cast<const uint4*>(z_first + from_first[block]);
                const unsigned z_pair[2][2] = {{eight.x, eight.y}, {eight.z, eight.w}};
#pragma unroll
                for (int o = 0; o < outputs_at_once; ++o) {
#pragma unroll
                    for (int k = 0; k < 2; ++k) {
                        // in this order the registers of a factor come to lie side by side
                        unsigned mask[2], z_active[2];
#pragma unroll
                        for (int h = 0; h < 2; ++h) mask[h] = packed_one_above<T>(z_pair[k][h], minus_b[o][block]);
                        multiply_add<T>(g_sum[o][block], g_pair[o][k], mask);
#pragma unroll
                        for (int h = 0; h < 2; ++h) z_active[h] = packed_product<T>(z_pair[k][h], mask[h]);
                        multiply_add<T>(gz_sum[o][block], g_pair[o][k], z_active);
                    }
                }
            }
        }
    }

    // row `group`, and row 8 in the lanes of the first group, of two channels
    const int thread = thread_anew(), row = thread % warp_size / 4, column = 2 * (thread % 4);
    const int output_here = first_output + thread / warp_size / channel_warps * outputs_at_once;
    const int channel_here =
        tile % channel_blocks * block_channels + thread / warp_size % channel_warps * warp_channels;
    const int64 weights = static_cast<int64>(of.outputs) * of.channels * taps;
    float* const gz_part = partial + 2 * part * weights;
    const auto index_of = [&](int o, int block, int e) -> int64 {
        const int64 i = output_here + o;
        const int j = channel_here + block * 8 + column + e % 2, position = e < 2 ? row : 8 + row;
        return i < of.outputs && j < of.channels && position < taps ? (i * of.channels + j) * taps + position : -1;
    };
#pragma unroll
    for (int o = 0; o < outputs_at_once; ++o) {
#pragma unroll
        for (int block = 0; block < blocks_of_8; ++block) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int64 index = index_of(o, block, e);
                if (index < 0) continue;
                gz_part[index] = gz_sum[o][block][e];
                gz_part[weights + index] = g_sum[o][block][e];
            }
        }
    }
    // what is NaN once more, unless g itself is not finite
    bool finite = true;
#pragma unroll 1
    for (int n = 0; n < outputs_at_once * blocks_of_8 * 4 * 2; ++n) {
        if (n % (blocks_of_8 * 8) == 0) finite = true;  // another output
        const int64 index = index_of(n / (blocks_of_8 * 8), n / 8 % blocks_of_8, n / 2 % 4);
        const bool with_z = n % 2 == 0;
        float* const sum = gz_part + (with_z ? 0 : weights) + index;
        if (!finite || index < 0 || !isnan(*sum)) continue;
        const int64 pair = index / taps, i = pair / of.channels, j = pair % of.channels;
        const int position = index % taps, shift = position / 3 * of.pitch + position % 3;
        const float again = sum_over_outputs(g + i * places + of.lead(), z + j * of.length, with_z,
                                             -to_float(bias[pair]), shift, begin, end, of, finite);
        if (finite) *sum = again;
    }
}

}  // namespace companion

#define COMPANION_FLAT                                                                                                 \
    int samples, int channels, int outputs, int height, int width, int out_height, int out_width, int padding_y,       \
        int padding_x, int pitch, int rows, int length
#define COMPANION_FLAT_OF                                                                                              \
    companion::Flat {                                                                                                  \
        samples, channels, outputs, height, width, out_height, out_width, padding_y, padding_x, pitch, rows, length    \
    }
#define COMPANION_KERNELS(suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(companion::threads, 2) dac_conv3x3_backward_input_##suffix(           \
        const T* g, const T* z, const uint4* weight, T* dz, COMPANION_FLAT, int pixel_warps, int at_once) {            \
        companion::conv3x3_input<T>(g, z, weight, dz, COMPANION_FLAT_OF, pixel_warps, at_once);                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(companion::threads, 2) dac_conv3x3_backward_weight_##suffix(          \
        const T* g, const T* z, const T* bias, float* partial, COMPANION_FLAT, int channel_warps, int part_length) {   \
        companion::conv3x3_weight<T>(g, z, bias, partial, COMPANION_FLAT_OF, channel_warps, part_length);              \
    }

COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
