// The build with the address sanitizer is a program of its own, since the sanitizer must be there before
// anything allocates memory, which it is not when Python loads a library. It reads a launch from a folder
// and writes results back.
//
//     program            prints the signatures
//     program FOLDER     reads FOLDER/launch.txt and FOLDER/region-0, region-1, …; writes the regions back;
//                        writes FOLDER/fault.txt if the simulator found a fault. What the sanitizer finds is
//                        reported on stderr, and what only the simulator knows about it in FOLDER/place.txt.
#pragma once

namespace simulator {

inline std::vector<std::unique_ptr<Region>> regions;
inline std::string folder;

// Called by the sanitizer before it reports and ends the program: adds what only the simulator knows.
extern "C" __attribute__((visibility("default"))) void __asan_on_error() {
    if (current_block == nullptr) return;
    const auto* address = static_cast<unsigned char*>(__asan_get_report_address());
    std::ofstream file(folder + "/place.txt");
    file << "block " << to_string(::blockIdx) << ": " << this_thread_is() << "\n";
    for (std::size_t i = 0; i < regions.size(); ++i)
        file << address - regions[i]->data() << "\n";
}

inline std::unique_ptr<Region> read_region(std::ifstream& launch, std::size_t number) {
    std::size_t bytes = 0, misalignment = 0;
    launch >> bytes >> misalignment;
    auto region = std::make_unique<Region>(bytes, misalignment);
    std::ifstream(folder + "/region-" + std::to_string(number), std::ios::binary)
        .read(reinterpret_cast<char*>(region->data()), static_cast<std::streamsize>(bytes));
    return region;
}

inline void write_region(const Region& region, std::size_t number) {
    std::ofstream(folder + "/region-" + std::to_string(number), std::ios::binary)
        .write(reinterpret_cast<const char*>(region.data()), static_cast<std::streamsize>(region.bytes()));
}

// "region 2 16": 16 bytes into region 2. "null". "bytes 0 0 128 63": a value as it lies in memory.
inline std::vector<unsigned char> read_argument(std::ifstream& launch) {
    std::string line, kind;
    std::getline(launch >> std::ws, line);
    std::istringstream words(line);
    words >> kind;
    std::vector<unsigned char> value;
    if (kind == "bytes") {
        for (unsigned byte; words >> byte;) value.push_back(static_cast<unsigned char>(byte));
        return value;
    }
    const unsigned char* pointer = nullptr;
    std::size_t region = 0, offset = 0;
    if (kind == "region" && words >> region >> offset) pointer = regions[region]->data() + offset;
    value.resize(sizeof pointer);
    std::memcpy(value.data(), &pointer, sizeof pointer);
    return value;
}

inline int run_from_folder() {
    std::ifstream launch(folder + "/launch.txt");
    LaunchRequest request{};
    std::size_t kernel = 0, region_count = 0;
    launch >> kernel;
    for (unsigned& n : request.grid) launch >> n;
    for (unsigned& n : request.block) launch >> n;
    launch >> request.order >> request.workers >> request.seed >> request.shared_bytes >> region_count;
    for (std::size_t i = 0; i < region_count; ++i) regions.push_back(read_region(launch, i));

    std::vector<std::vector<unsigned char>> values;
    while (values.size() < kernels()[kernel].parameter_count) values.push_back(read_argument(launch));
    std::vector<void*> pointers;
    for (auto& value : values) pointers.push_back(value.data());
    run(kernels()[kernel], request, pointers.data());

    if (request.fault[0] != '\0') std::ofstream(folder + "/fault.txt") << request.fault;
    for (std::size_t i = 0; i < regions.size(); ++i) write_region(*regions[i], i);
    return 0;
}

}  // namespace simulator

int main(int count, char** words) {
    if (count == 1) {
        std::cout << simulator::all_signatures();
        return 0;
    }
    simulator::folder = words[1];
    return simulator::run_from_folder();
}
