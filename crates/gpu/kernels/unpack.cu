// Chunks of HDF5 filter 32008 with LZ4 back to images (crates/kernels/src/chunk.rs), for replay. Chunks are not
// trusted: every length is checked before it is used, nothing is read outside of a chunk, and nothing is written
// outside of an image. Three kernels: chunk_blocks finds the blocks, unpack_blocks decodes them, and chunk_verdicts
// says what is wrong, in the words of ChunkError.

// What a chunk is, and the two numbers that belong to it.
#define CHUNK_WHOLE 0u
// The chunk ends in: 0 the header, 1 the length of a block, 2 a block, 3 the last pixels.
#define CHUNK_ENDS 1u
// The chunk is of an image of so many bytes.
#define CHUNK_OTHER_IMAGE 2u
// No blocks have so many bytes.
#define CHUNK_NO_BLOCKS 3u
// A block is wrong: its number, and where it begins in the chunk.
#define CHUNK_WRONG_BLOCK 4u
// So many bytes follow the image.
#define CHUNK_TRAILING 5u
// The blocks have so many bytes, and the launch was made for others: no error of the chunk.
#define CHUNK_OTHER_BLOCKS 6u

// Numbers of a verdict: kind, two numbers, and the number of blocks that were found.
#define VERDICT_NUMBERS 4u

// The longest block that the LZ4 library takes.
#define LZ4_BYTES_MAX 0x7E000000u

static __device__ u64 read_big_endian(PTR(const u8) bytes, u64 at, u32 count)
{
    u64 number = 0;
    for (u32 n = 0; n < count; n++) {
        number = number << 8 | bytes[at + n];
    }
    return number;
}

struct Verdict {
    u32 kind;
    u64 first, second;
    u32 found;
};

// Bytes of an image that are in whole groups of eight elements.
static __device__ u64 grouped_of(u64 image_bytes, u32 element_bytes)
{
    return image_bytes / (8 * element_bytes) * (8 * element_bytes);
}

// Finds the blocks of a chunk of `length` bytes.
static __device__ Verdict blocks_of_chunk(PTR(const u8) chunk, u64 length, u64 image_bytes, u32 element_bytes,
                                          u32 block_bytes, PTR(u32) places, PTR(u32) lengths)
{
    if (length < 8) {
        return {CHUNK_ENDS, 0, 0, 0};
    }
    const u64 stated = read_big_endian(chunk, 0, 8);
    if (stated != image_bytes) {
        return {CHUNK_OTHER_IMAGE, stated, 0, 0};
    }
    if (length < HEADER_BYTES) {
        return {CHUNK_ENDS, 0, 0, 0};
    }
    const u32 stated_block = (u32)read_big_endian(chunk, 8, 4);
    if (stated_block == 0 || stated_block % (8 * element_bytes) != 0 || stated_block > LZ4_BYTES_MAX) {
        return {CHUNK_NO_BLOCKS, stated_block, 0, 0};
    }
    if (stated_block != block_bytes) {
        return {CHUNK_OTHER_BLOCKS, stated_block, 0, 0};
    }
    const u64 grouped = grouped_of(image_bytes, element_bytes);
    u64 at = HEADER_BYTES;
    u32 found = 0;
    for (u64 pixel = 0; pixel < grouped; pixel += block_bytes) {
        if (length - at < LENGTH_BYTES) {
            return {CHUNK_ENDS, 1, 0, found};
        }
        const u64 block = read_big_endian(chunk, at, LENGTH_BYTES);
        at += LENGTH_BYTES;
        if (length - at < block) {
            return {CHUNK_ENDS, 2, 0, found};
        }
        places[found] = (u32)at;
        lengths[found] = (u32)block;
        found++;
        at += block;
    }
    if (length - at < image_bytes - grouped) {
        return {CHUNK_ENDS, 3, 0, found};
    }
    const u64 more = length - at - (image_bytes - grouped);
    return {more == 0 ? CHUNK_WHOLE : CHUNK_TRAILING, more, 0, found};
}

// Finds the blocks of chunks, of which each has room for `chunk_bytes_max` bytes; one thread for each chunk, because
// where a block begins depends on the one before. `blocks` is the number of blocks of an image with blocks of
// `block_bytes` bytes, at most BLOCK_BYTES.
extern "C" __global__ void chunk_blocks(PTR(const u8) chunks, u64 chunk_bytes_max, PTR(const u32) chunk_bytes,
                                        u64 image_bytes, u32 element_bytes, u32 block_bytes, u32 blocks, PTR(u32) places,
                                        PTR(u32) lengths, PTR(u64) verdicts, u32 images)
{
    for (u32 image = blockIdx.x * blockDim.x + threadIdx.x; image < images; image += gridDim.x * blockDim.x) {
        const u64 length = chunk_bytes[image] < chunk_bytes_max ? (u64)chunk_bytes[image] : chunk_bytes_max;
        const Verdict verdict =
            blocks_of_chunk(chunks + image * chunk_bytes_max, length, image_bytes, element_bytes, block_bytes,
                            places + (u64)image * blocks, lengths + (u64)image * blocks);
        const u64 at = (u64)VERDICT_NUMBERS * image;
        verdicts[at] = verdict.kind;
        verdicts[at + 1] = verdict.first;
        verdicts[at + 2] = verdict.second;
        verdicts[at + 3] = verdict.found;
    }
}

