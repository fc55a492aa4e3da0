// How the 32 lanes of a warp meet: the scheduler's side of shuffles, votes and reductions.
//
// A lane that calls one of them leaves a request and waits. When the last lane of the mask has left the
// same request, the scheduler computes all results at once and lets the lanes go on. Lanes may call from
// different lines, as on a GPU.
#pragma once

namespace simulator {

struct Warp {
    Block& block;
    unsigned first;    // number of the thread that is lane 0
    unsigned lanes;    // 32, or less in the last warp of a block
    unsigned members;  // the lanes, as bits, that take part and have not exited

    Thread& lane(unsigned i) { return block.thread(first + i); }
    bool has(unsigned i) const { return members >> i & 1; }
    template <class Visit>
    void for_each_member(Visit visit) {
        for (unsigned i = 0; i < lanes; ++i)
            if (has(i)) visit(i, lane(i).request);
    }
    template <class T>
    void answer_all(const T& value) {
        for_each_member(
            [&](unsigned, WarpRequest& request) { std::memcpy(request.result, &value, sizeof value); });
    }
};

// --- the operations, as the scheduler carries them out ---

using SourceLane = int (*)(int lane, const WarpRequest&);

// CUDA C++ Programming Guide, "Warp Shuffle Functions": the warp falls into segments of `width` lanes, and
// who would reach beyond its segment gets its own value.
inline int segment(int lane, const WarpRequest& r) { return lane & ~(r.width - 1); }
inline int lane_indexed(int lane, const WarpRequest& r) {
    return segment(lane, r) + (r.argument & (r.width - 1));
}
inline int lane_up(int lane, const WarpRequest& r) {
    return lane - r.argument < segment(lane, r) ? lane : lane - r.argument;
}
inline int lane_down(int lane, const WarpRequest& r) {
    return lane + r.argument >= segment(lane, r) + r.width ? lane : lane + r.argument;
}
inline int lane_xor(int lane, const WarpRequest& r) {
    const int source = lane ^ r.argument;
    return source >= segment(lane, r) + r.width ? lane : source;
}

inline std::string describe_bad_source(Warp& warp, unsigned reader, unsigned source) {
    const Thread& thread = warp.lane(reader);
    std::string text = std::string(thread.waits_in) + " at " + to_string(thread.where) + ": thread " +
                       to_string(thread.index) + ", lane " + std::to_string(reader) + ", reads from lane " +
                       std::to_string(source);
    if (source >= warp.lanes) return text + ", which does not exist";
    if (warp.lane(source).state == State::finished) return text + ", which has exited";
    return text + ", which is not in the mask";
}

template <SourceLane source_lane>
void shuffle_lanes(Warp& warp) {
    warp.for_each_member([&](unsigned i, WarpRequest& request) {
        const auto source = static_cast<unsigned>(source_lane(static_cast<int>(i), request));
        if (source < warp.lanes && warp.has(source))
            std::memcpy(request.result, warp.lane(source).request.value, request.bytes);
        else
            warp.block.record_fault(describe_bad_source(warp, i, source));
    });
}

inline void count_votes(Warp& warp) {
    Votes votes{0, warp.members};
    warp.for_each_member([&](unsigned i, WarpRequest& request) {
        if (request.argument != 0) votes.for_it |= 1u << i;
    });
    warp.answer_all(votes);
}

inline void reduce_lanes(Warp& warp) {
    unsigned total = 0;
    bool first = true;
    warp.for_each_member([&](unsigned, WarpRequest& request) {
        unsigned value;
        std::memcpy(&value, request.value, sizeof value);
        total = first ? value : request.combine(total, value);
        first = false;
    });
    warp.answer_all(total);
}

// A sum of floats whose last bits are cut off, not rounded.
inline float add_towards_zero(float sum, double product) {
    const double exact = static_cast<double>(sum) + product;
    const auto nearest = static_cast<float>(exact);
    const bool too_far = std::abs(static_cast<double>(nearest)) > std::abs(exact) && std::isfinite(exact);
    return too_far ? std::nextafter(nearest, 0.0f) : nearest;
}

// mma.sync.aligned.m16n8k16.row.col: where the elements of the matrices lie is said in the PTX ISA, "Matrix
// Fragments for mma.m16n8k16 with floating point type". Products are exact. The PTX ISA leaves open how sums
// are rounded; here every addition is rounded towards zero, which is no better than what was found on GPUs
// (Fasi, Higham, Mikaitis and Pranesh 2021, "Numerical behavior of NVIDIA tensor cores"). "aligned" means that all
// lanes execute the same instruction; what is compared here is the line that calls.
inline void multiply_matrices_of_lanes(Warp& warp) {
    if (warp.members != 0xffffffffu) {
        warp.block.record_fault("mma.sync: all 32 lanes of a warp must take part, here are " +
                                std::to_string(std::popcount(warp.members)));
        return;
    }
    bool together = true;
    warp.for_each_member(
        [&](unsigned lane, WarpRequest&) { together &= Block::in_the_same_place(warp.lane(0), warp.lane(lane)); });
    if (!together) {
        warp.block.record_fault("mma.sync: all lanes of a warp must execute the same instruction: " +
                                warp.block.describe_threads());
        return;
    }
    float a[16][16], b[16][8];
    warp.for_each_member([&](unsigned lane, WarpRequest& request) {
        const MatrixFragments& part = *request.fragments;
        const unsigned group = lane / 4, place = lane % 4;
        for (unsigned i = 0; i < 8; ++i)
            a[group + 8 * (i / 2 % 2)][2 * place + i % 2 + 8 * (i / 4)] = part.a[i];
        for (unsigned i = 0; i < 4; ++i) b[2 * place + i % 2 + 8 * (i / 2)][group] = part.b[i];
    });
    warp.for_each_member([&](unsigned lane, WarpRequest& request) {
        for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            float& d = request.fragments->d[i];
            for (unsigned k = 0; k < 16; ++k)
                d = add_towards_zero(d, static_cast<double>(a[row][k]) * b[k][column]);
        }
    });
}

