// DAC, a convolution of any shape, with ReLU: f_i(y, x) = sum_jp w_ijp relu(b_ij + z_j(Y, X)) over the inputs j of the
// output's group and the positions p of the kernel, (Y, X) = (y, x) stride - padding + p dilation; and its gradients.
//
// The sums are those of dac.cuh: the terms of an output are the pairs (j, p), and a view finds the element of the
// picture that each row and term meet; nothing is unfolded in memory. Outside the picture z is -infinity if padding
// comes after the activation, relu(b + z) = 0, and 0 if it comes before. With max(z, -b) the former adds -w b, which
// the constant sum w b takes back: the constant needs no border.
//
//     forward      rows (sample, y, x)      columns i         terms (j, p)
//     dz           rows (sample, Y, X)      columns j         terms (i, p)
//     dw, db       rows i                   columns (j, p)    terms (sample, y, x)
//
// z (N, channels, height, width), g and f (N, outputs, out_height, out_width), weight (outputs, inputs, kernel): all
// contiguous; bias like weight, or (outputs, inputs): one for each pair of channels. `inputs` and `outputs` below are
// those of one group. Positions of all samples together are fewer than 2^30, so are their channels and a group's
// weights; offsets into z, f and g have 64 bits.
//
// Launch. As in dac_linear.cu; each group has tiles of its own.

#include "dac.cuh"

namespace companion {

// Everything that a launch is told about the convolution.
struct Convolution {
    int samples, groups, inputs, outputs;  // inputs and outputs of a group
    int height, width, out_height;
    Divisor out_width, out_area, kernel_width, taps, stride_y, stride_x;
    int padding_y, padding_x, dilation_y, dilation_x, per_weight, before;

    __device__ __forceinline__ int area() const { return height * width; }
    __device__ __forceinline__ int positions() const { return samples * area(); }
    __device__ __forceinline__ int out_positions() const { return samples * out_area.d; }
    __device__ __forceinline__ float outside() const { return before ? 0.0f : __int_as_float(0xff800000); }
};

constexpr int nowhere = -(1 << 30);  // no shift by a kernel brings this inside a picture

// A place in a picture, and one of the pairs (channel of the group, position in the kernel). Channels of all samples
// are counted through: `first` is the first one of the sample.
struct Position {
    int first, y, x;
};
struct Tap {
    int channel, y, x;
};

__device__ __forceinline__ Tap tap_at(int i, int channels, const Convolution& of) {
    const int channel = of.taps.quotient(i), in_kernel = of.taps.rest(i, channel);
    if (channel >= channels) return {0, nowhere, nowhere};
    const int y = of.kernel_width.quotient(in_kernel), x = of.kernel_width.rest(in_kernel, y);
    return {channel, y * of.dilation_y, x * of.dilation_x};
}

// The corner of an output's window in the input.
__device__ __forceinline__ Position window_at(int i, const Convolution& of) {
    if (i >= of.out_positions()) return {0, nowhere, nowhere};
    const int sample = of.out_area.quotient(i), place = of.out_area.rest(i, sample);
    const int y = of.out_width.quotient(place), x = of.out_width.rest(place, y);
    return {sample * of.groups * of.inputs, y * of.stride_y.d - of.padding_y, x * of.stride_x.d - of.padding_x};
}

// z where a window meets a tap.
template <typename T>
__device__ __forceinline__ float z_at(const T* z, const Position& window, const Tap& tap, const Convolution& of) {
    const int y = window.y + tap.y, x = window.x + tap.x;
    const bool inside = y >= 0 && y < of.height && x >= 0 && x < of.width;
    const int64 channel = window.first + tap.channel;
    return inside ? to_float(z[channel * of.area() + (y * of.width + x)]) : of.outside();
}

// Forward: z, its lines are windows, its terms taps.
template <typename T>
struct WindowLines {
    static constexpr bool depth_first = false;
    static constexpr int most = 1;
    const T* z;  // at the group's first channel
    int first;
    const Convolution& of;