// Adds the bytes that continue a length of 15: all but the last are 255. False if the block ends in them, or if the
// length is above `most`.
static __device__ bool read_rest(PTR(const u8) block, u32 bytes, u32 &from, u32 &length, u32 most)
{
    for (;;) {
        if (from >= bytes) {
            return false;
        }
        const u32 byte = block[from];
        from++;
        length += byte;
        if (length > most) {
            return false;
        }
        if (byte != 255) {
            return true;
        }
    }
}

// Decodes an LZ4 block of `bytes` bytes to exactly `expected` bytes of `out`; false if it is none. All threads of the
// block call it, and all of them go from sequence to sequence; what a sequence copies is shared among them. Behind it
// a barrier is the caller's.
static __device__ bool decode_block(PTR(const u8) block, u32 bytes, PTR(u8) out, u32 expected)
{
    u32 from = 0, at = 0;
    for (;;) {
        if (from >= bytes) {
            return false;
        }
        const u32 token = block[from];
        from++;
        u32 literals = token >> 4;
        if (literals == 15 && !read_rest(block, bytes, from, literals, expected)) {
            return false;
        }
        if (literals > bytes - from || literals > expected - at) {
            return false;
        }
        for (u32 n = threadIdx.x; n < literals; n += THREADS) {
            out[at + n] = block[from + n];
        }
        from += literals;
        at += literals;
        if (from == bytes) {
            return at == expected;
        }
        if (bytes - from < 2) {
            return false;
        }
        const u32 distance = block[from] | (u32)block[from + 1] << 8;
        from += 2;
        u32 length = token & 15;
        if (length == 15 && !read_rest(block, bytes, from, length, expected)) {
            return false;
        }
        length += MATCH_BYTES_MIN;
        if (distance == 0 || distance > at || length > expected - at) {
            return false;
        }
        __syncthreads();
        // A match may continue itself: it repeats the `distance` bytes before it.
        for (u32 n = threadIdx.x; n < length; n += THREADS) {
            out[at + n] = (u8)out[at - distance + n % distance];
        }
        at += length;
    }
}

// Block (x, y) of the grid decodes block x of chunk y to its pixels in image y. `is_wrong` becomes 1 for a block that
// is no compressed data of its pixels, otherwise 0; the pixels of wrong blocks and of blocks that were not found stay
// what they were. Block 0 also copies the last pixels. An image of fewer than 8 pixels has a grid of one block.
extern "C" __global__ void unpack_blocks(PTR(const u8) chunks, u64 chunk_bytes_max, PTR(const u32) chunk_bytes,
                                         u64 image_bytes, u32 element_bytes, u32 block_bytes, u32 blocks,
                                         PTR(const u32) places, PTR(const u32) lengths, PTR(const u64) verdicts,
                                         PTR(u8) images, PTR(u8) is_wrong)
{
    SHARED(u8, planes, BLOCK_BYTES);
    PTR(const u8) chunk = chunks + blockIdx.y * chunk_bytes_max;
    PTR(u8) image = images + blockIdx.y * image_bytes;
    const u64 verdict = (u64)VERDICT_NUMBERS * blockIdx.y;
    const u64 grouped = grouped_of(image_bytes, element_bytes);
    if (blockIdx.x == 0 && verdicts[verdict] == CHUNK_WHOLE) {
        const u64 from = chunk_bytes[blockIdx.y] - (image_bytes - grouped);
        for (u64 at = grouped + threadIdx.x; at < image_bytes; at += THREADS) {
            image[at] = chunk[from + at - grouped];
        }
    }
    if (blockIdx.x >= blocks) {
        return;
    }
    const u64 number = (u64)blockIdx.y * blocks + blockIdx.x;
    bool is_right = true;
    if (blockIdx.x < verdicts[verdict + 3]) {
        const u64 first = (u64)blockIdx.x * block_bytes;
        const u32 bytes = grouped - first < block_bytes ? (u32)(grouped - first) : block_bytes;
        is_right = decode_block(chunk + places[number], lengths[number], planes, bytes);
        __syncthreads();
        if (is_right) {
            unshuffle_block(planes, image + first, bytes, element_bytes);
        }
    }
    if (threadIdx.x == 0) {
        is_wrong[number] = is_right ? 0 : 1;
    }
}

// Block x of the grid: the first wrong block of chunk x, if there is one, is what is wrong with the chunk.
extern "C" __global__ void chunk_verdicts(PTR(const u8) is_wrong, PTR(const u32) places, u32 blocks, PTR(u64) verdicts)
{
    SHARED(u32, firsts, THREADS);
    const u64 first = (u64)blockIdx.x * blocks;
    u32 own = blocks;
    for (u32 block = threadIdx.x; block < blocks && own == blocks; block += THREADS) {
        own = is_wrong[first + block] != 0 ? block : own;
    }
    firsts[threadIdx.x] = own;
    __syncthreads();
    for (u32 reach = THREADS / 2; reach > 0; reach /= 2) {
        if (threadIdx.x < reach) {
            firsts[threadIdx.x] = smaller(firsts[threadIdx.x], firsts[threadIdx.x + reach]);
        }
        __syncthreads();
    }
    const u32 wrong = firsts[0];
    if (threadIdx.x == 0 && wrong < blocks) {
        const u64 at = (u64)VERDICT_NUMBERS * blockIdx.x;
        verdicts[at] = CHUNK_WRONG_BLOCK;
        verdicts[at + 1] = wrong;
        verdicts[at + 2] = places[first + wrong];
    }
}
