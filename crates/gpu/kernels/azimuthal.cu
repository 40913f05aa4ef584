// Azimuthal integration, bit for bit that of crates/analysis/src/azimuthal.
//
// The processor goes through the pixels and adds each to the sum of its bin. Here the same sums are lists that are
// known before the run: sum n has the pixels entries[starts[n]] .. in the order in which the processor adds them, and
// one thread makes it. A bin has four sums side by side (lanes), so 1000 bins have 4000 threads; where pixels are split
// among bins a bin has eight: first the shares of pixels whose first bin it is, then those for the bin after it.

#define BIN_LANES 4u
// Weights and shares that leave the normalisation are whole numbers of 1 / SHARE_ONE.
#define SHARE_ONE 68719476736.0

// A number as a multiple of 1 / SHARE_ONE, rounded half away from zero.
static __device__ i64 fixed_of(double number) { return (i64)(number * SHARE_ONE + (number < 0 ? -0.5 : 0.5)); }

// Sum n of image y of the grid, of whole pixels, and what the pixels that are no measurements would have been in the
// normalisation: lost[2 n] pixels, lost[2 n + 1] of weight. Without weights (`has_weights` = 0) each weighs 1.
template <typename T>
static __device__ void integrate_whole(PTR(const T) images, T low, T high, PTR(const u32) starts, PTR(const u32) entries,
                                       PTR(const float) weights, u32 has_weights, PTR(u64) sums, PTR(i64) lost, u32 count,
                                       u32 pixels)
{
    const u64 image = (u64)blockIdx.y * pixels;
    for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < count; n += gridDim.x * blockDim.x) {
        typename Wide<T>::Type sum = 0;
        i64 lost_pixels = 0, lost_weight = 0;
        for (u32 at = starts[n]; at < starts[n + 1]; at++) {
            const T pixel = images[image + entries[at]];
            if (pixel >= low && pixel <= high) {
                sum += (typename Wide<T>::Type)pixel;
            } else {
                lost_pixels += fixed_of(1.0);
                lost_weight += fixed_of(has_weights != 0 ? (double)weights[at] : 1.0);
            }
        }
        const u64 out = (u64)blockIdx.y * count + n;
        sums[out] = Wide<T>::bits(sum);
        lost[2 * out] = lost_pixels;
        lost[2 * out + 1] = lost_weight;
    }
}

// The same with shares of pixels. `squares` takes the sums with the squares of the shares, if has_squares is not 0.
template <typename T>
static __device__ void integrate_split(PTR(const T) images, T low, T high, PTR(const u32) starts, PTR(const u32) entries,
                                       PTR(const float) shares, PTR(const float) weights, u32 has_weights,
                                       u32 has_squares, PTR(double) sums, PTR(double) squares, PTR(i64) lost, u32 count,
                                       u32 pixels)
{
    const u64 image = (u64)blockIdx.y * pixels;
    for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < count; n += gridDim.x * blockDim.x) {
        double sum = 0, square = 0;
        i64 lost_pixels = 0, lost_weight = 0;
        for (u32 at = starts[n]; at < starts[n + 1]; at++) {
            const T pixel = images[image + entries[at]];
            const double share = (double)shares[at];
            if (pixel >= low && pixel <= high) {
                sum += share * (double)pixel;
                square += share * share * (double)pixel;
            } else {
                lost_pixels += fixed_of(share);
                lost_weight += fixed_of(share * (has_weights != 0 ? (double)weights[at] : 1.0));
            }
        }
        const u64 out = (u64)blockIdx.y * count + n;
        sums[out] = sum;
        if (has_squares != 0) {
            squares[out] = square;
        }
        lost[2 * out] = lost_pixels;
        lost[2 * out + 1] = lost_weight;
    }
}

// Numbers of a bin: intensity, sum, normalisation, pixels, variance of the sum, standard deviation of the intensity.
#define BIN_NUMBERS 6u

// What becomes of a bin: its sums, and what all pixels are in the normalisation less what was lost.
static __device__ void finish_bin(double sum, double variance, PTR(const i64) full, u64 bin, i64 lost_pixels,
                                  i64 lost_weight, double empty, PTR(double) numbers, u64 out)
{
    const double count = (double)(full[2 * bin] - lost_pixels) / SHARE_ONE;
    const double normalization = (double)(full[2 * bin + 1] - lost_weight) / SHARE_ONE;
    const bool is_empty = count <= 0 || normalization <= 0;
    const double positive = variance > 0 ? variance : 0.0;
    numbers[out] = is_empty ? empty : sum / normalization;
    numbers[out + 1] = sum;
    numbers[out + 2] = normalization;
    numbers[out + 3] = count;
    numbers[out + 4] = positive;
    numbers[out + 5] = is_empty ? empty : sqrt(positive) / normalization;
}

