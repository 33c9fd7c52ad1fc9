// runner.cpp: runs one launch of one kernel on the CPU, one OS thread a CUDA thread.
//
//   kernel-program DATA KERNEL gx gy gz bx by bz DYNAMIC_SHARED issue|wait DROPPED_BARRIER ARGUMENT...
//
// An argument is i:NUMBER, f:NUMBER, or LETTER:OFFSET:BYTES for an array that lies in the file DATA,
// which gets the arrays back when the launch is over. On success a few lines `key<TAB>value` go to
// standard output. Otherwise one line `mage-host<TAB>KIND<TAB>MESSAGE` goes to standard error and the
// exit status is 70; sanitizers end the process with reports of their own.
//
// Why OS threads, although fibers would be ten times faster: ThreadSanitizer knows threads, and a
// preemptive scheduler interleaves them in orders that no hand-written one would try.

#include "memory.hpp"
#include "sync.hpp"

#include <cstdlib>
#include <memory>
#include <sys/prctl.h>

namespace {
constexpr size_t STATIC_SHARED_LIMIT = 48 * 1024;  // what a kernel may declare without dynamic shared memory
constexpr int RESIDENT_THREADS = 1024;             // blocks run together up to this many threads

const Kernel* kernel;
std::vector<Value> values;

// ---- running blocks

void* thread_main(void* argument) {
    self = static_cast<Thread*>(argument);
    threadIdx = self->index;
    blockIdx = self->block->index;
    kernel->call(values.data());
    leave(self);
    return nullptr;
}

void prepare_block(Block& b, uint3 index, char* arena) {
    const int count = blockDim.x * blockDim.y * blockDim.z;
    b.index = index;
    b.arena = arena;
    b.live = count;
    b.threads.resize(count);
    b.warps.resize((count + 31) / 32);
    for (int i = 0; i < count; ++i) {
        Thread& t = b.threads[i];
        t.block = &b;
        t.linear = i;
        t.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        b.warps[i / 32].live |= 1u << i % 32;
        b.warps[i / 32].lanes[i % 32] = &t;
    }
    // What the block finds in shared memory is nothing it may rely on.
    memset(arena, POISON, ARENA);
    if (__asan_poison_memory_region) __asan_poison_memory_region(arena, ARENA);
}

// Blocks run a few at once, so that a race between two blocks is one for ThreadSanitizer too.
void run_grid() {
    const size_t blocks = size_t(gridDim.x) * gridDim.y * gridDim.z;
    const size_t threads = blockDim.x * blockDim.y * blockDim.z;
    const size_t resident = std::max<size_t>(1, std::min(blocks, RESIDENT_THREADS / threads));
    std::vector<char*> arenas;
    for (size_t i = 0; i < resident; ++i) arenas.push_back(map_bytes_or_fail(ARENA));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    // A report of a sanitizer is written on the stack of the thread that it is about.
    pthread_attr_setstacksize(&attributes, __tsan_acquire || __asan_poison_memory_region ? 1 << 20 : 256 << 10);
    for (size_t first = 0; first < blocks; first += resident) {
        std::vector<std::unique_ptr<Block>> wave;
        for (size_t i = first; i < std::min(blocks, first + resident); ++i) {
            wave.push_back(std::make_unique<Block>());
            prepare_block(*wave.back(), {unsigned(i % gridDim.x), unsigned(i / gridDim.x % gridDim.y),
                                         unsigned(i / gridDim.x / gridDim.y)}, arenas[i - first]);
        }
        for (auto& b : wave)
            for (Thread& t : b->threads)
                if (int error = pthread_create(&t.handle, &attributes, thread_main, &t))
                    fail("crash", "cannot start %zu threads (%s): raise the limit of this user or container", threads * wave.size(),
                         strerror(error));
        for (auto& b : wave)
            for (Thread& t : b->threads) pthread_join(t.handle, nullptr);
        for (auto& b : wave) check_shared_guards(*b);
    }
}

// ---- arguments

void read_arguments(FILE* data, char** given, int count) {
    const int wanted = strlen(kernel->letters);
    if (count != wanted) fail("request", "kernel %s takes %d arguments, %d were given", kernel->name, wanted, count);
    values.resize(count);
    for (int i = 0; i < count; ++i) {
        const char wants = kernel->letters[i], has = given[i][0];
        const bool number = has == 'i' || has == 'f';
        const bool fits = has == 'i' ? wants == 'i' || wants == 'l' || wants == 'b' || wants == 'f' || wants == 'd'
                        : has == 'f' ? wants == 'f' || wants == 'd'
                                     : wants == has;
        if (!fits)
            fail("request", "argument %d of kernel %s does not fit its parameter (given %c, wanted %c; capitals are arrays, "
                 "F float32, I int32, D float64, L int64)", i, kernel->name, has, wants);
        if (number) {
            if (wants == 'f' || wants == 'd') values[i].real = strtod(given[i] + 2, nullptr);
            else values[i].integer = strtoll(given[i] + 2, nullptr, 10);
            if (wants == 'i' && (values[i].integer < INT_MIN || values[i].integer > long(UINT_MAX)))
                fail("request", "argument %d of kernel %s does not fit 32 bits", i, kernel->name);
            continue;
        }
        size_t offset, bytes;
        if (sscanf(given[i] + 2, "%zu:%zu", &offset, &bytes) != 2) fail("request", "argument %d is not readable", i);
        // The same array given twice is one array.
        const Region* known = nullptr;
        for (const Region& r : regions)
            if (r.offset == offset && r.bytes == bytes && bytes) known = &r;
        if (!known) {
            regions.push_back(make_region(offset, bytes, i));
            known = &regions.back();
            fseek(data, long(offset), SEEK_SET);
            if (fread(known->base, 1, bytes, data) != bytes) fail("crash", "the arrays cannot be read");
            poison_edges(*known);
        }
        values[i].pointer = known->base;
    }
}
}  // namespace

