// How a fault in a thread reaches the scheduler: by hand (fail_with), from checks that the compiler
// inserts, and from the processor. In every case the thread's fiber is left for good and the launch returns
// normally, with a message.
#pragma once

namespace simulator {

inline std::string this_thread_is() { return "thread " + to_string(current_block->running().index); }

[[noreturn]] inline void fail_with(const std::string& what, const void* address = nullptr,
                                   const void* instruction = nullptr) {
    current_block->record_fault(this_thread_is() + ": " + what, address, instruction);
    current_block->leave_for_good();
}

void fail_here(const char* what, const Where& where) {
    fail_with(std::string(what) + " at " + to_string(where));
}

// --- checks that g++ inserts: -fsanitize=bounds,alignment,null ---
// The compiler calls these functions by name when a check fails. Usually they come from the library libubsan,
// which would end the program. The structures are that library's interface.

struct SourceLocation {
    const char* file;
    std::uint32_t line, column;
};
struct TypeDescriptor {
    std::uint16_t kind, info;
    char name[];
};
struct OutOfBounds {
    SourceLocation where;
    const TypeDescriptor *array, *index;
};
struct TypeMismatch {
    SourceLocation where;
    const TypeDescriptor* type;
    unsigned char log2_alignment, access;
};

inline std::string at(const SourceLocation& where) { return " at " + to_string(where.file, where.line); }

extern "C" [[noreturn]] void __ubsan_handle_out_of_bounds_abort(
    OutOfBounds* check, std::uintptr_t index) {
    const std::string number = std::to_string(static_cast<std::ptrdiff_t>(index));
    fail_with("index " + number + " is out of bounds of " + check->array->name + at(check->where));
}

extern "C" [[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(
    TypeMismatch* check, std::uintptr_t pointer) {
    if (pointer == 0) fail_with("null pointer to " + std::string(check->type->name) + at(check->where));
    fail_with("misaligned address: " + std::string(check->type->name) + " must be aligned to " +
                  std::to_string(1 << check->log2_alignment) + " bytes" + at(check->where));
}

// --- faults of the processor ---

#ifndef __SANITIZE_ADDRESS__  // which has handlers of its own

struct ProcessorFault {
    int signal;
    bool write, stack_overflowed;
    const void* address;
    const void* instruction;
};
inline thread_local ProcessorFault processor_fault{};

// Runs on the stack of the thread that went wrong, as if that thread had called it.
[[noreturn]] inline void land_after_processor_fault() {
    const ProcessorFault& fault = processor_fault;
    if (fault.stack_overflowed) fail_with(stack_overflow(), nullptr, fault.instruction);
    if (fault.signal == SIGFPE) fail_with("integer division by zero", nullptr, fault.instruction);
    fail_with(fault.write ? "illegal write" : "illegal read", fault.address, fault.instruction);
}

// While it lives, a fault in a kernel ends the launch instead of the program. Faults elsewhere go where
// they went before.
class ProcessorFaultGuard {
   public:
    ProcessorFaultGuard() {
        struct sigaction action{};
        action.sa_sigaction = &ProcessorFaultGuard::handle;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int i = 0; i < 3; ++i) {
            struct sigaction before{};
            sigaction(signals_[i], &action, &before);
            // After a fork in the midst of another thread's launch, ours is still there.
            if (before.sa_sigaction != &ProcessorFaultGuard::handle) before_[i] = before;
        }
    }
    ~ProcessorFaultGuard() {
        for (int i = 0; i < 3; ++i) sigaction(signals_[i], &before_[i], nullptr);
    }

   private:
    // A handler may do very little. So it notes what happened and changes where the thread will continue
    // when it returns.
    static void handle(int signal, siginfo_t* info, void* context) {
        if (current_block == nullptr) {  // not a kernel: let it fault again, under the handler of before
            for (int i = 0; i < 3; ++i)
                if (signals_[i] == signal) sigaction(signal, &before_[i], nullptr);
            return;
        }
        auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
        const auto stack = reinterpret_cast<greg_t>(current_block->running().stack);
        constexpr greg_t was_write = 2;
        processor_fault = {signal, (registers[REG_ERR] & was_write) != 0, registers[REG_RSP] < stack,
                           info->si_addr, reinterpret_cast<const void*>(registers[REG_RIP])};
        // Nothing on the thread's stack is needed any more: begin again at its top, aligned as after a call.
        registers[REG_RSP] = stack + static_cast<greg_t>(stack_bytes) - 8;
        registers[REG_RIP] = reinterpret_cast<greg_t>(&land_after_processor_fault);
    }

    static constexpr int signals_[3] = {SIGSEGV, SIGBUS, SIGFPE};
    inline static struct sigaction before_[3];
};

// A handler cannot run on a stack that has overflowed. Each worker gives it another one.
class HandlerStack {
   public:
    HandlerStack() : memory_(64 * 1024) {
        stack_t mine{};
        mine.ss_sp = memory_.data();
        mine.ss_size = memory_.size();
        sigaltstack(&mine, &before_);
    }
    ~HandlerStack() { sigaltstack(&before_, nullptr); }

   private:
    std::vector<unsigned char> memory_;
    stack_t before_{};
};

#endif

}  // namespace simulator
