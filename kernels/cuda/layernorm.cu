// layernorm: y = gamma * (x - mu) / sqrt(v + 1e-5) + beta, row by row, in FP32. X and Y are R x D.
//
//     for each row:   mu = sum(x) / D      v = sum((x - mu)^2) / D
//                     y[d] = gamma[d] * (x[d] - mu) / sqrt(v + 1e-5) + beta[d]
//
// Hardly any arithmetic and no reuse but the row's own: the row is needed for its mean, for its
// variance and for the output. The stages differ in how many threads share a row, how they add up what
// each has found, and how often the row is fetched.
//
//     stage   threads a row   what changed                                             barriers a row
//     block   256             three passes, two tree reductions in shared memory       19
//     warp    32              128-bit quads, shuffles instead of shared memory         0
//     pair    64              sum and sum of squares in one pass, one exchange         1
//     row     128             the row is read once and stays in registers,             1
//                             approximate reciprocal square root
//     team    128             variance around the mean, from the registers;            2
//                             up to eight quads a thread
//     registers  32           gamma and beta in registers too, the next row            0
//                             asked for before this one is added up
//     scalars    32           registers for rows that are no whole quads               0
//
// block takes every width, and scalars every width up to 1024. The others take widths that are multiples of
// four and 16-byte aligned pointers; row also needs the row to fit its registers (width up to 1024), and so do
// team (up to 4096) and registers (up to 768).
//
// pair and row compute the variance as E[x^2] - mu^2, in one pass. That difference loses digits when
// the mean is large against the spread: the other stages, which subtract the mean first, do not have
// that limit.

#include "mage.cuh"

constexpr float EPSILON = 1e-5f;
constexpr unsigned FULL_WARP = 0xffffffffu;

__device__ __forceinline__ float4 load_quad(const float* p) {
    return *reinterpret_cast<const float4*>(p);
}

// y of four neighbouring elements, stored as one quad.
__device__ __forceinline__ void store_normalized(float* y, float4 x, const float* gamma, const float* beta,
                                                 float mean, float inverse_std) {
    const float4 g = load_quad(gamma), b = load_quad(beta);
    *reinterpret_cast<float4*>(y) = make_float4(fmaf((x.x - mean) * inverse_std, g.x, b.x),
                                                fmaf((x.y - mean) * inverse_std, g.y, b.y),
                                                fmaf((x.z - mean) * inverse_std, g.z, b.z),
                                                fmaf((x.w - mean) * inverse_std, g.w, b.w));
}

__device__ __forceinline__ float sum_of(float4 x) {
    return (x.x + x.y) + (x.z + x.w);
}

__device__ __forceinline__ float squares_of(float4 x) {
    return fmaf(x.x, x.x, x.y * x.y) + fmaf(x.z, x.z, x.w * x.w);
}

// Adds up a value over the 32 lanes of a warp. The total is right in lane 0 only: in the other lanes
// shuffle_down has added values that came round again.
__device__ __forceinline__ float warp_sum_in_lane_0(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(FULL_WARP, value, offset);
    return value;
}

// ------------------------------------------------------------------------------------------------
// block (mage-001). One block of 256 threads a row, one float at a time, neighbouring threads on
// neighbouring floats. Three passes over the row: mean, variance around that mean, output; the second
// and third find the row in the caches. Each sum is a tree in shared memory: 256 partial sums (1024
// bytes), halved eight times, a barrier after each halving. With the barrier after the first store and
// the one that keeps the second tree from overwriting the first before all have read its root, 19.

__device__ __forceinline__ float tree_sum(float value, float* partial) {
    const int thread = threadIdx.x;
    partial[thread] = value;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (thread < half) partial[thread] += partial[thread + half];
        __syncthreads();
    }
    return partial[0];
}

extern "C" __global__ void __launch_bounds__(256)
layernorm_block(const float* __restrict__ X, const float* __restrict__ gamma, const float* __restrict__ beta,
                float* __restrict__ Y, int R, int D) {
    __shared__ float partial[256];
    const float* x = X + static_cast<size_t>(blockIdx.x) * D;
    float* y = Y + static_cast<size_t>(blockIdx.x) * D;

    float sum = 0.0f;
    for (unsigned d = threadIdx.x; d < D; d += 256) sum += x[d];
    const float mean = tree_sum(sum, partial) / D;
    __syncthreads();

    float squares = 0.0f;
    for (unsigned d = threadIdx.x; d < D; d += 256) squares = fmaf(x[d] - mean, x[d] - mean, squares);
    const float variance = tree_sum(squares, partial) / D;
    const float inverse_std = 1.0f / sqrtf(variance + EPSILON);

    for (unsigned d = threadIdx.x; d < D; d += 256) y[d] = fmaf((x[d] - mean) * inverse_std, gamma[d], beta[d]);
}

