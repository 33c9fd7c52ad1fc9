// memory.hpp: where shared arrays and arguments lie, and who touches what lies between them.
//
// Between and around the arrays is poison: bytes of 0xff, NaN as a float. A write there is found when the
// block or the launch ends; a read gives NaN. Past the end of an argument is a page that faults at once.
// With AddressSanitizer every access to poison is reported as it happens.

#pragma once

#include "state.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

extern "C" {  // present only in a program linked with AddressSanitizer
__attribute__((weak)) void __asan_poison_memory_region(void const volatile*, size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(void const volatile*, size_t);
}

namespace {
constexpr size_t GUARD = 8192;          // poisoned bytes on both sides of a shared array
constexpr size_t ARENA = 1 << 20;       // address space for a block's shared memory
constexpr size_t WALL = 1 << 20;        // inaccessible bytes on both sides of an argument
constexpr int MAX_SHARED_ARRAYS = 64;
constexpr unsigned char POISON = 0xff;  // NaN as a float, -1 as an integer

// An argument's array: the bytes end where an inaccessible page begins, so that an access past the
// end stops there and then. The base is aligned to 16 bytes, so up to 15 bytes before the wall are
// only poisoned.
struct Region {
    size_t offset;
    char *map, *base;
    size_t map_bytes, bytes;
    int argument;
    size_t slack() const { return map + map_bytes - WALL - (base + bytes); }
    size_t lead() const { return base - (map + WALL); }
};

std::vector<Region> regions;
SharedArray* shared_arrays[MAX_SHARED_ARRAYS];  // filled in the order in which threads reach them
int shared_count = 0;
Lock shared_lock;
size_t arena_end = GUARD;
SharedArray dynamic_shared{"extern __shared__", 0, 0, 16, 0};
bool land_at_issue = true;

// ---- shared memory

// Gives an array its place. Only the alignment that the declaration asks for: an array that is read
// in quads without __align__(16) is caught here, on the device it depends on what lies before it.
void place_shared(SharedArray* a) {
    size_t at = (arena_end + a->alignment - 1) / a->alignment * a->alignment;
    if (a->alignment < 16 && at % 16 == 0) at += a->alignment;
    if (at + a->bytes + GUARD > ARENA || shared_count == MAX_SHARED_ARRAYS)
        fail("request", "no room for shared array %s of line %d (%zu bytes)", a->name, a->line, a->bytes);
    arena_end = (at + a->bytes + GUARD + 15) / 16 * 16;
    shared_arrays[shared_count] = a;
    __atomic_store_n(&shared_count, shared_count + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&a->offset, long(at), __ATOMIC_RELEASE);
}

void* open_shared(const SharedArray* a) {
    char* p = self->block->arena + a->offset;
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(p, a->bytes);
    return p;
}

// Every byte between the arrays must still be poison when the block has ended.
void check_shared_guards(const Block& b) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(b.arena, ARENA);
    if (!shared_count) return;
    std::vector<bool> own(arena_end);
    for (int k = 0; k < shared_count; ++k)
        for (size_t i = 0; i < shared_arrays[k]->bytes; ++i) own[shared_arrays[k]->offset + i] = true;
    for (size_t i = 0; i < arena_end; ++i) {
        if (own[i] || static_cast<unsigned char>(b.arena[i]) == POISON) continue;
        const SharedArray* near = nullptr;  // the array whose edge is nearest
        long distance = LONG_MAX;
        for (int k = 0; k < shared_count; ++k) {
            const SharedArray* a = shared_arrays[k];
            const long after = long(i) - (a->offset + long(a->bytes)), before = a->offset - 1 - long(i);
            const long d = after >= 0 ? after : before;
            if (d < distance) distance = d, near = a;
        }
        fail("out-of-bounds", "shared array %s (%zu bytes, declared at line %d) was written %ld bytes %s, in block (%u, %u, %u)",
             near->name, near->bytes, near->line, distance + 1, long(i) < near->offset ? "before its start" : "past its end",
             b.index.x, b.index.y, b.index.z);
    }
}

// ---- arguments

char* map_bytes_or_fail(size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("crash", "no memory for %zu bytes", bytes);
    return static_cast<char*>(p);
}

Region make_region(size_t offset, size_t bytes, int argument) {
    const size_t page = sysconf(_SC_PAGESIZE), rounded = (bytes + 15) / 16 * 16;
    const size_t inner = (rounded + page - 1) / page * page;
    Region r{offset, nullptr, nullptr, inner + 2 * WALL, bytes, argument};
    r.map = map_bytes_or_fail(r.map_bytes);
    mprotect(r.map, WALL, PROT_NONE);
    mprotect(r.map + WALL + inner, WALL, PROT_NONE);
    memset(r.map + WALL, POISON, inner);
    r.base = r.map + WALL + inner - rounded;
    return r;
}

void poison_edges(const Region& r) {
    if (!__asan_poison_memory_region) return;
    __asan_poison_memory_region(r.map + WALL, r.lead());
    __asan_poison_memory_region(r.base + r.bytes, r.slack());
}

void check_edges(const Region& r) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(r.map + WALL, r.map_bytes - 2 * WALL);
    for (size_t i = 0; i < r.slack(); ++i)
        if (static_cast<unsigned char>(r.base[r.bytes + i]) != POISON)
            fail("out-of-bounds", "argument %d (%zu bytes) was written %zu bytes past its end", r.argument, r.bytes, i + 1);
    for (size_t i = 1; i <= r.lead(); ++i)
        if (static_cast<unsigned char>(r.base[-long(i)]) != POISON)
            fail("out-of-bounds", "argument %d (%zu bytes) was written %zu bytes before its start", r.argument, r.bytes, i);
}

