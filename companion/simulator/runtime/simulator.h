// A CUDA device on a CPU: the headers that let g++ compile a .cu file as it stands and run its kernels.
//
// The build puts this header in front of the .cu file. Every CUDA thread becomes a fiber: a stack of its
// own, and a function that switches from one stack to another. All fibers of a block take turns on one
// operating-system thread, so a barrier is nothing but "go on with the next fiber until all have arrived".
// Blocks are spread over operating-system threads, which we call workers.
//
// Modelled
//   * blocks of 1 to 1024 threads in up to three dimensions, grids likewise; blocks run concurrently, in no
//     order that a kernel may rely on; the order of the threads within a block can be chosen
//   * __syncthreads and its _or, _and, _count; __syncwarp; shuffles; votes; reductions over a warp
//   * static and dynamic shared memory, filled with NaN (every bit set) before each block, since a GPU does
//     not clear it
//   * atomics on global and shared memory, also between blocks; memory fences
//   * half and bfloat16, through the host side of NVIDIA's own headers
//   * mma.sync of 16 × 8 × 16 halves or bfloat16 with float sums: simulator::mma_m16n8k16, in warps.h
//   * the error of approximate functions: see approximations.h
// Faults that are named, with block, thread and line
//   * a barrier that some threads skip, or that threads reach in two places; warps that wait for each other
//   * a shuffle that reads from a lane which has exited, does not exist or is not in the mask
//   * access beyond an argument (regions.h), beyond an array whose length the compiler knows, beyond
//     dynamic shared memory (writes), through a null pointer or at an address that is not aligned for its
//     type; __trap(), a failed assert, a division of an integer by zero
// Stricter than the hardware
//   * since compute capability 7.0 a thread that has exited counts as having reached every barrier; here
//     that is a fault
//   * barriers on different lines do not meet, though they are one barrier to the hardware
//   * a value shuffled from outside the mask is undefined on a GPU; here it is a fault, used or not
// Not modelled
//   * races as such: a missing barrier shows only when the result depends on the order of the threads
//     (check_orders)
//   * progress: fibers switch only where they wait. A thread that spins until another writes a flag spins
//     for ever, and nothing but killing the process ends it
//   * caches, memory order weaker than x86's, timing, occupancy, registers, bank conflicts; limits on
//     static shared memory
//   * overruns of static shared arrays through a pointer that no longer knows the array's length
//   * fused multiply-add where the source does not say fmaf: NVRTC contracts a*b+c, here it rounds twice
//   * conversions out of range: a GPU saturates, (int)x does not here; __float2int_rn and its kin do
//   * cp.async, TMA, other instructions of tensor cores, clusters, cooperative grids, textures,
//     __activemask, inline PTX (hide it behind #ifdef COMPANION_SIMULATOR)
//   * `extern __shared__` inside a namespace
#pragma once

// The order matters: CUDA's headers define words (__noinline__) that the standard library uses as attributes.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <source_location>
#include <type_traits>
#include <utility>

#include <math.h>    // exp(float), isnan and their kin without std::, as CUDA has them
#include <stdlib.h>  // likewise abs(float)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include "device.h"
#include "warps.h"
#include "atomics.h"
#include "intrinsics.h"
#include "approximations.h"
#include "kernels.h"
#include "language.h"
