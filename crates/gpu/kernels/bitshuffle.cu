// The bit transposition of blocks of 8 KiB, in the format of the bitshuffle library (crates/kernels/src/bitshuffle).

// Bytes of a full block, and of all elements of it that are transposed together.
#define BLOCK_BYTES 8192u

// Transposes a matrix of 8 x 8 bits: bit j of byte i becomes bit i of byte j (Warren, Hacker's Delight, 7-3).
static __device__ u64 transpose8(u64 x)
{
    u64 swap = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAull;
    x ^= swap ^ (swap << 7);
    swap = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCull;
    x ^= swap ^ (swap << 14);
    swap = (x ^ (x >> 28)) & 0x00000000F0F0F0F0ull;
    return x ^ swap ^ (swap << 28);
}

// Bytes of block `block` that are transposed: whole groups of eight elements.
static __device__ u32 grouped_bytes(u64 image_bytes, u32 element_bytes, u32 block)
{
    const u64 grouped = image_bytes / (8 * element_bytes) * (8 * element_bytes);
    const u64 rest = grouped - (u64)block * BLOCK_BYTES;
    return rest < BLOCK_BYTES ? (u32)rest : BLOCK_BYTES;
}

// Transposes the bytes of a block. All threads of the block call it; the barriers are the caller's.
static __device__ void shuffle_block(PTR(const u8) pixels, PTR(u8) planes, u32 bytes, u32 element_bytes)
{
    const u32 groups = bytes / (8 * element_bytes);
    for (u32 unit = threadIdx.x; unit < groups * element_bytes; unit += THREADS) {
        const u32 byte = unit / groups, group = unit % groups;
        u64 rows = 0;
        for (u32 i = 0; i < 8; i++) {
            rows |= (u64)pixels[(8 * group + i) * element_bytes + byte] << (8 * i);
        }
        rows = transpose8(rows);
        for (u32 bit = 0; bit < 8; bit++) {
            planes[(8 * byte + bit) * groups + group] = (u8)(rows >> (8 * bit));
        }
    }
}

// The inverse of shuffle_block.
static __device__ void unshuffle_block(PTR(const u8) planes, PTR(u8) pixels, u32 bytes, u32 element_bytes)
{
    const u32 groups = bytes / (8 * element_bytes);
    for (u32 unit = threadIdx.x; unit < groups * element_bytes; unit += THREADS) {
        const u32 byte = unit / groups, group = unit % groups;
        u64 rows = 0;
        for (u32 bit = 0; bit < 8; bit++) {
            rows |= (u64)planes[(8 * byte + bit) * groups + group] << (8 * bit);
        }
        rows = transpose8(rows);
        for (u32 i = 0; i < 8; i++) {
            pixels[(8 * group + i) * element_bytes + byte] = (u8)(rows >> (8 * i));
        }
    }
}

// Blocks of an image: block (x, y) of the grid is block x of image y. Elements have 1, 2, 4 or 8 bytes. The last
// elements beyond a multiple of 8 are copied.
extern "C" __global__ void bitshuffle(PTR(const u8) images, PTR(u8) planes, u64 image_bytes, u32 element_bytes,
                                      u32 is_inverse)
{
    const u32 bytes = grouped_bytes(image_bytes, element_bytes, blockIdx.x);
    const u64 image = blockIdx.y * image_bytes;
    const u64 first = image + (u64)blockIdx.x * BLOCK_BYTES;
    if (is_inverse != 0) {
        unshuffle_block(images + first, planes + first, bytes, element_bytes);
    } else {
        shuffle_block(images + first, planes + first, bytes, element_bytes);
    }
    const u64 grouped = image_bytes / (8 * element_bytes) * (8 * element_bytes);
    if (blockIdx.x == 0) {
        for (u64 at = grouped + threadIdx.x; at < image_bytes; at += THREADS) {
            planes[image + at] = images[image + at];
        }
    }
}
