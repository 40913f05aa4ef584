// Statistics of images, strip by strip (crates/kernels/src/stats): valid, missing and saturated pixels, lowest and
// highest valid value, sum. Sums of integers are exact. Those of floats are made in double precision in the order of
// the processor: 16 sums side by side in portions of 256 pixels, then the portions one after the other.

#define STATS_NUMBERS 6u
#define PORTION 256u
#define STATS_LANES 16u

// The type of sums.
template <typename T> struct Wide {
    typedef i64 Type;
    static __device__ i64 highest() { return 0x7FFFFFFFFFFFFFFFll; }
    static __device__ i64 lowest() { return -0x7FFFFFFFFFFFFFFFll - 1; }
    static __device__ u64 bits(i64 value) { return (u64)value; }
    static __device__ i64 from_bits(u64 bits) { return (i64)bits; }
};
template <> struct Wide<float> {
    typedef double Type;
    static __device__ double highest() { return __longlong_as_double(0x7FF0000000000000ll); }
    static __device__ double lowest() { return -__longlong_as_double(0x7FF0000000000000ll); }
    static __device__ u64 bits(double value) { return (u64)__double_as_longlong(value); }
    static __device__ double from_bits(u64 bits) { return __longlong_as_double((i64)bits); }
};

template <typename T> struct Stats {
    typedef typename Wide<T>::Type W;
    u32 valid, missing, saturated;
    W low, high, sum;

    __device__ void clear()
    {
        valid = missing = saturated = 0;
        low = Wide<T>::highest();
        high = Wide<T>::lowest();
        sum = 0;
    }
    __device__ void add(const Stats &other)
    {
        valid += other.valid;
        missing += other.missing;
        saturated += other.saturated;
        low = other.low < low ? other.low : low;
        high = other.high > high ? other.high : high;
        sum = sum + other.sum;
    }
    __device__ void add(T pixel, bool is_valid, bool is_missing, bool is_saturated)
    {
        const W value = (W)pixel;
        low = is_valid && value < low ? value : low;
        high = is_valid && value > high ? value : high;
        sum += is_valid ? value : (W)0;
        valid += is_valid ? 1 : 0;
        missing += is_missing ? 1 : 0;
        saturated += is_saturated ? 1 : 0;
    }
};

// The statistics of THREADS threads in shared memory.
template <typename T> struct StatsMemory {
    PTR(u32) counts;
    PTR(typename Wide<T>::Type) numbers;

    __device__ void put(u32 at, const Stats<T> &stats) const
    {
        counts[3 * at] = stats.valid;
        counts[3 * at + 1] = stats.missing;
        counts[3 * at + 2] = stats.saturated;
        numbers[3 * at] = stats.low;
        numbers[3 * at + 1] = stats.high;
        numbers[3 * at + 2] = stats.sum;
    }
    __device__ Stats<T> get(u32 at) const
    {
        Stats<T> stats;
        stats.valid = counts[3 * at];
        stats.missing = counts[3 * at + 1];
        stats.saturated = counts[3 * at + 2];
        stats.low = numbers[3 * at];
        stats.high = numbers[3 * at + 1];
        stats.sum = numbers[3 * at + 2];
        return stats;
    }
};

// What a pixel is in an image of ours.
template <typename T> struct Own {
    __device__ void add(Stats<T> &stats, T pixel, u32) const
    {
        stats.add(pixel, is_number(pixel), pixel == Pixel<T>::missing(), pixel == Pixel<T>::saturated());
    }
};

// What it is where the values `low` to `high` are measurements and only some pixels are usable.
template <typename T> struct Within {
    PTR(const u8) usable;
    T low, high;
    __device__ void add(Stats<T> &stats, T pixel, u32 at) const
    {
        const bool is_usable = usable[at] != 0, is_missing = pixel == Pixel<T>::missing();
        const bool is_special = is_missing || pixel == Pixel<T>::masked() || pixel == Pixel<T>::invalid();
        stats.add(pixel, is_usable && pixel >= low && pixel <= high, is_usable && is_missing,
                  is_usable && pixel > high && !is_special);
    }
};

