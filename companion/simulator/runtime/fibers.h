// Fibers: stacks that take turns on one operating-system thread.
#pragma once

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "the simulator switches stacks in x86-64 assembly"
#endif

namespace simulator {

// Save the registers that a function must preserve (System V ABI) on the present stack, note where that
// stack ends, and take up the other stack where it once did the same. To the compiler it is a call like any
// other, which may change all memory; that is why 30 bytes of assembly suffice.
extern "C" __attribute__((visibility("hidden"))) void simulator_switch_stack(void** save, void* resume);
__asm__(R"(
.text
.type simulator_switch_stack, @function
simulator_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size simulator_switch_stack, . - simulator_switch_stack
)");
constexpr int saved_registers = 6;

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t stack_bytes = 512 * 1024;  // the sanitizer surrounds every variable with red zones
#else
constexpr std::size_t stack_bytes = 64 * 1024;
#endif

// The stacks of one worker. A thread gets one when it starts and gives it back when it ends: as long as no
// thread waits, one stack, warm in the cache, serves them all.
class StackPool {
   public:
    explicit StackPool(std::size_t most) : bytes_(forbidden_bytes + most * stack_bytes) {
        constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        memory_ = static_cast<unsigned char*>(memory);
        mprotect(memory_, forbidden_bytes, PROT_NONE);
        for (std::size_t i = most; i-- > 0;) free_.push_back(memory_ + forbidden_bytes + i * stack_bytes);
    }
    ~StackPool() { munmap(memory_, bytes_); }
    StackPool(const StackPool&) = delete;

    unsigned char* take() {
        unsigned char* stack = free_.back();
        free_.pop_back();
        std::memcpy(stack, &watermark, sizeof watermark);
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(stack, stack_bytes);
#endif
        return stack;
    }
    void give_back(unsigned char* stack) { free_.push_back(stack); }

    // Stacks grow downwards. Who uses too much overwrites the lowest bytes, or ends up below all stacks,
    // where a touch is a fault of the processor.
    static bool overflowed(const unsigned char* stack) {
        return std::memcmp(stack, &watermark, sizeof watermark) != 0;
    }

   private:
    static constexpr std::size_t forbidden_bytes = std::size_t{1} << 20;
    static constexpr std::uint64_t watermark = 0x57ac4b07704ed6e5;
    std::size_t bytes_;
    unsigned char* memory_;
    std::vector<unsigned char*> free_;
};

// Where a stack stopped. One for each CUDA thread, and one for the scheduler, which runs on the worker's
// own stack.
struct Fiber {
    void* stack_pointer = nullptr;
    const void* stack = nullptr;  // its lowest address, and its size: the address sanitizer wants to know them
    std::size_t bytes = 0;
};

// Lay out a new stack as if it had just been left by simulator_switch_stack, with `entry` to return to.
inline void prepare(Fiber& fiber, unsigned char* stack, unsigned number, void (*entry)()) {
    // Tops at the same place in every stack would compete for the same few cache lines.
    const std::size_t stagger = number % 64 * 64;
    void** top = reinterpret_cast<void**>(stack + stack_bytes - stagger);
    *--top = nullptr;  // keeps the stack aligned to 16 bytes where `entry` starts, as after a call
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < saved_registers; ++i) *--top = nullptr;
    fiber = {top, stack, stack_bytes};
}

inline void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool for_good = false) {
#ifdef __SANITIZE_ADDRESS__
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, to.stack, to.bytes);
#endif
    simulator_switch_stack(&from.stack_pointer, to.stack_pointer);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

// The first thing that a new fiber does.
inline void arrived_on_new_fiber([[maybe_unused]] Fiber& scheduler) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack, &scheduler.bytes);
#endif
}

}  // namespace simulator
