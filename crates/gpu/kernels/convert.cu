// Words of JUNGFRAU to pixels, as crates/kernels/src/convert says it: single precision, one rounding per operation.
// Compile with --fmad=false. Special values are those of crates/core/src/pixel.rs.

// The special values and the limits of a pixel type. `low` and `high` are the valid range in single precision.
template <typename T> struct Pixel;
template <> struct Pixel<i16> {
    static __device__ i16 missing() { return -32766; }
    static __device__ i16 masked() { return -32768; }
    static __device__ i16 invalid() { return -32767; }
    static __device__ i16 saturated() { return 32767; }
    static __device__ i16 lowest() { return -32765; }
    static __device__ float low() { return -32765.0f; }
    static __device__ float high() { return 32766.0f; }
};
template <> struct Pixel<u16> {
    static __device__ u16 missing() { return 65535; }
    static __device__ u16 masked() { return 65534; }
    static __device__ u16 invalid() { return 65533; }
    static __device__ u16 saturated() { return 65532; }
    static __device__ u16 lowest() { return 0; }
    static __device__ float low() { return 0.0f; }
    static __device__ float high() { return 65531.0f; }
};
template <> struct Pixel<i32> {
    static __device__ i32 missing() { return -2147483646; }
    static __device__ i32 masked() { return -2147483647 - 1; }
    static __device__ i32 invalid() { return -2147483647; }
    static __device__ i32 saturated() { return 2147483647; }
    static __device__ i32 lowest() { return -2147483392; }
    static __device__ float low() { return -2147483392.0f; }
    static __device__ float high() { return 2147483392.0f; }
};
template <> struct Pixel<u32> {
    static __device__ u32 missing() { return 4294967295u; }
    static __device__ u32 masked() { return 4294967294u; }
    static __device__ u32 invalid() { return 4294967293u; }
    static __device__ u32 saturated() { return 4294967292u; }
    static __device__ u32 lowest() { return 0; }
    static __device__ float low() { return 0.0f; }
    static __device__ float high() { return 2147483392.0f; }
};
template <> struct Pixel<float> {
    static __device__ float missing() { return __uint_as_float(0xFF800000u); }
    static __device__ float masked() { return __uint_as_float(0x7FC00000u); }
    static __device__ float invalid() { return __uint_as_float(0xFF7FFFFFu); }
    static __device__ float saturated() { return __uint_as_float(0x7F800000u); }
    static __device__ float lowest() { return __uint_as_float(0xFEFFFFFFu); }
};

// Rounds half to even, clamps at the low end, saturates at the high end; NaN becomes masked.
template <typename T> static __device__ T from_photons(float value)
{
    const float rounded = rintf(value);
    if (rounded != rounded) {
        return Pixel<T>::masked();
    }
    if (rounded > Pixel<T>::high()) {
        return Pixel<T>::saturated();
    }
    return rounded < Pixel<T>::low() ? Pixel<T>::lowest() : (T)rounded;
}

template <> __device__ float from_photons<float>(float value)
{
    if (value != value) {
        return Pixel<float>::masked();
    }
    return value < Pixel<float>::lowest() ? Pixel<float>::lowest() : value;
}

// The six constants of a pixel; NaN = not usable in this stage.
struct Constants {
    float pedestal[3];
    float factor[3];
};

template <typename T> static __device__ T pixel_of(u32 word, const Constants &constants)
{
    const u32 gain = word >> 14;
    if (word == 0xFFFF || word == 0xC000 || word == 0x4000 || gain == 2) {
        const float pedestal = constants.pedestal[0], factor = constants.factor[0];
        if (pedestal != pedestal || factor != factor) {
            return Pixel<T>::masked();
        }
        return word == 0xC000 ? Pixel<T>::saturated() : Pixel<T>::invalid();
    }
    const u32 stage = gain == 3 ? 2 : gain;
    const float distance = (float)(word & 0x3FFF) - constants.pedestal[stage];
    return from_photons<T>(distance * constants.factor[stage]);
}

// True for a measurement, false for the special values.
template <typename T> static __device__ bool is_number(T pixel)
{
    const T low = Pixel<T>::lowest(), high = (T)Pixel<T>::high();
    return pixel >= low && pixel <= high;
}
template <> __device__ bool is_number<float>(float pixel)
{
    return pixel >= Pixel<float>::lowest() && pixel <= __uint_as_float(0x7F7FFFFFu);
}

// The pedestal of G0 after a word.
static __device__ float moved(u32 word, float pedestal, float gate, float weight)
{
    const float distance = (float)(word & 0x3FFF) - pedestal;
    return word < 0x4000 && fabsf(distance) <= gate ? pedestal + distance * weight : pedestal;
}

