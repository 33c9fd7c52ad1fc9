// neighbor: Y[i] = sum over the edges e of row i of weights[e] * X[src[e]], in FP32. X and Y are
// N x F; the edges of row i are row_ptr[i] ... row_ptr[i + 1] - 1 (compressed sparse rows).
//
//     for i < N:   Y[i][:] = sum over row_ptr[i] <= e < row_ptr[i + 1] of weights[e] * X[src[e]][:]
//
// The memory traffic is a gather: which row of X is needed is known only after src[e] has been
// read. A row with no edges gives 0, and an edge that appears twice counts twice.
//
//     stage     what changed
//     feature   one feature a thread, one edge at a time
//     quad      four features a thread in one 128-bit load, two edges in flight
//     warp      a warp a row, its halves on different edges, eight gathers under way in it and the next
//               eight indices fetched meanwhile
//     balanced  a row of many edges is divided among the warps of a block
//     lean      warp with two thirds of the instructions an edge
//     hubs      balanced with the loop of lean
//
// feature takes every F. The others need F to be a multiple of four and X and Y to be 16-byte aligned.

#include "mage.cuh"

// ------------------------------------------------------------------------------------------------
// feature (mage-001). Thread n takes output n of the flattened result: with 64 features two warps share
// a row, and a warp reads 128 contiguous bytes of X for each edge. Every thread of a row reads the same
// index and weight, which is one broadcast each, and then waits for X before it can go on: one gather
// is under way at a time (the compiler would unroll the loop; it is asked not to).

extern "C" __global__ void __launch_bounds__(256)
neighbor_feature(const float* __restrict__ X, const float* __restrict__ weights, const int* __restrict__ row_ptr,
                 const int* __restrict__ src, float* __restrict__ Y, int N, int F, int E) {
    const unsigned output = blockIdx.x * 256 + threadIdx.x;
    if (output >= static_cast<unsigned>(N) * F) return;
    const unsigned row = output / F, feature = output % F;

    float sum = 0.0f;
    const int end = row_ptr[row + 1];
#pragma unroll 1
    for (int e = row_ptr[row]; e < end; ++e) sum = fmaf(weights[e], X[src[e] * F + feature], sum);
    Y[output] = sum;
}

// ------------------------------------------------------------------------------------------------
// quad (mage-007). A thread takes four neighbouring features: a quarter of the threads, each with one
// 128-bit load an edge, so index and weight are read a quarter as often. Edges are taken two at a time,
// both gathers issued before either is used, so that two are under way. The sum keeps the order of the
// edges; an odd last edge is taken alone.

extern "C" __global__ void __launch_bounds__(256)
neighbor_quad(const float* __restrict__ X, const float* __restrict__ weights, const int* __restrict__ row_ptr,
              const int* __restrict__ src, float* __restrict__ Y, int N, int F, int E) {
    const unsigned quads = F / 4;
    const unsigned output = blockIdx.x * 256 + threadIdx.x;
    if (output >= N * quads) return;
    const unsigned row = output / quads, quad = output % quads;
    const float4* x = reinterpret_cast<const float4*>(X) + quad;

    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const int end = row_ptr[row + 1];
    int e = row_ptr[row];
#pragma unroll 1
    for (; end - e > 1; e += 2) {
        const float4 first = x[src[e] * quads], second = x[src[e + 1] * quads];
        const float w_first = weights[e], w_second = weights[e + 1];
        sum.x = fmaf(w_second, second.x, fmaf(w_first, first.x, sum.x));
        sum.y = fmaf(w_second, second.y, fmaf(w_first, first.y, sum.y));
        sum.z = fmaf(w_second, second.z, fmaf(w_first, first.z, sum.z));
        sum.w = fmaf(w_second, second.w, fmaf(w_first, first.w, sum.w));
    }
    if (e < end) {
        const float4 only = x[src[e] * quads];
        const float w = weights[e];
        sum.x = fmaf(w, only.x, sum.x);
        sum.y = fmaf(w, only.y, sum.y);
        sum.z = fmaf(w, only.z, sum.z);
        sum.w = fmaf(w, only.w, sum.w);
    }
    reinterpret_cast<float4*>(Y)[output] = sum;
}

// ------------------------------------------------------------------------------------------------
// warp. A gather cannot start before its index has arrived, and that not before the row pointers: three
// waits in a row, which only work under way can hide. So a row has a whole warp. Sixteen lanes cover 64
// features in quads; the two halves of the warp take alternate edges, four at a time, all four gathers issued
// before the first is used. The indices and weights of the next four are asked for as soon as the gathers
// are out, and arrive while these travel. Both halves' sums meet by a shuffle.

constexpr unsigned FULL_WARP = 0xffffffffu;
constexpr int IN_FLIGHT = 4;  // edges under way in each half of a warp

__device__ __forceinline__ float4 both_halves(float4 sum) {
    sum.x += __shfl_xor_sync(FULL_WARP, sum.x, 16);
    sum.y += __shfl_xor_sync(FULL_WARP, sum.y, 16);
    sum.z += __shfl_xor_sync(FULL_WARP, sum.z, 16);
    sum.w += __shfl_xor_sync(FULL_WARP, sum.w, 16);
    return sum;
}