// --- the meeting ---

// Has every lane of this request's mask come? Lanes that have exited are not waited for, as the guide
// demands.
inline void Block::complete_if_all_came(Warp& warp, const WarpRequest& request) {
    warp.members = 0;
    for (unsigned i = warp.lanes; i-- > 0;) {
        if (!(request.mask >> i & 1)) continue;
        const Thread& other = warp.lane(i);
        if (other.state == State::finished) continue;
        if (other.state != State::in_warp_operation || other.request.operation != request.operation ||
            other.request.mask != request.mask)
            return;
        warp.members |= 1u << i;
    }
    request.operation(warp);
    warp.for_each_member([&](unsigned i, WarpRequest&) {
        warp.lane(i).state = State::ready;
        --in_warp_operation_;
    });
}

// `thread` has just arrived at an operation of its warp, or exited. Either may be what others wait for.
inline void Block::settle_warp(Thread& thread) {
    const unsigned first = thread.number & ~31u;
    Warp warp{*this, first, std::min(32u, size() - first), 0};
    if (thread.state == State::in_warp_operation) {
        complete_if_all_came(warp, thread.request);
        return;
    }
    for (unsigned i = 0; i < warp.lanes; ++i)
        if (warp.lane(i).state == State::in_warp_operation) complete_if_all_came(warp, warp.lane(i).request);
}

// --- the side of the lane that calls ---

// Leave the request that `prepare` fills in, and wait for the others.
template <class Prepare>
WarpRequest& meet(WarpOperation operation, const char* name, unsigned mask, const Where& where,
                  Prepare prepare) {
    Thread& me = current_block->running();
    const unsigned lane = me.number & 31;
    if (!(mask >> lane & 1)) {
        fail_with(std::string(name) + " at " + to_string(where) + ": lane " + std::to_string(lane) +
                  " calls it but is not in the mask");
    }
    me.request.operation = operation;
    me.request.mask = mask;
    prepare(me.request);
    current_block->wait(State::in_warp_operation, name, where);
    return me.request;
}

void shuffle(Shuffle kind, const char* name, unsigned mask, void* value, std::size_t bytes, int argument,
             int width, const Where& where) {
    if (width < 1 || width > 32 || (width & (width - 1))) {
        fail_with(std::string(name) + " at " + to_string(where) + ": width is " + std::to_string(width) +
                  ", it must be 1, 2, 4, 8, 16 or 32");
    }
    constexpr WarpOperation operations[] = {&shuffle_lanes<lane_indexed>, &shuffle_lanes<lane_up>,
                                            &shuffle_lanes<lane_down>, &shuffle_lanes<lane_xor>};
    const auto fill = [&](WarpRequest& request) {
        std::memcpy(request.value, value, bytes);
        request.bytes = bytes;
        request.argument = argument;
        request.width = width;
    };
    std::memcpy(value, meet(operations[static_cast<int>(kind)], name, mask, where, fill).result, bytes);
}

Votes vote(const char* name, unsigned mask, int predicate, const Where& where) {
    const auto fill = [&](WarpRequest& request) { request.argument = predicate; };
    Votes votes;
    std::memcpy(&votes, meet(&count_votes, name, mask, where, fill).result, sizeof votes);
    return votes;
}

void multiply_matrices(MatrixFragments& fragments, const Where& where) {
    const auto fill = [&](WarpRequest& request) { request.fragments = &fragments; };
    meet(&multiply_matrices_of_lanes, "mma.sync", 0xffffffffu, where, fill);
}

unsigned reduce(Combine combine, const char* name, unsigned mask, unsigned value, const Where& where) {
    const auto fill = [&](WarpRequest& request) {
        std::memcpy(request.value, &value, sizeof value);
        request.combine = combine;
    };
    std::memcpy(&value, meet(&reduce_lanes, name, mask, where, fill).result, sizeof value);
    return value;
}

}  // namespace simulator
