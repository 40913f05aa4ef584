// Bragg spots by peakfinder8, bit for bit those of crates/analysis/src/peakfinder8, which says what is done.
//
// The pixels of a ring are a list that is known before the run, in the order of the pixels, so a block of threads does
// all iterations of its ring. Moments of integers are exact; those of floats are added by one thread in the order of
// the list. Groups are found from their first pixels: each pixel that may be one follows its group and gives up when
// it meets an earlier pixel, or more pixels than a spot may have.

#define RING_ITERATIONS 5u
// Before the first iteration, values of a larger size are left out.
#define RING_VALUE_MAX 1e9
// Standard deviation of a background of which it cannot be computed.
#define SIGMA_UNKNOWN 0.01
// Sums and standard deviations below this count as zero.
#define NOTHING 1e-10
#define NO_PANEL 0xFFFFFFFFu

// A whole number of 128 bits.
struct Big {
    u64 high, low;
};

static __device__ Big plus(Big a, Big b)
{
    const u64 low = a.low + b.low;
    return {a.high + b.high + (low < a.low ? 1 : 0), low};
}

static __device__ Big minus(Big a, Big b) { return {a.high - b.high - (a.low < b.low ? 1 : 0), a.low - b.low}; }

static __device__ Big product(u64 a, u64 b)
{
    const u64 a_low = a & 0xFFFFFFFFull, a_high = a >> 32, b_low = b & 0xFFFFFFFFull, b_high = b >> 32;
    const u64 low = a_low * b_low;
    const u64 middle = a_high * b_low + (low >> 32);
    const u64 other = a_low * b_high + (middle & 0xFFFFFFFFull);
    return {a_high * b_high + (middle >> 32) + (other >> 32), other << 32 | (low & 0xFFFFFFFFull)};
}

// Rounded half to even.
static __device__ double to_double(Big number)
{
    if (number.high == 0) {
        return (double)number.low;
    }
    u32 zeros = 0;
    for (u64 high = number.high; high >> 63 == 0; high <<= 1) {
        zeros++;
    }
    u64 top = number.high;
    if (zeros > 0) {
        top = number.high << zeros | number.low >> (64 - zeros);
    }
    // What is cut off can only break a tie.
    top |= number.low << zeros != 0 ? 1 : 0;
    return (double)top * __longlong_as_double((i64)(1023 + 64 - zeros) << 52);
}

struct MeanAndSigma {
    double mean, sigma;
};

// Sums of whole numbers: the squares in two parts, squares = high x 2^32 + low.
static __device__ MeanAndSigma of_whole(u64 count, i64 sum, u64 squares_high, u64 squares_low)
{
    const Big high = product(count, squares_high);
    const Big scaled = {high.high << 32 | high.low >> 32, high.low << 32};
    const u64 size = sum < 0 ? (u64)0 - (u64)sum : (u64)sum;
    const Big spread = minus(plus(scaled, product(count, squares_low)), product(size, size));
    const double variance = to_double(spread) / (double)(count * count);
    return {(double)sum / (double)count, sqrt(variance)};
}

// Memory of a block that makes the moments of a ring.
struct RingMemory {
    PTR(u64) parts;
    PTR(double) limits;
};

// Moments of a ring of integers, in memory.parts[0] .. [3]: number, sum, squares in two parts.
template <typename T>
static __device__ void moments_of_whole(PTR(const T) image, T low, T high, PTR(const u32) list, u32 first, u32 end,
                                        double above, double below, const RingMemory &memory)
{
    u64 own[4] = {0, 0, 0, 0};
    for (u32 n = first + threadIdx.x; n < end; n += THREADS) {
        const T pixel = image[list[n]];
        const double value = (double)pixel;
        if (pixel >= low && pixel <= high && value > above && value < below) {
            const i64 whole = (i64)pixel;
            const u64 square = (u64)(whole * whole);
            own[0] += 1;
            own[1] += (u64)whole;
            own[2] += square >> 32;
            own[3] += square & 0xFFFFFFFFull;
        }
    }
    for (u32 part = 0; part < 4; part++) {
        memory.parts[4 * threadIdx.x + part] = own[part];
    }
    __syncthreads();
    for (u32 reach = THREADS / 2; reach > 0; reach /= 2) {
        if (threadIdx.x < reach) {
            for (u32 part = 0; part < 4; part++) {
                const u64 more = memory.parts[4 * (threadIdx.x + reach) + part];
                memory.parts[4 * threadIdx.x + part] = memory.parts[4 * threadIdx.x + part] + more;
            }
        }
        __syncthreads();
    }
}