// This lane's quad of the sum over the edges first ... end - 1; x points at the lane's quad of row 0.
__device__ __forceinline__ float4 sum_of_edges(const float4* x, const float* weights, const int* src, int first,
                                               int end, unsigned quads) {
    int source[IN_FLIGHT];
    float weight[IN_FLIGHT];
    int e = first + threadIdx.x % 32 / 16;
#pragma unroll
    for (int n = 0; n < IN_FLIGHT; ++n) {
        const bool there = e + 2 * n < end;
        source[n] = there ? src[e + 2 * n] : 0;
        weight[n] = there ? weights[e + 2 * n] : 0.0f;
    }
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    while (e < end) {
        float4 gathered[IN_FLIGHT];
        float w[IN_FLIGHT];
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; ++n) {
            gathered[n] = e + 2 * n < end ? x[source[n] * quads] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            w[n] = weight[n];
        }
        e += 2 * IN_FLIGHT;
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; ++n)
            if (e + 2 * n < end) {
                source[n] = src[e + 2 * n];
                weight[n] = weights[e + 2 * n];
            }
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; ++n) {
            sum.x = fmaf(w[n], gathered[n].x, sum.x);
            sum.y = fmaf(w[n], gathered[n].y, sum.y);
            sum.z = fmaf(w[n], gathered[n].z, sum.z);
            sum.w = fmaf(w[n], gathered[n].w, sum.w);
        }
    }
    return both_halves(sum);
}

// The same in fewer instructions: see lean.
__device__ __forceinline__ float4 lean_sum_of_edges(const float4* x, const float* weights, const int* src, int first,
                                                    int end, unsigned quads);

