// The variables of a block: shared memory, and where the running thread stands.
//
// A block runs on one worker, and a worker runs one block at a time. So what is local to the worker
// (thread_local) is shared by the block. All such variables of this library, static shared arrays included,
// lie in one segment, which the dynamic loader makes for each worker; dynamic shared memory is one more
// variable there.
#pragma once

namespace simulator {

constexpr int poison = 0xff;                                   // every floating-point type reads this as NaN

class SharedMemory {
   public:
    explicit SharedMemory(std::size_t dynamic_bytes) : dynamic_bytes_(dynamic_bytes) {
        ::threadIdx = {};  // to touch one variable makes sure that this worker has its segment
        dl_iterate_phdr(&SharedMemory::find_segment, this);
        dynamic_ = dynamic_shared_memory();
    }

    // Overwrites threadIdx and its kin as well: set them afterwards.
    void fill_with_poison() {
        unsigned char* end = begin_ + bytes_;
        if (dynamic_ == nullptr) {
            std::memset(begin_, poison, bytes_);
            return;
        }
        unsigned char* behind = dynamic_ + most_dynamic_shared_bytes + watched_bytes;
        std::memset(begin_, poison, static_cast<std::size_t>(dynamic_ - begin_));
        std::memset(dynamic_, poison, dynamic_bytes_ + watched_bytes);
        std::memset(behind, poison, static_cast<std::size_t>(end - behind));
    }

    // The first byte behind the dynamic part that is no longer poison, counted from the start of that part,
    // or -1.
    std::ptrdiff_t first_overrun() const {
        if (dynamic_ == nullptr) return -1;
        for (std::size_t i = dynamic_bytes_; i < dynamic_bytes_ + watched_bytes; ++i)
            if (dynamic_[i] != poison) return static_cast<std::ptrdiff_t>(i);
        return -1;
    }

   private:
    // Called for each loaded library, until one contains this very function.
    static int find_segment(dl_phdr_info* info, std::size_t, void* result) {
        const auto here = reinterpret_cast<ElfW(Addr)>(&SharedMemory::find_segment);
        bool ours = false;
        std::size_t bytes = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& part = info->dlpi_phdr[i];
            const ElfW(Addr) start = info->dlpi_addr + part.p_vaddr;
            if (part.p_type == PT_LOAD && here >= start && here < start + part.p_memsz) ours = true;
            if (part.p_type == PT_TLS) bytes = part.p_memsz;
        }
        if (!ours) return 0;
        auto* memory = static_cast<SharedMemory*>(result);
        memory->begin_ = static_cast<unsigned char*>(info->dlpi_tls_data);
        memory->bytes_ = bytes;
        return 1;
    }

    std::size_t dynamic_bytes_;
    unsigned char* begin_ = nullptr;
    std::size_t bytes_ = 0;
    unsigned char* dynamic_ = nullptr;
};

}  // namespace simulator