// The type of the sum of a ring, how it is made of memory.parts, and mean and standard deviation of the ring.
template <typename T> struct Ring {
    static __device__ void moments(PTR(const T) image, T low, T high, PTR(const u32) list, u32 first, u32 end,
                                   double above, double below, const RingMemory &memory)
    {
        moments_of_whole<T>(image, low, high, list, first, end, above, below, memory);
    }
    static __device__ MeanAndSigma mean_and_sigma(const RingMemory &memory)
    {
        return of_whole(memory.parts[0], (i64)memory.parts[1], memory.parts[2], memory.parts[3]);
    }
};

// Floats: parts[0] .. [2] are the number and the bits of the two sums; the rest holds values on their way.
template <> struct Ring<float> {
    static __device__ void moments(PTR(const float) image, float low, float high, PTR(const u32) list, u32 first, u32 end,
                                   double above, double below, const RingMemory &memory)
    {
        u64 count = 0;
        double sum = 0, squares = 0;
        for (u32 start = first; start < end; start += THREADS) {
            const u32 n = start + threadIdx.x;
            bool is_in = false;
            double value = 0;
            if (n < end) {
                const float pixel = image[list[n]];
                value = (double)pixel;
                is_in = pixel >= low && pixel <= high && value > above && value < below;
            }
            memory.parts[4 * threadIdx.x + 3] = is_in ? 1 : 0;
            memory.parts[4 * threadIdx.x + 2] = (u64)__double_as_longlong(value);
            __syncthreads();
            for (u32 at = 0; threadIdx.x == 0 && at < THREADS; at++) {
                if (memory.parts[4 * at + 3] != 0) {
                    const double one = __longlong_as_double((i64)memory.parts[4 * at + 2]);
                    count++;
                    sum += one;
                    squares += one * one;
                }
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            memory.parts[0] = count;
            memory.parts[1] = (u64)__double_as_longlong(sum);
            memory.parts[2] = (u64)__double_as_longlong(squares);
        }
        __syncthreads();
    }
    static __device__ MeanAndSigma mean_and_sigma(const RingMemory &memory)
    {
        const double count = (double)memory.parts[0];
        const double mean = __longlong_as_double((i64)memory.parts[1]) / count;
        const double variance = __longlong_as_double((i64)memory.parts[2]) / count - mean * mean;
        return {mean, sqrt(variance > 0 ? variance : 0.0)};
    }
};

// Block (x, y) of the grid: upper limit and mean of ring x + 1 of image y, and number and sum (as bits) of its pixels
// that do not stand out. Ring r has the pixels list[starts[r]] .. of an image; ring 0 is of no image.
template <typename T>
static __device__ void ring_limits(PTR(const T) images, T low, T high, PTR(const u32) starts, PTR(const u32) list,
                                   double threshold, double snr_min, PTR(double) limits, PTR(double) means,
                                   PTR(u64) moments, u32 pixels, const RingMemory &memory)
{
    const u32 ring = blockIdx.x + 1;
    const u64 out = (u64)blockIdx.y * (gridDim.x + 1) + ring;
    double above = -RING_VALUE_MAX, below = RING_VALUE_MAX;
    for (u32 iteration = 0; iteration < RING_ITERATIONS; iteration++) {
        Ring<T>::moments(images + (u64)blockIdx.y * pixels, low, high, list, starts[ring], starts[ring + 1], above, below,
                         memory);
        if (threadIdx.x == 0) {
            double mean = 0;
            // The smallest and the largest number of single precision.
            above = (double)__uint_as_float(0x00800000u);
            below = (double)__uint_as_float(0x7F7FFFFFu);
            if (memory.parts[0] != 0) {
                const MeanAndSigma of_ring = Ring<T>::mean_and_sigma(memory);
                mean = of_ring.mean;
                above = mean - snr_min * of_ring.sigma;
                below = mean + snr_min * of_ring.sigma;
                below = below > threshold ? below : threshold;
            }
            memory.limits[0] = above;
            memory.limits[1] = below;
            means[out] = mean;
            limits[out] = below;
            moments[2 * out] = memory.parts[0];
            moments[2 * out + 1] = memory.parts[1];
        }
        __syncthreads();
        above = memory.limits[0];
        below = memory.limits[1];
        __syncthreads();
    }
}

// Mean of the pixels of all rings that do not stand out, and their number; one thread for each image.
extern "C" __global__ void ring_background(PTR(const u64) moments, u32 are_floats, PTR(double) background,
                                           PTR(u64) counts, u32 rings, u32 images)
{
    for (u32 image = blockIdx.x * blockDim.x + threadIdx.x; image < images; image += gridDim.x * blockDim.x) {
        u64 count = 0, whole = 0;
        double real = 0;
        for (u32 ring = 1; ring < rings; ring++) {
            const u64 at = 2 * ((u64)image * rings + ring);
            count += moments[at];
            whole += moments[at + 1];
            real += are_floats != 0 ? __longlong_as_double((i64)moments[at + 1]) : 0.0;
        }
        counts[image] = count;
        background[image] = count == 0 ? 0.0 : (are_floats != 0 ? real : (double)(i64)whole) / (double)count;
    }
}

// 1 for each pixel above the limit of its ring, otherwise 0; image y of the grid.
template <typename T>
static __device__ void stands_out(PTR(const T) images, T low, T high, PTR(const u16) ring_of, PTR(const double) limits,
                                  PTR(u8) marked, u32 pixels, u32 rings)
{
    const u64 image = (u64)blockIdx.y * pixels;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        const T pixel = images[image + at];
        const u32 ring = ring_of[at];
        bool is_marked = false;
        if (ring != 0 && pixel >= low && pixel <= high) {
            is_marked = (double)pixel > limits[(u64)blockIdx.y * rings + ring];
        }
        marked[image + at] = is_marked ? 1 : 0;
    }
}