// Block (x, y) of the grid: strip x of image y. Strips have `strip_pixels` pixels, a multiple of 256; the last one of
// an image may be shorter. Writes STATS_NUMBERS numbers for each.
template <typename T, typename Kind>
static __device__ void stats_of_strip(PTR(const T) images, const Kind &kind, PTR(u64) numbers, u32 pixels,
                                      u32 strip_pixels, const StatsMemory<T> &memory)
{
    const u32 thread = threadIdx.x, lane = thread % STATS_LANES;
    const u32 first = blockIdx.x * strip_pixels;
    const u32 end = pixels - first < strip_pixels ? pixels : first + strip_pixels;
    const u64 image = (u64)blockIdx.y * pixels;
    Stats<T> all;
    all.clear();
    for (u32 start = first; start < end; start += THREADS / STATS_LANES * PORTION) {
        Stats<T> own;
        own.clear();
        for (u32 row = 0; row < PORTION / STATS_LANES; row++) {
            const u32 at = start + thread / STATS_LANES * PORTION + row * STATS_LANES + lane;
            if (at < end) {
                kind.add(own, images[image + at], at);
            }
        }
        memory.put(thread, own);
        __syncthreads();
        if (lane == 0) {
            for (u32 other = 1; other < STATS_LANES; other++) {
                own.add(memory.get(thread + other));
            }
            memory.put(thread, own);
        }
        __syncthreads();
        for (u32 portion = 0; thread == 0 && portion < THREADS / STATS_LANES; portion++) {
            if (start + portion * PORTION < end) {
                all.add(memory.get(portion * STATS_LANES));
            }
        }
        __syncthreads();
    }
    if (thread == 0) {
        const u64 at = STATS_NUMBERS * ((u64)blockIdx.y * gridDim.x + blockIdx.x);
        numbers[at] = all.valid;
        numbers[at + 1] = all.missing;
        numbers[at + 2] = all.saturated;
        numbers[at + 3] = Wide<T>::bits(all.low);
        numbers[at + 4] = Wide<T>::bits(all.high);
        numbers[at + 5] = Wide<T>::bits(all.sum);
    }
}

// The statistics of images from those of their strips, in their order.
template <typename T> static __device__ void merge_stats(PTR(const u64) strips, PTR(u64) numbers, u32 count, u32 images)
{
    for (u32 image = blockIdx.x * blockDim.x + threadIdx.x; image < images; image += gridDim.x * blockDim.x) {
        u64 counts[3] = {0, 0, 0};
        typename Wide<T>::Type low = Wide<T>::highest(), high = Wide<T>::lowest(), sum = 0;
        for (u32 strip = 0; strip < count; strip++) {
            const u64 at = STATS_NUMBERS * ((u64)image * count + strip);
            for (u32 n = 0; n < 3; n++) {
                counts[n] += strips[at + n];
            }
            const typename Wide<T>::Type least = Wide<T>::from_bits(strips[at + 3]), most = Wide<T>::from_bits(strips[at + 4]);
            low = least < low ? least : low;
            high = most > high ? most : high;
            sum = sum + Wide<T>::from_bits(strips[at + 5]);
        }
        const u64 at = (u64)STATS_NUMBERS * image;
        for (u32 n = 0; n < 3; n++) {
            numbers[at + n] = counts[n];
        }
        numbers[at + 3] = Wide<T>::bits(low);
        numbers[at + 4] = Wide<T>::bits(high);
        numbers[at + 5] = Wide<T>::bits(sum);
    }
}

extern "C" __global__ void merge_stats_integers(PTR(const u64) strips, PTR(u64) numbers, u32 count, u32 images)
{
    merge_stats<i32>(strips, numbers, count, images);
}
extern "C" __global__ void merge_stats_floats(PTR(const u64) strips, PTR(u64) numbers, u32 count, u32 images)
{
    merge_stats<float>(strips, numbers, count, images);
}

#define STATS_MEMORY(T, memory)                                                                                        \
    SHARED(u32, memory##_counts, 3 * THREADS);                                                                         \
    SHARED(Wide<T>::Type, memory##_numbers, 3 * THREADS);                                                              \
    const StatsMemory<T> memory = {memory##_counts, memory##_numbers}

#define STATS(T, name)                                                                                                 \
    extern "C" __global__ void stats_##name(PTR(const T) images, PTR(u64) numbers, u32 pixels, u32 strip_pixels)       \
    {                                                                                                                  \
        STATS_MEMORY(T, memory);                                                                                       \
        stats_of_strip<T>(images, Own<T>{}, numbers, pixels, strip_pixels, memory);                                    \
    }                                                                                                                  \
    extern "C" __global__ void stats_within_##name(PTR(const T) images, PTR(const u8) usable, T low, T high,           \
                                                   PTR(u64) numbers, u32 pixels, u32 strip_pixels)                     \
    {                                                                                                                  \
        STATS_MEMORY(T, memory);                                                                                       \
        stats_of_strip<T>(images, Within<T>{usable, low, high}, numbers, pixels, strip_pixels, memory);                \
    }

STATS(i16, int16)
STATS(u16, uint16)
STATS(i32, int32)
STATS(u32, uint32)
STATS(float, float32)
