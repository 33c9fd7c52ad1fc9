// triangle: O[i][j][c] = sum over k of A[i][k][c] * B[j][k][c], in FP32. A, B and O are N x N x C.
//
//     for i < N, j < N, c < C:   O[i][j][c] = sum over k < N of A[i][k][c] * B[j][k][c]
//
// One matrix product a channel, with the channel as the fastest index: neighbouring floats in memory
// belong to different products.
//
//     stage         what it is
//     elementwise   one output a thread, no shared memory

#include "mage.cuh"

// ------------------------------------------------------------------------------------------------
// elementwise (mage-001). Thread n takes output n of the flattened result. With 32 channels a warp is
// one pair (i, j) and its lanes are the channels, so for each k it reads 128 contiguous bytes of A and
// of B. Nothing is kept for another thread: 8 bytes are requested for each multiply-add, and the
// caches have to find the reuse.

extern "C" __global__ void __launch_bounds__(256)
triangle_elementwise(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ O, int N, int C) {
    const unsigned output = blockIdx.x * 256 + threadIdx.x;
    if (output >= static_cast<unsigned>(N) * N * C) return;
    const unsigned c = output % C;
    const unsigned j = output / C % N;
    const unsigned i = output / C / N;

    const float* a = A + i * N * C + c;
    const float* b = B + j * N * C + c;
    float sum = 0.0f;
    for (int k = 0; k < N; ++k) sum = fmaf(a[k * C], b[k * C], sum);
    O[output] = sum;
}