// First column, first row, columns and rows.
struct PanelOf {
    u32 x, y, columns, rows;
};

static __device__ PanelOf panel_at(PTR(const u32) panels, u32 n)
{
    return {panels[4 * n], panels[4 * n + 1], panels[4 * n + 2], panels[4 * n + 3]};
}

// The panel in which a pixel lies, and not in its first or last row or column.
static __device__ u32 panel_around(PTR(const u32) panels, u32 count, u32 x, u32 y)
{
    for (u32 n = 0; n < count; n++) {
        const PanelOf panel = panel_at(panels, n);
        if (x > panel.x && x + 1 < panel.x + panel.columns && y > panel.y && y + 1 < panel.y + panel.rows) {
            return n;
        }
    }
    return NO_PANEL;
}

// True if the marked pixel (x, y) lies inside a panel, not at its rim.
static __device__ bool is_inner(PanelOf panel, u32 x, u32 y)
{
    return x > panel.x && x + 1 < panel.x + panel.columns && y > panel.y && y + 1 < panel.y + panel.rows;
}

// 1 for each marked pixel inside a panel of which no neighbour before it is one too: one of them is the first of each
// group. Image y of the grid.
extern "C" __global__ void group_seeds(PTR(const u8) marked, PTR(const u32) panels, u32 panel_count, PTR(u16) seeds,
                                       u32 rows, u32 columns)
{
    const u32 pixels = rows * columns;
    const u64 image = (u64)blockIdx.y * pixels;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < pixels; at += gridDim.x * blockDim.x) {
        bool is_seed = false;
        if (marked[image + at] != 0) {
            const u32 x = at % columns, y = at / columns;
            const u32 n = panel_around(panels, panel_count, x, y);
            if (n != NO_PANEL) {
                const PanelOf panel = panel_at(panels, n);
                const bool is_before = (is_inner(panel, x - 1, y) && marked[image + at - 1] != 0) ||
                                       (is_inner(panel, x - 1, y - 1) && marked[image + at - columns - 1] != 0) ||
                                       (is_inner(panel, x, y - 1) && marked[image + at - columns] != 0) ||
                                       (is_inner(panel, x + 1, y - 1) && marked[image + at - columns + 1] != 0);
                is_seed = !is_before;
            }
        }
        seeds[image + at] = is_seed ? 1 : 0;
    }
}

