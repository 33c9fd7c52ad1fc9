// cuda_builtins.h: the CUDA C++ built-ins that the kernels use, for an ordinary C++17 compiler.
//
// It is included before a kernel file (-include). Everything that involves
// another thread (barriers, shuffles, votes) is a call into runner.cpp, which is compiled apart and
// never instrumented: what a sanitizer sees is the memory traffic of the kernel and nothing else.
//
// What cannot be had by macros is rewritten in the source by translate.py, line by line: `__shared__`
// declarations become references into the block's own shared memory (see SharedArray below), and the
// list of kernels is put at the end of the unit.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <math.h>
#include <type_traits>
#include <utility>

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

// ---- vector types: the sizes and alignments of the CUDA programming guide

#define MAGE_VECTOR(type, name)                                                             \
    struct name##1 { type x; };                                                             \
    struct __align__(2 * sizeof(type)) name##2 { type x, y; };                              \
    struct name##3 { type x, y, z; };                                                       \
    struct __align__(sizeof(type) == 8 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; }; \
    inline name##1 make_##name##1(type x) { return {x}; }                                   \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                        \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }             \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
MAGE_VECTOR(float, float)
MAGE_VECTOR(double, double)
MAGE_VECTOR(int, int)
MAGE_VECTOR(unsigned, uint)
#undef MAGE_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

// ---- what the runner offers (runner.cpp)

namespace mage_host {
// One declaration of a shared array. `offset` is where it lies in the shared memory of every block;
// the runner sets it when the first thread reaches the declaration.
struct SharedArray {
    const char* name;
    int line;
    size_t bytes, alignment;
    long offset;
};
// A copy that was issued and has not landed.
struct Copy {
    void* to;
    const void* from;
    int bytes;
};
enum Collective { SHUFFLE, VOTE, SYNC };
}  // namespace mage_host

extern "C" {
extern __thread uint3 threadIdx, blockIdx;
extern uint3 blockDim, gridDim;

void* mage_shared_array(mage_host::SharedArray* array);
void* mage_dynamic_shared();
void mage_barrier(int site, int line);
// All lanes of `mask` exchange a value: `value` of lane `source` for a shuffle, the lanes' nonzero
// values as a bit mask for a vote, nothing for a sync.
uint64_t mage_collective(int kind, unsigned mask, uint64_t value, int source, int line);
int mage_lane();
unsigned mage_active_lanes();
bool mage_copies_land_at_issue();
void mage_check_copy(void* to, const void* from, int bytes, const char* file, int line);
void mage_queue_copy(void* to, const void* from, int bytes);
void mage_commit_copies();
bool mage_next_landing(int outstanding, mage_host::Copy* copy);
void mage_check_alignment(const void* p, size_t alignment, const char* file, int line);
}

static const int warpSize = 32;

// A barrier's number is its place among the barriers of the unit, in source order.
#define __syncthreads() mage_barrier(__COUNTER__, __LINE__)

// ---- warps. Defaults of __builtin_LINE are evaluated where the kernel calls.

namespace mage_host {
template <class T>
inline uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
inline T shuffle(unsigned mask, T value, int source, int line) {
    const uint64_t bits = mage_collective(SHUFFLE, mask, to_bits(value), source, line);
    T result;
    memcpy(&result, &bits, sizeof result);
    return result;
}
}  // namespace mage_host

// Which lane each shuffle reads: PTX ISA, shfl.sync. `width` splits the warp into segments; a lane
// whose source would leave its segment keeps its own value.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    const int segment = mage_lane() & ~(width - 1);
    return mage_host::shuffle(mask, value, segment | (source & (width - 1)), line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int lane = mage_lane(), source = lane - int(delta);
    return mage_host::shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int lane = mage_lane(), source = lane + int(delta);
    return mage_host::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    const int lane = mage_lane(), source = lane ^ bits;
    return mage_host::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return unsigned(mage_collective(mage_host::VOTE, mask, predicate != 0, 0, line));
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, !predicate, line) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    mage_collective(mage_host::SYNC, mask, 0, 0, line);
}
inline unsigned __activemask() { return mage_active_lanes(); }

// ---- cp.async. The hardware may move the bytes at any time between the issue and the wait. The two
// extremes are run. Where they land at the wait, the destination is NaN from the issue on: whoever
// reads in between, or waits for one group too few, reads NaN.

