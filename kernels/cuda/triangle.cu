// triangle: O[i][j][c] = sum over k of A[i][k][c] * B[j][k][c], in FP32. A, B and O are N x N x C.
//
//     for i < N, j < N, c < C:   O[i][j][c] = sum over k < N of A[i][k][c] * B[j][k][c]
//
// One matrix product a channel, with the channel as the fastest index: neighbouring floats in memory
// belong to different products.
//
//     stage         what it is
//     elementwise   one output a thread, no shared memory
//     shared        8 x 8 outputs a thread, operands streamed through shared memory, k dealt out to
//                   groups of warps
//
// elementwise takes every shape. shared takes whole tiles only (N a multiple of 32, C of 32) and 16-byte
// aligned pointers.

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

// ------------------------------------------------------------------------------------------------
// shared. What bounds this operation is how often the caches are asked for the same float, so a block
// keeps a tile of A and of B and a thread a patch of outputs:
//
//     lanes         the 32 channels of one warp's outputs: every read, of global and of shared memory, is
//                   128 contiguous bytes, whatever the layout, and no bank is asked for twice
//     thread        8 x 8 outputs of its channel: 16 shared reads for 64 multiply-adds
//     block         8 x 16 (i, j) x 32 channels. That is only two warps' worth of patches, and one block
//                   a multiprocessor; so there are four groups of two warps, and the groups deal out the
//                   steps of k among themselves
//     along k       two slabs of 32 steps in shared memory (196608 bytes), filled by cp.async in 16-byte
//                   pieces: one travels while the other is multiplied. One barrier a slab says both that
//                   the next has landed and that everyone has left the one before, which is refilled
//     at the end    the groups' sums are laid out in shared memory, where the slabs were, and added up
//                   by all threads, a quad each

constexpr int TILE_I = 8, TILE_J = 16;
constexpr int TILE_ROWS = TILE_I + TILE_J;        // rows of A, then rows of B, in one slab
constexpr int SLAB_K = 32;                        // steps of k in one slab
constexpr int SLAB = TILE_ROWS * SLAB_K * 32;     // floats in one slab: [row][k][channel]
constexpr int GROUPS = 4;
constexpr int TILE_OUTPUTS = TILE_I * TILE_J * 32;

// Starts this warp's share of the copy of one slab: three rows, a row 32 steps of 128 bytes, of which an
// instruction of the warp copies four. Closed as one group.
__device__ __forceinline__ void copy_slab(float* slab, const float* a_tile, const float* b_tile, int k, int N,
                                          int C) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int step = lane / 8, quad = lane % 8 * 4;
#pragma unroll
    for (int part = 0; part < TILE_ROWS / 8; ++part) {
        const int row = part * 8 + warp;
        const float* tile = part == 0 ? a_tile + row * N * C : b_tile + (row - TILE_I) * N * C;
        const float* from = tile + (k + step) * C + quad;
        float* to = slab + (row * SLAB_K + step) * 32 + quad;
#pragma unroll
        for (int steps = 0; steps < SLAB_K; steps += 4) cp_async_16_uncached(to + steps * 32, from + steps * C);
    }
    cp_async_commit();
}

extern "C" __global__ void __launch_bounds__(256)
triangle_shared(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ O, int N, int C) {
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = warp / 2, half = warp % 2;  // half: which 8 of the 16 j
    const int i0 = blockIdx.y * TILE_I, j0 = blockIdx.x * TILE_J, c0 = blockIdx.z * 32;
    const float* a_tile = A + i0 * N * C + c0;
    const float* b_tile = B + j0 * N * C + c0;

    float sum[8][8] = {};
    copy_slab(shared, a_tile, b_tile, 0, N, C);
    for (int k = 0; k < N; k += SLAB_K) {
        cp_async_wait<0>();
        __syncthreads();
        const float* slab = shared + k / SLAB_K % 2 * SLAB;
        if (k + SLAB_K < N) copy_slab(shared + (k / SLAB_K + 1) % 2 * SLAB, a_tile, b_tile, k + SLAB_K, N, C);

        const float* a_rows = slab + group * 32 + lane;
        const float* b_rows = a_rows + (TILE_I + half * 8) * SLAB_K * 32;
#pragma unroll
        for (int step = 0; step < SLAB_K; step += GROUPS) {
            float a[8], b[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) a[i] = a_rows[(i * SLAB_K + step) * 32];
#pragma unroll
            for (int j = 0; j < 8; ++j) b[j] = b_rows[(j * SLAB_K + step) * 32];
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
        }
    }

    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
            shared[group * TILE_OUTPUTS + (i * TILE_J + half * 8 + j) * 32 + lane] = sum[i][j];
    __syncthreads();
#pragma unroll
    for (int part = 0; part < TILE_OUTPUTS / (256 * 4); ++part) {
        const int output = (part * 256 + threadIdx.x) * 4;
        float4 total = *reinterpret_cast<const float4*>(&shared[output]);
#pragma unroll
        for (int other = 1; other < GROUPS; ++other) {
            const float4 more = *reinterpret_cast<const float4*>(&shared[other * TILE_OUTPUTS + output]);
            total = make_float4(total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w);
        }
        const int c = output % 32, j = output / 32 % TILE_J, i = output / 32 / TILE_J;
        *reinterpret_cast<float4*>(&O[((i0 + i) * N + j0 + j) * C + c0 + c]) = total;
    }
}
