// What the 32 lanes of a warp do together, as a kernel calls it. The work is done in warp_operations.h.
#pragma once

namespace simulator {

template <class T>
concept Shuffled = OneOf<T, int, unsigned, long, unsigned long, long long, unsigned long long, float, double,
                         __half, __half2, __nv_bfloat16, __nv_bfloat162>;

template <class T, T (*combine)(T, T)>
unsigned combine_bits(unsigned a, unsigned b) {
    return std::bit_cast<unsigned>(combine(std::bit_cast<T>(a), std::bit_cast<T>(b)));
}
template <class T> T sum_of(T a, T b) { return a + b; }
template <class T> T least_of(T a, T b) { return b < a ? b : a; }
template <class T> T greatest_of(T a, T b) { return a < b ? b : a; }
template <class T> T and_of(T a, T b) { return a & b; }
template <class T> T or_of(T a, T b) { return a | b; }
template <class T> T xor_of(T a, T b) { return a ^ b; }

}  // namespace simulator

#define SIMULATOR_SHUFFLE(NAME, KIND, ARGUMENT)                                                               \
    template <simulator::Shuffled T>                                                                          \
    T NAME(unsigned mask, T value, ARGUMENT argument, int width = warpSize,                                   \
           simulator::Where where = simulator::Where::current()) {                                            \
        constexpr simulator::Shuffle kind = simulator::Shuffle::KIND;                                         \
        simulator::shuffle(kind, #NAME, mask, &value, sizeof value, static_cast<int>(argument), width, where);\
        return value;                                                                                         \
    }
SIMULATOR_SHUFFLE(__shfl_sync, indexed, int)
SIMULATOR_SHUFFLE(__shfl_up_sync, up, unsigned)
SIMULATOR_SHUFFLE(__shfl_down_sync, down, unsigned)
SIMULATOR_SHUFFLE(__shfl_xor_sync, exclusive_or, int)
#undef SIMULATOR_SHUFFLE

inline void __syncwarp(unsigned mask = 0xffffffffu, simulator::Where where = simulator::Where::current()) {
    simulator::vote("__syncwarp", mask, 0, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              simulator::Where where = simulator::Where::current()) {
    return simulator::vote("__ballot_sync", mask, predicate, where).for_it;
}
inline int __any_sync(unsigned mask, int predicate, simulator::Where where = simulator::Where::current()) {
    return simulator::vote("__any_sync", mask, predicate, where).for_it != 0;
}
inline int __all_sync(unsigned mask, int predicate, simulator::Where where = simulator::Where::current()) {
    const simulator::Votes votes = simulator::vote("__all_sync", mask, predicate, where);
    return votes.for_it == votes.present;
}

#define SIMULATOR_REDUCE(NAME, COMBINE, T)                                                                    \
    inline T NAME(unsigned mask, T value, simulator::Where where = simulator::Where::current()) {             \
        constexpr simulator::Combine combine = &simulator::combine_bits<T, simulator::COMBINE<T>>;            \
        return static_cast<T>(simulator::reduce(combine, #NAME, mask, static_cast<unsigned>(value), where));  \
    }
SIMULATOR_REDUCE(__reduce_add_sync, sum_of, int)
SIMULATOR_REDUCE(__reduce_add_sync, sum_of, unsigned)
SIMULATOR_REDUCE(__reduce_min_sync, least_of, int)
SIMULATOR_REDUCE(__reduce_min_sync, least_of, unsigned)
SIMULATOR_REDUCE(__reduce_max_sync, greatest_of, int)
SIMULATOR_REDUCE(__reduce_max_sync, greatest_of, unsigned)
SIMULATOR_REDUCE(__reduce_and_sync, and_of, unsigned)
SIMULATOR_REDUCE(__reduce_or_sync, or_of, unsigned)
SIMULATOR_REDUCE(__reduce_xor_sync, xor_of, unsigned)
#undef SIMULATOR_REDUCE

// --- tensor cores ---

namespace simulator {

// d += a b, as mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32 does it with T = f16 or bf16: registers of the
// lane in the order of the PTX ISA, two elements to a register of a and b, the lower half first.
template <OneOf<__half, __nv_bfloat16> T>
void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Where where = Where::current()) {
    const auto element = [](const unsigned* registers, unsigned i) {
        return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(registers[i / 2] >> i % 2 * 16)));
    };
    MatrixFragments fragments;
    for (unsigned i = 0; i < 8; ++i) fragments.a[i] = element(a, i);
    for (unsigned i = 0; i < 4; ++i) fragments.b[i] = element(b, i);
    std::memcpy(fragments.d, d, sizeof d);
    multiply_matrices(fragments, where);
    std::memcpy(d, fragments.d, sizeof d);
}

}  // namespace simulator