// `frames` frames of `pixels` words each become as many pixels. Constants are three planes of `pixels` values, G0
// first. With `is_tracking` the pedestals of G0 are those of `tracked`, which each frame moves after its own
// conversion; `gate` is the largest distance that moves one. With `high_gain` a word 0x3FFF is saturated. A
// thread takes all frames of its pixels, one after the other.
template <typename T>
static __device__ void convert(PTR(const u16) words, PTR(const float) pedestal, PTR(const float) factor,
                               PTR(float) tracked, PTR(const float) gate, float weight, bool is_tracking, u32 high_gain,
                               PTR(T) out, u32 pixels, u32 frames)
{
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        Constants constants;
        for (u32 stage = 0; stage < 3; stage++) {
            constants.pedestal[stage] = pedestal[(u64)stage * pixels + at];
            constants.factor[stage] = factor[(u64)stage * pixels + at];
        }
        if (is_tracking) {
            constants.pedestal[0] = tracked[at];
        }
        for (u32 frame = 0; frame < frames; frame++) {
            const u64 here = (u64)frame * pixels + at;
            const u32 word = words[here];
            T pixel = pixel_of<T>(word, constants);
            if (high_gain != 0 && word == 0x3FFF && is_number(pixel)) {
                pixel = Pixel<T>::saturated();
            }
            out[here] = pixel;
            if (is_tracking) {
                constants.pedestal[0] = moved(word, constants.pedestal[0], gate[at], weight);
            }
        }
        if (is_tracking) {
            tracked[at] = constants.pedestal[0];
        }
    }
}

#define CONVERT(T, name)                                                                                               \
    extern "C" __global__ void convert_##name(PTR(const u16) words, PTR(const float) pedestal, PTR(const float) factor, \
                                              u32 high_gain, PTR(T) out, u32 pixels, u32 frames)                       \
    {                                                                                                                  \
        convert<T>(words, pedestal, factor, nullptr, nullptr, 0.0f, false, high_gain, out, pixels,     \
                   frames);                                                                                            \
    }                                                                                                                  \
    extern "C" __global__ void convert_tracking_##name(PTR(const u16) words, PTR(const float) pedestal,                \
                                                       PTR(const float) factor, PTR(float) tracked,                    \
                                                       PTR(const float) gate, float weight, u32 high_gain, PTR(T) out, \
                                                       u32 pixels, u32 frames)                                         \
    {                                                                                                                  \
        convert<T>(words, pedestal, factor, tracked, gate, weight, true, high_gain, out, pixels, frames);              \
    }

CONVERT(i16, int16)
CONVERT(u16, uint16)
CONVERT(i32, int32)
CONVERT(u32, uint32)
CONVERT(float, float32)

// Moves the pedestals with dark frames of which no image is made.
extern "C" __global__ void track_only(PTR(const u16) words, PTR(float) tracked, PTR(const float) gate, float weight,
                                      u32 pixels, u32 frames)
{
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        float pedestal = tracked[at];
        for (u32 frame = 0; frame < frames; frame++) {
            pedestal = moved(words[(u64)frame * pixels + at], pedestal, gate[at], weight);
        }
        tracked[at] = pedestal;
    }
}

// Instead of the number of an image: the frame makes none.
#define NO_IMAGE 0xFFFFFFFFu

// Dark and signal frames in any order: frame n makes the image images_of[n], or none, and moves the pedestals after
// that if moves[n] is not 0. A thread takes all frames of its pixels, one after the other.
template <typename T>
static __device__ void convert_series(PTR(const u16) words, PTR(const float) pedestal, PTR(const float) factor,
                                      PTR(float) tracked, PTR(const float) gate, float weight, u32 high_gain,
                                      PTR(const u32) images_of, PTR(const u8) moves, PTR(T) out, u32 pixels, u32 frames)
{
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        Constants constants;
        for (u32 stage = 0; stage < 3; stage++) {
            constants.pedestal[stage] = pedestal[(u64)stage * pixels + at];
            constants.factor[stage] = factor[(u64)stage * pixels + at];
        }
        constants.pedestal[0] = tracked[at];
        for (u32 frame = 0; frame < frames; frame++) {
            const u32 word = words[(u64)frame * pixels + at];
            const u32 image = images_of[frame];
            if (image != NO_IMAGE) {
                T pixel = pixel_of<T>(word, constants);
                if (high_gain != 0 && word == 0x3FFF && is_number(pixel)) {
                    pixel = Pixel<T>::saturated();
                }
                out[(u64)image * pixels + at] = pixel;
            }
            if (moves[frame] != 0) {
                constants.pedestal[0] = moved(word, constants.pedestal[0], gate[at], weight);
            }
        }
        tracked[at] = constants.pedestal[0];
    }
}

#define CONVERT_SERIES(T, name)                                                                                        \
    extern "C" __global__ void convert_series_##name(PTR(const u16) words, PTR(const float) pedestal,                  \
                                                     PTR(const float) factor, PTR(float) tracked,                      \
                                                     PTR(const float) gate, float weight, u32 high_gain,               \
                                                     PTR(const u32) images_of, PTR(const u8) moves, PTR(T) out,        \
                                                     u32 pixels, u32 frames)                                           \
    {                                                                                                                  \
        convert_series<T>(words, pedestal, factor, tracked, gate, weight, high_gain, images_of, moves, out, pixels,    \
                          frames);                                                                                     \
    }

CONVERT_SERIES(i16, int16)
CONVERT_SERIES(u16, uint16)
CONVERT_SERIES(i32, int32)
CONVERT_SERIES(u32, uint32)
CONVERT_SERIES(float, float32)
