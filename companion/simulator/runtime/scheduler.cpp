// The side of the simulator that runs kernels. Compiled once, without the checks that kernels are compiled
// with.
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <source_location>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_types.h>

#include "device.h"
#include "kernels.h"

#include "fibers.h"
#include "shared_memory.h"
#include "block.h"
#include "regions.h"
#include "faults.h"
#include "warp_operations.h"
#include "launch.h"

#ifdef __SANITIZE_ADDRESS__
#include "program.h"
#else
#include "library.h"
#endif
