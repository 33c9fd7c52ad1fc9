// matmul: C = A B in FP32. A is M x K, B is K x N, C is M x N, all row-major.
//
//     for i < M, j < N:   C[i][j] = sum over k < K of A[i][k] * B[k][j]
//
// Every stage does the same 2 M N K operations, up to pipeline in the same order along k; after it, several
// sums along parts of k are added at the end, in a fixed order. What changes is how often a value is
// fetched, how wide each fetch is, and whether anyone waits for it.
//
//     stage             what changed                                          shared reads per multiply-add
//     tiled             16 x 16 tiles in shared memory, one output a thread    2
//     registers         4 x 4 outputs a thread, 64 x 64 block tile,            0.5
//                       128-bit global loads
//     narrow            registers made worse on purpose: 2 x 4 outputs a       0.75
//                       thread, 32 x 32 block tile
//     registers_merged  registers as the compiler likes it: plain reads        (its choice)
//     quads             128-bit shared reads, A transposed, K step 64          0.125 (instructions)
//     pipeline          two buffers, filled by cp.async while the other is     0.125 (instructions)
//                       being multiplied
//     groups            8 x 16 outputs a thread, groups of threads share the   0.047 (instructions)
//                       k of a slab, four slabs in a ring
//     spread            the copies of a slab spread over three steps           0.047 (instructions)
//     banks             sums free of the quads that they are stored in, and    0.047 (instructions)
//                       a tile for every shape
//
// tiled takes every shape: what sticks out of the matrices is zero on the way in and not written on
// the way out, and banks takes every shape whose rows are whole quads. The other stages take whole tiles only (M, N and K multiples of the block tile and the
// K step) and 16-byte aligned pointers, so that no inner loop carries a test. Offsets are ints: a
// tensor of 2^31 or more elements is refused before a kernel sees it.

#include "mage.cuh"

// One 128-bit access to four neighbouring floats; p must be 16-byte aligned.
__device__ __forceinline__ float4 load_quad(const float* p) {
    return *reinterpret_cast<const float4*>(p);
}

__device__ __forceinline__ void store_quad(float* p, float4 quad) {
    *reinterpret_cast<float4*>(p) = quad;
}

// ------------------------------------------------------------------------------------------------
// tiled (mage-001). A block of 16 x 16 threads owns a 16 x 16 tile of C, a thread one element. For
// each 16-deep step along K every thread copies one element of A and one of B to shared memory, so
// a value fetched from global memory once is used by 16 threads. Two barriers a step: one so that
// the tiles are complete before anyone reads, one so that all have read before they are overwritten.
// Each multiply-add reads one value of A and one of B from shared memory: 2 reads, which is what
// bounds this kernel. The reads are kept scalar (shared_scalar); left alone the compiler would fetch
// four neighbours of A at once.

extern "C" __global__ void __launch_bounds__(256)
matmul_tiled(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
             int M, int N, int K) {
    __shared__ float a_tile[16 * 16];
    __shared__ float b_tile[16 * 16];
    const int tx = threadIdx.x, ty = threadIdx.y;

    // Rows of tiles are folded over grid y and z, because one grid dimension ends at 65535. Unsigned:
    // the last tile may begin past 2^31 - 1, and is then outside.
    const unsigned column = blockIdx.x * 16 + tx;
    const unsigned row = (blockIdx.z * gridDim.y + blockIdx.y) * 16 + ty;
    const bool row_inside = row < static_cast<unsigned>(M);
    const bool column_inside = column < static_cast<unsigned>(N);

    float sum = 0.0f;
    const int tiles = (K - 1) / 16 + 1;
    for (int tile = 0; tile < tiles; ++tile) {
        const int a_k = tile * 16 + tx;
        const int b_k = tile * 16 + ty;
        a_tile[ty * 16 + tx] = row_inside && a_k < K ? A[row * K + a_k] : 0.0f;
        b_tile[ty * 16 + tx] = column_inside && b_k < K ? B[b_k * N + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; ++k)
            sum = fmaf(shared_scalar(&a_tile[ty * 16 + k]), shared_scalar(&b_tile[k * 16 + tx]), sum);
        __syncthreads();
    }
    if (row_inside && column_inside) C[row * N + column] = sum;
}

// ------------------------------------------------------------------------------------------------
// registers (mage-002). A block of 256 threads owns a 64 x 64 tile of C, a thread a 4 x 4 patch of it
// in registers. For each k a thread reads four values of A and four of B and does sixteen
// multiply-adds with them: 8/16 = 0.5 shared reads per multiply-add, a quarter of tiled. The K step
// is 32, and the tiles come from global memory as 128-bit quads, two of A and two of B a thread.
// Both tiles keep the row-major layout of their matrix: 2 * 64 * 32 floats = 16384 bytes.
//
// The body is shared with registers_merged, which differs in nothing but how a shared value is read.

