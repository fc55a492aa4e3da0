// Where a kernel meets the simulator: what the scheduler sets, and the few functions that lead to it. The
// kernels are compiled with this header, the scheduler with scheduler.cpp; one library, two translation
// units, so that the second is compiled once and for all.
#pragma once

// What a kernel asks of its surroundings. The scheduler sets threadIdx each time it resumes a thread.
inline thread_local uint3 threadIdx{};
inline thread_local uint3 blockIdx{};
inline thread_local dim3 blockDim{};
inline thread_local dim3 gridDim{};
constexpr int warpSize = 32;

namespace simulator {

template <class T, class... Types>
concept OneOf = (std::is_same_v<T, Types> || ...);

// As a default argument, `Where::current()` is the line of the caller: how a barrier in a kernel knows
// where it stands.
using Where = std::source_location;

// Waits until every thread of the block has come. Returns for how many of them the predicate is true.
unsigned wait_at_barrier(const char* name, int predicate, const Where& where);
unsigned threads_in_block();

// What the lanes of a warp do together; see warps.h.
enum class Shuffle { indexed, up, down, exclusive_or };
void shuffle(Shuffle kind, const char* name, unsigned mask, void* value, std::size_t bytes, int argument,
             int width, const Where& where);
struct Votes {
    unsigned for_it, present;  // bit i is lane i
};
Votes vote(const char* name, unsigned mask, int predicate, const Where& where);
using Combine = unsigned (*)(unsigned, unsigned);
unsigned reduce(Combine combine, const char* name, unsigned mask, unsigned value, const Where& where);

// A lane's part of D = A B + C, in the order of its registers, as float; d holds C before and D after.
struct MatrixFragments {
    float a[8], b[4], d[4];
};
void multiply_matrices(MatrixFragments& fragments, const Where& where);

// The thread has done something that it must not do. Ends the launch.
[[noreturn]] void fail_here(const char* what, const Where& where = Where::current());

// Steele, Lea and Flood's SplitMix64: a good hash of 64 bits.
inline std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// --- dynamic shared memory ---

constexpr std::size_t most_dynamic_shared_bytes = 227 * 1024;  // compute capability 9.0
constexpr std::size_t watched_bytes = 1024;                    // behind it, for writes that go too far

// Where it is, on this worker; null if no kernel of the file has any. The file that the build writes
// defines this.
unsigned char* dynamic_shared_memory();

}  // namespace simulator

// `extern __shared__ T name[];` declares a variable that nobody defines. The build finds the names and
// makes each another name of the same storage, as on a GPU.
#define SIMULATOR_DYNAMIC_SHARED                                                                     \
    extern "C" {                                                                                     \
    alignas(1024) thread_local unsigned char                                                         \
        simulator_dynamic_shared[simulator::most_dynamic_shared_bytes + simulator::watched_bytes];   \
    }                                                                                                \
    unsigned char* simulator::dynamic_shared_memory() { return simulator_dynamic_shared; }
#define SIMULATOR_DYNAMIC_SHARED_NAME(NAME) \
    __asm__(".globl " #NAME "\n.hidden " #NAME "\n.set " #NAME ", simulator_dynamic_shared\n");
#define SIMULATOR_NO_DYNAMIC_SHARED \
    unsigned char* simulator::dynamic_shared_memory() { return nullptr; }

// --- barriers ---

inline void __syncthreads(simulator::Where where = simulator::Where::current()) {
    simulator::wait_at_barrier("__syncthreads", 0, where);
}
inline int __syncthreads_count(int predicate, simulator::Where where = simulator::Where::current()) {
    return static_cast<int>(simulator::wait_at_barrier("__syncthreads_count", predicate, where));
}
inline int __syncthreads_or(int predicate, simulator::Where where = simulator::Where::current()) {
    return simulator::wait_at_barrier("__syncthreads_or", predicate, where) > 0;
}
inline int __syncthreads_and(int predicate, simulator::Where where = simulator::Where::current()) {
    return simulator::wait_at_barrier("__syncthreads_and", predicate, where) == simulator::threads_in_block();
}
