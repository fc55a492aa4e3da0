// One block: its threads, the scheduler that lets them take turns, and the barrier of the block.
#pragma once

namespace simulator {

enum class State : std::uint8_t { fresh, ready, at_barrier, in_warp_operation, finished };

struct Warp;
using WarpOperation = void (*)(Warp&);

// What a lane brings to an operation of its warp, and what it takes away. See warp_operations.h.
struct WarpRequest {
    WarpOperation operation = nullptr;
    unsigned mask = 0;
    int argument = 0;  // the lane, distance or predicate that the operation was given
    int width = warpSize;
    Combine combine = nullptr;
    MatrixFragments* fragments = nullptr;  // on the lane's own stack
    std::size_t bytes = 0;
    unsigned char value[8];
    unsigned char result[8];
};

struct Thread {
    Fiber fiber;
    unsigned char* stack = nullptr;
    uint3 index{};
    unsigned number = 0;  // x fastest, then y, then z
    State state = State::fresh;
    const char* waits_in = "";
    Where where;
    int predicate = 0;
    WarpRequest request;
};

enum class Order : unsigned { natural, reversed, shuffled, warps };

// Everything that the blocks of a launch have in common.
struct Launch {
    dim3 grid, block;
    std::size_t shared_bytes = 0;
    Order order = Order::natural;
    std::uint64_t seed = 0;
    void (*kernel)(void** arguments) = nullptr;
    void** arguments = nullptr;

    std::atomic<std::uint64_t> next_block{0};
    // A failed launch stops as soon as it can, but blocks whose turn was before that of the faulty one run on, and may
    // be faulty, too: so it is always the fault of the same block that is told.
    std::atomic<std::uint64_t> fault_turn{~std::uint64_t{0}};
    std::mutex fault_lock;
    std::string fault;
    const void* fault_address = nullptr;
    const void* fault_instruction = nullptr;
};

inline std::string to_string(uint3 v) {
    return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")";
}

// "aglu.cu:17". Without the folders, which differ from machine to machine.
inline std::string to_string(const char* file, unsigned line) {
    const char* slash = std::strrchr(file, '/');
    return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
}
inline std::string to_string(const Where& where) { return to_string(where.file_name(), where.line()); }

inline std::string stack_overflow() {
    return "local variables overflow the stack, which has " + std::to_string(stack_bytes / 1024) + " KiB";
}

class Block;
inline thread_local Block* current_block = nullptr;  // the one that runs on this worker

class Block {
   public:
    explicit Block(Launch& launch)
        : launch_(launch),
          threads_(launch.block.x * launch.block.y * launch.block.z),
          pool_(threads_.size()),
          shared_memory_(launch.shared_bytes) {
        for (unsigned i = 0; i < threads_.size(); ++i) {
            const dim3& shape = launch.block;
            threads_[i].number = i;
            threads_[i].index = {i % shape.x, i / shape.x % shape.y, i / (shape.x * shape.y)};
            order_.push_back(static_cast<std::uint16_t>(i));
        }
    }

    void run(uint3 index, std::uint64_t number, std::uint64_t turn) {
        turn_ = turn;
        shared_memory_.fill_with_poison();
        current_block = this;
        ::blockIdx = index;
        ::blockDim = launch_.block;
        ::gridDim = launch_.grid;
        arrange_threads(number);
        for (Thread& thread : threads_) thread.state = State::fresh;
        at_barrier_ = in_warp_operation_ = finished_ = 0;
        while (finished_ < threads_.size() && !stopped()) {
            const bool progress = let_every_thread_run();
            if (!release_barrier() && !progress) record_fault("deadlock: " + describe_threads());
        }
        if (!stopped()) check_shared_memory();
        current_block = nullptr;
    }

    // --- for code that runs on a fiber ---

    bool stopped() const { return launch_.fault_turn <= turn_; }
    Thread& running() { return *running_; }
    unsigned size() const { return static_cast<unsigned>(threads_.size()); }
    Thread& thread(unsigned number) { return threads_[number]; }

    void wait(State state, const char* operation, const Where& where) {
        running_->state = state;
        running_->waits_in = operation;
        running_->where = where;
        switch_fiber(running_->fiber, scheduler_);
    }

    // Returns in how many threads of the block the predicate is true.
    unsigned wait_at_barrier(const char* name, int predicate, const Where& where) {
        running_->predicate = predicate != 0;
        wait(State::at_barrier, name, where);
        return true_predicates_;
    }

    [[noreturn]] void leave_for_good() {
        switch_fiber(running_->fiber, scheduler_, true);
        std::abort();  // nobody resumes a fiber that has left
    }

    // --- for both ---

    // Noted, not thrown: an exception cannot cross from one stack to another. The scheduler sees it when it
    // gets control.
    void record_fault(const std::string& what, const void* address = nullptr,
                      const void* instruction = nullptr) {
        const std::lock_guard guard(launch_.fault_lock);
        if (stopped()) return;
        launch_.fault = "block " + to_string(::blockIdx) + ": " + what;
        launch_.fault_address = address;
        launch_.fault_instruction = instruction;
        launch_.fault_turn = turn_;
    }

    // "40 threads wait in __syncthreads at k.cu:12 (first: (0, 0, 0)); 24 threads have exited (first: (40,
    // 0, 0))"
    std::string describe_threads() const {
        std::string text;
        std::vector<bool> told(threads_.size());
        for (const Thread& first : threads_) {
            if (told[first.number]) continue;
            unsigned alike = 0;
            for (const Thread& other : threads_) {
                if (!in_the_same_place(first, other)) continue;
                told[other.number] = true;
                ++alike;
            }
            if (!text.empty()) text += "; ";
            text += std::to_string(alike) + (alike == 1 ? " thread " : " threads ") + doing(first) +
                    " (first: " + to_string(first.index) + ")";
        }
        return text;
    }