    using Line = Position;
    using Depth = Tap;
    __device__ __forceinline__ Line line(int i) const { return window_at(first + i, of); }
    __device__ __forceinline__ Depth depth(int k) const { return tap_at(k, of.inputs, of); }
    __device__ __forceinline__ void load(float (&x)[1], const Line& line, const Depth& depth) const {
        x[0] = z_at(z, line, depth, of);
    }
};

// dw and db: z the other way round, from the window `first_term` on.
template <typename T>
struct TapLines {
    static constexpr bool depth_first = true;
    static constexpr int most = 1;
    const T* z;
    int first, first_term;
    const Convolution& of;

    using Line = Tap;
    using Depth = Position;
    __device__ __forceinline__ Line line(int i) const { return tap_at(first + i, of.inputs, of); }
    __device__ __forceinline__ Depth depth(int k) const { return window_at(first_term + k, of); }
    __device__ __forceinline__ void load(float (&x)[1], const Line& line, const Depth& depth) const {
        x[0] = z_at(z, depth, line, of);
    }
};

// dz: g where a pixel of the input meets an output through a tap; 0 where it meets none.
template <typename T>
struct MeetingOutputs {
    static constexpr bool depth_first = false;
    static constexpr int most = 1;
    const T* g;  // at the group's first output
    int first;
    const Convolution& of;

    using Line = Position;
    using Depth = Tap;
    __device__ __forceinline__ Line line(int i) const {
        if (first + i >= of.positions()) return {0, nowhere, nowhere};
        const int sample = (first + i) / of.area(), place = (first + i) % of.area();
        return {sample * of.groups * of.outputs, place / of.width + of.padding_y, place % of.width + of.padding_x};
    }
    __device__ __forceinline__ Depth depth(int k) const { return tap_at(k, of.outputs, of); }
    __device__ __forceinline__ void load(float (&value)[1], const Line& pixel, const Depth& tap) const {
        // (y, x) stride = (Y, X) + padding - p dilation
        const int fine_y = pixel.y - tap.y, fine_x = pixel.x - tap.x;
        const int y = of.stride_y.quotient(fine_y), x = of.stride_x.quotient(fine_x);
        const bool meets = fine_y >= 0 && of.stride_y.rest(fine_y, y) == 0 && y < of.out_height &&
                           fine_x >= 0 && of.stride_x.rest(fine_x, x) == 0 && x < of.out_width.d;
        const int64 channel = pixel.first + tap.channel;
        value[0] = meets ? to_float(g[channel * of.out_area.d + (y * of.out_width.d + x)]) : 0.0f;
    }
};

// dw and db: g of an output at all positions of all samples, from `first_term` on.
template <typename T>
struct OutputLines {
    static constexpr bool depth_first = true;
    static constexpr int most = 1;
    const T* g;
    int first, first_term;
    const Convolution& of;

    using Line = int64;
    using Depth = int64;
    __device__ __forceinline__ Line line(int i) const {
        return first + i < of.outputs ? static_cast<int64>(first + i) * of.out_area.d : -1;
    }
    __device__ __forceinline__ Depth depth(int k) const {
        if (first_term + k >= of.out_positions()) return -1;
        const int sample = of.out_area.quotient(first_term + k), place = of.out_area.rest(first_term + k, sample);
        return static_cast<int64>(sample) * of.groups * of.outputs * of.out_area.d + place;
    }
    __device__ __forceinline__ void load(float (&x)[1], Line line, Depth depth) const {
        x[0] = line >= 0 && depth >= 0 ? to_float(g[line + depth]) : 0.0f;
    }
};

// Forward: the biases of an output for terms (j, p).
template <typename T>
struct BiasLines {
    static constexpr bool depth_first = true;
    static constexpr int most = 1;
    const T* bias;
    int first;
    const Convolution& of;

    using Line = int;
    using Depth = int;
    __device__ __forceinline__ Line line(int i) const { return first + i; }
    __device__ __forceinline__ Depth depth(int k) const {
        if (k >= of.inputs * of.taps.d) return -1;
        return of.per_weight ? k : of.taps.quotient(k);
    }
    __device__ __forceinline__ void load(float (&x)[1], Line line, Depth depth) const {
        const int length = of.inputs * (of.per_weight ? of.taps.d : 1);
        x[0] = line < of.outputs && depth >= 0 ? to_float(bias[line * length + depth]) : 0.0f;
    }
};

// dz: weights, or biases, of an input for terms (i, p). `taps`: those of the kernel, or 1 where they share a bias.
template <typename T>
struct WeightColumns {
    static constexpr bool depth_first = true;
    static constexpr int most = 1;
    const T* weight;
    int first, taps;
    const Convolution& of;

