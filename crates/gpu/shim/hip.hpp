// What the text of the kernels takes from CUDA, in the words of clang for HIP. With it the text is compiled for GPUs of
// AMD (amdgcn) and, as SPIR-V, for those of Intel, with no file of ROCm: tests/readers/test_hip.py.
#pragma once
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))

struct KonkordiaIndex {
    unsigned x, y, z;
};

#ifdef __AMDGCN__
static __device__ inline KonkordiaIndex konkordia_thread()
{
    return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()};
}
static __device__ inline KonkordiaIndex konkordia_block()
{
    return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()};
}
static __device__ inline KonkordiaIndex konkordia_block_size()
{
    return {__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z()};
}
static __device__ inline KonkordiaIndex konkordia_grid_size()
{
    return {__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
            __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
            __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z()};
}
static __device__ inline void konkordia_barrier()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#else
// The built-in functions of OpenCL, which SPIR-V has.
extern "C" __device__ unsigned long konkordia_local_id(unsigned) __asm("_Z12get_local_idj");
extern "C" __device__ unsigned long konkordia_group_id(unsigned) __asm("_Z12get_group_idj");
extern "C" __device__ unsigned long konkordia_local_size(unsigned) __asm("_Z14get_local_sizej");
extern "C" __device__ unsigned long konkordia_num_groups(unsigned) __asm("_Z14get_num_groupsj");
extern "C" __device__ void konkordia_work_group_barrier(unsigned) __asm("_Z7barrierj");
static __device__ inline KonkordiaIndex konkordia_thread()
{
    return {(unsigned)konkordia_local_id(0), (unsigned)konkordia_local_id(1), (unsigned)konkordia_local_id(2)};
}
static __device__ inline KonkordiaIndex konkordia_block()
{
    return {(unsigned)konkordia_group_id(0), (unsigned)konkordia_group_id(1), (unsigned)konkordia_group_id(2)};
}
static __device__ inline KonkordiaIndex konkordia_block_size()
{
    return {(unsigned)konkordia_local_size(0), (unsigned)konkordia_local_size(1), (unsigned)konkordia_local_size(2)};
}
static __device__ inline KonkordiaIndex konkordia_grid_size()
{
    return {(unsigned)konkordia_num_groups(0), (unsigned)konkordia_num_groups(1), (unsigned)konkordia_num_groups(2)};
}
// Fences of local and global memory.
static __device__ inline void konkordia_barrier() { konkordia_work_group_barrier(3); }
#endif

#define threadIdx konkordia_thread()
#define blockIdx konkordia_block()
#define blockDim konkordia_block_size()
#define gridDim konkordia_grid_size()
#define __syncthreads() konkordia_barrier()

static __device__ inline unsigned atomicAdd(unsigned *place, unsigned more)
{
    return __hip_atomic_fetch_add(place, more, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
static __device__ inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
static __device__ inline double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }
static __device__ inline long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }
static __device__ inline float rintf(float value) { return __builtin_rintf(value); }
static __device__ inline float fabsf(float value) { return __builtin_fabsf(value); }
static __device__ inline double rint(double value) { return __builtin_rint(value); }
static __device__ inline double fabs(double value) { return __builtin_fabs(value); }
static __device__ inline double sqrt(double value) { return __builtin_sqrt(value); }