    static bool in_the_same_place(const Thread& a, const Thread& b) {
        if (a.state != b.state) return false;
        if (a.state != State::at_barrier && a.state != State::in_warp_operation) return true;
        return a.where.line() == b.where.line() && !std::strcmp(a.where.file_name(), b.where.file_name()) &&
               (a.state == State::at_barrier || a.request.mask == b.request.mask);
    }

   private:
    void arrange_threads(std::uint64_t block_number) {
        const auto n = static_cast<unsigned>(order_.size());
        if (launch_.order == Order::natural || launch_.order == Order::warps) return;
        for (unsigned i = 0; i < n; ++i) order_[i] = static_cast<std::uint16_t>(n - 1 - i);
        if (launch_.order == Order::reversed) return;
        std::uint64_t random = mix(launch_.seed ^ mix(block_number));
        for (unsigned i = n; i-- > 1; random = mix(random)) std::swap(order_[i], order_[random % (i + 1)]);
    }

    // Each once; or one warp after the other, as far as it gets.
    bool let_every_thread_run() {
        if (launch_.order != Order::warps) return let_run(0, order_.size());
        bool progress = false;
        for (std::size_t first = 0; first < order_.size(); first += warpSize)
            while (let_run(first, std::min<std::size_t>(first + warpSize, order_.size()))) progress = true;
        return progress;
    }

    bool let_run(std::size_t first, std::size_t end) {
        bool progress = false;
        for (std::size_t i = first; i < end && !stopped(); ++i) {
            Thread& thread = threads_[order_[i]];
            if (thread.state != State::fresh && thread.state != State::ready) continue;
            resume(thread);
            progress = true;
        }
        return progress;
    }

    void resume(Thread& thread) {
        if (thread.state == State::fresh) {
            thread.stack = pool_.take();
            prepare(thread.fiber, thread.stack, thread.number, &Block::first_step);
            thread.state = State::ready;
        }
        running_ = &thread;
        ::threadIdx = thread.index;
        switch_fiber(scheduler_, thread.fiber);
        if (StackPool::overflowed(thread.stack)) {
            record_fault("thread " + to_string(thread.index) + ": " + stack_overflow());
        } else if (thread.state == State::at_barrier) {
            ++at_barrier_;
        } else if (thread.state == State::in_warp_operation) {
            ++in_warp_operation_;
            settle_warp(thread);
        } else if (thread.state == State::finished) {
            pool_.give_back(thread.stack);
            ++finished_;
            if (in_warp_operation_ > 0) settle_warp(thread);
        }
    }

    // Where every fiber begins. It must not return: there is nothing below it on its stack.
    static void first_step() {
        Block& block = *current_block;
        arrived_on_new_fiber(block.scheduler_);
        block.launch_.kernel(block.launch_.arguments);
        block.running_->state = State::finished;
        block.leave_for_good();
    }

    // All threads have arrived: count predicates and let them go. True if somebody can go on, or the block
    // has failed.
    bool release_barrier() {
        if (stopped()) return true;
        if (at_barrier_ == 0 || at_barrier_ + finished_ < threads_.size()) return false;
        if (finished_ > 0 || !all_in_the_same_place()) {
            record_fault("divergent barrier: " + describe_threads());
            return true;
        }
        true_predicates_ = 0;
        for (Thread& thread : threads_) {
            true_predicates_ += static_cast<unsigned>(thread.predicate);
            thread.state = State::ready;
        }
        at_barrier_ = 0;
        return true;
    }

    // in warp_operations.h
    void settle_warp(Thread& thread);
    void complete_if_all_came(Warp& warp, const WarpRequest& request);

    void check_shared_memory() {
        const std::ptrdiff_t overrun = shared_memory_.first_overrun();
        if (overrun >= 0) {
            record_fault("dynamic shared memory has " + std::to_string(launch_.shared_bytes) +
                         " bytes (shared_bytes), but byte " + std::to_string(overrun) + " was written");
        }
    }

    bool all_in_the_same_place() const {
        for (const Thread& thread : threads_)
            if (!in_the_same_place(threads_.front(), thread)) return false;
        return true;
    }

    static std::string doing(const Thread& thread) {
        switch (thread.state) {
            case State::finished:
                return "exited";
            case State::at_barrier:
                return std::string("in ") + thread.waits_in + " at " + to_string(thread.where);
            case State::in_warp_operation: {
                char mask[32];
                std::snprintf(mask, sizeof mask, " with mask 0x%08x", thread.request.mask);
                return std::string("in ") + thread.waits_in + mask + " at " + to_string(thread.where);
            }
            default:
                return "running";
        }
    }

    Launch& launch_;
    std::uint64_t turn_ = 0;
    std::vector<Thread> threads_;
    std::vector<std::uint16_t> order_;
    StackPool pool_;
    SharedMemory shared_memory_;
    Fiber scheduler_;
    Thread* running_ = nullptr;
    std::size_t at_barrier_ = 0, in_warp_operation_ = 0, finished_ = 0;  // how many threads are there
    unsigned true_predicates_ = 0;
};

unsigned wait_at_barrier(const char* name, int predicate, const Where& where) {
    return current_block->wait_at_barrier(name, predicate, where);
}
unsigned threads_in_block() { return current_block->size(); }

}  // namespace simulator