// Bins of image y of the grid from the sums of integrate_whole. `full` has pixels and weight of each bin.
template <typename T>
static __device__ void bins_whole(PTR(const u64) sums, PTR(const i64) lost, PTR(const i64) full, double empty,
                                  PTR(double) numbers, u32 bins)
{
    for (u32 bin = blockIdx.x * blockDim.x + threadIdx.x; bin < bins; bin += gridDim.x * blockDim.x) {
        const u64 first = ((u64)blockIdx.y * bins + bin) * BIN_LANES;
        typename Wide<T>::Type sum = 0;
        i64 lost_pixels = 0, lost_weight = 0;
        for (u32 lane = 0; lane < BIN_LANES; lane++) {
            sum = sum + Wide<T>::from_bits(sums[first + lane]);
            lost_pixels += lost[2 * (first + lane)];
            lost_weight += lost[2 * (first + lane) + 1];
        }
        finish_bin((double)sum, (double)sum, full, bin, lost_pixels, lost_weight, empty, numbers,
                   BIN_NUMBERS * ((u64)blockIdx.y * bins + bin));
    }
}

extern "C" __global__ void bins_whole_integers(PTR(const u64) sums, PTR(const i64) lost, PTR(const i64) full,
                                               double empty, PTR(double) numbers, u32 bins)
{
    bins_whole<i32>(sums, lost, full, empty, numbers, bins);
}
extern "C" __global__ void bins_whole_floats(PTR(const u64) sums, PTR(const i64) lost, PTR(const i64) full, double empty,
                                             PTR(double) numbers, u32 bins)
{
    bins_whole<float>(sums, lost, full, empty, numbers, bins);
}

// The four lanes that begin at `first`, in their order.
static __device__ double lanes_of(PTR(const double) sums, u64 first)
{
    double sum = 0;
    for (u32 lane = 0; lane < BIN_LANES; lane++) {
        sum = sum + sums[first + lane];
    }
    return sum;
}

// Bins from the sums of integrate_split: of bin b the sums 8 b .. 8 b + 3 are its own, 8 b + 4 .. are for bin b + 1.
extern "C" __global__ void bins_split(PTR(const double) sums, PTR(const double) squares, PTR(const i64) lost,
                                      PTR(const i64) full, double empty, u32 has_squares, PTR(double) numbers, u32 bins)
{
    for (u32 bin = blockIdx.x * blockDim.x + threadIdx.x; bin < bins; bin += gridDim.x * blockDim.x) {
        const u64 first = ((u64)blockIdx.y * bins + bin) * 2 * BIN_LANES;
        double sum = lanes_of(sums, first), variance = has_squares != 0 ? lanes_of(squares, first) : 0.0;
        const u32 before = bin > 0 ? BIN_LANES : 0;
        if (before != 0) {
            sum = sum + lanes_of(sums, first - before);
            variance = variance + (has_squares != 0 ? lanes_of(squares, first - before) : 0.0);
        }
        i64 lost_pixels = 0, lost_weight = 0;
        for (u64 at = first - before; at < first + BIN_LANES; at++) {
            lost_pixels += lost[2 * at];
            lost_weight += lost[2 * at + 1];
        }
        finish_bin(sum, variance, full, bin, lost_pixels, lost_weight, empty, numbers,
                   BIN_NUMBERS * ((u64)blockIdx.y * bins + bin));
    }
}

#define AZIMUTHAL(T, name)                                                                                             \
    extern "C" __global__ void integrate_whole_##name(                                                                 \
        PTR(const T) images, T low, T high, PTR(const u32) starts, PTR(const u32) entries, PTR(const float) weights,   \
        u32 has_weights, PTR(u64) sums, PTR(i64) lost, u32 count, u32 pixels)                                          \
    {                                                                                                                  \
        integrate_whole<T>(images, low, high, starts, entries, weights, has_weights, sums, lost, count, pixels);       \
    }                                                                                                                  \
    extern "C" __global__ void integrate_split_##name(                                                                 \
        PTR(const T) images, T low, T high, PTR(const u32) starts, PTR(const u32) entries, PTR(const float) shares,    \
        PTR(const float) weights, u32 has_weights, u32 has_squares, PTR(double) sums, PTR(double) squares,             \
        PTR(i64) lost, u32 count, u32 pixels)                                                                          \
    {                                                                                                                  \
        integrate_split<T>(images, low, high, starts, entries, shares, weights, has_weights, has_squares, sums,        \
                           squares, lost, count, pixels);                                                              \
    }

AZIMUTHAL(i16, int16)
AZIMUTHAL(u16, uint16)
AZIMUTHAL(i32, int32)
AZIMUTHAL(u32, uint32)
AZIMUTHAL(float, float32)
