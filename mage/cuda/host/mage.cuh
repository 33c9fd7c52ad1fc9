// mage.cuh, for the host: the names of kernels/cuda/mage.cuh without PTX. The comments there are the
// contract; here is how each part of it is kept.

#pragma once

#include "cuda_builtins.h"

namespace mage_host {
alignas(16) static const float zeros[4] = {};

// Zero arrives in the same manner and time as a copy would.
template <int BYTES>
inline void issue_copy_or_zero(void* shared, const void* global, bool inside, const char* file, int line) {
    if (inside) return issue_copy<BYTES>(shared, global, file, line);
    mage_check_alignment(shared, BYTES, file, line);
    if (mage_copies_land_at_issue()) return move<BYTES>(shared, zeros);
    move<BYTES>(shared, nullptr);
    mage_queue_copy(shared, zeros, BYTES);
}
}  // namespace mage_host

inline void cp_async_4(void* shared, const void* global, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    mage_host::issue_copy<4>(shared, global, file, line);
}

inline void cp_async_8(void* shared, const void* global, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    mage_host::issue_copy<8>(shared, global, file, line);
}

inline void cp_async_16(void* shared, const void* global, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
    mage_host::issue_copy<16>(shared, global, file, line);
}

// Which cache a copy goes past is nothing that its result could show.
inline void cp_async_16_uncached(void* shared, const void* global, const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    mage_host::issue_copy<16>(shared, global, file, line);
}

inline void cp_async_4_or_zero(void* shared, const void* global, bool inside, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
    mage_host::issue_copy_or_zero<4>(shared, global, inside, file, line);
}

inline void cp_async_16_or_zero(void* shared, const void* global, bool inside, const char* file = __builtin_FILE(),
                                int line = __builtin_LINE()) {
    mage_host::issue_copy_or_zero<16>(shared, global, inside, file, line);
}

inline void cp_async_commit() { mage_commit_copies(); }

// Only groups older than the newest OUTSTANDING land here; the others keep the hardware's right to
// be late.
template <int OUTSTANDING>
inline void cp_async_wait() {
    mage_host::Copy copy;
    while (mage_next_landing(OUTSTANDING, &copy)) mage_host::land(copy);
}

inline float shared_scalar(const float* p) { return *static_cast<const volatile float*>(p); }

inline float4 shared_quad(const float* p) { return *reinterpret_cast<const float4*>(p); }

template <class T>
inline const T* at_hand(const T* p) { return p; }

inline float rsqrt_approx(float x) { return 1.0f / sqrtf(x); }

inline float tanh_fast(float x) { return tanhf(x); }

inline float4 load_once(const float* p, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    mage_check_alignment(p, 16, file, line);
    return *reinterpret_cast<const float4*>(p);
}

inline float logistic2(float x) { return 1.0f / (1.0f + exp2f(-x)); }