    using Line = int;
    using Depth = int;
    __device__ __forceinline__ Line line(int j) const { return first + j; }
    __device__ __forceinline__ Depth depth(int k) const {
        const int i = of.taps.quotient(k), p = taps == 1 ? 0 : of.taps.rest(k, i);
        return i < of.outputs ? i * of.inputs * taps + p : -1;
    }
    __device__ __forceinline__ void load(float (&x)[1], Line line, Depth depth) const {
        x[0] = line < of.inputs && depth >= 0 ? to_float(weight[line * taps + depth]) : 0.0f;
    }
};

// Where the weights and biases of a group begin.
__device__ __forceinline__ int64 group_weights(int64 group, const Convolution& of) {
    return group * of.outputs * of.inputs * of.taps.d;
}
__device__ __forceinline__ int bias_shared(const Convolution& of) { return of.per_weight ? 1 : of.taps.d; }

template <typename Tile, typename T>
__device__ __forceinline__ void conv_forward(const T* z, const T* weight, const T* bias, T* f, const Convolution& of) {
    const TilePlace at = tile_of_block<Tile>(of.out_positions(), of.outputs);
    const int row = at.row, column = at.column, terms = of.inputs * of.taps.d;
    const int64 first = group_weights(at.rest, of);
    const WindowLines<T> z_view{z + at.rest * of.inputs * of.area(), row, of};
    const MatrixView<T, true> w_view(weight + first, of.outputs, terms, column);
    const BiasLines<T> b_view{bias + first / bias_shared(of), column, of};
    weighted_sums<Tile>(z_view, w_view, b_view, row, column, terms, [&](int s, int i, float value) {
        if (s >= of.out_positions() || i >= of.outputs) return;
        const int sample = of.out_area.quotient(s), place = of.out_area.rest(s, sample);
        const int64 channel = (static_cast<int64>(sample) * of.groups + at.rest) * of.outputs + i;
        f[channel * of.out_area.d + place] = from_float<T>(value);
    });
}

template <typename Tile, typename T>
__device__ __forceinline__ void conv_input(const T* g, const T* z, const T* weight, const T* bias, T* dz,
                                           const Convolution& of) {
    const TilePlace at = tile_of_block<Tile>(of.positions(), of.inputs);
    const int row = at.row, column = at.column, taps = of.taps.d, shared = bias_shared(of);
    const int64 first = group_weights(at.rest, of);
    const MeetingOutputs<T> g_view{g + at.rest * of.outputs * of.out_area.d, row, of};
    const WeightColumns<T> w_view{weight + first, column, taps, of};
    const WeightColumns<T> b_view{bias + first / shared, column, taps / shared, of};
    const auto exists = [&](int s, int j) { return s < of.positions() && j < of.inputs; };
    const auto place_of = [&](int s, int j) {
        const int sample = s / of.area(), place = s % of.area();
        return ((static_cast<int64>(sample) * of.groups + at.rest) * of.inputs + j) * of.area() + place;
    };
    const auto z_of = [&](int s, int j) { return exists(s, j) ? to_float(z[place_of(s, j)]) : 0.0f; };
    masked_sums<Tile>(g_view, w_view, b_view, z_of, row, column, of.outputs * taps, [&](int s, int j, float value) {
        if (exists(s, j)) dz[place_of(s, j)] = from_float<T>(value);
    });
}

// partial[part][0] = sum_M g z, partial[part][1] = sum_M g over `places` positions, a multiple of depth_step
template <typename Tile, typename T>
__device__ __forceinline__ void conv_weight(const T* g, const T* z, const T* bias, float* partial,
                                            const Convolution& of, int places) {
    const int terms = of.inputs * of.taps.d, shared = bias_shared(of);
    const TilePlace at = tile_of_block<Tile>(of.outputs, terms);
    const int row = at.row, column = at.column, group = at.rest % of.groups, part = at.rest / of.groups;
    const int begin = part * places, left = of.out_positions() - begin;
    const int64 first = group_weights(group, of), weights = group_weights(of.groups, of);
    const OutputLines<T> g_view{g + static_cast<int64>(group) * of.outputs * of.out_area.d, row, begin, of};
    const TapLines<T> z_view{z + static_cast<int64>(group) * of.inputs * of.area(), column, begin, of};
    const auto exists = [&](int i, int tap) { return i < of.outputs && tap < terms; };
    const auto b_of = [&](int i, int tap) {
        return exists(i, tap) ? to_float(bias[(first + static_cast<int64>(i) * terms + tap) / shared]) : 0.0f;
    };
    float* const gz_part = partial + 2 * part * weights + first;
    gradient_sums<Tile>(g_view, z_view, b_of, row, column, left < places ? left : places,
                        [&](int i, int tap, float gz_sum, float g_sum) {
                            if (!exists(i, tap)) return;
                            const int64 place = static_cast<int64>(i) * terms + tap;
                            gz_part[place] = gz_sum;
                            gz_part[weights + place] = g_sum;
                        });
}

}  // namespace companion

