// state.hpp: the threads, warps and blocks of a launch, how they sleep, and how a launch fails.
//
// Why no std::mutex, no std::barrier: ThreadSanitizer would see them, and every lock that the runner takes
// would count as an order that the kernel never asked for, hiding its races. So the runner is compiled
// without instrumentation, sleeps on futexes, and says itself (__tsan_release, __tsan_acquire) where CUDA
// promises an order: at __syncthreads and at __syncwarp. Shuffles and votes exchange values but order
// no memory, on the device as here.

#pragma once

#include "cuda_builtins.h"

#include <algorithm>
#include <climits>
#include <cstdarg>
#include <linux/futex.h>
#include <pthread.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

// Present only in a program that was linked with the sanitizer.
extern "C" {
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
}

namespace {
using namespace mage_host;

constexpr int MAX_BARRIERS = 1024;

// ---- locks and errors

void futex_wait(int* word, int seen) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, nullptr); }
void futex_wake(int* word, int count) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count); }

struct Lock {
    int state = 0;  // 0 free, 1 held, 2 held and somebody sleeps
    void lock() {
        int expected = 0;
        if (__atomic_compare_exchange_n(&state, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
        while (__atomic_exchange_n(&state, 2, __ATOMIC_ACQUIRE) != 0) futex_wait(&state, 2);
    }
    void unlock() {
        if (__atomic_exchange_n(&state, 0, __ATOMIC_RELEASE) == 2) futex_wake(&state, 1);
    }
};

// A count that goes up each time a barrier or a collective completes. The two order marks alternate:
// a thread that is already at the next barrier must not lend its order to one that has not yet left
// this one, or races between the two would go unseen.
struct Generation {
    int count = 0;
    uint64_t order[2] = {};
    int begin(bool ordered) {
        const int now = __atomic_load_n(&count, __ATOMIC_RELAXED);
        if (ordered && __tsan_release) __tsan_release(&order[now & 1]);
        return now;
    }
    void advance() {
        __atomic_fetch_add(&count, 1, __ATOMIC_RELEASE);
        futex_wake(&count, INT_MAX);
    }
    void sleep(int seen) {
        while (__atomic_load_n(&count, __ATOMIC_ACQUIRE) == seen) futex_wait(&count, seen);
    }
    void end(int seen, bool ordered) {
        if (ordered && __tsan_acquire) __tsan_acquire(&order[seen & 1]);
    }
};

// Ends the process; the first failure is the one that is told.
[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const char* kind, const char* format, ...) {
    static int failed = 0;
    if (__atomic_exchange_n(&failed, 1, __ATOMIC_ACQ_REL)) for (;;) pause();
    char text[1024];
    int n = snprintf(text, sizeof text, "mage-host\t%s\t", kind);
    va_list more;
    va_start(more, format);
    n += vsnprintf(text + n, sizeof text - n - 1, format, more);
    va_end(more);
    n = std::min(n, int(sizeof text) - 2);
    text[n++] = '\n';
    if (write(2, text, n) < 0) {}
    syscall(SYS_exit_group, 70);
    __builtin_unreachable();
}

// ---- what runs

struct Block;

struct Thread {
    Block* block;
    int linear;  // place in the block, x fastest
    uint3 index;
    uint64_t value = 0, result = 0;  // what a collective takes and gives
    int source = 0;
    struct Pending { Copy copy; int group; };
    std::vector<Pending> copies;  // issued, not landed, oldest first
    size_t landed = 0;            // how many of the front are done
    int open_group = 0;
    pthread_t handle;
};

// One set of lanes that meets. Several may be under way in a warp, with masks that overlap too: lanes
// may wait for one that first has business with others.
struct Group {
    unsigned mask = 0, arrived = 0;
    int kind = 0, line = 0;
    Generation generation;
};

struct Warp {
    unsigned live = 0;
    Thread* lanes[32] = {};
    Group groups[32];  // one a sleeping lane at most
    // The group of these lanes that has begun, or a free one.
    Group& find(unsigned mask) {
        for (Group& g : groups)
            if (g.arrived && g.mask == mask) return g;
        for (Group& g : groups)
            if (!g.arrived) return g;
        __builtin_unreachable();
    }
};

struct Block {
    uint3 index;
    char* arena;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Lock lock;  // guards everything below and the warps
    int live = 0, asleep = 0;
    int arrived = 0, site = 0, line = 0;
    const Thread* first = nullptr;  // the first to arrive at the barrier
    Generation generation;
};

int dropped_barrier = -1;
int barrier_lines[MAX_BARRIERS];  // 0: not reached
__thread Thread* self;

struct Where {
    char text[96];
    explicit Where(const Thread* t) {
        if (!t) snprintf(text, sizeof text, "outside the kernel");
        else snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", t->index.x, t->index.y,
                      t->index.z, t->block->index.x, t->block->index.y, t->block->index.z);
    }
};
}  // namespace