// What the kernels of groups know of the image and of the settings.
struct Search {
    u32 rows, columns, rings, panel_count, reach, pixels_min, pixels_max, room;
    double snr_min, pixel_max;
};

// Collects the pixels that are connected with `first` in `group`, in the order in which they are reached. Returns
// their number; 0 if `first` is not the first of them inside the panel, or if they are more than a spot may have.
static __device__ u32 follow_group(PTR(const u8) marked, const PanelOf &panel, const Search &search, u32 first,
                                   PTR(u32) group)
{
    group[0] = first;
    u32 count = 1;
    for (u32 done = 0; done < count; done++) {
        const u32 pixel = group[done];
        const u32 x = pixel % search.columns, y = pixel / search.columns;
        const u32 left = x > panel.x ? x - 1 : x, right = smaller(x + 1, panel.x + panel.columns - 1);
        const u32 top = y > panel.y ? y - 1 : y, bottom = smaller(y + 1, panel.y + panel.rows - 1);
        for (u32 row = top; row <= bottom; row++) {
            for (u32 column = left; column <= right; column++) {
                const u32 next = row * search.columns + column;
                if (marked[next] == 0) {
                    continue;
                }
                if (next < first && is_inner(panel, column, row)) {
                    return 0;
                }
                u32 known = 0;
                while (known < count && group[known] != next) {
                    known++;
                }
                if (known < count) {
                    continue;
                }
                if (count == search.pixels_max) {
                    return 0;
                }
                group[count] = next;
                count++;
            }
        }
    }
    return count;
}

// The pixels around a group that do not stand out.
struct Around {
    double mean, sigma, maximum;
};

// What is known of the image of a group.
template <typename T> struct GroupImage {
    PTR(const T) pixels;
    T low, high;
    PTR(const u16) ring_of;
    PTR(const double) limits;
    PTR(const double) means;
};

template <typename T>
static __device__ Around around(const GroupImage<T> &image, const Search &search, PTR(const u32) half_widths,
                                const PanelOf &panel, u32 x, u32 y)
{
    u32 count = 0;
    double sum = 0, squares = 0, maximum = 0;
    for (u32 n = 0; n < 2 * search.reach; n++) {
        if (y + n < search.reach + panel.y || y + n - search.reach >= panel.y + panel.rows) {
            continue;
        }
        const u32 row = y + n - search.reach, half_width = half_widths[n];
        const u32 left = x > half_width ? x - half_width : 0;
        const u32 first = left > panel.x ? left : panel.x;
        const u32 end = smaller(x + smaller(half_width, search.reach - 1) + 1, panel.x + panel.columns);
        for (u32 column = first; column < end; column++) {
            const u32 at = row * search.columns + column;
            const T pixel = image.pixels[at];
            const double value = (double)pixel;
            const u32 ring = image.ring_of[at];
            if (ring != 0 && pixel >= image.low && pixel <= image.high && value < image.limits[ring]) {
                count++;
                sum += value;
                squares += value * value;
                maximum = value > maximum ? value : maximum;
            }
        }
    }
    if (count == 0) {
        return {image.means[image.ring_of[y * search.columns + x]], SIGMA_UNKNOWN, maximum};
    }
    const double mean = sum / (double)count;
    const double variance = squares / (double)count - mean * mean;
    return {mean, variance >= 0 ? sqrt(variance) : SIGMA_UNKNOWN, maximum};
}

