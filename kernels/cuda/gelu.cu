// gelu: y = z/2 * (1 + tanh(sqrt(2/pi) * (z + 0.044715 z^3))) with z = x + bias, in FP32.
// X and Y are R x D, bias has D elements.
//
//     for r < R, d < D:   Y[r][d] = gelu(X[r][d] + bias[d])
//
//     stage         what it is
//     elementwise   one element a thread
//     quads         two 128-bit loads a thread, both under way before any arithmetic; one formula less
//     cached        quads without the word to the caches that X is read once, in blocks as wide as a row
//
// elementwise takes every shape. The others need D to be a multiple of four and 16-byte aligned pointers.
//
// Each element is read once and written once, and nothing is shared: the kernel is a copy with some
// arithmetic on the way.

#include "mage.cuh"

// ------------------------------------------------------------------------------------------------
// elementwise (mage-001). Thread i takes element i of the flattened matrix, so a warp reads and writes
// 128 contiguous bytes; the bias, a few kilobytes, comes from the cache. The hyperbolic tangent is
// built from two approximate instructions, well inside the tolerance; a library tanhf would cost more
// instructions than all the rest.

extern "C" __global__ void __launch_bounds__(256)
gelu_elementwise(const float* __restrict__ X, const float* __restrict__ bias, float* __restrict__ Y, int R, int D) {
    const unsigned element = blockIdx.x * 256 + threadIdx.x;
    if (element >= static_cast<unsigned>(R) * D) return;

    const float z = X[element] + bias[element % D];
    const float inner = 0.7978845608028654f * fmaf(0.044715f * z * z, z, z);  // sqrt(2 / pi) = 0.79788...
    Y[element] = 0.5f * z * (1.0f + tanh_fast(inner));
}

// ------------------------------------------------------------------------------------------------
// quads. What is left to win is time in which no load is under way. A thread takes two quads, 384 quads apart,
// and asks for both before it computes either; a block takes 768 quads that lie side by side, so that all
// blocks but the last need no test. Where the width divides the distance (768: 192 quads a row) both have the
// same bias, which is then read once. X is read once by anybody, and the caches are told.
//
// z/2 (1 + tanh u) is z / (1 + e^-2u): one exponential and one reciprocal, with no multiply-add after them.
// e^-2u is 2^-(2u log2 e), whose constants go into the polynomial.

constexpr unsigned QUADS_APART = 384;

__device__ __forceinline__ float gelu_of(float z) {
    constexpr float SLOPE = 2.302208198f;  // 2 sqrt(2 / pi) log2(e)
    return z * logistic2(z * fmaf(z * z, SLOPE * 0.044715f, SLOPE));
}

__device__ __forceinline__ float4 gelu_of_sum(float4 x, float4 b) {
    return make_float4(gelu_of(x.x + b.x), gelu_of(x.y + b.y), gelu_of(x.z + b.z), gelu_of(x.w + b.w));
}

extern "C" __global__ void __launch_bounds__(384)
gelu_quads(const float* __restrict__ X, const float* __restrict__ bias, float* __restrict__ Y, int R, int D) {
    const unsigned quads = D / 4, total = R * quads;
    const unsigned block = blockIdx.x * 2 * QUADS_APART, first = block + threadIdx.x, second = first + QUADS_APART;
    const float4* b = reinterpret_cast<const float4*>(bias);
    float4* y = reinterpret_cast<float4*>(Y);

    if (block + 2 * QUADS_APART <= total) {
        const float4 x_first = load_once(X + 4 * first), x_second = load_once(X + 4 * second);
        const float4 b_first = b[first % quads];
        const float4 b_second = QUADS_APART % quads == 0 ? b_first : b[second % quads];
        y[first] = gelu_of_sum(x_first, b_first);
        y[second] = gelu_of_sum(x_second, b_second);
    } else {
        if (first < total) y[first] = gelu_of_sum(load_once(X + 4 * first), b[first % quads]);
        if (second < total) y[second] = gelu_of_sum(load_once(X + 4 * second), b[second % quads]);
    }
}

// ------------------------------------------------------------------------------------------------
// cached. A line that is marked as read once is the first to leave a cache that is full, and a cache is full of
// whatever ran before. A marked line then makes room for the next marked line, and X never stays, however small it
// is. Unmarked, X is still there when the same matrix is read again, as any matrix is that one kernel writes and
// the next one reads.
//
// A block takes 1536 quads that lie side by side, a thread two of them, 768 quads apart. The launch gives the block the
// width of a row on x and rows on y (192 x 4 threads at 768 elements), so that no division by the width, for which every
// load would wait, stands before the loads, and both quads of a thread have the same bias, as whole rows lie between
// them. Widths that do not divide 768 quads go to by_row.

constexpr unsigned SIDE_BY_SIDE = 768;

extern "C" __global__ void __launch_bounds__(768)
gelu_cached(const float* __restrict__ X, const float* __restrict__ bias, float* __restrict__ Y, int R, int D) {
    const unsigned quads = D / 4, row = blockIdx.x * 2 * blockDim.y + threadIdx.y, first = row * quads + threadIdx.x;
    const float4* x = reinterpret_cast<const float4*>(X) + first;
    float4* y = reinterpret_cast<float4*>(Y) + first;
    const float4 b = reinterpret_cast<const float4*>(bias)[threadIdx.x];

    if (row + blockDim.y < R) {
        const float4 x_first = x[0], x_second = x[SIDE_BY_SIDE];
        y[0] = gelu_of_sum(x_first, b);
        y[SIDE_BY_SIDE] = gelu_of_sum(x_second, b);
    } else if (row < R) {
        y[0] = gelu_of_sum(x[0], b);
    }
}

// by_row, a form of cached: a block has 256 quads of one row, a thread one of them, which has its bias at any width. Blocks
// follow each other along the rows.

extern "C" __global__ void __launch_bounds__(256)
gelu_by_row(const float* __restrict__ X, const float* __restrict__ bias, float* __restrict__ Y, int R, int D) {
    const unsigned quads = D / 4, column = blockIdx.x * 256 + threadIdx.x;
    if (column >= quads) return;
    const unsigned quad = blockIdx.y * quads + column;
    const float4 x = reinterpret_cast<const float4*>(X)[quad];
    reinterpret_cast<float4*>(Y)[quad] = gelu_of_sum(x, reinterpret_cast<const float4*>(bias)[column]);
}
