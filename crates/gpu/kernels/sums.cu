// Sums of frames, their pixel type in the file, and counts below zero (crates/kernels/src/finish.rs). Frames are added
// after rounding, in their order.

// Adds two pixels: a special value wins, in the order masked, missing, invalid, saturated.
template <typename T> static __device__ bool special_of(T a, T b, T &special)
{
    if (is_number(a) && is_number(b)) {
        return false;
    }
    if (a != a || b != b || a == Pixel<T>::masked() || b == Pixel<T>::masked()) {
        special = Pixel<T>::masked();
    } else if (a == Pixel<T>::missing() || b == Pixel<T>::missing()) {
        special = Pixel<T>::missing();
    } else if (a == Pixel<T>::invalid() || b == Pixel<T>::invalid()) {
        special = Pixel<T>::invalid();
    } else {
        special = Pixel<T>::saturated();
    }
    return true;
}

static __device__ i32 sum_of(i32 a, i32 b) { return from_whole<i32>((i64)a + b); }
static __device__ float sum_of(float a, float b) { return from_photons<float>(a + b); }

// Adds `frames` frames of `pixels` pixels to a sum, one after the other.
template <typename T> static __device__ void accumulate(PTR(T) sum, PTR(const T) added, u32 pixels, u32 frames)
{
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        T own = sum[at];
        for (u32 frame = 0; frame < frames; frame++) {
            const T more = added[(u64)frame * pixels + at];
            T special = own;
            own = special_of<T>(own, more, special) ? special : sum_of(own, more);
        }
        sum[at] = own;
    }
}

extern "C" __global__ void accumulate_int32(PTR(i32) sum, PTR(const i32) added, u32 pixels, u32 frames)
{
    accumulate<i32>(sum, added, pixels, frames);
}
extern "C" __global__ void accumulate_float32(PTR(float) sum, PTR(const float) added, u32 pixels, u32 frames)
{
    accumulate<float>(sum, added, pixels, frames);
}

// A sum as a pixel of the file.
template <typename T> static __device__ void narrow(PTR(const i32) sums, PTR(T) out, u64 pixels)
{
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += (u64)gridDim.x * blockDim.x) {
        const i32 sum = sums[at];
        T pixel = from_whole<T>(sum);
        if (sum == Pixel<i32>::masked()) {
            pixel = Pixel<T>::masked();
        } else if (sum == Pixel<i32>::missing()) {
            pixel = Pixel<T>::missing();
        } else if (sum == Pixel<i32>::invalid()) {
            pixel = Pixel<T>::invalid();
        }
        out[at] = pixel;
    }
}

template <typename T> static __device__ T shifted(T pixel, i32 offset) { return from_whole<T>((i64)pixel + offset); }
template <> __device__ float shifted<float>(float pixel, i32 offset) { return from_photons<float>(pixel + (float)offset); }

template <typename T> static __device__ bool is_negative(T pixel) { return pixel < 0; }
template <> __device__ bool is_negative<u16>(u16) { return false; }
template <> __device__ bool is_negative<u32>(u32) { return false; }

// Counts below zero become 0, or `offset` is added to every count (`is_offset` not 0).
template <typename T> static __device__ void negatives(PTR(T) images, u32 is_offset, i32 offset, u64 pixels)
{
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += (u64)gridDim.x * blockDim.x) {
        const T pixel = images[at];
        if (is_number(pixel) && (is_offset != 0 || is_negative(pixel))) {
            images[at] = is_offset != 0 ? shifted<T>(pixel, offset) : (T)0;
        }
    }
}

#define NARROW(T, name)                                                                                                \
    extern "C" __global__ void narrow_##name(PTR(const i32) sums, PTR(T) out, u64 pixels)                              \
    {                                                                                                                  \
        narrow<T>(sums, out, pixels);                                                                                  \
    }

#define NEGATIVES(T, name)                                                                                             \
    extern "C" __global__ void negatives_##name(PTR(T) images, u32 is_offset, i32 offset, u64 pixels)                  \
    {                                                                                                                  \
        negatives<T>(images, is_offset, offset, pixels);                                                               \
    }

NARROW(i16, int16)
NARROW(u16, uint16)
NARROW(i32, int32)
NARROW(u32, uint32)
NEGATIVES(i16, int16)
NEGATIVES(u16, uint16)
NEGATIVES(i32, int32)
NEGATIVES(u32, uint32)
NEGATIVES(float, float32)
