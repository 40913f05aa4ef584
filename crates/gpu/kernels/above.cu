// Pixels above a level, and the veto of Ponsard et al. 2020 (crates/kernels/src/above).

// Image y of the grid: adds the number of usable pixels with `level` < pixel <= `high` to counts[y], which begins
// with 0. NaN is above nothing.
template <typename T>
static __device__ void count_above(PTR(const T) images, PTR(const u8) usable, T level, T high, PTR(u32) counts,
                                   PTR(u32) sums, u32 pixels)
{
    u32 found = 0;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        const T pixel = images[(u64)blockIdx.y * pixels + at];
        found += pixel > level && pixel <= high && usable[at] != 0 ? 1 : 0;
    }
    sums[threadIdx.x] = found;
    __syncthreads();
    const u32 sum = exclusive_scan(sums);
    if (threadIdx.x == 0) {
        atomicAdd(&counts[blockIdx.y], sum);
    }
}

#define COUNT_ABOVE(T, name)                                                                                           \
    extern "C" __global__ void count_above_##name(PTR(const T) images, PTR(const u8) usable, T level, T high,          \
                                                  PTR(u32) counts, u32 pixels)                                         \
    {                                                                                                                  \
        SHARED(u32, sums, THREADS);                                                                                    \
        count_above<T>(images, usable, level, high, counts, sums, pixels);                                             \
    }

COUNT_ABOVE(i16, int16)
COUNT_ABOVE(u16, uint16)
COUNT_ABOVE(i32, int32)
COUNT_ABOVE(u32, uint32)
COUNT_ABOVE(float, float32)

// 1 for each image that has at least `least` pixels above the level, otherwise 0.
extern "C" __global__ void keep_images(PTR(const u32) counts, PTR(u8) keep, u32 least, u32 images)
{
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < images; at += gridDim.x * blockDim.x) {
        keep[at] = counts[at] >= least ? 1 : 0;
    }
}