// The argument next to an address, or nothing.
const Region* find_region(const char* p) {
    for (const Region& r : regions)
        if (p >= r.map && p < r.map + r.map_bytes) return &r;
    return nullptr;
}

// ---- faults

void on_fault(int signal, siginfo_t* info, void* context) {
    unsigned long pc = 0;
#if defined(__x86_64__)
    pc = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    pc = static_cast<ucontext_t*>(context)->uc_mcontext.pc;
#endif
    const Where where(self);
    const char* p = static_cast<char*>(info->si_addr);
    if (signal == SIGFPE) fail("crash", "%s divides an integer by zero @%lx", where.text, pc);
    if (const Region* r = find_region(p))
        fail("out-of-bounds", "%s touches byte %ld of argument %d, which has %zu bytes @%lx", where.text, long(p - r->base),
             r->argument, r->bytes, pc);
    fail("crash", "%s touches address %p, which belongs to no argument and no shared array @%lx", where.text,
         static_cast<const void*>(p), pc);
}
}  // namespace

// ---- what kernels call (cuda_builtins.h)

void* mage_shared_array(SharedArray* a) {
    if (!__atomic_load_n(&a->offset, __ATOMIC_ACQUIRE)) {
        shared_lock.lock();
        if (!a->offset) place_shared(a);
        shared_lock.unlock();
    }
    return open_shared(a);
}

void* mage_dynamic_shared() {
    if (!dynamic_shared.bytes) fail("request", "the kernel has extern __shared__ memory and the launch gives it none");
    return open_shared(&dynamic_shared);
}

bool mage_copies_land_at_issue() { return land_at_issue; }

void mage_check_copy(void* to, const void* from, int bytes, const char* file, int line) {
    mage_check_alignment(to, bytes, file, line);
    mage_check_alignment(from, bytes, file, line);
    const long at = static_cast<char*>(to) - self->block->arena;
    bool inside = false;
    for (int k = 0, n = __atomic_load_n(&shared_count, __ATOMIC_ACQUIRE); k < n; ++k) {
        const SharedArray* a = shared_arrays[k];
        inside = inside || (at >= a->offset && at + bytes <= a->offset + long(a->bytes));
    }
    if (!inside) fail("out-of-bounds", "%s copies %d bytes to an address in none of its block's shared arrays, %s:%d",
                      Where(self).text, bytes, file, line);
    const char* p = static_cast<const char*>(from);
    const Region* r = find_region(p);
    if (!r) fail("out-of-bounds", "%s copies from an address in no argument, %s:%d", Where(self).text, file, line);
    if (p < r->base || p + bytes > r->base + r->bytes)
        fail("out-of-bounds", "%s copies %d bytes from byte %ld of argument %d, which has %zu bytes, %s:%d", Where(self).text,
             bytes, long(p - r->base), r->argument, r->bytes, file, line);
}

void mage_queue_copy(void* to, const void* from, int bytes) {
    self->copies.push_back({{to, from, bytes}, self->open_group});
}

void mage_commit_copies() { ++self->open_group; }

bool mage_next_landing(int outstanding, Copy* copy) {
    if (self->landed == self->copies.size()) return false;
    const auto& oldest = self->copies[self->landed];
    if (oldest.group >= self->open_group - outstanding) return false;
    *copy = oldest.copy;
    ++self->landed;
    return true;
}

void mage_check_alignment(const void* p, size_t alignment, const char* file, int line) {
    if (reinterpret_cast<uintptr_t>(p) % alignment)
        fail("misaligned", "%s accesses %zu bytes at an address that is no multiple of %zu, %s:%d", Where(self).text,
             alignment, alignment, file, line);
}

// The compiler calls this before any access of its own that is misaligned (-fsanitize=alignment); the
// layout of its argument is part of the ABI of that option.
struct AlignmentSite {
    const char* file;
    uint32_t line, column;
    void* type;
    unsigned char log_alignment, kind;
};
extern "C" void __ubsan_handle_type_mismatch_v1(AlignmentSite* site, void* p) {
    if (!p) fail("out-of-bounds", "%s uses a null pointer, %s:%u", Where(self).text, site->file, site->line);
    mage_check_alignment(p, size_t(1) << site->log_alignment, site->file, site->line);
}