// ------------------------------------------------------------------------------------------------
// warp (mage-002). One warp a row, eight rows a block. The 32 lanes of a warp exchange values by
// shuffles, so there is no shared memory and nobody waits at a barrier; and a row is read as 128-bit
// quads, a quarter of the load instructions. Still three passes: held in an array of eight quads a
// thread, the row was spilled to local memory. shuffle_down leaves the total in lane 0, and every lane
// needs it: it is broadcast.

__device__ __forceinline__ float warp_sum(float value) {
    const float total = warp_sum_in_lane_0(value);
    return __shfl_sync(FULL_WARP, total, 0);
}

extern "C" __global__ void __launch_bounds__(256)
layernorm_warp(const float* __restrict__ X, const float* __restrict__ gamma, const float* __restrict__ beta,
               float* __restrict__ Y, int R, int D) {
    const int lane = threadIdx.x % 32;
    const unsigned row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= R) return;  // the whole warp, so the shuffles below stay complete
    const float* x = X + static_cast<size_t>(row) * D;
    float* y = Y + static_cast<size_t>(row) * D;

    float sum = 0.0f;
    for (unsigned d = lane * 4; d < D; d += 128) sum += sum_of(load_quad(&x[d]));
    const float mean = warp_sum(sum) / D;

    float squares = 0.0f;
    for (unsigned d = lane * 4; d < D; d += 128) {
        const float4 quad = load_quad(&x[d]);
        squares += squares_of(make_float4(quad.x - mean, quad.y - mean, quad.z - mean, quad.w - mean));
    }
    const float variance = warp_sum(squares) / D;
    const float inverse_std = 1.0f / sqrtf(variance + EPSILON);

    for (unsigned d = lane * 4; d < D; d += 128)
        store_normalized(&y[d], load_quad(&x[d]), &gamma[d], &beta[d], mean, inverse_std);
}

// ------------------------------------------------------------------------------------------------
// pair (mage-003). Two warps a row, four rows a block: twice the threads for the same rows, so twice
// the loads under way. Sum and sum of squares come from one pass, v = E[x^2] - mu^2, which saves the
// second pass and leaves one exchange: each warp writes its two sums to shared memory (8 warps * 2
// floats = 64 bytes), one barrier, and every thread adds the two halves for itself.
//
// Each warp takes one half of the row's quads and stops at the end of its half. A warp that went on to
// the end of its last 32-lane step would count the beginning of the other half twice: nothing at width
// 768, where a half is three full steps, and wrong at width 128, where it is half a step.

extern "C" __global__ void __launch_bounds__(256)
layernorm_pair(const float* __restrict__ X, const float* __restrict__ gamma, const float* __restrict__ beta,
               float* __restrict__ Y, int R, int D) {
    __shared__ float exchange[16];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned row = blockIdx.x * 4 + warp / 2;
    const float* x = X + static_cast<size_t>(row) * D;
    float* y = Y + static_cast<size_t>(row) * D;

    // A pair past the last row has no quads, but does take part in the barrier.
    const int quads = row < R ? D / 4 : 0;
    const int half = (quads + 1) / 2;
    const int begin = warp % 2 * half;
    const int end = begin + half < quads ? begin + half : quads;

    float sum = 0.0f, squares = 0.0f;
    for (int quad = begin + lane; quad < end; quad += 32) {
        const float4 v = load_quad(&x[quad * 4]);
        sum += sum_of(v);
        squares += squares_of(v);
    }
    sum = warp_sum_in_lane_0(sum);
    squares = warp_sum_in_lane_0(squares);
    if (lane == 0) {
        exchange[warp * 2] = sum;
        exchange[warp * 2 + 1] = squares;
    }
    __syncthreads();

    const float* both = &exchange[warp / 2 * 4];
    const float mean = (both[0] + both[2]) / D;
    const float variance = fmaxf((both[1] + both[3]) / D - mean * mean, 0.0f);
    const float inverse_std = 1.0f / sqrtf(variance + EPSILON);

    for (int quad = begin + lane; quad < end; quad += 32)
        store_normalized(&y[quad * 4], load_quad(&x[quad * 4]), &gamma[quad * 4], &beta[quad * 4], mean,
                         inverse_std);
}

