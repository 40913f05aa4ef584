/* Prints, for each image of each stack in a HDF5 file of konkordia: path, image, sum of its pixels.
 * Written from docs/formats/file.md alone. Needs only the C library: cc -o reader reader.c && ./reader FILE
 * With Zstd (RFC 8878) for files of bszstd: cc -DZSTD -o reader reader.c -lzstd */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ZSTD
size_t ZSTD_decompress(void *, size_t, const void *, size_t);
#endif
#define NOWHERE UINT64_MAX
#define DEPTH_MAX 24
static FILE *file; static uint64_t file_bytes;

static void fail(const char *why) { fprintf(stderr, "cannot read the file: %s\n", why); exit(1); }
static uint64_t number(const uint8_t *at, int bytes) { uint64_t n = 0; while (bytes--) n = n << 8 | at[bytes]; return n; }
static uint64_t big(const uint8_t *at, int bytes) { uint64_t n = 0; while (bytes--) n = n << 8 | *at++; return n; }
static void *space(uint64_t bytes) { void *at = bytes < (1ull << 40) ? calloc(bytes + 1, 1) : NULL; if (!at) fail("memory"); return at; }
static uint8_t *load(uint64_t address, uint64_t bytes) {
    if (address > file_bytes || bytes > file_bytes - address) fail("an address beyond its end");
    uint8_t *at = space(bytes);
    if (fseeko(file, (off_t)address, SEEK_SET) || fread(at, 1, bytes, file) != bytes) fail("it ends early");
    return at;
}

/* What the messages of an object header say. */
struct object { int dimensions, value_bytes, is_signed, is_float, filter, codec, has_links; uint64_t shape[33], heap, names, index; };
static void object(uint64_t address, const char *path, int depth);

static void link_at(const uint8_t *at, uint64_t bytes, const char *path, int depth) {
    const uint8_t *end = at + bytes;
    if (bytes < 4) fail("a short link");
    int flags = at[1], kind = 0, digits = 1 << (flags & 3);
    at += 2;
    if (flags & 8) kind = *at++;
    at += (flags & 4 ? 8 : 0) + (flags & 16 ? 1 : 0);
    if (at + digits > end) fail("a short link");
    uint64_t length = number(at, digits);
    at += digits;
    if (kind || length > (uint64_t)(end - at) || (uint64_t)(end - at) < length + 8) return;
    char *name = space(strlen(path) + length + 2);
    sprintf(name, "%s/%.*s", path, (int)length, at);
    object(number(at + length, 8), name, depth + 1);
    free(name);
}

/* The link at an offset of the heap of a group. */
static void heap_link(uint64_t heap, uint64_t offset, uint64_t bytes, const char *path, int depth) {
    uint8_t *head = load(heap, 142);
    uint64_t width = number(head + 110, 2), size = number(head + 112, 8), block = number(head + 132, 8), rows = number(head + 140, 2);
    free(head);
    uint8_t *table = load(block, rows ? 17 + 8 * width * rows : 0);
    for (uint64_t n = 0, here = 0; n < width * rows; n++, offset -= here) {
        here = n / width < 2 ? size : size << (n / width - 1), block = number(table + 17 + 8 * n, 8);
        if (offset < here) break;
    }
    uint8_t *at = load(block + offset, bytes);
    link_at(at, bytes, path, depth);
    free(at), free(table);
}

static void names_node(uint64_t address, int level, uint64_t records, uint64_t node, uint64_t heap, const char *path, int depth) {
    uint64_t leaf = (node - 10) / 11, count_bytes = leaf < 256 ? 1 : 2, all_bytes = 0;
    if (level > 1) for (uint64_t most = (node - 10 - 8 - count_bytes) / (11 + 8 + count_bytes) * (leaf + 1) + leaf; most; most >>= 8) all_bytes++;
    uint8_t *at = load(address, node);
    if (6 + 11 * records > node) fail("a node with too many names");
    for (uint64_t n = 0; n < records; n++) heap_link(heap, number(at + 11 + 11 * n, 4), number(at + 15 + 11 * n, 2), path, depth);
    for (uint64_t n = 0; level > 0 && n <= records; n++) {
        uint64_t place = 6 + 11 * records + n * (8 + count_bytes + all_bytes);
        if (place + 8 + count_bytes > node) fail("a node with too many children");
        names_node(number(at + place, 8), level - 1, number(at + place + 8, (int)count_bytes), node, heap, path, depth);
    }
    free(at);
}