namespace mage_host {
template <int BYTES>
inline void move(void* to, const void* from) {
    typedef unsigned __attribute__((may_alias)) word;
    for (int i = 0; i < BYTES / 4; ++i)
        static_cast<word*>(to)[i] = from ? static_cast<const word*>(from)[i] : 0xffffffffu;
}
inline void land(const Copy& copy) {
    copy.bytes == 16 ? move<16>(copy.to, copy.from) : copy.bytes == 8 ? move<8>(copy.to, copy.from)
                                                                      : move<4>(copy.to, copy.from);
}
template <int BYTES>
inline void issue_copy(void* to, const void* from, const char* file, int line) {
    mage_check_copy(to, from, BYTES, file, line);
    if (mage_copies_land_at_issue()) return move<BYTES>(to, from);
    move<BYTES>(to, nullptr);
    mage_queue_copy(to, from, BYTES);
}
}  // namespace mage_host

// ---- atomics: relaxed, as on the device (they order nothing around them)

template <class T>
inline T mage_atomic_update(T* p, T (*combine)(T, T), T value) {
    T seen, wanted;
    __atomic_load(p, &seen, __ATOMIC_RELAXED);
    do wanted = combine(seen, value);
    while (!__atomic_compare_exchange(p, &seen, &wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return seen;
}
template <class T>
inline T atomicAdd(T* p, std::common_type_t<T> value) {
    return mage_atomic_update<T>(p, [](T a, T b) { return T(a + b); }, value);
}
template <class T>
inline T atomicMax(T* p, std::common_type_t<T> value) {
    return mage_atomic_update<T>(p, [](T a, T b) { return a < b ? b : a; }, value);
}
template <class T>
inline T atomicMin(T* p, std::common_type_t<T> value) {
    return mage_atomic_update<T>(p, [](T a, T b) { return b < a ? b : a; }, value);
}
template <class T>
inline T atomicExch(T* p, std::common_type_t<T> value) {
    return mage_atomic_update<T>(p, [](T, T b) { return b; }, value);
}
template <class T>
inline T atomicCAS(T* p, std::common_type_t<T> expected, std::common_type_t<T> value) {
    __atomic_compare_exchange(p, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __threadfence(); }

// ---- loads and arithmetic. Approximate device functions are the exact ones here: the gate's
// tolerances allow for either.

template <class T>
inline T __ldg(const T* p, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    mage_check_alignment(p, alignof(T), file, line);
    return *p;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdividef(float x, float y) { return x / y; }
#define __expf expf  // macros: glibc declares functions of these names
#define __logf logf
#define __sinf sinf
#define __cosf cosf
#define __powf powf
inline int __float_as_int(float x) { int y; memcpy(&y, &x, 4); return y; }
inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
template <class A, class B>
inline std::common_type_t<A, B> min(A a, B b) {
    const std::common_type_t<A, B> x = a, y = b;
    return y < x ? y : x;
}
template <class A, class B>
inline std::common_type_t<A, B> max(A a, B b) {
    const std::common_type_t<A, B> x = a, y = b;
    return x < y ? y : x;
}

// ---- how the runner calls a kernel whose parameters it does not know

namespace mage_host {
union Value {
    void* pointer;
    long long integer;
    double real;
};

// A parameter's type as one letter, upper case for a pointer to it: f d (float, double), i l (integers
// of 4 and 8 bytes), b (any other integer). Vector types count as their elements.
template <class T, class = void>
struct Letter {
    static constexpr char value = std::is_floating_point_v<T> ? (sizeof(T) == 4 ? 'f' : 'd')
                                  : sizeof(T) == 4            ? 'i'
                                  : sizeof(T) == 8            ? 'l'
                                                              : 'b';
};
template <class T>
struct Letter<T, std::void_t<decltype(T::x)>> : Letter<decltype(T::x)> {};
template <class T>
struct Letter<T*> {
    static constexpr char value = Letter<std::remove_cv_t<T>>::value - 'a' + 'A';
};

template <class T>
inline T argument(const Value& v) {
    if constexpr (std::is_pointer_v<T>) return static_cast<T>(v.pointer);
    else if constexpr (std::is_floating_point_v<T>) return T(v.real);
    else return T(v.integer);
}

template <auto KERNEL>
struct Entry;
template <class... A, void (*KERNEL)(A...)>
struct Entry<KERNEL> {
    static constexpr char letters[] = {Letter<A>::value..., 0};
    template <size_t... I>
    static void spread(const Value* values, std::index_sequence<I...>) {
        KERNEL(argument<A>(values[I])...);
    }
    static void call(const Value* values) { spread(values, std::index_sequence_for<A...>{}); }
};

struct Kernel {
    const char* name;
    const char* letters;
    void (*call)(const Value*);
};
}  // namespace mage_host

extern const mage_host::Kernel mage_kernels[];  // ends with a null name
#define MAGE_KERNEL(name) {#name, mage_host::Entry<&name>::letters, mage_host::Entry<&name>::call},
