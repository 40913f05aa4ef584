// Sparse images (compressed rows, CSR) of the pixels above a level, as crates/kernels/src/above collects them:
// counts of the rows, their places by a prefix sum, then columns and values in the order of the pixels. There is
// room for a fixed number of pixels of an image; what has no room is counted and not written, so the caller sees
// that it is missing.

template <typename T> static __device__ u32 is_above(T pixel, u32 usable, T level, T high)
{
    return pixel > level && pixel <= high && usable != 0 ? 1 : 0;
}

// Block (x, y) of the grid counts row x of image y.
template <typename T>
static __device__ void row_counts(PTR(const T) images, PTR(const u8) usable, T level, T high, PTR(u32) counts, PTR(u32) sums,
                                  u32 columns)
{
    const u64 row = (u64)blockIdx.x * columns;
    const u64 image = (u64)blockIdx.y * gridDim.x * columns;
    u32 found = 0;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        found += is_above<T>(images[image + row + column], usable[row + column], level, high);
    }
    sums[threadIdx.x] = found;
    __syncthreads();
    const u32 sum = exclusive_scan(sums);
    if (threadIdx.x == 0) {
        counts[(u64)blockIdx.y * gridDim.x + blockIdx.x] = sum;
    }
}

// Image x of the grid: where each row begins among all pixels above the level, and after the last row their number:
// `rows` + 1 places.
extern "C" __global__ void row_places(PTR(const u32) counts, u32 rows, PTR(u32) places)
{
    SHARED(u32, sums, THREADS);
    const u64 image = (u64)blockIdx.x * rows, out = (u64)blockIdx.x * (rows + 1);
    u32 before = 0;
    for (u32 first = 0; first < rows; first += THREADS) {
        const u32 row = first + threadIdx.x;
        sums[threadIdx.x] = row < rows ? (u32)counts[image + row] : 0;
        __syncthreads();
        const u32 sum = exclusive_scan(sums);
        if (row < rows) {
            places[out + row] = before + sums[threadIdx.x];
        }
        before += sum;
    }
    if (threadIdx.x == 0) {
        places[out + rows] = before;
    }
}

// Block (x, y) of the grid writes the pixels of row x of image y, 256 columns after the other.
template <typename T>
static __device__ void collect(PTR(const T) images, PTR(const u8) usable, T level, T high, PTR(const u32) places,
                               PTR(u32) columns_out, PTR(T) values, PTR(u32) sums, u32 columns, u32 room)
{
    const u64 row = (u64)blockIdx.x * columns;
    const u64 image = (u64)blockIdx.y * gridDim.x * columns;
    u32 place = places[(u64)blockIdx.y * (gridDim.x + 1) + blockIdx.x];
    for (u32 first = 0; first < columns; first += THREADS) {
        const u32 column = first + threadIdx.x;
        u32 own = 0;
        if (column < columns) {
            own = is_above<T>(images[image + row + column], usable[row + column], level, high);
        }
        sums[threadIdx.x] = own;
        __syncthreads();
        const u32 sum = exclusive_scan(sums);
        const u32 to = place + sums[threadIdx.x];
        if (own != 0 && to < room) {
            columns_out[(u64)blockIdx.y * room + to] = column;
            values[(u64)blockIdx.y * room + to] = images[image + row + column];
        }
        place += sum;
    }
}

#define SPARSE(T, name)                                                                                                \
    extern "C" __global__ void row_counts_##name(PTR(const T) images, PTR(const u8) usable, T level, T high,           \
                                                 PTR(u32) counts, u32 columns)                                         \
    {                                                                                                                  \
        SHARED(u32, sums, THREADS);                                                                                    \
        row_counts<T>(images, usable, level, high, counts, sums, columns);                                             \
    }                                                                                                                  \
    extern "C" __global__ void collect_##name(PTR(const T) images, PTR(const u8) usable, T level, T high,              \
                                              PTR(const u32) places, PTR(u32) columns_out, PTR(T) values,              \
                                              u32 columns, u32 room)                                                   \
    {                                                                                                                  \
        SHARED(u32, sums, THREADS);                                                                                    \
        collect<T>(images, usable, level, high, places, columns_out, values, sums, columns, room);                     \
    }

SPARSE(i16, int16)
SPARSE(u16, uint16)
SPARSE(i32, int32)
SPARSE(u32, uint32)
SPARSE(float, float32)
