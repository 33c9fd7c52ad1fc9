// gelu: y = z/2 * (1 + tanh(sqrt(2/pi) * (z + 0.044715 z^3))) with z = x + bias, in FP32.
// X and Y are R x D, bias has D elements.
//
//     for r < R, d < D:   Y[r][d] = gelu(X[r][d] + bias[d])
//
//     stage         what it is
//     elementwise   one element a thread
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