static void message(struct object *o, int type, const uint8_t *at, uint64_t bytes, const char *path, int depth) {
    uint8_t *body = space(bytes + 512);
    memcpy(body, at, bytes);
    if (type == 1 && body[1] < 33) {
        o->dimensions = body[1];
        for (int n = 0; n < body[1]; n++) o->shape[n] = number(body + (body[0] == 1 ? 8 : 4) + 8 * n, 8);
    } else if (type == 2) {
        int from = body[1] & 1 ? 10 : 2;
        o->heap = number(body + from, 8), o->names = number(body + from + 8, 8), o->has_links = o->heap != NOWHERE;
    } else if (type == 3) {
        o->is_float = (body[0] & 15) == 1, o->is_signed = body[1] >> 3 & 1, o->value_bytes = (int)number(body + 4, 4);
    } else if (type == 6) link_at(body, bytes, path, depth);
    else if (type == 8 && body[0] == 3 && body[1] == 2 && number(body + 11, 4) == 1) o->index = number(body + 3, 8);
    else if (type == 11 && body[1] == 1) {
        uint8_t *f = body + (body[0] == 1 ? 8 : 2), *values = f + 8;
        o->filter = (int)number(f, 2);
        uint64_t name = number(f + 2, 2);
        if (body[0] == 2 && o->filter < 256) values = f + 6, name = 0;
        if (o->filter == 32008 && values + name + 20 <= body + bytes) o->codec = (int)number(values + name + 16, 4);
    }
    free(body);
}

static void block(struct object *o, uint64_t address, uint64_t bytes, int extra, int version, const char *path, int depth) {
    uint8_t *at = load(address, bytes);
    int head = version == 1 ? 8 : 4 + extra;
    if (depth > DEPTH_MAX) fail("nested too deeply");
    for (uint64_t here = 0; here + head <= bytes;) {
        int type = (int)number(at + here, version == 1 ? 2 : 1);
        uint64_t size = number(at + here + (version == 1 ? 2 : 1), 2);
        uint8_t *body = at + here + head;
        if (size > bytes - here - head) fail("a message beyond its block");
        if (type == 16) {
            uint64_t to = number(body, 8), more = number(body + 8, 8), frame = version == 1 ? 0 : 4;
            block(o, to + frame, more - 2 * frame, extra, version, path, depth + 1);
        } else message(o, type, body, size, path, depth);
        here += head + size;
    }
    free(at);
}

static void lz4(const uint8_t *in, uint64_t bytes, uint8_t *out, uint64_t room) {
    const uint8_t *end = in + bytes;
    uint64_t at = 0;
    while (in < end) {
        uint64_t literals = *in >> 4, match = *in & 15, byte = 255;
        if (++in, literals == 15) for (; in < end && byte == 255; literals += byte) byte = *in++;
        if (literals > (uint64_t)(end - in) || literals > room - at) fail("damaged LZ4");
        memcpy(out + at, in, literals);
        in += literals, at += literals, byte = 255;
        if (end - in < 2) break;
        uint64_t distance = number(in, 2);
        in += 2;
        if (match == 15) for (; in < end && byte == 255; match += byte) byte = *in++;
        match += 4;
        if (!distance || distance > at || match > room - at) fail("damaged LZ4");
        for (; match--; at++) out[at] = out[at - distance];
    }
    if (at != room) fail("LZ4 of another length");
}

static void unpack(const struct object *o, const uint8_t *in, uint64_t bytes, uint8_t *out, uint64_t room) {
    uint64_t e = (uint64_t)o->value_bytes, at = 0, here = 12;
    if (bytes < 12 || big(in, 8) != room) fail("a chunk of another image");
    uint64_t b = big(in + 8, 4);
    while (b && room - at >= 8 * e && here + 4 <= bytes) {
        uint64_t size = (room - at < b ? room - at : b) / (8 * e) * 8 * e, packed = big(in + here, 4), row = size / e / 8;
        uint8_t *bits = space(size);
        if (packed > bytes - here - 4) fail("a block beyond its chunk");
        if (o->codec == 2) lz4(in + here + 4, packed, bits, size);
#ifdef ZSTD
        else if (ZSTD_decompress(bits, size, in + here + 4, packed) != size) fail("damaged Zstd");
#else
        else fail("it is packed with Zstd: compile with -DZSTD -lzstd");
#endif
        for (uint64_t n = 0; n < size / e; n++)
            for (uint64_t k = 0; k < 8 * e; k++) out[at + n * e + k / 8] |= (uint8_t)((bits[k * row + n / 8] >> n % 8 & 1) << k % 8);
        free(bits);
        at += size, here += 4 + packed;
    }
    if (bytes - here != room - at) fail("a chunk of another length");
    memcpy(out + at, in + here, room - at);
}

