// LZ4 blocks of transposed pixels, and chunks of HDF5 filter 32008 from them: the same bytes as
// crates/kernels/src/planes and crates/kernels/src/chunk.rs give. A match is a run of one byte, or of bytes that
// repeat the plane before. One block of threads makes one LZ4 block:
// 1. Each thread compares 32 bytes with those before them: a bit for each byte that is equal.
// 2. One thread goes from match to match, because where one begins depends on where the last one ended.
// 3. The lengths of all sequences are summed; each thread writes tokens, lengths and distances of its sequences.
// 4. All threads copy literals.

#define MATCH_BYTES_MIN 4u
// These bytes at the end of a block are literals.
#define END_LITERALS 5u
// A match begins at least so many bytes before the end of a block.
#define END_MATCH 12u
#define WORDS (BLOCK_BYTES / 32)
// Matches of a block have at least 4 bytes each; and the literals behind the last one.
#define SEQUENCES_MAX (BLOCK_BYTES / MATCH_BYTES_MIN + 1)
// Bytes for an LZ4 block without its length: 8192 + 8192 / 255 + 16, in multiples of 16.
#define SLOT_BYTES 8256u
#define HEADER_BYTES 12u
#define LENGTH_BYTES 4u

// A sequence in 32 bits: where its match begins (14 bits), the length of the match (14 bits, 0 = none), 1 if it
// repeats the plane before.
static __device__ u32 packed(u32 start, u32 length, u32 is_plane) { return start | length << 14 | is_plane << 28; }
static __device__ u32 start_of(u32 sequence) { return sequence & 0x3FFF; }
static __device__ u32 length_of(u32 sequence) { return sequence >> 14 & 0x3FFF; }

// Bytes that a length takes besides the 4 bits of its token.
static __device__ u32 rest_bytes(u32 length) { return length < 15 ? 0 : (length - 15) / 255 + 1; }

static __device__ u32 smaller(u32 a, u32 b) { return a < b ? a : b; }

// The lowest bit that is set; `bits` is not 0.
static __device__ u32 lowest_bit(u32 bits)
{
    u32 at = 0;
    for (u32 half = 16; half > 0; half /= 2) {
        const u32 low = bits & ((1u << half) - 1);
        at += low == 0 ? half : 0;
        bits = low == 0 ? bits >> half : low;
    }
    return at;
}

// One bit for each of 32 bytes that is equal to the one `distance` before it.
static __device__ u32 equal_bits(PTR(const u8) block, u32 bytes, u32 word, u32 distance)
{
    u32 bits = 0;
    for (u32 bit = 0; bit < 32; bit++) {
        const u32 at = 32 * word + bit;
        if (at >= distance && at < bytes && block[at] == block[at - distance]) {
            bits |= 1u << bit;
        }
    }
    return bits;
}

// The bits from which on at least MATCH_BYTES_MIN (4) bits are set.
static __device__ u32 run_bits(u32 low, u32 high)
{
    low &= low >> 1 | high << 31;
    high &= high >> 1;
    return low & (low >> 2 | high << 30);
}

// Bits that are set from `at` on. The word behind the last one is 0.
static __device__ u32 run_length(PTR(const u32) equal, u32 at)
{
    u32 word = at / 32;
    u32 unset = ~((u32)equal[word] >> at % 32 | (at % 32 == 0 ? 0 : ~0u << (32 - at % 32)));
    u32 length = 0;
    u32 bits = 32 - at % 32;
    unset &= bits == 32 ? ~0u : (1u << bits) - 1;
    while (unset == 0) {
        length += bits;
        word++;
        unset = ~(u32)equal[word];
        bits = 32;
    }
    return length + lowest_bit(unset);
}

