// The kernels of a file: their names, what they take, and how to call them when the arguments are known at
// run time only.
#pragma once

namespace simulator {

// A parameter, or what it points to. Kinds: floating, integer, boolean, structure, void.
struct Parameter {
    bool pointer, constant;
    char kind;
    std::size_t bytes;
};

struct Kernel {
    const char* name;
    const Parameter* parameters;
    std::size_t parameter_count;
    void (*call)(void** arguments);  // each points to a value of the parameter's type
};

void add_kernel(const Kernel& kernel);

template <class T>
constexpr char kind_of() {
    if constexpr (std::is_void_v<T>) return 'v';
    else if constexpr (std::is_same_v<T, bool>) return 'b';
    else if constexpr (std::is_integral_v<T>) return 'i';
    else if constexpr (std::is_floating_point_v<T> || OneOf<T, __half, __nv_bfloat16>) return 'f';
    else return 's';
}

template <class P>
constexpr Parameter describe_parameter() {
    using Target = std::remove_pointer_t<P>;
    using Plain = std::remove_cv_t<Target>;
    std::size_t bytes = 0;
    if constexpr (!std::is_void_v<Plain>) bytes = sizeof(Plain);
    return {std::is_pointer_v<P>, std::is_const_v<Target>, kind_of<Plain>(), bytes};
}

// One entry too many: a kernel may have no parameters, but an array must have elements.
template <class... P>
constexpr Parameter parameters_of[sizeof...(P) + 1] = {describe_parameter<P>()..., Parameter{}};

template <auto kernel, class... P>
Kernel describe_kernel(const char* name, void (*)(P...)) {
    const auto call = [](void** arguments) {
        [arguments]<std::size_t... i>(std::index_sequence<i...>) {
            kernel(*static_cast<P*>(arguments[i])...);
        }(std::index_sequence_for<P...>{});
    };
    return {name, parameters_of<P...>, sizeof...(P), call};
}

struct KernelAdder {
    explicit KernelAdder(const Kernel& kernel) { add_kernel(kernel); }
};

}  // namespace simulator

#define SIMULATOR_KERNEL(NAME) \
    static const simulator::KernelAdder simulator_adds_##NAME(simulator::describe_kernel<&NAME>(#NAME, &NAME));