template <bool SCALAR>
__device__ __forceinline__ float shared_read(const float* p) {
    return SCALAR ? shared_scalar(p) : *p;
}

template <bool SCALAR>
__device__ __forceinline__ void registers_body(const float* __restrict__ A, const float* __restrict__ B,
                                               float* __restrict__ C, int N, int K,
                                               float* a_tile, float* b_tile) {
    const int thread = threadIdx.x;
    const int tx = thread % 16, ty = thread / 16;
    const int blocks_across = N / 64;
    const int row0 = blockIdx.x / blocks_across * 64;
    const int column0 = blockIdx.x % blocks_across * 64;

    // Where this thread's quads lie: A rows are 8 quads wide, B rows 16.
    const int a_row = thread / 8, a_quad = thread % 8 * 4;
    const int b_row = thread / 16, b_quad = thread % 16 * 4;
    const float* a_from = A + (row0 + a_row) * K + a_quad;
    const float* b_from = B + b_row * N + column0 + b_quad;

    float sum[4][4] = {};
    for (int tile = 0; tile < K / 32; ++tile) {
        store_quad(&a_tile[a_row * 32 + a_quad], load_quad(a_from));
        store_quad(&a_tile[(a_row + 32) * 32 + a_quad], load_quad(a_from + 32 * K));
        store_quad(&b_tile[b_row * 64 + b_quad], load_quad(b_from));
        store_quad(&b_tile[(b_row + 16) * 64 + b_quad], load_quad(b_from + 16 * N));
        a_from += 32;
        b_from += 32 * N;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; ++k) {
            float a[4], b[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = shared_read<SCALAR>(&a_tile[(ty * 4 + i) * 32 + k]);
#pragma unroll
            for (int j = 0; j < 4; ++j) b[j] = shared_read<SCALAR>(&b_tile[k * 64 + tx * 4 + j]);
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        store_quad(C + (row0 + ty * 4 + i) * N + column0 + tx * 4,
                   make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
}

extern "C" __global__ void __launch_bounds__(256)
matmul_registers(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                 int M, int N, int K) {
    __shared__ __align__(16) float a_tile[64 * 32];
    __shared__ __align__(16) float b_tile[32 * 64];
    registers_body<true>(A, B, C, N, K, a_tile, b_tile);
}

// ------------------------------------------------------------------------------------------------
// narrow (mage-003, kept because it is worse). The same kernel with a smaller patch: 128 threads own
// a 32 x 32 tile of C, a thread 2 x 4 outputs. Six shared reads feed eight multiply-adds: 0.75, half
// as many again as registers, at the same scalar width. If shared reads bound these kernels, the time
// must grow by about that factor of 1.5; if something else did, it would not.

extern "C" __global__ void __launch_bounds__(128)
matmul_narrow(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
              int M, int N, int K) {
    __shared__ __align__(16) float a_tile[32 * 32];
    __shared__ __align__(16) float b_tile[32 * 32];
    const int thread = threadIdx.x;
    const int tx = thread % 8, ty = thread / 8;
    const int blocks_across = N / 32;
    const int row0 = blockIdx.x / blocks_across * 32;
    const int column0 = blockIdx.x % blocks_across * 32;

    // Rows of both tiles are 8 quads wide; 128 threads fetch half a tile at a time.
    const float* a_from = A + (row0 + ty) * K + tx * 4;
    const float* b_from = B + ty * N + column0 + tx * 4;

    float sum[2][4] = {};
    for (int tile = 0; tile < K / 32; ++tile) {
        store_quad(&a_tile[ty * 32 + tx * 4], load_quad(a_from));
        store_quad(&a_tile[(ty + 16) * 32 + tx * 4], load_quad(a_from + 16 * K));
        store_quad(&b_tile[ty * 32 + tx * 4], load_quad(b_from));
        store_quad(&b_tile[(ty + 16) * 32 + tx * 4], load_quad(b_from + 16 * N));
        a_from += 32;
        b_from += 32 * N;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; ++k) {
            float a[2], b[4];
#pragma unroll
            for (int i = 0; i < 2; ++i) a[i] = shared_scalar(&a_tile[(ty * 2 + i) * 32 + k]);
#pragma unroll
            for (int j = 0; j < 4; ++j) b[j] = shared_scalar(&b_tile[k * 32 + tx * 4 + j]);
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
        store_quad(C + (row0 + ty * 2 + i) * N + column0 + tx * 4,
                   make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
}

// ------------------------------------------------------------------------------------------------
// registers_merged (registers without the promise to read scalars). The compiler is free to widen
// neighbouring shared reads, and does: the four values of B become one 128-bit read, and so do four
// steps along k of each row of A. It is the count of reads that the next stage has, by the compiler's
// choice; the census shows what that was.

extern "C" __global__ void __launch_bounds__(256)
matmul_registers_merged(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                        int M, int N, int K) {
    __shared__ __align__(16) float a_tile[64 * 32];
    __shared__ __align__(16) float b_tile[32 * 64];
    registers_body<false>(A, B, C, N, K, a_tile, b_tile);
}

// The multiply-adds of quads and pipeline: for each k a thread's four values of A and four of B, each a
// single 128-bit shared read (shared_quad), and sixteen multiply-adds. A is transposed (k-major), so the four rows
// that a thread needs lie next to each other; its row stride is 68, not 64, for the reason given below.
constexpr int A_STRIDE = 68;

template <int K_STEP>
__device__ __forceinline__ void multiply_tile(float (&sum)[4][4], const float* a_tile, const float* b_tile,
                                              int tx, int ty) {
#pragma unroll
    for (int k = 0; k < K_STEP; ++k) {
        const float4 a = shared_quad(&a_tile[k * A_STRIDE + ty * 4]);
        const float4 b = shared_quad(&b_tile[k * 64 + tx * 4]);
        const float a_row[4] = {a.x, a.y, a.z, a.w};
        const float b_column[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(a_row[i], b_column[j], sum[i][j]);
    }
}

// ------------------------------------------------------------------------------------------------
// quads (mage-003). The eight scalar reads of registers become two 128-bit reads: 2/16 = 0.125 shared
// read instructions per multiply-add. For that, A is transposed on its way into shared memory: the
// four rows of a thread's patch are contiguous for each k. The price is that a quad loaded along k is
// scattered over four shared rows. The row stride of 68 makes this free of bank conflicts: it moves
// each k by 4 banks (68 mod 32), so a warp that holds 2 quads of each of 16 rows stores, for each of
// its four scalars, to 2 * 16 different banks. The K step is 64, to halve the number of barriers:
// (64 * 68 + 64 * 64) floats = 33792 bytes.

extern "C" __global__ void __launch_bounds__(256)
matmul_quads(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
             int M, int N, int K) {
    __shared__ __align__(16) float a_tile[64 * A_STRIDE];
    __shared__ __align__(16) float b_tile[64 * 64];
    const int thread = threadIdx.x;
    const int lane = thread % 32, warp = thread / 32;
    const int tx = thread % 16, ty = thread / 16;
    const int blocks_across = N / 64;
    const int row0 = blockIdx.x / blocks_across * 64;
    const int column0 = blockIdx.x % blocks_across * 64;

    // The 64 x 64 tile of A is 4 groups of 16 rows by 8 groups of 2 quads; warp w takes the quads of
    // columns 8w ... 8w + 7 in each of the 4 row groups. A pair of lanes reads one 32-byte sector.
    const int a_row = lane / 2, a_k = warp * 8 + lane % 2 * 4;
    const float* a_from = A + (row0 + a_row) * K + a_k;
    const float* b_from = B + ty * N + column0 + tx * 4;

    float sum[4][4] = {};
    for (int tile = 0; tile < K / 64; ++tile) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const float4 a = load_quad(a_from + part * 16 * K);
            float* to = &a_tile[a_k * A_STRIDE + part * 16 + a_row];
            to[0 * A_STRIDE] = a.x;
            to[1 * A_STRIDE] = a.y;
            to[2 * A_STRIDE] = a.z;
            to[3 * A_STRIDE] = a.w;
            store_quad(&b_tile[(part * 16 + ty) * 64 + tx * 4],
                       load_quad(b_from + part * 16 * N));
        }
        a_from += 64;
        b_from += 64 * N;
        __syncthreads();
        multiply_tile<64>(sum, a_tile, b_tile, tx, ty);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        store_quad(C + (row0 + ty * 4 + i) * N + column0 + tx * 4,
                   make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
}

// ------------------------------------------------------------------------------------------------
// pipeline (mage-006). Until here a block copies a tile, waits, multiplies, and copies again: nothing
// overlaps. Now there are two buffers of half the depth (K step 32), the same 33792 bytes, and the
// copies are cp.async, which nobody waits for until the data are needed:
//
//     before the loop        copy tile 0 -> buffer 0, tile 1 -> buffer 1       two groups under way
//     tile t                 wait until at most one group is left (t has landed), multiply from buffer
//                            t % 2, then copy tile t + 2 into the buffer that this frees; it travels
//                            while tile t + 1 is multiplied
//     last tile              its own group is the only one left, so wait for all
//
// Two barriers a tile: a thread waits only for its own copies, so all must have waited before any
// reads; and all must have read before the buffer is copied into again. B travels as 16-byte copies.
// A is scattered by the transpose, so it travels 4 bytes at a time: a warp takes 8 columns of 4 rows,
// which fills whole 32-byte sectors of global memory and, with the stride of 68, all 32 banks.

constexpr int A_BUFFER = 32 * A_STRIDE;  // floats in one buffer of A
constexpr int B_BUFFER = 32 * 64;        // floats in one buffer of B

// Starts this thread's share of the copy of a 64 x 32 tile of A and a 32 x 64 tile of B into one of
// the two buffers: 8 copies of 4 bytes and 2 of 16, closed as one group.
__device__ __forceinline__ void copy_tile(float* a_buffers, float* b_buffers, int buffer,
                                          const float* a_from, const float* b_from, int N, int K) {
    const int thread = threadIdx.x;
    const int lane = thread % 32, warp = thread / 32;
    const int a_row = warp * 4 + lane / 8, a_k = lane % 8;
    const int b_row = thread / 16, b_quad = thread % 16 * 4;
    float* a_to = a_buffers + buffer * A_BUFFER;
    float* b_to = b_buffers + buffer * B_BUFFER;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = half * 32 + a_row;
#pragma unroll
        for (int step = 0; step < 32; step += 8)
            cp_async_4(&a_to[(step + a_k) * A_STRIDE + row], &a_from[row * K + step + a_k]);
        cp_async_16(&b_to[(half * 16 + b_row) * 64 + b_quad], &b_from[(half * 16 + b_row) * N + b_quad]);
    }
    cp_async_commit();
}

// Multiplies the tiles in one of the two buffers.
__device__ __forceinline__ void multiply_buffer(float (&sum)[4][4], const float* a_buffers,
                                                const float* b_buffers, int buffer, int tx, int ty) {
    const float* a_tile = a_buffers + buffer * A_BUFFER;
    const float* b_tile = b_buffers + buffer * B_BUFFER;
    multiply_tile<32>(sum, a_tile, b_tile, tx, ty);
}

extern "C" __global__ void __launch_bounds__(256)
matmul_pipeline(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                int M, int N, int K) {
    __shared__ __align__(16) float a_buffers[2 * A_BUFFER];
    __shared__ __align__(16) float b_buffers[2 * B_BUFFER];
    const int thread = threadIdx.x;
    const int tx = thread % 16, ty = thread / 16;
    const int blocks_across = N / 64;
    const int row0 = blockIdx.x / blocks_across * 64;
    const int column0 = blockIdx.x % blocks_across * 64;
    const float* a_from = A + row0 * K;  // the next tiles to copy
    const float* b_from = B + column0;

    const int tiles = K / 32;
    for (int ahead = 0; ahead < 2 && ahead < tiles; ++ahead) {
        copy_tile(a_buffers, b_buffers, ahead, a_from, b_from, N, K);
        a_from += 32;
        b_from += 32 * N;
    }

    float sum[4][4] = {};
    for (int tile = 0; tile < tiles - 1; ++tile) {
        cp_async_wait<1>();
        __syncthreads();
        multiply_buffer(sum, a_buffers, b_buffers, tile % 2, tx, ty);
        __syncthreads();
        if (tile + 2 < tiles) {
            copy_tile(a_buffers, b_buffers, tile % 2, a_from, b_from, N, K);
            a_from += 32;
            b_from += 32 * N;
        }
    }

    const int last = (tiles - 1) % 2;
    cp_async_wait<0>();
    __syncthreads();
    multiply_buffer(sum, a_buffers, b_buffers, last, tx, ty);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        store_quad(C + (row0 + ty * 4 + i) * N + column0 + tx * 4,
                   make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
}

// ------------------------------------------------------------------------------------------------
// The stages below are for large multiprocessors: one block of 256 threads fills one, with most of its
// registers and half of its shared memory. One body serves them all; a Plan says the sizes.
//
//     stage        what changed
//     groups       8 x 16 outputs a thread, four groups of threads that share the k of a slab, four
//                  slabs in a ring
//     spread       the copies of a slab spread over three steps
//     banks        sums free of the quads that they are stored in, columns taken all one way
//
// groups. A thread's 8 x 16 outputs take 24 values a k, six 128-bit reads for 128 multiply-adds. A 64 x 128
// tile then needs only 64 threads, and a multiprocessor wants at least 256: so four groups of 64 each take
// a quarter of the k of every slab and add up at the end. 1024 cubed is 128 tiles, one wave of 132
// multiprocessors. A slab is DEPTH k of A (k-major, as in quads) and of B; STAGES slabs lie in a ring in
// dynamic shared memory, and copies run STAGES - 1 slabs ahead:
//
//     slab s, a step           read the fragments of the next step, then multiply those of this one
//             first steps      beside that, copy slab s + STAGES - 1 into the slot that s - 1 left
//             last step        first wait until slab s + 1 has landed and everyone is here: the one barrier
//
// spread. In groups all copies of a slab are issued at once, by all warps, just behind the barrier. They go
// through the same queue as the shared reads, which wait behind them: they are one instruction in ninety,
// and yet a build that leaves them out is faster by a tenth. Spread over three steps they fit between.
//
// banks. A register file has two banks, odd and even, and a multiply-add reads three registers: with
// all in one bank it takes longer. The value of A alternates down a column of outputs and that of B stays, so
// the sums must alternate against A. But four sums that are stored as one quad must lie in consecutive
// registers, along a row, from the first slab to the last. Adding nothing to them before the store ends that: the compiler
// may not drop x + 0, which turns -0 into 0, so the quad is made of new registers.

// Sizes, in outputs (ROWS, COLUMNS of a block, I, J of a thread), k (DEPTH) and slabs (STAGES). SPREAD steps
// have the copies. SNAKE: every other column of outputs is taken upwards, which changes no result; whether it
// suits the compiler's registers is for a measurement to say.
template <int ROWS_, int COLUMNS_, int DEPTH_, int GROUPS_, int STAGES_, int I_, int J_, int SPREAD_, bool SNAKE_>
struct Plan {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, DEPTH = DEPTH_, GROUPS = GROUPS_, STAGES = STAGES_;
    static constexpr int I = I_, J = J_, SPREAD = SPREAD_;
    static constexpr bool SNAKE = SNAKE_;
    static constexpr int GROUP = ROWS / I * (COLUMNS / J), THREADS = GROUP * GROUPS;
    static constexpr int STEPS = DEPTH / GROUPS;              // k of a slab for one group
    static constexpr int WARPS_ACROSS = COLUMNS / (8 * J);    // a warp is 4 threads down, 8 across
    static constexpr int STRIDE = ROWS + 4;                   // of A in a slab: see quads
    static constexpr int SLAB_A = DEPTH * STRIDE, SLAB = SLAB_A + DEPTH * COLUMNS;  // floats
    // Copies of A are 4 bytes: 8 threads along k, which fills whole sectors, and as many down as there are.
    static constexpr int A_DOWN = THREADS / 8 < ROWS ? THREADS / 8 : ROWS, A_ALONG = THREADS / A_DOWN;
    static constexpr int A_COPIES = ROWS / A_DOWN * (DEPTH / A_ALONG);
    // Copies of B are 16 bytes: a row of threads a row of B, and 16 rows, 8 or 4 at a time.
    static constexpr int B_ACROSS = COLUMNS / 4, B_AT_ONCE = THREADS / B_ACROSS;
    static constexpr int B_DOWN = B_AT_ONCE >= 16 ? 16 : B_AT_ONCE >= 8 ? 8 : 4;
    static constexpr int COPIES = A_COPIES + DEPTH / B_DOWN;
    static constexpr int QUADS = I * J / 4, SHARE = QUADS / GROUPS;  // of a thread's outputs; those it finishes
    static_assert(COLUMNS % (8 * J) == 0 && ROWS % (4 * I) == 0 && GROUP % 32 == 0, "whole warps");
    static_assert(ROWS % A_DOWN == 0 && DEPTH % A_ALONG == 0 && DEPTH % B_DOWN == 0, "whole copies");
    static_assert(QUADS % GROUPS == 0 && STEPS % 2 == 0 && SPREAD <= STEPS, "whole shares");
};

// What one thread copies of each slab, and how far it has come.
template <class P>
struct Copies {
    const float* a;            // this thread's first value of the next slab
    const float* b;
    float* a_to;               // its place in the first slot of the ring
    float* b_to;
    int a_row, a_k, b_k, b_column;
    int rows, columns, depth;  // what A and B still have from the next slab on

    __device__ __forceinline__ Copies(const float* A, const float* B, float* ring, int row0, int column0, int k0,
                                      int M, int N, int K) {
        const int thread = threadIdx.x;
        a_row = thread / 8 % P::A_DOWN;
        a_k = thread / 8 / P::A_DOWN * 8 + thread % 8;
        b_k = thread / P::B_ACROSS;
        b_column = thread % P::B_ACROSS * 4;
        a = A + (row0 + a_row) * K + k0 + a_k;
        b = B + (k0 + b_k) * N + column0 + b_column;
        a_to = ring + a_k * P::STRIDE + a_row;
        b_to = ring + P::SLAB_A + b_k * P::COLUMNS + b_column;
        rows = M - row0, columns = N - column0, depth = K - k0;
    }

    // Starts copies `from` to `to` - 1 of this thread's COPIES of the next slab, if it is `wanted`. EDGE: what
    // lies outside a matrix is zero.
    template <bool EDGE>
    __device__ __forceinline__ void start(int slot, int from, int to, bool wanted, int N, int K) const {
        const int offset = slot * P::SLAB;
#pragma unroll
        for (int n = 0; n < P::COPIES; ++n) {
            if (n < from || n >= to || !wanted) continue;
            if (n < P::A_COPIES) {
                const int down = n / (P::DEPTH / P::A_ALONG) * P::A_DOWN, along = n % (P::DEPTH / P::A_ALONG) * P::A_ALONG;
                float* to_a = a_to + offset + along * P::STRIDE + down;
                const float* from_a = a + down * K + along;
                if (EDGE) cp_async_4_or_zero(to_a, from_a, a_row + down < rows && a_k + along < depth);
                else cp_async_4(to_a, from_a);
            } else if (P::B_DOWN * P::B_ACROSS == P::THREADS || b_k < P::B_DOWN) {
                const int down = (n - P::A_COPIES) * P::B_DOWN;
                float* to_b = b_to + offset + down * P::COLUMNS;
                if (EDGE) cp_async_16_or_zero(to_b, b + down * N, b_column < columns && b_k + down < depth);
                else cp_async_16_uncached(to_b, b + down * N);
            }
        }
    }

    __device__ __forceinline__ void next(int N) {
        a += P::DEPTH;
        b += P::DEPTH * N;
        depth -= P::DEPTH;
    }
};

// COUNT / 4 quads, `step` floats apart.
template <int COUNT>
__device__ __forceinline__ void read_fragment(float (&fragment)[COUNT], const float* from, int step) {
#pragma unroll
    for (int quad = 0; quad < COUNT / 4; ++quad) {
        const float4 four = load_quad(from + quad * step);
        fragment[quad * 4] = four.x, fragment[quad * 4 + 1] = four.y;
        fragment[quad * 4 + 2] = four.z, fragment[quad * 4 + 3] = four.w;
    }
}

// BANKS: see banks above. EDGE: tiles may stick out of the matrices. SPLIT: gridDim.x is a multiple of the number of
// tiles, and that many blocks share a tile's K; `sums` has room for ROWS x COLUMNS floats a block, and `arrived`,
// a count a tile, is zero before a launch and after it.
template <class P, bool BANKS, bool EDGE, bool SPLIT>
__device__ __forceinline__ void slabs_body(const float* __restrict__ A, const float* __restrict__ B,
                                           float* __restrict__ C, float* sums, int* arrived, int M, int N, int K, float* ring) {
    const int thread = threadIdx.x, lane = thread % 32;
    const int group = thread / P::GROUP, member = thread % P::GROUP, warp = member / 32;
    // Lanes 2n and 2n + 1 lie one below the other and read the same quads of B, which halves the time that
    // the read takes in shared memory. A thread's quads are 16 rows and 32 columns apart, so that
    // those of a warp lie side by side.
    const int tx = lane / 2 % 8, ty = lane / 16 * 2 + lane % 2;
    const int row = warp / P::WARPS_ACROSS * 4 * P::I + ty * 4;
    const int column = warp % P::WARPS_ACROSS * 8 * P::J + tx * 4;

    const int blocks_across = EDGE ? (N - 1) / P::COLUMNS + 1 : N / P::COLUMNS;
    const int parts = SPLIT ? gridDim.x / (blocks_across * (M / P::ROWS)) : 1;
    const int tile = SPLIT ? blockIdx.x / parts : blockIdx.x;
    const int part = SPLIT ? blockIdx.x % parts : 0;
    const int row0 = tile / blocks_across * P::ROWS, column0 = tile % blocks_across * P::COLUMNS;
    const int all_slabs = EDGE ? (K - 1) / P::DEPTH + 1 : K / P::DEPTH;
    const int first = SPLIT ? all_slabs * part / parts : 0;
    const int slabs = (SPLIT ? all_slabs * (part + 1) / parts : all_slabs) - first;

    Copies<P> copies(A, B, ring, row0, column0, first * P::DEPTH, M, N, K);
#pragma unroll
    for (int ahead = 0; ahead < P::STAGES - 1; ++ahead) {
        copies.template start<EDGE>(ahead, 0, P::COPIES, ahead < slabs, N, K);
        copies.next(N);
        cp_async_commit();
    }

    float sum[P::I][P::J] = {};
    float a[2][P::I], b[2][P::J];  // fragments of this step and of the next
    const float* a_ring = ring + group * P::STEPS * P::STRIDE + row;
    const float* b_ring = ring + P::SLAB_A + group * P::STEPS * P::COLUMNS + column;
    cp_async_wait<P::STAGES - 2>();
    __syncthreads();
    read_fragment(a[0], a_ring, 16);
    read_fragment(b[0], b_ring, 32);

    int use = 0, fill = P::STAGES - 1;
    for (int slab = 0; slab < slabs; ++slab) {
        const float* a_slab = a_ring + use * P::SLAB;
        const float* b_slab = b_ring + use * P::SLAB;
        const bool more = slab + P::STAGES - 1 < slabs;
        use = use + 1 == P::STAGES ? 0 : use + 1;
#pragma unroll
        for (int k = 0; k < P::STEPS; ++k) {
            const bool last = k == P::STEPS - 1;
            if (last) {
                cp_async_commit();
                cp_async_wait<P::STAGES - 2>();
                __syncthreads();
            }
            read_fragment(a[(k + 1) % 2], last ? a_ring + use * P::SLAB : a_slab + (k + 1) * P::STRIDE, 16);
            read_fragment(b[(k + 1) % 2], last ? b_ring + use * P::SLAB : b_slab + (k + 1) * P::COLUMNS, 32);
            if (k < P::SPREAD)
                copies.template start<EDGE>(fill, k * P::COPIES / P::SPREAD, (k + 1) * P::COPIES / P::SPREAD, more, N, K);
#pragma unroll
            for (int j = 0; j < P::J; ++j)
#pragma unroll
                for (int turn = 0; turn < P::I; ++turn) {
                    const int i = P::SNAKE && j % 2 ? P::I - 1 - turn : turn;
                    sum[i][j] = fmaf(a[k % 2][i], b[k % 2][j], sum[i][j]);
                }
        }
        copies.next(N);
        fill = fill + 1 == P::STAGES ? 0 : fill + 1;
    }
    cp_async_wait<0>();
    __syncthreads();

    // A thread's outputs are QUADS quads. Group g finishes the g-th share of them, for which the same member of the
    // other groups leaves its sums in the ring, a quad a thread side by side.
    const float nothing = BANKS ? 0.0f * static_cast<float>(K) : -0.0f;
    auto quad = [&](int q) {
        const int i = q / (P::J / 4), j = q % (P::J / 4) * 4;
        return make_float4(sum[i][j] + nothing, sum[i][j + 1] + nothing, sum[i][j + 2] + nothing, sum[i][j + 3] + nothing);
    };
    float4* left = reinterpret_cast<float4*>(ring);
    if (P::GROUPS > 1) {
#pragma unroll
        for (int to = 0; to < P::GROUPS; ++to)
            if (to != group)
#pragma unroll
                for (int n = 0; n < P::SHARE; ++n)
                    left[((to * (P::GROUPS - 1) + group - (group > to)) * P::SHARE + n) * P::GROUP + member] = quad(to * P::SHARE + n);
        __syncthreads();
    }
    // `to` is known when compiling, `group` is not: sums can only be named by the former.
#pragma unroll
    for (int to = 0; to < P::GROUPS; ++to) {
        if (to != group) continue;
        float4 done[P::SHARE];
#pragma unroll
        for (int n = 0; n < P::SHARE; ++n) {
            done[n] = quad(to * P::SHARE + n);
#pragma unroll
            for (int from = 0; from < P::GROUPS - 1; ++from) {
                const float4 more = left[((to * (P::GROUPS - 1) + from) * P::SHARE + n) * P::GROUP + member];
                done[n].x += more.x, done[n].y += more.y, done[n].z += more.z, done[n].w += more.w;
            }
            if (SPLIT) store_quad(sums + ((blockIdx.x * P::SHARE + n) * P::THREADS + thread) * 4, done[n]);
            else {
                const int q = to * P::SHARE + n, i = q / (P::J / 4), j = q % (P::J / 4);
                const int r = row0 + row + i / 4 * 16 + i % 4, c = column0 + column + j * 32;
                if (!EDGE || (r < M && c < N)) store_quad(C + r * N + c, done[n]);
            }
        }
    }
    if (!SPLIT) return;

    // The block that arrives last adds the parts up, always in the order of k: the result does not depend on who
    // was last. The fences put the sums before the count, and the count before reading them.
    __shared__ int turn;
    __threadfence();
    __syncthreads();
    if (thread == 0) turn = atomicAdd(&arrived[tile], 1);
    __syncthreads();
    if (turn != parts - 1) return;
    __threadfence();
    if (thread == 0) arrived[tile] = 0;  // as the next launch wants it
#pragma unroll
    for (int n = 0; n < P::SHARE; ++n) {
        const float* from = sums + ((tile * parts * P::SHARE + n) * P::THREADS + thread) * 4;
        float4 done = load_quad(from);
        for (int p = 1; p < parts; ++p) {
            const float4 more = load_quad(from + p * (P::SHARE * P::THREADS * 4));
            done.x += more.x, done.y += more.y, done.z += more.z, done.w += more.w;
        }
        const int q = group * P::SHARE + n, i = q / (P::J / 4), j = q % (P::J / 4);
        store_quad(C + (row0 + row + i / 4 * 16 + i % 4) * N + column0 + column + j * 32, done);
    }
}

// What of banks a search may try, by the name of a macro: whatever else was measured is a build of this text.
#ifndef MATMUL_SLABS
#define MATMUL_SLABS 4
#endif
#ifndef MATMUL_SPREAD
#define MATMUL_SPREAD 3
#endif
#ifndef MATMUL_SNAKE
#define MATMUL_SNAKE 0
#endif

//                      tile      k  groups slabs thread spread snake
using GroupsPlan = Plan<64, 128, 32, 4, 4, 8, 16, 1, true>;
using SpreadPlan = Plan<64, 128, 32, 4, 4, 8, 16, 3, true>;
using BanksPlan = Plan<64, 128, 32, 4, MATMUL_SLABS, 8, 16, MATMUL_SPREAD, MATMUL_SNAKE != 0>;
using ThirdPlan = Plan<64, 96, 32, 4, 4, 8, 12, 4, true>;
using BroadPlan = Plan<192, 96, 16, 2, 4, 12, 12, 3, true>;
using WidePlan = Plan<128, 256, 8, 1, 4, 8, 16, 3, true>;
using QuarterPlan = Plan<32, 64, 64, 8, 4, 8, 8, 4, true>;
using HalfPlan = Plan<64, 64, 32, 4, 4, 8, 8, 3, true>;

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_groups(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
              int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<GroupsPlan, false, false, false>(A, B, C, nullptr, nullptr, M, N, K, ring);
}

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_spread(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
              int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<SpreadPlan, false, false, false>(A, B, C, nullptr, nullptr, M, N, K, ring);
}

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_banks(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
             int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<BanksPlan, true, false, false>(A, B, C, nullptr, nullptr, M, N, K, ring);
}

// Forms of banks for other shapes; the launcher takes the one that needs the fewest waves of the largest tiles.
// edge takes every shape with rows of whole quads: what sticks out is zero on the way in and not written.
// quarter is for few tiles: its own is a quarter of that of banks, one warp's worth, so that eight groups share the k of
// a slab. A multiply-add takes a third more shared reads, which a device that has work everywhere makes up for.
// split is for fewer tiles than that: several blocks share one of half the size, and the last to arrive adds up.

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_edge(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
            int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<SpreadPlan, true, true, false>(A, B, C, nullptr, nullptr, M, N, K, ring);
}

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_split(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, float* sums, int* arrived,
             int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<HalfPlan, true, false, true>(A, B, C, sums, arrived, M, N, K, ring);
}

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_third(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
             int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<ThirdPlan, true, false, false>(A, B, C, nullptr, nullptr, M, N, K, ring);
}

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_broad(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
             int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<BroadPlan, true, false, false>(A, B, C, nullptr, nullptr, M, N, K, ring);
}

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_wide(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
            int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<WidePlan, true, false, false>(A, B, C, nullptr, nullptr, M, N, K, ring);
}

extern "C" __global__ void __launch_bounds__(256, 1)
matmul_quarter(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
               int M, int N, int K) {
    extern __shared__ __align__(16) float ring[];
    slabs_body<QuarterPlan, true, false, false>(A, B, C, nullptr, nullptr, M, N, K, ring);
}