// Goes from match to match and returns the number of sequences; the last one has no match.
static __device__ u32 find_sequences(PTR(const u32) byte_equal, PTR(const u32) plane_equal, PTR(const u32) runs,
                                     PTR(u32) sequences, u32 bytes)
{
    u32 count = 0, at = 0;
    while (at + END_MATCH <= bytes) {
        u32 word = at / 32;
        u32 bits = (u32)runs[word] >> at % 32 << at % 32;
        while (bits == 0 && word < WORDS - 1) {
            word++;
            bits = runs[word];
        }
        if (bits == 0) {
            break;
        }
        const u32 start = 32 * word + lowest_bit(bits);
        if (start + END_MATCH > bytes) {
            break;
        }
        const u32 byte = run_length(byte_equal, start), plane = run_length(plane_equal, start);
        const u32 longest = plane > byte ? plane : byte;
        const u32 length = smaller(longest, bytes - END_LITERALS - start);
        sequences[count] = packed(start, length, plane > byte ? 1 : 0);
        count++;
        at = start + length;
    }
    sequences[count] = packed(bytes, 0, 0);
    return count + 1;
}

// Where the literals of sequence `n` begin: behind the match of the one before.
static __device__ u32 literals_from(PTR(const u32) sequences, u32 n)
{
    return n == 0 ? 0 : start_of(sequences[n - 1]) + length_of(sequences[n - 1]);
}

// Bytes of sequence `n` in the block.
static __device__ u32 sequence_bytes(PTR(const u32) sequences, u32 n)
{
    const u32 length = length_of(sequences[n]);
    const u32 literals = start_of(sequences[n]) - literals_from(sequences, n);
    return 1 + rest_bytes(literals) + literals + (length == 0 ? 0 : 2 + rest_bytes(length - MATCH_BYTES_MIN));
}

// Writes what a length has beyond the 15 of its token; returns the place behind it.
static __device__ u32 write_rest(PTR(u8) out, u32 at, u32 length)
{
    if (length < 15) {
        return at;
    }
    u32 rest = length - 15;
    for (; rest >= 255; rest -= 255) {
        out[at] = 255;
        at++;
    }
    out[at] = (u8)rest;
    return at + 1;
}

// Writes sequence `n` at `at` of the block except its literals.
static __device__ void write_sequence(PTR(const u32) sequences, u32 n, u32 plane_bytes, PTR(u8) out, u32 at)
{
    const u32 sequence = sequences[n];
    const u32 literals = start_of(sequence) - literals_from(sequences, n);
    const u32 more = length_of(sequence) == 0 ? 0 : length_of(sequence) - MATCH_BYTES_MIN;
    out[at] = (u8)(smaller(literals, 15) << 4 | smaller(more, 15));
    at = write_rest(out, at + 1, literals) + literals;
    if (length_of(sequence) != 0) {
        const u32 distance = sequence >> 28 != 0 ? plane_bytes : 1;
        out[at] = (u8)distance;
        out[at + 1] = (u8)(distance >> 8);
        write_rest(out, at + 2, more);
    }
}

// The memory that a block of threads shares while it makes an LZ4 block.
struct Lz4Memory {
    PTR(u32) byte_equal;
    PTR(u32) plane_equal;
    PTR(u32) runs;
    PTR(u32) sequences;
    PTR(u32) places;
    PTR(u32) sums;
    PTR(u32) count;
};