static void chunks(const struct object *o, uint64_t node, int level, const char *path) {
    uint64_t key = 8 + 8 * ((uint64_t)o->dimensions + 1), pixels = o->shape[o->dimensions - 1] * o->shape[o->dimensions - 2];
    uint8_t *head = load(node, 24);
    uint64_t entries = number(head + 6, 2);
    if (memcmp(head, "TREE\1", 5) || (level >= 0 && head[5] != level) || head[5] > 8) fail("the index of chunks is damaged");
    uint8_t *at = load(node + 24, entries * (key + 8)), *here = at;
    for (uint64_t n = 0; n < entries; n++, here += key + 8) {
        uint64_t address = number(here + key, 8), bytes = number(here, 4), room = pixels * (uint64_t)o->value_bytes;
        if (head[5] > 0) { chunks(o, address, head[5] - 1, path); continue; }
        uint8_t *in = load(address, bytes), *out = space(room);
        if (o->filter == 32008 && !(number(here + 4, 4) & 1)) unpack(o, in, bytes, out, room);
        else if (o->filter && !(number(here + 4, 4) & 1)) fail("a filter that this program does not know");
        else if (bytes == room) memcpy(out, in, room);
        int64_t sum = 0;
        for (uint64_t p = 0; p < pixels; p++) {
            uint64_t value = number(out + p * (uint64_t)o->value_bytes, o->value_bytes), bits = 8 * (uint64_t)o->value_bytes;
            sum += o->is_signed && bits < 64 && value >> (bits - 1) ? (int64_t)(value - (1ull << bits)) : (int64_t)value;
        }
        printf("%s", path);
        for (int d = 0; d < o->dimensions - 2; d++) printf(" %llu", (unsigned long long)number(here + 8 + 8 * d, 8));
        printf(" %lld\n", (long long)sum);
        free(in), free(out);
    }
    free(at), free(head);
}

static void object(uint64_t address, const char *path, int depth) {
    struct object o = {.index = NOWHERE};
    uint8_t *head = load(address, 16);
    if (head[0] == 1) block(&o, address + 16, number(head + 8, 4), 0, 1, path, depth);
    else {
        int flags = head[5], from = 6 + (flags & 32 ? 16 : 0) + (flags & 16 ? 4 : 0), digits = 1 << (flags & 3);
        uint8_t *size = load(address + from, digits);
        block(&o, address + from + digits, number(size, digits), flags & 4 ? 2 : 0, 2, path, depth);
        free(size);
    }
    free(head);
    if (o.has_links) {
        uint8_t *tree = load(o.names, 26);
        uint64_t node = number(tree + 6, 4), root = number(tree + 16, 8), level = number(tree + 12, 2);
        if (node > 64 && root != NOWHERE && level < 8) names_node(root, (int)level, number(tree + 24, 2), node, o.heap, path, depth);
        free(tree);
    }
    if (o.index != NOWHERE && o.dimensions > 2 && !o.is_float && o.value_bytes > 0 && o.value_bytes <= 8) chunks(&o, o.index, -1, path);
}

int main(int many, char **names) {
    if (many != 2 || !(file = fopen(names[1], "rb")) || fseeko(file, 0, SEEK_END)) { fprintf(stderr, "usage: reader FILE.h5\n"); return 2; }
    uint8_t *super = (file_bytes = (uint64_t)ftello(file), load(0, 48));
    if (memcmp(super, "\x89HDF\r\n\x1a\n\2\10\10", 11)) fail("no HDF5 file with superblock 2");
    if (number(super + 28, 8) > file_bytes) fail("it ends early");
    return object(number(super + 36, 8), "", 0), 0;
}
