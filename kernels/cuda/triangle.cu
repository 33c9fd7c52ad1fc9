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
//     tiles         shared with 16 x 32 (i, j) a block, for problems that have blocks enough
//
// elementwise takes every shape. The others take whole tiles only (N a multiple of 32, C of 32) and 16-byte
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

// All sizes are in a plan: TI x TJ pairs (i, j) a block, GROUPS of warps that deal out k, SLABS of SLAB_K steps.

template <int TI_, int TJ_, int GROUPS_, int SLAB_K_, int SLABS_>
struct Plan {
    static constexpr int TI = TI_, TJ = TJ_, GROUPS = GROUPS_, SLAB_K = SLAB_K_, SLABS = SLABS_;
    static constexpr int PATCHES_ACROSS = TJ / 8, PATCHES = TI / 8 * PATCHES_ACROSS;  // a warp each, in every group
    static constexpr int WARPS = PATCHES * GROUPS;
    static constexpr int ROWS = TI + TJ;                // rows of A, then rows of B, in one slab
    static constexpr int SLAB = ROWS * SLAB_K * 32;     // floats in one slab: [row][k][channel]
    static constexpr int OUTPUTS = TI * TJ * 32;
    static_assert(TI % WARPS == 0 && TJ % WARPS == 0, "the rows that the warps copy at once are of one matrix");
    static_assert(SLAB_K % GROUPS == 0 && SLAB_K % 4 == 0, "whole shares");
    static_assert(OUTPUTS % (WARPS * 128) == 0 && OUTPUTS * GROUPS <= SLAB * SLABS, "sums fit where the slabs were");
};

// Starts this warp's share of the copy of one slab, row by row; an instruction of the warp copies four steps of 128
// bytes of a row. Closed as one group, which is empty past the last slab.
template <class P>
__device__ __forceinline__ void copy_slab(float* slab, const float* a_tile, const float* b_tile, int k, int N,
                                          int C) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int step = lane / 8, quad = lane % 8 * 4;
    if (k < N) {
#pragma unroll
        for (int part = 0; part < P::ROWS / P::WARPS; ++part) {
            const int row = part * P::WARPS + warp;
            const float* tile = part * P::WARPS < P::TI ? a_tile + row * N * C : b_tile + (row - P::TI) * N * C;
            const float* from = tile + (k + step) * C + quad;
            float* to = slab + (row * P::SLAB_K + step) * 32 + quad;
#pragma unroll
            for (int steps = 0; steps < P::SLAB_K; steps += 4) cp_async_16_uncached(to + steps * 32, from + steps * C);
        }
    }
    cp_async_commit();
}

template <class P>
__device__ __forceinline__ void tile_body(const float* __restrict__ A, const float* __restrict__ B,
                                          float* __restrict__ O, int N, int C, float* slabs) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = warp / P::PATCHES, patch = warp % P::PATCHES;
    const int patch_i = patch / P::PATCHES_ACROSS * 8, patch_j = patch % P::PATCHES_ACROSS * 8;
    const int i0 = blockIdx.y * P::TI, j0 = blockIdx.x * P::TJ, c0 = blockIdx.z * 32;
    const float* a_tile = A + i0 * N * C + c0;
    const float* b_tile = B + j0 * N * C + c0;

    float sum[8][8] = {};
#pragma unroll
    for (int ahead = 0; ahead < P::SLABS - 1; ++ahead)
        copy_slab<P>(slabs + ahead * P::SLAB, a_tile, b_tile, ahead * P::SLAB_K, N, C);
    int use = 0, fill = P::SLABS - 1;
    for (int k = 0; k < N; k += P::SLAB_K) {
        cp_async_wait<P::SLABS - 2>();
        __syncthreads();
        const float* slab = slabs + use * P::SLAB;
        copy_slab<P>(slabs + fill * P::SLAB, a_tile, b_tile, k + (P::SLABS - 1) * P::SLAB_K, N, C);
        use = use + 1 == P::SLABS ? 0 : use + 1;
        fill = fill + 1 == P::SLABS ? 0 : fill + 1;

        const float* a_rows = slab + patch_i * P::SLAB_K * 32 + group * 32 + lane;
        const float* b_rows = slab + (P::TI + patch_j) * P::SLAB_K * 32 + group * 32 + lane;
#pragma unroll
        for (int step = 0; step < P::SLAB_K; step += P::GROUPS) {
            float a[8], b[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) a[i] = a_rows[(i * P::SLAB_K + step) * 32];
#pragma unroll
            for (int j = 0; j < 8; ++j) b[j] = b_rows[(j * P::SLAB_K + step) * 32];
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
            slabs[group * P::OUTPUTS + ((patch_i + i) * P::TJ + patch_j + j) * 32 + lane] = sum[i][j];
    __syncthreads();
#pragma unroll
    for (int part = 0; part < P::OUTPUTS / (P::WARPS * 128); ++part) {
        const int output = (part * P::WARPS * 32 + threadIdx.x) * 4;
        float4 total = *reinterpret_cast<const float4*>(&slabs[output]);
#pragma unroll
        for (int other = 1; other < P::GROUPS; ++other) {
            const float4 more = *reinterpret_cast<const float4*>(&slabs[other * P::OUTPUTS + output]);
            total = make_float4(total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w);
        }
        const int c = output % 32, j = output / 32 % P::TJ, i = output / 32 / P::TJ;
        *reinterpret_cast<float4*>(&O[((i0 + i) * N + j0 + j) * C + c0 + c]) = total;
    }
}

//                  tile  groups k slabs
using SharedPlan = Plan<8, 16, 4, 32, 2>;
using TilesPlan = Plan<16, 32, 1, 16, 2>;

extern "C" __global__ void __launch_bounds__(256)
triangle_shared(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ O, int N, int C) {
    extern __shared__ __align__(16) float slabs[];
    tile_body<SharedPlan>(A, B, O, N, C, slabs);
}

// ------------------------------------------------------------------------------------------------
// tiles. A block of shared reads a float of A for 16 outputs and one of B for 8. A block of 16 x 32 (i, j) reads
// each for twice as many and needs no groups, since it has eight patches, a warp each; but there are a quarter as
// many blocks, and a multiprocessor without one does nothing. The launcher takes the tile with the least time in all its
// waves.

extern "C" __global__ void __launch_bounds__(256)
triangle_tiles(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ O, int N, int C) {
    extern __shared__ __align__(16) float slabs[];
    tile_body<TilesPlan>(A, B, O, N, C, slabs);
}