// ------------------------------------------------------------------------------------------------
// row (mage-006). One block of 128 threads a row, in the shape of the kernel that Triton makes. Each
// thread takes one quad and, where the row has that many, a second one 128 quads on: at width 768 the
// second is there for half of the threads. Both stay in registers from the load to the store, so global
// memory is read once. The four warps reduce by shuffle_down and meet in eight floats of shared memory
// (32 bytes) behind one barrier. The reciprocal square root is the approximate instruction, about
// 1e-7 off, in place of a square root and a division.

extern "C" __global__ void __launch_bounds__(128)
layernorm_row(const float* __restrict__ X, const float* __restrict__ gamma, const float* __restrict__ beta,
              float* __restrict__ Y, int R, int D) {
    __shared__ float exchange[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = threadIdx.x * 4, second = first + 512;
    const float* x = X + static_cast<size_t>(blockIdx.x) * D;
    float* y = Y + static_cast<size_t>(blockIdx.x) * D;

    // What is not there is zero: it adds nothing to either sum.
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float4 x_first = first < D ? load_quad(&x[first]) : zero;
    const float4 x_second = second < D ? load_quad(&x[second]) : zero;

    const float sum = warp_sum_in_lane_0(sum_of(x_first) + sum_of(x_second));
    const float squares = warp_sum_in_lane_0(squares_of(x_first) + squares_of(x_second));
    if (lane == 0) {
        exchange[warp] = sum;
        exchange[warp + 4] = squares;
    }
    __syncthreads();

    const float mean = (exchange[0] + exchange[1] + exchange[2] + exchange[3]) / D;
    const float mean_square = (exchange[4] + exchange[5] + exchange[6] + exchange[7]) / D;
    const float inverse_std = rsqrt_approx(fmaxf(mean_square - mean * mean, 0.0f) + EPSILON);

    if (first < D) store_normalized(&y[first], x_first, &gamma[first], &beta[first], mean, inverse_std);
    if (second < D) store_normalized(&y[second], x_second, &gamma[second], &beta[second], mean, inverse_std);
}

// ------------------------------------------------------------------------------------------------
// team. Four warps a row as in row, and the row is still read once, but its variance is summed around the
// mean: the row is at hand in registers, so that costs a second exchange and no second read, and a mean far
// from zero does no harm. Each thread holds up to eight quads, so rows of up to 4096 stay in registers. For
// each of the two sums the warps meet in four floats of shared memory behind a barrier. The sums go by
// shuffle_xor, which leaves the total in every lane. Two quads or fewer a thread leave room to hold gamma and
// beta as well: they are on their way before the first sum, not after the last.
//
// The number of quads that a thread holds is a template parameter, because only an array whose every index
// is known to the compiler can stay in registers.

__device__ __forceinline__ float warp_sum_everywhere(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(FULL_WARP, value, offset);
    return value;
}

// The quads of a row that one of THREADS threads holds: number thread, thread + THREADS, and so on. Only the
// last can lie past the end of the row; it is zero then, and must be kept out of whatever zero would disturb.
// WHOLE: the row is a whole number of steps, and no quad lies past its end.
template <int QUADS, int THREADS, bool WHOLE = false>
struct Share {
    float4 quad[QUADS];

    __device__ __forceinline__ static bool inside(int i, int thread, int quads) {
        return WHOLE || i < QUADS - 1 || thread + i * THREADS < quads;
    }
    __device__ __forceinline__ void load(const float* row, int thread, int quads) {
#pragma unroll
        for (int i = 0; i < QUADS; ++i)
            quad[i] = inside(i, thread, quads) ? load_quad(&row[(thread + i * THREADS) * 4])
                                               : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    __device__ __forceinline__ float sum() const {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < QUADS; ++i) total += sum_of(quad[i]);
        return total;
    }
    // Subtracts the mean, and returns the sum of the squares of what is left.
    __device__ __forceinline__ float centre(float mean, int thread, int quads) {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < QUADS; ++i)
            if (inside(i, thread, quads)) {
                quad[i] = make_float4(quad[i].x - mean, quad[i].y - mean, quad[i].z - mean, quad[i].w - mean);
                total += squares_of(quad[i]);
            }
        return total;
    }
};

// gamma * x * inverse_std + beta, for x from which the mean has been subtracted.
__device__ __forceinline__ float4 scaled(float4 x, float4 gamma, float4 beta, float inverse_std) {
    return make_float4(fmaf(x.x * inverse_std, gamma.x, beta.x), fmaf(x.y * inverse_std, gamma.y, beta.y),
                       fmaf(x.z * inverse_std, gamma.z, beta.z), fmaf(x.w * inverse_std, gamma.w, beta.w));
}

