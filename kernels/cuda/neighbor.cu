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
//
// feature takes every F. quad needs F to be a multiple of four and X and Y to be 16-byte aligned.

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
