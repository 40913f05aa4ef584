// Words of JUNGFRAU to pixels in integers, as docs/formats/fixed-point.md and crates/kernels/src/convert/fixed.rs
// say it.

// A whole number as a pixel: clamped at the low end, saturated at the high end.
template <typename T> static __device__ T from_whole(i64 value)
{
    if (value > (i64)Pixel<T>::high()) {
        return Pixel<T>::saturated();
    }
    return value < (i64)Pixel<T>::lowest() ? Pixel<T>::lowest() : (T)value;
}

template <> __device__ float from_whole<float>(i64 value) { return (float)value; }

// The constants of a pixel: fraction bits are 8 in G0, else 2; a factor of 0 = not usable in this stage.
struct FixedConstants {
    u32 pedestal[3];
    u32 factor[3];
    u32 shift[3];
};

template <typename T> static __device__ T fixed_pixel_of(u32 word, const FixedConstants &constants)
{
    const u32 gain = word >> 14;
    if (word == 0xFFFF || word == 0xC000 || word == 0x4000 || gain == 2) {
        if (constants.factor[0] == 0) {
            return Pixel<T>::masked();
        }
        return word == 0xC000 ? Pixel<T>::saturated() : Pixel<T>::invalid();
    }
    const u32 stage = gain == 3 ? 2 : gain;
    if (constants.factor[stage] == 0) {
        return Pixel<T>::masked();
    }
    const i64 above = (i64)((word & 0x3FFF) << (stage == 0 ? 8 : 2)) - (i64)constants.pedestal[stage];
    const i64 distance = stage == 0 ? above : -above;
    const u32 shift = constants.shift[stage];
    return from_whole<T>((distance * (i64)constants.factor[stage] + ((i64)1 << (shift - 1))) >> shift);
}

// As convert; the factors are three planes of `pixels` values. Shifts are 1 to 47. With `high_gain` a word 0x3FFF is
// saturated.
template <typename T>
static __device__ void convert_fixed(PTR(const u16) words, PTR(const u32) pedestal_g0, PTR(const u16) pedestal_g1,
                                     PTR(const u16) pedestal_g2, PTR(const u16) factor, u32 shift_g0, u32 shift_g1,
                                     u32 shift_g2, u32 high_gain, PTR(T) out, u32 pixels, u32 frames)
{
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        const FixedConstants constants = {{pedestal_g0[at], pedestal_g1[at], pedestal_g2[at]},
                                          {factor[at], factor[(u64)pixels + at], factor[(u64)2 * pixels + at]},
                                          {shift_g0, shift_g1, shift_g2}};
        for (u32 frame = 0; frame < frames; frame++) {
            const u64 here = (u64)frame * pixels + at;
            const u32 word = words[here];
            const T pixel = fixed_pixel_of<T>(word, constants);
            out[here] = high_gain != 0 && word == 0x3FFF && is_number(pixel) ? Pixel<T>::saturated() : pixel;
        }
    }
}

#define CONVERT_FIXED(T, name)                                                                                         \
    extern "C" __global__ void convert_fixed_##name(PTR(const u16) words, PTR(const u32) pedestal_g0,                  \
                                                    PTR(const u16) pedestal_g1, PTR(const u16) pedestal_g2,            \
                                                    PTR(const u16) factor, u32 shift_g0, u32 shift_g1, u32 shift_g2,   \
                                                    u32 high_gain, PTR(T) out, u32 pixels, u32 frames)                 \
    {                                                                                                                  \
        convert_fixed<T>(words, pedestal_g0, pedestal_g1, pedestal_g2, factor, shift_g0, shift_g1, shift_g2, high_gain,\
                         out, pixels, frames);                                                                         \
    }

CONVERT_FIXED(i16, int16)
CONVERT_FIXED(u16, uint16)
CONVERT_FIXED(i32, int32)
CONVERT_FIXED(u32, uint32)
CONVERT_FIXED(float, float32)