// Y of one row, or of the part of it whose features this warp covers, 64 at a time.
template <bool LEAN>
__device__ __forceinline__ void warp_row(const float* X, const float* weights, const int* src, float* Y,
                                         unsigned row, int begin, int end, unsigned quads) {
    const unsigned lane = threadIdx.x % 32;
    const float4* x = reinterpret_cast<const float4*>(X);
    for (unsigned from = 0; from < quads; from += 16) {
        // Lanes past the last feature repeat it, or have no edges, so that the shuffles stay complete, and do not store.
        const unsigned quad = from + lane % 16, here = quad < quads ? quad : quads - 1;
        const float4 sum = LEAN ? lean_sum_of_edges(x + quad, weights, src, begin, quad < quads ? end : begin, quads)
                                : sum_of_edges(x + here, weights, src, begin, end, quads);
        if (lane < 16 && quad < quads) reinterpret_cast<float4*>(Y)[row * quads + quad] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(128, 8)
neighbor_warp(const float* __restrict__ X, const float* __restrict__ weights, const int* __restrict__ row_ptr,
              const int* __restrict__ src, float* __restrict__ Y, int N, int F, int E) {
    const unsigned row = blockIdx.x * 4 + threadIdx.x / 32;
    if (row >= N) return;  // the whole warp
    warp_row<false>(X, weights, src, Y, row, row_ptr[row], row_ptr[row + 1], F / 4);
}

// ------------------------------------------------------------------------------------------------
// balanced. A warp a row takes as long as the longest row, which in a graph with hubs is a thousand edges
// and more. So a warp leaves a row of more than LONG_ROW edges alone and notes it in shared memory. When the
// short rows of the block are done, its sixteen warps go through the notes together: each takes an equal run
// of the row's edges, the sixteen sums are put down in shared memory, and one half-warp adds them up, in an
// order that does not depend on who came first. A graph without long rows gains nothing and pays for a barrier
// and for larger blocks, so the launcher looks at the row pointers once and leaves such a graph to warp.

constexpr int LONG_ROW = 64;
constexpr int WARPS = 16;  // a block

template <bool LEAN>
__device__ __forceinline__ void balanced_rows(const float* X, const float* weights, const int* row_ptr,
                                              const int* src, float* Y, int N, int F, int* note_begin, int* note_end,
                                              float4 (*partial)[16]) {
    const unsigned quads = F / 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned row0 = blockIdx.x * WARPS, row = row0 + warp;
    const float4* x = reinterpret_cast<const float4*>(X);

    const int begin = row < N ? row_ptr[row] : 0, end = row < N ? row_ptr[row + 1] : 0;
    const bool is_long = end - begin > LONG_ROW;
    if (lane == 0) {
        note_begin[warp] = begin;
        note_end[warp] = is_long ? end : begin;
    }
    if (row < N && !is_long) warp_row<LEAN>(X, weights, src, Y, row, begin, end, quads);
    __syncthreads();

    // Every warp reads all notes at once, a lane each, and gets the same mask of rows.
    unsigned rows = __ballot_sync(FULL_WARP, lane < WARPS && note_end[lane % WARPS] > note_begin[lane % WARPS]);
#pragma unroll 1
    for (; rows; rows &= rows - 1) {
        const int noted = __ffs(rows) - 1;
        const int first = note_begin[noted], edges = note_end[noted] - first;
        const int run = (edges + WARPS - 1) / WARPS;
        const int own = first + warp * run, last = min(own + run, first + edges);
        for (unsigned from = 0; from < quads; from += 16) {
            const unsigned quad = from + lane % 16, here = quad < quads ? quad : quads - 1;
            const float4 sum = LEAN ? lean_sum_of_edges(x + quad, weights, src, own, quad < quads ? last : own, quads)
                                    : sum_of_edges(x + here, weights, src, own, last, quads);
            if (lane < 16) partial[warp][lane] = sum;
            __syncthreads();
            if (warp == 0 && lane < 16 && quad < quads) {
                float4 total = partial[0][lane];
                for (int other = 1; other < WARPS; ++other) {
                    const float4 more = partial[other][lane];
                    total = make_float4(total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w);
                }
                reinterpret_cast<float4*>(Y)[(row0 + noted) * quads + quad] = total;
            }
            __syncthreads();
        }
    }
}

extern "C" __global__ void __launch_bounds__(512, 2)
neighbor_balanced(const float* __restrict__ X, const float* __restrict__ weights, const int* __restrict__ row_ptr,
                  const int* __restrict__ src, float* __restrict__ Y, int N, int F, int E) {
    __shared__ int note_begin[WARPS], note_end[WARPS];
    __shared__ float4 partial[WARPS][16];
    balanced_rows<false>(X, weights, row_ptr, src, Y, N, F, note_begin, note_end, partial);
}

// ------------------------------------------------------------------------------------------------
// lean. The loop of warp is mostly addresses: for every access, predicated as it is, the compiler works out again
// where the array begins and which quad is the lane's. Here each array has one pointer that moves on, which the
// compiler must keep (at_hand), and the accesses differ from it by a constant; a gather's address is one
// multiply-add, of the index and the bytes of a row. Lanes past the last feature have no edges, so that
// no lane needs another's quad. What is loaded, and when, is as in warp.

__device__ __forceinline__ float4 lean_sum_of_edges(const float4* x, const float* weights, const int* src, int first,
                                                    int end, unsigned quads) {
    const int mine = first + static_cast<int>(threadIdx.x % 32 / 16);
    const char* base = at_hand(reinterpret_cast<const char*>(x));
    const int* s = at_hand(src + mine);
    const float* w = at_hand(weights + mine);
    const unsigned row_bytes = quads * 16;
    int left = end - mine;  // edges from s on, of which every second is this half's

    int source[IN_FLIGHT];
    float weight[IN_FLIGHT];
#pragma unroll
    for (int n = 0; n < IN_FLIGHT; ++n) {
        source[n] = 2 * n < left ? __ldg(&s[2 * n]) : 0;
        weight[n] = 2 * n < left ? __ldg(&w[2 * n]) : 0.0f;
    }
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    while (left > 0) {
        float4 gathered[IN_FLIGHT];
        float now[IN_FLIGHT];
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; ++n) {
            const char* from = base + static_cast<unsigned long long>(static_cast<unsigned>(source[n])) * row_bytes;
            gathered[n] = 2 * n < left ? __ldg(reinterpret_cast<const float4*>(from)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            now[n] = weight[n];
        }
        s += 2 * IN_FLIGHT;
        w += 2 * IN_FLIGHT;
        left -= 2 * IN_FLIGHT;
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; ++n)
            if (2 * n < left) {
                source[n] = __ldg(&s[2 * n]);
                weight[n] = __ldg(&w[2 * n]);
            }
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; ++n) {
            sum.x = fmaf(now[n], gathered[n].x, sum.x);
            sum.y = fmaf(now[n], gathered[n].y, sum.y);
            sum.z = fmaf(now[n], gathered[n].z, sum.z);
            sum.w = fmaf(now[n], gathered[n].w, sum.w);
        }
    }
    return both_halves(sum);
}

extern "C" __global__ void __launch_bounds__(256, 4)
neighbor_lean(const float* __restrict__ X, const float* __restrict__ weights, const int* __restrict__ row_ptr,
              const int* __restrict__ src, float* __restrict__ Y, int N, int F, int E) {
    const unsigned row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= N) return;  // the whole warp
    warp_row<true>(X, weights, src, Y, row, row_ptr[row], row_ptr[row + 1], F / 4);
}

// ------------------------------------------------------------------------------------------------
// hubs. balanced with the loop of lean, for the graphs that have long rows; the launcher leaves others to lean.

extern "C" __global__ void __launch_bounds__(512, 2)
neighbor_hubs(const float* __restrict__ X, const float* __restrict__ weights, const int* __restrict__ row_ptr,
              const int* __restrict__ src, float* __restrict__ Y, int N, int F, int E) {
    __shared__ int note_begin[WARPS], note_end[WARPS];
    __shared__ float4 partial[WARPS][16];
    balanced_rows<true>(X, weights, row_ptr, src, Y, N, F, note_begin, note_end, partial);
}
