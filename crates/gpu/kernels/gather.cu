// Pixels of modules to their places in the image, as crates/core/src/geometry/gather.rs lists them and
// crates/engine/src/work fills them: turned modules, gaps, double pixels, packets that did not come.
//
// Two numbers are known of each pixel of the image. `source` is the number of its pixel among those of all modules,
// or NO_SOURCE in a gap. `packet` is the number of its packet among those of all modules; bit 31 says that a part of
// it is in the next packet too. `arrived` has a byte for each packet of each frame, 0 if it did not come.

#define NO_SOURCE 0xFFFFFFFFu

// A word that is converted to no number and moves no pedestal.
#define NO_WORD 0xFFFFu

static __device__ bool has_arrived(PTR(const u8) arrived, u64 first, u32 packet)
{
    const u64 at = first + (packet & 0x7FFFFFFFu);
    return arrived[at] != 0 && (packet >> 31 == 0 || arrived[at + 1] != 0);
}

// Words of frame y of the grid, in the order of the image. The modules of a frame have `module_pixels` words.
extern "C" __global__ void gather_words(PTR(const u16) modules, PTR(const u32) source, PTR(const u32) packet,
                                        PTR(const u8) arrived, PTR(u16) words, u32 module_pixels, u32 packets, u32 pixels)
{
    const u64 frame = blockIdx.y;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        const u32 from = source[at];
        const bool is_there = from != NO_SOURCE && has_arrived(arrived, frame * packets, packet[at]);
        words[frame * pixels + at] = is_there ? (u16)modules[frame * module_pixels + from] : (u16)NO_WORD;
    }
}

// Instead of the beginning of a frame: there is none.
#define NO_FRAME 0xFFFFFFFFFFFFFFFFull

// The same from the memory in which the host received the frames: frame y of the grid begins there at word begins[y],
// and `source` counts the words from there on. All packets of the frame came.
extern "C" __global__ void take_words(PTR(const u16) received, PTR(const u64) begins, PTR(const u32) source, PTR(u16) words,
                                      u32 pixels)
{
    const u64 frame = blockIdx.y, begin = begins[frame];
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        const u32 from = source[at];
        const bool is_there = begin != NO_FRAME && from != NO_SOURCE;
        words[frame * pixels + at] = is_there ? (u16)received[begin + from] : (u16)NO_WORD;
    }
}

// Pixels without a word, after the conversion: masked in gaps, missing where a packet did not come.
template <typename T>
static __device__ void mark_absent(PTR(const u32) source, PTR(const u32) packet, PTR(const u8) arrived, PTR(T) images,
                                   u32 packets, u32 pixels)
{
    const u64 frame = blockIdx.y;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        if (source[at] == NO_SOURCE) {
            images[frame * pixels + at] = Pixel<T>::masked();
        } else if (!has_arrived(arrived, frame * packets, packet[at])) {
            images[frame * pixels + at] = Pixel<T>::missing();
        }
    }
}

// The count of a pixel of 4, 8, 12, 16 or 32 bits (crates/kernels/src/unpack.rs). No byte behind the last one of the
// pixel is read.
static __device__ u32 count_of(PTR(const u8) bytes, u64 pixel, u32 bits)
{
    if (bits == 4) {
        const u32 both = bytes[pixel / 2];
        return pixel % 2 == 0 ? both >> 4 : both & 15;
    }
    if (bits == 12) {
        const u64 group = pixel / 2 * 3;
        const u32 middle = bytes[group + 1];
        return pixel % 2 == 0 ? bytes[group] | (middle & 15) << 8 : middle >> 4 | (u32)bytes[group + 2] << 4;
    }
    u32 count = 0;
    for (u32 byte = 0; byte < bits / 8; byte++) {
        count |= (u32)bytes[pixel * (bits / 8) + byte] << (8 * byte);
    }
    return count;
}

template <typename T> static __device__ T from_count(u32 count)
{
    return count > (u32)Pixel<T>::high() ? Pixel<T>::saturated() : (T)count;
}
template <> __device__ float from_count<float>(u32 count) { return (float)count; }