__thread uint3 threadIdx, blockIdx;
uint3 blockDim, gridDim;

int main(int argc, char** argv) {
    if (argc < 12) return fprintf(stderr, "mage-host\trequest\ttoo few words on the command line\n"), 70;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no kernel outlives the one who asked for it
    FILE* data = fopen(argv[1], "r+b");
    if (!data) fail("crash", "cannot open %s", argv[1]);
    for (const Kernel* k = mage_kernels; k->name; ++k)
        if (!strcmp(k->name, argv[2])) kernel = k;
    if (!kernel) fail("request", "no kernel %s", argv[2]);
    unsigned sizes[6];
    for (int i = 0; i < 6; ++i) sizes[i] = strtoul(argv[3 + i], nullptr, 10);
    gridDim = {sizes[0], sizes[1], sizes[2]};
    blockDim = {sizes[3], sizes[4], sizes[5]};
    dynamic_shared.bytes = strtoul(argv[9], nullptr, 10);
    if (dynamic_shared.bytes) place_shared(&dynamic_shared);
    land_at_issue = !strcmp(argv[10], "issue");
    dropped_barrier = atoi(argv[11]);
    regions.reserve(argc);
    read_arguments(data, argv + 12, argc - 12);

    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(signal, &action, nullptr);

    run_grid();

    for (const Region& r : regions) check_edges(r);
    size_t declared = 0;
    for (int k = 0; k < shared_count; ++k)
        if (shared_arrays[k] != &dynamic_shared) declared += shared_arrays[k]->bytes;
    if (declared > STATIC_SHARED_LIMIT)
        fail("request", "kernel %s declares %zu bytes of shared memory, the device's compiler allows %zu", kernel->name, declared,
             STATIC_SHARED_LIMIT);
    for (const Region& r : regions) {
        fseek(data, long(r.offset), SEEK_SET);
        if (fwrite(r.base, 1, r.bytes, data) != r.bytes) fail("crash", "the arrays cannot be written back");
    }
    fclose(data);
    printf("shared\t%zu\n", declared);
    for (int i = 0; i < MAX_BARRIERS; ++i)
        if (barrier_lines[i]) printf("barrier\t%d\t%d\n", i, barrier_lines[i]);
    return 0;
}