#define LZ4_MEMORY(memory)                                                                                             \
    SHARED(u32, memory##_byte_equal, WORDS + 1);                                                                       \
    SHARED(u32, memory##_plane_equal, WORDS + 1);                                                                      \
    SHARED(u32, memory##_runs, WORDS);                                                                                 \
    SHARED(u32, memory##_sequences, SEQUENCES_MAX);                                                                    \
    SHARED(u32, memory##_places, SEQUENCES_MAX);                                                                       \
    SHARED(u32, memory##_sums, THREADS);                                                                               \
    SHARED(u32, memory##_count, 1);                                                                                    \
    const Lz4Memory memory = {memory##_byte_equal, memory##_plane_equal, memory##_runs, memory##_sequences,            \
                              memory##_places,     memory##_sums,        memory##_count}

// Compresses `bytes` transposed bytes to the start of `out` and returns the bytes written. All threads call it.
static __device__ u32 compress_block(PTR(const u8) block, u32 bytes, u32 plane_bytes, const Lz4Memory &memory, PTR(u8) out)
{
    const u32 thread = threadIdx.x;
    for (u32 word = thread; word <= WORDS; word += THREADS) {
        memory.byte_equal[word] = word < WORDS ? equal_bits(block, bytes, word, 1) : 0;
        memory.plane_equal[word] = word < WORDS ? equal_bits(block, bytes, word, plane_bytes) : 0;
    }
    __syncthreads();
    for (u32 word = thread; word < WORDS; word += THREADS) {
        memory.runs[word] = run_bits(memory.byte_equal[word], memory.byte_equal[word + 1]) |
                            run_bits(memory.plane_equal[word], memory.plane_equal[word + 1]);
    }
    __syncthreads();
    if (thread == 0) {
        memory.count[0] = find_sequences(memory.byte_equal, memory.plane_equal, memory.runs, memory.sequences, bytes);
    }
    __syncthreads();
    const u32 count = memory.count[0];
    const u32 each = (count + THREADS - 1) / THREADS;
    const u32 first = smaller(thread * each, count), end = smaller(first + each, count);
    u32 own = 0;
    for (u32 n = first; n < end; n++) {
        own += sequence_bytes(memory.sequences, n);
    }
    memory.sums[thread] = own;
    __syncthreads();
    const u32 written = exclusive_scan(memory.sums);
    u32 at = memory.sums[thread];
    for (u32 n = first; n < end; n++) {
        write_sequence(memory.sequences, n, plane_bytes, out, at);
        const u32 literals = start_of(memory.sequences[n]) - literals_from(memory.sequences, n);
        memory.places[n] = at + 1 + rest_bytes(literals);
        at += sequence_bytes(memory.sequences, n);
    }
    __syncthreads();
    for (u32 byte = thread; byte < bytes; byte += THREADS) {
        // The sequence of the byte: the first one that ends behind it.
        u32 low = 0, high = count - 1;
        while (low < high) {
            const u32 middle = (low + high) / 2;
            const u32 sequence = memory.sequences[middle];
            if (start_of(sequence) + length_of(sequence) > byte) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if (byte < start_of(memory.sequences[low])) {
            out[memory.places[low] + byte - literals_from(memory.sequences, low)] = block[byte];
        }
    }
    return written;
}

// Bytes of a plane of a block, at least 1.
static __device__ u32 plane_bytes_of(u32 bytes, u32 element_bytes)
{
    const u32 plane_bytes = bytes / (8 * element_bytes);
    return plane_bytes == 0 ? 1 : plane_bytes;
}

// Transposed blocks to LZ4 blocks: block (x, y) of the grid takes block x of image y. `slots` has SLOT_BYTES for
// each, `sizes` one number.
extern "C" __global__ void lz4_blocks(PTR(const u8) planes, u64 image_bytes, u32 element_bytes, PTR(u8) slots,
                                      PTR(u32) sizes)
{
    SHARED(u8, block, BLOCK_BYTES);
    LZ4_MEMORY(memory);
    const u32 bytes = grouped_bytes(image_bytes, element_bytes, blockIdx.x);
    const u64 first = blockIdx.y * image_bytes + (u64)blockIdx.x * BLOCK_BYTES;
    for (u32 at = threadIdx.x; at < bytes; at += THREADS) {
        block[at] = planes[first + at];
    }
    __syncthreads();
    const u64 number = (u64)blockIdx.y * gridDim.x + blockIdx.x;
    const u32 written = compress_block(block, bytes, plane_bytes_of(bytes, element_bytes), memory, slots + number * SLOT_BYTES);
    if (threadIdx.x == 0) {
        sizes[number] = written;
    }
}

// As lz4_blocks, from pixels: bitshuffle and LZ4 in one.
extern "C" __global__ void bslz4_blocks(PTR(const u8) images, u64 image_bytes, u32 element_bytes, PTR(u8) slots,
                                        PTR(u32) sizes)
{
    SHARED(u8, block, BLOCK_BYTES);
    LZ4_MEMORY(memory);
    const u32 bytes = grouped_bytes(image_bytes, element_bytes, blockIdx.x);
    const u64 first = blockIdx.y * image_bytes + (u64)blockIdx.x * BLOCK_BYTES;
    shuffle_block(images + first, block, bytes, element_bytes);
    __syncthreads();
    const u64 number = (u64)blockIdx.y * gridDim.x + blockIdx.x;
    const u32 written = compress_block(block, bytes, plane_bytes_of(bytes, element_bytes), memory, slots + number * SLOT_BYTES);
    if (threadIdx.x == 0) {
        sizes[number] = written;
    }
}

// Writes a number with its highest byte first.
static __device__ void write_big_endian(PTR(u8) out, u64 at, u64 number, u32 bytes)
{
    for (u32 n = 0; n < bytes; n++) {
        out[at + n] = (u8)(number >> (8 * (bytes - 1 - n)));
    }
}

// Where the blocks of an image lie in its chunk, the header of the chunk, and its length. Image x of the grid has
// `blocks` sizes and as many places; its chunk begins at x * chunk_bytes_max.
extern "C" __global__ void chunk_places(PTR(const u32) sizes, u32 blocks, u64 image_bytes, u32 element_bytes,
                                        u32 block_bytes, PTR(u32) places, PTR(u8) chunks, u64 chunk_bytes_max,
                                        PTR(u32) chunk_bytes)
{
    SHARED(u32, sums, THREADS);
    const u64 image = (u64)blockIdx.x * blocks;
    u32 before = HEADER_BYTES;
    for (u32 first = 0; first < blocks; first += THREADS) {
        const u32 at = first + threadIdx.x;
        sums[threadIdx.x] = at < blocks ? LENGTH_BYTES + sizes[image + at] : 0;
        __syncthreads();
        const u32 sum = exclusive_scan(sums);
        if (at < blocks) {
            places[image + at] = before + sums[threadIdx.x];
        }
        before += sum;
    }
    if (threadIdx.x == 0) {
        const u64 leftover = image_bytes % (8 * element_bytes);
        chunk_bytes[blockIdx.x] = before + (u32)leftover;
        write_big_endian(chunks, blockIdx.x * chunk_bytes_max, image_bytes, 8);
        write_big_endian(chunks, blockIdx.x * chunk_bytes_max + 8, block_bytes, 4);
    }
}

// Copies the blocks to their places, lengths first; block 0 of an image also copies the last pixels, which no
// block holds. Block (x, y) of the grid is block x of image y; an image of fewer than 8 pixels has a grid of one
// block without sizes.
extern "C" __global__ void chunk_gather(PTR(const u8) images, u64 image_bytes, u32 element_bytes, PTR(const u8) slots,
                                        PTR(const u32) sizes, PTR(const u32) places, u32 blocks, PTR(u8) chunks,
                                        u64 chunk_bytes_max, PTR(const u32) chunk_bytes)
{
    const u64 chunk = blockIdx.y * chunk_bytes_max;
    if (blockIdx.x < blocks) {
        const u64 number = (u64)blockIdx.y * blocks + blockIdx.x;
        const u32 size = sizes[number];
        const u64 to = chunk + places[number];
        if (threadIdx.x == 0) {
            write_big_endian(chunks, to, size, LENGTH_BYTES);
        }
        for (u32 at = threadIdx.x; at < size; at += THREADS) {
            chunks[to + LENGTH_BYTES + at] = slots[number * SLOT_BYTES + at];
        }
    }
    if (blockIdx.x == 0) {
        const u32 leftover = (u32)(image_bytes % (8 * element_bytes));
        const u64 from = (blockIdx.y + 1) * image_bytes - leftover;
        for (u32 at = threadIdx.x; at < leftover; at += THREADS) {
            chunks[chunk + chunk_bytes[blockIdx.y] - leftover + at] = images[from + at];
        }
    }
}
