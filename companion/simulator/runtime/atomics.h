// Atomics, on global memory between the workers and on shared memory alike.
#pragma once

namespace simulator {

// The types that CUDA's atomicAdd takes. A narrower list than C++ would allow: what compiles here must
// compile there.
template <class T>
concept Addable = OneOf<T, int, unsigned, unsigned long long, float, double, __half, __half2, __nv_bfloat16,
                        __nv_bfloat162>;
template <class T>
concept Integer = OneOf<T, int, unsigned, long long, unsigned long long>;
template <class T>
concept Exchangeable = OneOf<T, int, unsigned, unsigned long long, float>;
template <class T>
concept Comparable = OneOf<T, int, unsigned, unsigned long long, unsigned short>;

template <std::size_t bytes>
using Bits = std::conditional_t<bytes == 2, std::uint16_t,
                                std::conditional_t<bytes == 4, std::uint32_t, std::uint64_t>>;

// Read, compute, and write unless somebody else wrote in between; then again. Returns what was there
// before. The processor compares bits, so that NaN equals itself.
template <class T, class Update>
T update_atomically(T* address, Update update) {
    auto* memory = reinterpret_cast<Bits<sizeof(T)>*>(address);
    Bits<sizeof(T)> before = __atomic_load_n(memory, __ATOMIC_RELAXED), after;
    T old;
    do {
        std::memcpy(static_cast<void*>(&old), &before, sizeof old);
        const T updated = update(old);
        std::memcpy(&after, &updated, sizeof after);
    } while (!__atomic_compare_exchange_n(memory, &before, after, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}

}  // namespace simulator

// type_identity_t: the pointer alone decides the type, the value is converted to it.
#define SIMULATOR_ATOMIC(NAME, TYPES, UPDATE)                                                        \
    template <simulator::TYPES T>                                                                    \
    T NAME(T* address, std::type_identity_t<T> value) {                                              \
        return simulator::update_atomically(address, [value](T old) -> T { return UPDATE; });        \
    }
SIMULATOR_ATOMIC(atomicAdd, Addable, old + value)
SIMULATOR_ATOMIC(atomicSub, Integer, old - value)
SIMULATOR_ATOMIC(atomicMin, Integer, value < old ? value : old)
SIMULATOR_ATOMIC(atomicMax, Integer, old < value ? value : old)
SIMULATOR_ATOMIC(atomicAnd, Integer, old & value)
SIMULATOR_ATOMIC(atomicOr, Integer, old | value)
SIMULATOR_ATOMIC(atomicXor, Integer, old ^ value)
SIMULATOR_ATOMIC(atomicExch, Exchangeable, ((void)old, value))
#undef SIMULATOR_ATOMIC

template <simulator::Comparable T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    return simulator::update_atomically(address, [=](T old) { return old == expected ? value : old; });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
    return simulator::update_atomically(address, [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}
inline unsigned atomicDec(unsigned* address, unsigned limit) {
    return simulator::update_atomically(
        address, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