#define COMPANION_GEOMETRY                                                                                             \
    int samples, int groups, int inputs, int outputs, int height, int width, int out_height, int out_width,            \
        unsigned by_out_width, int out_area, unsigned by_out_area, int kernel_width, unsigned by_kernel_width,         \
        int taps, unsigned by_taps, int stride_y, unsigned by_stride_y, int stride_x, unsigned by_stride_x,            \
        int padding_y, int padding_x, int dilation_y, int dilation_x, int per_weight, int before
#define COMPANION_CONVOLUTION                                                                                          \
    companion::Convolution {                                                                                           \
        samples, groups, inputs, outputs, height, width, out_height, {out_width, by_out_width},                        \
            {out_area, by_out_area}, {kernel_width, by_kernel_width}, {taps, by_taps}, {stride_y, by_stride_y},        \
            {stride_x, by_stride_x}, padding_y, padding_x, dilation_y, dilation_x, per_weight, before                  \
    }
#define COMPANION_LAUNCH(width) __launch_bounds__(companion::width##_threads, 512 / companion::width##_threads)
// For sm_120 the wide forward kernel needs a few registers more than 128.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define COMPANION_LAUNCH_FORWARD(width) __launch_bounds__(companion::width##_threads, 256 / companion::width##_threads)
#else
#define COMPANION_LAUNCH_FORWARD(width) COMPANION_LAUNCH(width)
#endif

#define COMPANION_WIDTH(tile, Tile, suffix, T)                                                                         \
    extern "C" __global__ void COMPANION_LAUNCH_FORWARD(tile) dac_conv_forward_##tile##_##suffix(                      \
        const T* z, const T* weight, const T* bias, T* f, COMPANION_GEOMETRY) {                                        \
        companion::conv_forward<companion::Tile##Forward>(z, weight, bias, f, COMPANION_CONVOLUTION);                  \
    }                                                                                                                  \
    extern "C" __global__ void COMPANION_LAUNCH(tile) dac_conv_input_##tile##_##suffix(                                \
        const T* g, const T* z, const T* weight, const T* bias, T* dz, COMPANION_GEOMETRY) {                           \
        companion::conv_input<companion::Tile##Input>(g, z, weight, bias, dz, COMPANION_CONVOLUTION);                  \
    }                                                                                                                  \
    extern "C" __global__ void COMPANION_LAUNCH(tile) dac_conv_weight_##tile##_##suffix(                               \
        const T* g, const T* z, const T* bias, float* partial, COMPANION_GEOMETRY, int places) {                       \
        companion::conv_weight<companion::Tile##Weight>(g, z, bias, partial, COMPANION_CONVOLUTION, places);           \
    }

#define COMPANION_KERNELS(suffix, T)                                                                                   \
    COMPANION_WIDTH(wide, Wide, suffix, T)                                                                             \
    COMPANION_WIDTH(narrow, Narrow, suffix, T)                                                                         \
    extern "C" __global__ void __launch_bounds__(companion::finish_threads) dac_conv_finish_##suffix(                  \
        const float* partial, const T* weight, const T* bias, T* d_weight, T* d_bias, long long biases, int shared,    \
        int parts) {                                                                                                   \
        companion::finish_gradients(partial, weight, bias, d_weight, d_bias, biases, shared, parts);                   \
    }

COMPANION_KERNELS(f32, float)
COMPANION_KERNELS(f16, __half)
COMPANION_KERNELS(bf16, __nv_bfloat16)