__device__ __forceinline__ float team_sum(float value, float* partial) {
    value = warp_sum_everywhere(value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

template <int QUADS, bool AHEAD>
__device__ __forceinline__ void team_row(const float* X, const float* gamma, const float* beta, float* Y, int D,
                                         float* partial) {
    const int thread = threadIdx.x, quads = D / 4;
    const float share = 1.0f / D;
    Share<QUADS, 128> x, g, b;
    x.load(X + static_cast<size_t>(blockIdx.x) * D, thread, quads);
    if (AHEAD) {
        g.load(gamma, thread, quads);
        b.load(beta, thread, quads);
    }
    const float mean = team_sum(x.sum(), partial) * share;
    const float variance = team_sum(x.centre(mean, thread, quads), partial + 4) * share;
    const float inverse_std = rsqrt_approx(variance + EPSILON);

    float* y = Y + static_cast<size_t>(blockIdx.x) * D;
#pragma unroll
    for (int i = 0; i < QUADS; ++i)
        if (x.inside(i, thread, quads)) {
            const int d = (thread + i * 128) * 4;
            *reinterpret_cast<float4*>(&y[d]) = scaled(x.quad[i], AHEAD ? g.quad[i] : load_quad(&gamma[d]),
                                                       AHEAD ? b.quad[i] : load_quad(&beta[d]), inverse_std);
        }
}

extern "C" __global__ void __launch_bounds__(128)
layernorm_team(const float* __restrict__ X, const float* __restrict__ gamma, const float* __restrict__ beta,
               float* __restrict__ Y, int R, int D) {
    __shared__ float partial[8];
    switch ((D + 511) / 512) {
        case 1: return team_row<1, true>(X, gamma, beta, Y, D, partial);
        case 2: return team_row<2, true>(X, gamma, beta, Y, D, partial);
        case 3: return team_row<3, false>(X, gamma, beta, Y, D, partial);
        case 4: return team_row<4, false>(X, gamma, beta, Y, D, partial);
        case 5: return team_row<5, false>(X, gamma, beta, Y, D, partial);
        case 6: return team_row<6, false>(X, gamma, beta, Y, D, partial);
        case 7: return team_row<7, false>(X, gamma, beta, Y, D, partial);
        case 8: return team_row<8, false>(X, gamma, beta, Y, D, partial);
    }
}

// ------------------------------------------------------------------------------------------------
// registers. One warp a row again, without barriers, but nothing is fetched twice and nothing is waited for
// that could have been asked for earlier. A lane holds its quads of the row, of gamma and of beta in
// registers; gamma and beta serve every row that the warp takes. A warp takes rows a whole grid apart, and
// asks for the next row before it adds up this one, so that reads and writes of different rows overlap
// within one warp.
//
// All versions of the template are in one kernel, which takes the registers of the widest: that is why the
// limit is six quads a lane.

template <int QUADS, bool WHOLE>
__device__ __forceinline__ void registers_rows(const float* X, const float* gamma, const float* beta, float* Y,
                                               int R, int D) {
    const int lane = threadIdx.x % 32, quads = D / 4;
    const float share = 1.0f / D;
    const unsigned rows_apart = gridDim.x * 2;
    unsigned row = blockIdx.x * 2 + threadIdx.x / 32;
    if (row >= R) return;  // the whole warp

    Share<QUADS, 32, WHOLE> x, g, b;
    x.load(X + static_cast<size_t>(row) * D, lane, quads);
    g.load(gamma, lane, quads);
    b.load(beta, lane, quads);
    while (true) {
        const unsigned next_row = row + rows_apart;
        Share<QUADS, 32, WHOLE> next;
        if (next_row < R) next.load(X + static_cast<size_t>(next_row) * D, lane, quads);

        const float mean = warp_sum_everywhere(x.sum()) * share;
        const float variance = warp_sum_everywhere(x.centre(mean, lane, quads)) * share;
        const float inverse_std = rsqrt_approx(variance + EPSILON);

        float* y = Y + static_cast<size_t>(row) * D;
#pragma unroll
        for (int i = 0; i < QUADS; ++i)
            if (x.inside(i, lane, quads))
                *reinterpret_cast<float4*>(&y[(lane + i * 32) * 4]) =
                    scaled(x.quad[i], g.quad[i], b.quad[i], inverse_std);
        if (next_row >= R) return;
        row = next_row;
        x = next;
    }
}

extern "C" __global__ void __launch_bounds__(64)
layernorm_registers(const float* __restrict__ X, const float* __restrict__ gamma, const float* __restrict__ beta,
                    float* __restrict__ Y, int R, int D) {
    switch (D % 128 == 0 ? D / 128 : 0) {  // the widths that need no test, which are most
        case 1: return registers_rows<1, true>(X, gamma, beta, Y, R, D);
        case 2: return registers_rows<2, true>(X, gamma, beta, Y, R, D);
        case 3: return registers_rows<3, true>(X, gamma, beta, Y, R, D);
        case 4: return registers_rows<4, true>(X, gamma, beta, Y, R, D);
        case 5: return registers_rows<5, true>(X, gamma, beta, Y, R, D);
        case 6: return registers_rows<6, true>(X, gamma, beta, Y, R, D);
    }
    switch (D / 128) {
        case 0: return registers_rows<1, false>(X, gamma, beta, Y, R, D);
        case 1: return registers_rows<2, false>(X, gamma, beta, Y, R, D);
        case 2: return registers_rows<3, false>(X, gamma, beta, Y, R, D);
        case 3: return registers_rows<4, false>(X, gamma, beta, Y, R, D);
        case 4: return registers_rows<5, false>(X, gamma, beta, Y, R, D);
        case 5: return registers_rows<6, false>(X, gamma, beta, Y, R, D);
    }
}

// ------------------------------------------------------------------------------------------------
// scalars. A row of 257 values is no whole number of quads, and the next row begins off their boundaries: all that
// is left is one value at a time. What made registers fast holds for single values too. A warp has a row, a lane
// every thirty-second value of it, of gamma and of beta, all under way before the first sum; no barrier, and a
// row is read once. There is one row a warp and nothing to ask for meanwhile, so a block is a single warp:
// a few rows lie on as many multiprocessors.
//
// The launcher leaves rows of whole quads to the stages above.

// Only the last four values of a lane can lie past the end of the row: a version is for widths that need them.
template <int VALUES>
struct Scalars {
    float value[VALUES];

    __device__ __forceinline__ static bool inside(int i, int D) {
        return i < VALUES - 4 || static_cast<int>(threadIdx.x) + i * 32 < D;
    }
    __device__ __forceinline__ void load(const float* row, int D) {
        row += threadIdx.x;
#pragma unroll
        for (int i = 0; i < VALUES; ++i) value[i] = inside(i, D) ? row[i * 32] : 0.0f;
    }
    // Four sums side by side: one after the other they would be a wait each.
    __device__ __forceinline__ float sum() const {
        float part[4] = {};
#pragma unroll
        for (int i = 0; i < VALUES; ++i) part[i % 4] += value[i];
        return (part[0] + part[1]) + (part[2] + part[3]);
    }
    // Subtracts the mean, and returns the sum of the squares of what is left.
    __device__ __forceinline__ float centre(float mean, int D) {
        float part[4] = {};
#pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            value[i] = inside(i, D) ? value[i] - mean : 0.0f;
            part[i % 4] = fmaf(value[i], value[i], part[i % 4]);
        }
        return (part[0] + part[1]) + (part[2] + part[3]);
    }
};

template <int VALUES>
__device__ __forceinline__ void scalars_row(const float* X, const float* gamma, const float* beta, float* Y, int D) {
    const float share = 1.0f / D;
    const unsigned row = blockIdx.x * D;
    Scalars<VALUES> x, g, b;
    x.load(X + row, D);
    g.load(gamma, D);
    b.load(beta, D);
    const float mean = warp_sum_everywhere(x.sum()) * share;
    const float variance = warp_sum_everywhere(x.centre(mean, D)) * share;
    const float inverse_std = rsqrt_approx(variance + EPSILON);

    float* y = Y + row + threadIdx.x;
#pragma unroll
    for (int i = 0; i < VALUES; ++i)
        if (x.inside(i, D)) y[i * 32] = fmaf(x.value[i] * inverse_std, g.value[i], b.value[i]);
}

extern "C" __global__ void __launch_bounds__(32)
layernorm_scalars(const float* __restrict__ X, const float* __restrict__ gamma, const float* __restrict__ beta,
                  float* __restrict__ Y, int R, int D) {
    switch ((D - 1) / 128) {  // four values a lane more from version to version
        case 0: return scalars_row<4>(X, gamma, beta, Y, D);
        case 1: return scalars_row<8>(X, gamma, beta, Y, D);
        case 2: return scalars_row<12>(X, gamma, beta, Y, D);
        case 3: return scalars_row<16>(X, gamma, beta, Y, D);
        case 4: return scalars_row<20>(X, gamma, beta, Y, D);
        case 5: return scalars_row<24>(X, gamma, beta, Y, D);
        case 6: return scalars_row<28>(X, gamma, beta, Y, D);
        case 7: return scalars_row<32>(X, gamma, beta, Y, D);
    }
}
