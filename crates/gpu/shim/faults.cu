// Kernels with faults, each of which the shim has to find, and one that shows what the arithmetic of 128 bits gives. They
// are no part of the kernels for GPUs.

// Of each three numbers a, b and c: a b + c and a b - c as 128 bits and as double precision.
extern "C" __global__ void probe_big(PTR(const u64) numbers, PTR(u64) out, u32 count)
{
    for (u32 n = threadIdx.x; n < count; n += blockDim.x) {
        const Big of_two = product(numbers[3 * n], numbers[3 * n + 1]), third = {0, numbers[3 * n + 2]};
        const Big sum = plus(of_two, third), difference = minus(of_two, third);
        out[6 * n] = sum.high;
        out[6 * n + 1] = sum.low;
        out[6 * n + 2] = (u64)__double_as_longlong(to_double(sum));
        out[6 * n + 3] = difference.high;
        out[6 * n + 4] = difference.low;
        out[6 * n + 5] = (u64)__double_as_longlong(to_double(difference));
    }
}

extern "C" __global__ void fault_outside(PTR(u32) out, u32 at)
{
    out[at + threadIdx.x] = 1;
}

// The threads from `arriving` on do not reach the barrier.
extern "C" __global__ void fault_barrier(PTR(u32) out, u32 arriving)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x < arriving) {
        __syncthreads();
    }
}

// Each thread reads its neighbour's number, with or without a barrier after it was written.
extern "C" __global__ void fault_race(PTR(u32) out, u32 has_barrier)
{
    SHARED(u32, numbers, THREADS);
    numbers[threadIdx.x] = threadIdx.x;
    if (has_barrier != 0) {
        __syncthreads();
    }
    out[threadIdx.x] = numbers[(threadIdx.x + 1) % blockDim.x];
}

// All blocks write the same elements.
extern "C" __global__ void fault_blocks(PTR(u32) out)
{
    out[threadIdx.x] = blockIdx.x;
}

// The result is what shared memory held before the kernel wrote it.
extern "C" __global__ void fault_old_memory(PTR(u32) out)
{
    SHARED(u32, numbers, THREADS);
    out[blockIdx.x * blockDim.x + threadIdx.x] = numbers[threadIdx.x];
}
