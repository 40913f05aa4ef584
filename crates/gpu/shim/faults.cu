// Kernels with faults, each of which the shim has to find. They are no part of the kernels for GPUs.

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
