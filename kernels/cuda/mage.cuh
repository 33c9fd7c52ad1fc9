// mage.cuh: the few device helpers that need PTX, so that the kernel files hold none.
//
// Each helper is one PTX instruction (tanh_fast and logistic2 are two, at_hand is none) behind a name that says what it does. The
// host build puts its own header with the same names in the place of this one, so the comment on
// each helper is its contract: it says all that a kernel may rely on.
//
// cp.async copies global to shared memory without passing through registers, and without waiting.
// Copies are counted per thread: a thread issues copies, closes them into a *group* with
// cp_async_commit, and later waits for its own groups. A wait says nothing about the copies of
// other threads: their bytes are visible only after every thread has waited and the block has then
// passed __syncthreads(). Until the wait the destination holds old bytes, new bytes or some of each.

#pragma once

// Starts copying 4 bytes. Both addresses must be multiples of 4. Belongs to the calling thread's
// open group.
__device__ __forceinline__ void cp_async_4(void* shared, const void* global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}

// Starts copying 16 bytes. Both addresses must be multiples of 16. Belongs to the calling thread's
// open group.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

// As cp_async_16, but past the first-level cache: for data that this block reads once and other
// multiprocessors read too.
__device__ __forceinline__ void cp_async_16_uncached(void* shared, const void* global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

// As cp_async_4 where `inside`; else four bytes of the destination become zero in the same manner and time, and
// the global address is not read: it may lie anywhere.
__device__ __forceinline__ void cp_async_4_or_zero(void* shared, const void* global, bool inside) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(inside ? 4 : 0) : "memory");
}

// As cp_async_16_uncached where `inside`; else 16 bytes of zero, as above.
__device__ __forceinline__ void cp_async_16_or_zero(void* shared, const void* global, bool inside) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(inside ? 16 : 0) : "memory");
}

// Closes the calling thread's open group (which may be empty) and opens the next.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most OUTSTANDING of the calling thread's closed groups, the newest ones, may still
// be under way; all older groups have landed. cp_async_wait<0>() waits for every closed group.
template <int OUTSTANDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(OUTSTANDING) : "memory");
}

// Reads one 32-bit float from shared memory, as one 32-bit read: the compiler may neither merge it
// with its neighbours into a wider read nor keep the value from an earlier read. The value is that
// of `*p`. For kernels whose point is the number of shared reads.
__device__ __forceinline__ float shared_scalar(const float* p) {
    return *static_cast<const volatile float*>(p);
}

// Reads four neighbouring floats from shared memory as one 128-bit read, neither split nor merged, and
// not kept from an earlier read; p must be 16-byte aligned. (A plain float4 read is usually one
// instruction too, but the compiler takes it apart and puts it together again, and now and then an
// element is left over.)
__device__ __forceinline__ float4 shared_quad(const float* p) {
    const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(p));
    float4 quad;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(quad.x), "=f"(quad.y), "=f"(quad.z), "=f"(quad.w)
                 : "r"(from)
                 : "memory");
    return quad;
}

// Reads four neighbouring floats that nobody will read again, and tells the caches so (ld.global.cs: the
// line is the first to go); p must be 16-byte aligned.
__device__ __forceinline__ float4 load_once(const float* p) {
    return __ldcs(reinterpret_cast<const float4*>(p));
}

// p itself, but nothing that the compiler knows how to work out: it keeps the pointer in a register, and what is
// near it is reached by a constant distance. It also no longer knows that p points to global memory, so p is for
// __ldg, which says so.
template <class T>
__device__ __forceinline__ const T* at_hand(const T* p) {
    asm volatile("" : "+l"(p));
    return p;
}

// 1/sqrt(x) in one instruction for x > 0, relative error below 2^-22 (PTX ISA, rsqrt.approx.f32).
__device__ __forceinline__ float rsqrt_approx(float x) {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// tanh(x) = 1 - 2 / (1 + 2^(2x log2 e)), from two approximate instructions, ex2 and rcp. Absolute
// error below 1e-6 for every x, -1 and 1 exactly at the far ends (also for x = -inf, inf). Not
// tanh.approx.f32: its relative error of 2^-11 is, times z/2, past a tolerance of 1e-4 + 1e-4 |z|.
__device__ __forceinline__ float tanh_fast(float x) {
    float power, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 2.8853900817779268f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
    return fmaf(-2.0f, inverse, 1.0f);
}

// 1 / (1 + 2^-x), the logistic function to the base of two, from two approximate instructions. Relative error
// below 1e-6 where the result is not below 1e-30; 0 and 1 at the far ends. For every finite x.
__device__ __forceinline__ float logistic2(float x) {
    float power, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-x));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
    return inverse;
}
