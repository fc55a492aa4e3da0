// CUDA's additions to C++, as far as words go. Included last: the kernels' source follows.
#pragma once

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#undef assert

#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))

// A block runs on one worker, and a worker runs one block at a time: what is local to the worker is shared
// by the block. `thread_local` also means `static` inside a function, and may follow `extern`, just as
// __shared__ does.
#define __shared__ thread_local

#define assert(condition) ((condition) ? void() : ::simulator::fail_here("assertion failed: " #condition))
#define __trap() ::simulator::fail_here("__trap() was called")

using std::int16_t, std::int32_t, std::int64_t, std::int8_t, std::size_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;
