// What all kernels share. The text is CUDA C++ and, after shim/shim.hpp, C++17: the shim defines PTR and SHARED as
// types that check every access. Without the shim they are plain pointers and arrays.
//
// Rules of these files: no include, no intrinsic of a warp, no atomic on floats, no text that needs the number of
// threads to be a multiple of 32. Everything is computed in a fixed order, so results are the same on every
// device.

typedef unsigned char u8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef KONKORDIA_SHIM
#define PTR(T) T *
#define SHARED(T, name, count) __shared__ T name[count]
#endif

// Threads of a block, for all kernels.
#define THREADS 256u

// In place: each of THREADS numbers becomes the sum of those before it. Returns the sum of all. All threads of
// the block call it.
static __device__ u32 exclusive_scan(PTR(u32) numbers)
{
    const u32 thread = threadIdx.x;
    const u32 own = numbers[thread];
    for (u32 distance = 1; distance < THREADS; distance *= 2) {
        const u32 before = thread >= distance ? (u32)numbers[thread - distance] : 0;
        __syncthreads();
        numbers[thread] = numbers[thread] + before;
        __syncthreads();
    }
    const u32 sum = numbers[THREADS - 1];
    const u32 until_here = numbers[thread];
    __syncthreads();
    numbers[thread] = until_here - own;
    __syncthreads();
    return sum;
}
