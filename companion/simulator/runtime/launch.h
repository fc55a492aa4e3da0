// From the caller, which is Python or program.h, to the blocks.
#pragma once

namespace simulator {

inline std::vector<Kernel>& kernels() {
    static std::vector<Kernel> all;
    return all;
}
void add_kernel(const Kernel& kernel) { kernels().push_back(kernel); }

// A line for each kernel: "block_sum pointer:f:4:constant value:i:4:mutable".
inline std::string all_signatures() {
    std::string text;
    for (const Kernel& kernel : kernels()) {
        text += kernel.name;
        for (std::size_t i = 0; i < kernel.parameter_count; ++i) {
            const Parameter& p = kernel.parameters[i];
            text += std::string(p.pointer ? " pointer:" : " value:") + p.kind + ":" + std::to_string(p.bytes) +
                    (p.constant ? ":constant" : ":mutable");
        }
        text += "\n";
    }
    return text;
}

inline void work_on_blocks(Launch& launch) {
#ifndef __SANITIZE_ADDRESS__
    const HandlerStack handler_stack;
#endif
    Block block(launch);
    const std::uint64_t count = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
    while (true) {
        const std::uint64_t turn = launch.next_block++;
        if (turn >= count || turn > launch.fault_turn) break;
        const std::uint64_t i = launch.order == Order::natural ? turn : count - 1 - turn;
        const std::uint64_t x = i % launch.grid.x, y = i / launch.grid.x % launch.grid.y;
        const std::uint64_t z = i / launch.grid.x / launch.grid.y;
        block.run({static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)}, i, turn);
    }
}

inline void run_on_workers(Launch& launch, unsigned workers) {
#ifndef __SANITIZE_ADDRESS__
    const ProcessorFaultGuard guard;
#endif
    std::vector<std::thread> team;
    for (unsigned i = 0; i < workers; ++i) team.emplace_back(work_on_blocks, std::ref(launch));
    for (std::thread& worker : team) worker.join();
}

// --- the interface in C, which Python mirrors field by field ---

struct LaunchRequest {
    unsigned grid[3], block[3];
    unsigned order, workers;
    std::uint64_t seed, shared_bytes;
    // the answer
    std::uint64_t fault_address;      // 0 if the fault has none
    std::uint64_t fault_instruction;  // likewise; counted from the start of the library
    char fault[4000];                 // empty if all went well
};

inline void run(const Kernel& kernel, LaunchRequest& request, void** arguments) {
    Launch launch;
    launch.grid = {request.grid[0], request.grid[1], request.grid[2]};
    launch.block = {request.block[0], request.block[1], request.block[2]};
    launch.order = static_cast<Order>(request.order);
    launch.seed = request.seed;
    launch.shared_bytes = request.shared_bytes;
    launch.kernel = kernel.call;
    launch.arguments = arguments;
    run_on_workers(launch, request.workers);

    std::snprintf(request.fault, sizeof request.fault, "%s", launch.fault.c_str());
    request.fault_address = reinterpret_cast<std::uint64_t>(launch.fault_address);
    request.fault_instruction = 0;
    Dl_info library;
    if (launch.fault_instruction != nullptr && dladdr(launch.fault_instruction, &library) != 0) {
        const auto* instruction = static_cast<const char*>(launch.fault_instruction);
        const auto* start = static_cast<const char*>(library.dli_fbase);
        request.fault_instruction = static_cast<std::uint64_t>(instruction - start);
    }
}

}  // namespace simulator