struct Centre {
    double x, y;
    bool is_known;
};

// The centre of a group: weighted with its pixels, or with what they have above their rings.
template <typename T>
static __device__ Centre centre(const GroupImage<T> &image, u32 columns, PTR(const u32) group, u32 count, bool above_rings)
{
    double sum = 0, sum_x = 0, sum_y = 0;
    for (u32 n = 0; n < count; n++) {
        const u32 pixel = group[n];
        double weight = (double)image.pixels[pixel];
        if (above_rings) {
            weight = fabs(weight - image.means[image.ring_of[pixel]]);
        }
        sum += weight;
        sum_x += weight * (double)(pixel % columns);
        sum_y += weight * (double)(pixel / columns);
    }
    const double size = fabs(sum);
    return {sum_x / size, sum_y / size, size >= NOTHING};
}

static __device__ bool is_within(double at, u32 first, u32 length)
{
    return at >= (double)first && at <= (double)(first + length - 1);
}

// Rounds a coordinate half to even, to one of the image.
static __device__ u32 nearest(double at, u32 length)
{
    const double rounded = rint(at);
    return rounded >= (double)(length - 1) ? length - 1 : rounded > 0 ? (u32)rounded : 0;
}

// Writes the spot that a group is: six numbers, then pixels and rectangle. A group that is no spot has 0 pixels.
template <typename T>
static __device__ void spot_of_group(const GroupImage<T> &image, const Search &search, PTR(const u32) half_widths,
                                     const PanelOf &panel, PTR(const u32) group, u32 count, PTR(double) numbers,
                                     PTR(u32) places)
{
    places[0] = 0;
    const Centre weighted = centre(image, search.columns, group, count, true);
    if (count == 0 || count < search.pixels_min || !weighted.is_known) {
        return;
    }
    const Around background = around(image, search, half_widths, panel, nearest(weighted.x, search.columns),
                                     nearest(weighted.y, search.rows));
    double intensity = 0, maximum = 0;
    u32 left = 0xFFFFFFFFu, top = 0xFFFFFFFFu, right = 0, bottom = 0;
    for (u32 n = 0; n < count; n++) {
        const u32 pixel = group[n], x = pixel % search.columns, y = pixel / search.columns;
        const double value = (double)image.pixels[pixel];
        intensity += value - background.mean;
        maximum = value > maximum ? value : maximum;
        left = smaller(left, x);
        top = smaller(top, y);
        right = x > right ? x : right;
        bottom = y > bottom ? y : bottom;
    }
    const Centre place = centre(image, search.columns, group, count, false);
    const double snr = background.sigma > NOTHING ? intensity / background.sigma : 0.0;
    const double above = maximum - background.mean > 0 ? maximum - background.mean : 0.0;
    if (place.is_known && snr >= search.snr_min && above >= background.maximum - background.mean &&
        above <= search.pixel_max && is_within(place.x, panel.x, panel.columns) && is_within(place.y, panel.y, panel.rows)) {
        const double all[6] = {place.x, place.y, intensity, maximum, background.mean, snr};
        for (u32 n = 0; n < 6; n++) {
            numbers[n] = all[n];
        }
        places[0] = count;
        places[1] = left;
        places[2] = top;
        places[3] = right;
        places[4] = bottom;
    }
}

