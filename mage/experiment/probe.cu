// probe: kernels of the harness itself. None of them computes an operation; they mark, evict, control
// and read the clock. Their names begin with mage_, so that their records are told from an operation's.

// Marks a place in the device's timeline: does nothing, its grid says what follows.
extern "C" __global__ void mage_marker() {}

// Evicts the L2 cache by reading: `quads` float4 from a buffer of more than twice its size. Reading
// leaves clean lines; a fill would leave dirty ones, whose write-back would run into the next kernel.
// The sum keeps the reads alive and is written only if it is not a number, which the zeros here never make.
extern "C" __global__ void __launch_bounds__(256) mage_evict(const float4* __restrict__ buffer, float* sink, int quads) {
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < quads; i += gridDim.x * 256) {
        const float4 quad = __ldg(buffer + i);
        sum += quad.x + quad.y + quad.z + quad.w;
    }
    if (sum != sum) *sink = sum;
}

// The control: a fixed chain of multiply-adds in registers and a fixed walk through a small buffer, the
// same in every round of every experiment. What slows it has nothing to do with the kernels under test:
// a lower clock, or somebody else on the device.
extern "C" __global__ void __launch_bounds__(256) mage_control(const float* __restrict__ buffer, float* out, int steps) {
    const int thread = blockIdx.x * 256 + threadIdx.x;
    float a = 1.0f + 1e-6f * thread, b = 0.5f;
    for (int i = 0; i < steps; ++i) {
        a = fmaf(a, 0.999f, b);
        b = fmaf(b, 0.999f, buffer[(thread + i * 4099) & 1048575] * 1e-3f);
    }
    out[thread] = a + b;
}

// Reads two clocks `microseconds` apart: cycles of this multiprocessor and nanoseconds of the device.
// One block. times = {cycles, nanoseconds}; their ratio is the clock in GHz while the block ran.
extern "C" __global__ void mage_clock(long long* times, int microseconds) {
    long long begin_ns, now_ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin_ns));
    // The timer ticks in steps of up to a microsecond: begin at a step.
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now_ns)); while (now_ns == begin_ns);
    begin_ns = now_ns;
    const long long begin = clock64();
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now_ns)); while (now_ns - begin_ns < microseconds * 1000LL);
    times[0] = clock64() - begin;
    times[1] = now_ns - begin_ns;
}

// Copies, the plainest kernel that moves bytes: its rate is the limit that rows are held against.
extern "C" __global__ void __launch_bounds__(256) mage_copy(const float4* __restrict__ from, float4* __restrict__ to, int quads) {
    for (int i = blockIdx.x * 256 + threadIdx.x; i < quads; i += gridDim.x * 256) to[i] = from[i];
}

// Multiply-adds in registers and nothing else: eight chains a thread hide each other's latency. The factors
// are read, so that the compiler cannot fold the loop. readings: five numbers a block, {multiprocessor, cycles and
// nanoseconds at its begin, cycles and nanoseconds at its end}. Warps that came first are served first, so that the
// first block ends early, and the clock is lower then than over the whole kernel: one block's reading is not enough.
extern "C" __global__ void __launch_bounds__(256) mage_fma(const float* factors, float* out, long long* readings, int steps) {
    const float a = factors[0], b = factors[1];
    float x[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = 1e-3f * (threadIdx.x + j);
    long long begin_ns = 0, end_ns = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin_ns));
    const long long begin = clock64();
#pragma unroll 8
    for (int i = 0; i < steps; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) x[j] = fmaf(x[j], a, b);
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += x[j];
    out[blockIdx.x * 256 + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned multiprocessor;
        asm volatile("mov.u32 %0, %smid;" : "=r"(multiprocessor));
        const long long end = clock64();
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end_ns));
        long long* mine = readings + 5LL * blockIdx.x;
        mine[0] = multiprocessor;
        mine[1] = begin;
        mine[2] = begin_ns;
        mine[3] = end;
        mine[4] = end_ns;
    }
}
