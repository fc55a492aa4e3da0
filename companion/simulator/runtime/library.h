// What the shared library offers to Python.
#pragma once

#define SIMULATOR_API extern "C" __attribute__((visibility("default")))

SIMULATOR_API const char* simulator_signatures() {
    static const std::string text = simulator::all_signatures();
    return text.c_str();
}

SIMULATOR_API void simulator_launch(unsigned kernel, simulator::LaunchRequest* request, void** arguments) {
    simulator::run(simulator::kernels()[kernel], *request, arguments);
}

SIMULATOR_API void* simulator_region_create(std::size_t bytes, std::size_t misalignment) {
    try {
        return new simulator::Region(bytes, misalignment);
    } catch (const std::bad_alloc&) {  // no exception may reach Python
        return nullptr;
    }
}
SIMULATOR_API void* simulator_region_data(void* region) {
    return static_cast<simulator::Region*>(region)->data();
}
SIMULATOR_API std::ptrdiff_t simulator_region_damage(void* region) {
    return static_cast<simulator::Region*>(region)->damage();
}
SIMULATOR_API void simulator_region_destroy(void* region) { delete static_cast<simulator::Region*>(region); }