// The spots of image y of the grid, one thread for each seed, of which row_places and collect_uint16 made the list:
// `seed_places` and `seed_columns`. A seed has six numbers, five places and `pixels_max` pixels in `groups`; there is room
// for `room` seeds of an image. `shape` has the eight whole numbers of Search, `levels` the two others.
template <typename T>
static __device__ void group_spots(PTR(const T) images, T low, T high, PTR(const u16) ring_of, PTR(const double) limits,
                                   PTR(const double) means, PTR(const u8) marked, PTR(const u32) panels,
                                   PTR(const u32) half_widths, PTR(const u32) shape, PTR(const double) levels,
                                   PTR(const u32) seed_places, PTR(const u32) seed_columns, PTR(u32) groups,
                                   PTR(double) numbers, PTR(u32) places)
{
    const Search search = {shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6], shape[7], levels[0], levels[1]};
    const u64 image = blockIdx.y, first_pixel = image * search.rows * search.columns;
    const u64 rows_at = image * (search.rows + 1);
    const GroupImage<T> own = {images + first_pixel, low, high, ring_of, limits + image * search.rings,
                               means + image * search.rings};
    const u32 seeds = smaller(seed_places[rows_at + search.rows], search.room);
    for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < seeds; n += gridDim.x * blockDim.x) {
        // The row of a seed: the last one that begins at or before it.
        u32 row = 0, end = search.rows;
        while (end - row > 1) {
            const u32 middle = (row + end) / 2;
            if (seed_places[rows_at + middle] <= n) {
                row = middle;
            } else {
                end = middle;
            }
        }
        const u64 at = image * search.room + n;
        const u32 column = seed_columns[at];
        const PanelOf panel = panel_at(panels, panel_around(panels, search.panel_count, column, row));
        PTR(u32) group = groups + at * search.pixels_max;
        const u32 count = follow_group(marked + first_pixel, panel, search, row * search.columns + column, group);
        spot_of_group<T>(own, search, half_widths, panel, group, count, numbers + 6 * at, places + 5 * at);
    }
}

#define PEAKFINDER8(T, name)                                                                                           \
    extern "C" __global__ void ring_limits_##name(PTR(const T) images, T low, T high, PTR(const u32) starts,           \
                                                  PTR(const u32) list, double threshold, double snr_min,               \
                                                  PTR(double) limits, PTR(double) means, PTR(u64) moments, u32 pixels) \
    {                                                                                                                  \
        SHARED(u64, parts, 4 * THREADS);                                                                               \
        SHARED(double, edges, 2);                                                                                      \
        const RingMemory memory = {parts, edges};                                                                      \
        ring_limits<T>(images, low, high, starts, list, threshold, snr_min, limits, means, moments, pixels, memory);   \
    }                                                                                                                  \
    extern "C" __global__ void stands_out_##name(PTR(const T) images, T low, T high, PTR(const u16) ring_of,           \
                                                 PTR(const double) limits, PTR(u8) marked, u32 pixels, u32 rings)      \
    {                                                                                                                  \
        stands_out<T>(images, low, high, ring_of, limits, marked, pixels, rings);                                      \
    }                                                                                                                  \
    extern "C" __global__ void group_spots_##name(                                                                     \
        PTR(const T) images, T low, T high, PTR(const u16) ring_of, PTR(const double) limits, PTR(const double) means, \
        PTR(const u8) marked, PTR(const u32) panels, PTR(const u32) half_widths, PTR(const u32) shape,                 \
        PTR(const double) levels, PTR(const u32) seed_places, PTR(const u32) seed_columns, PTR(u32) groups,            \
        PTR(double) numbers, PTR(u32) places)                                                                          \
    {                                                                                                                  \
        group_spots<T>(images, low, high, ring_of, limits, means, marked, panels, half_widths, shape, levels,          \
                       seed_places, seed_columns, groups, numbers, places);                                            \
    }

PEAKFINDER8(i16, int16)
PEAKFINDER8(u16, uint16)
PEAKFINDER8(i32, int32)
PEAKFINDER8(u32, uint32)
PEAKFINDER8(float, float32)
