// Memory for a kernel's arguments, built so that an access beyond either end does not go unnoticed.
//
//     | no access, 16 MiB |  margin  | the argument | margin | no access, 16 MiB |
//
// The argument ends within 16 bytes of memory that may be neither read nor written: going beyond it is a
// fault of the processor, which faults.h turns into a message. The margins exist because memory is
// protected in pages and because a kernel may choose its path by the alignment of a pointer, so that the
// copy must be aligned like the original. They are filled with a pattern that is checked after the launch:
// a write to them is found, a read gives NaN. The address sanitizer forbids memory by the byte, so its
// build has no gaps on which a read could go unnoticed.
#pragma once

namespace simulator {

constexpr std::size_t alignment_kept = 16;  // that of the widest access, which is 16 bytes

class Region {
   public:
    // `misalignment`: the original's address modulo 16.
    Region(std::size_t bytes, std::size_t misalignment) : bytes_(bytes) {
#ifdef __SANITIZE_ADDRESS__
        inside_ = guard_bytes + misalignment + bytes + guard_bytes;
        void* memory = std::aligned_alloc(alignment_kept, round_up(inside_, alignment_kept));
        memory_ = static_cast<unsigned char*>(memory);
        data_ = memory_ + guard_bytes + misalignment;
        __asan_poison_memory_region(memory_, guard_bytes + misalignment);
        __asan_poison_memory_region(data_ + bytes, guard_bytes);
#else
        inside_ = round_up(misalignment + bytes + alignment_kept, page_bytes);
        constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* memory = mmap(nullptr, inside_ + 2 * guard_bytes, PROT_NONE, flags, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        memory_ = static_cast<unsigned char*>(memory);
        mprotect(memory_ + guard_bytes, inside_, PROT_READ | PROT_WRITE);
        const std::size_t room = inside_ - bytes;
        const std::size_t start = room - (room + alignment_kept - misalignment) % alignment_kept;
        data_ = memory_ + guard_bytes + start;
        for (unsigned char* p = memory_ + guard_bytes; p < data_; ++p) *p = pattern_at(p);
        for (unsigned char* p = data_ + bytes; p < memory_ + guard_bytes + inside_; ++p) *p = pattern_at(p);
#endif
    }
    ~Region() {
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(memory_, inside_);
        std::free(memory_);
#else
        munmap(memory_, inside_ + 2 * guard_bytes);
#endif
    }
    Region(const Region&) = delete;

    unsigned char* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

    // How far from the start of the data a margin was overwritten, or `intact`.
    static constexpr std::ptrdiff_t intact = std::numeric_limits<std::ptrdiff_t>::min();
    std::ptrdiff_t damage() const {
#ifndef __SANITIZE_ADDRESS__
        const unsigned char* inside = memory_ + guard_bytes;
        for (const unsigned char* p = data_ + bytes_; p < inside + inside_; ++p)
            if (*p != pattern_at(p)) return p - data_;
        for (const unsigned char* p = data_; p-- > inside;)
            if (*p != pattern_at(p)) return p - data_;
#endif
        return intact;
    }

   private:
#ifdef __SANITIZE_ADDRESS__
    static constexpr std::size_t guard_bytes = std::size_t{1} << 20;
#else
    static constexpr std::size_t guard_bytes = std::size_t{16} << 20;
#endif
    static constexpr std::size_t page_bytes = 4096;
    // Bytes that no kernel is likely to write, and that every floating-point type reads as NaN.
    static unsigned char pattern_at(const unsigned char* p) {
        return reinterpret_cast<std::uintptr_t>(p) % 2 ? 0xff : 0xc5;
    }
    static std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

    std::size_t bytes_;
    std::size_t inside_ = 0;
    unsigned char* memory_ = nullptr;
    unsigned char* data_ = nullptr;
};

}  // namespace simulator