// Counts of frame y of the grid to its image. `masks` is not 0 where a pixel is masked. The modules of a frame have
// `module_bytes` bytes, and none but those of pixels.
template <typename T>
static __device__ void gather_counts(PTR(const u8) modules, PTR(const u32) source, PTR(const u32) packet,
                                     PTR(const u8) arrived, PTR(const u8) masks, PTR(T) images, u64 module_bytes,
                                     u32 bits, u32 packets, u32 pixels)
{
    const u64 frame = blockIdx.y;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        const u32 from = source[at];
        T pixel = Pixel<T>::masked();
        if (from != NO_SOURCE) {
            if (!has_arrived(arrived, frame * packets, packet[at])) {
                pixel = Pixel<T>::missing();
            } else if (masks[at] == 0) {
                pixel = from_count<T>(count_of(modules + frame * module_bytes, from, bits));
            }
        }
        images[frame * pixels + at] = pixel;
    }
}

// The part of `parts` (2 or 4) at which the remainder of a double pixel begins in an image (crates/core/src/share.rs).
static __device__ u32 share_start(u32 group, u64 image)
{
    u64 hash = ((u64)group << 32 ^ image) * 0x9E3779B97F4A7C15ull;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93ull;
    return (u32)(hash >> 61) & 3;
}

template <typename T> static __device__ T part_of(T value, u32 nth, u32 parts)
{
    const T rest = (T)(value & (T)(parts - 1));
    return (T)((value >> (parts == 4 ? 2 : 1)) + (rest > (T)nth ? 1 : 0));
}
template <> __device__ float part_of<float>(float value, u32, u32 parts) { return value / (float)parts; }

// Replaces the value of each pixel that is a part of a double pixel by its share; image y of the grid has the number
// first_image + y. For each of `shares` parts: its pixel in the image, the number of the double pixel among those of
// all modules, and which part of how many it is: part + 16 x parts.
template <typename T>
static __device__ void share_out(PTR(T) images, PTR(const u32) pixel_of_share, PTR(const u32) group,
                                 PTR(const u8) parts_of_share, u64 first_image, u32 shares, u32 pixels)
{
    for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < shares; n += gridDim.x * blockDim.x) {
        const u64 at = (u64)blockIdx.y * pixels + pixel_of_share[n];
        const u32 part = parts_of_share[n] & 15, parts = parts_of_share[n] >> 4;
        const T value = images[at];
        if (is_number(value)) {
            const u32 nth = (part - share_start(group[n], first_image + blockIdx.y)) % parts;
            images[at] = part_of<T>(value, nth, parts);
        }
    }
}

#define GATHER(T, name)                                                                                                \
    extern "C" __global__ void mark_absent_##name(PTR(const u32) source, PTR(const u32) packet, PTR(const u8) arrived, \
                                                  PTR(T) images, u32 packets, u32 pixels)                              \
    {                                                                                                                  \
        mark_absent<T>(source, packet, arrived, images, packets, pixels);                                              \
    }                                                                                                                  \
    extern "C" __global__ void gather_counts_##name(PTR(const u8) modules, PTR(const u32) source,                      \
                                                    PTR(const u32) packet, PTR(const u8) arrived,                      \
                                                    PTR(const u8) masks, PTR(T) images, u64 module_bytes, u32 bits,    \
                                                    u32 packets, u32 pixels)                                           \
    {                                                                                                                  \
        gather_counts<T>(modules, source, packet, arrived, masks, images, module_bytes, bits, packets, pixels);        \
    }                                                                                                                  \
    extern "C" __global__ void share_out_##name(PTR(T) images, PTR(const u32) pixel_of_share, PTR(const u32) group,    \
                                                PTR(const u8) parts_of_share, u64 first_image, u32 shares, u32 pixels) \
    {                                                                                                                  \
        share_out<T>(images, pixel_of_share, group, parts_of_share, first_image, shares, pixels);                      \
    }

GATHER(i16, int16)
GATHER(u16, uint16)
GATHER(i32, int32)
GATHER(u32, uint32)
GATHER(float, float32)
