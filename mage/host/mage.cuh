// mage.cuh, for the host: the names of kernels/cuda/mage.cuh without PTX. The comments there are the
// contract; here is how each part of it is kept.

#pragma once

#include "cuda_builtins.h"

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

inline float rsqrt_approx(float x) { return 1.0f / sqrtf(x); }

inline float tanh_fast(float x) { return tanhf(x); }
