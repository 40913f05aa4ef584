"""HDF5 structures read from the raw bytes, in the subset that neggia (the XDS plug-in, which has its own parser) understands.

Follows the HDF5 file format specification 3.0; what is outside the subset is an AssertionError. The subset was taken from neggia 1.2:
superblock 0, 2 or 3 without extension, layout message 3 (or 4 with an index of at most four chunks, which no run fits in), B-tree
version 1 for chunks, at most one filter.
"""

import struct

UNDEFINED = 2**64 - 1


class File:
    """The bytes of a file and its superblock."""

    def __init__(self, path):
        self.bytes = path.read_bytes()
        assert self.bytes[:8] == b"\x89HDF\r\n\x1a\n"
        self.superblock = self.bytes[8]
        assert self.superblock in (2, 3), "superblock 0 is also read by neggia, but not written by us"
        assert self.bytes[9:11] == b"\x08\x08"
        if self.superblock == 3:
            assert self.bytes[11] & 5 == 0, "marked as open for writing"
        base, extension = self.number(12, 8), self.number(20, 8)
        assert base == 0 and extension == UNDEFINED

    def number(self, at, size):
        """Unsigned little-endian number."""
        return int.from_bytes(self.bytes[at : at + size], "little")

    def messages(self, address):
        """Messages (type, offset, size) of the version 2 object header at `address`, continuations included."""
        assert self.bytes[address : address + 5] == b"OHDR\x02"
        flags = self.bytes[address + 5]
        at = address + 6 + (4 if flags & 16 else 0) + (16 if flags & 32 else 0)
        width = 1 << (flags & 3)
        blocks = [(at + width, self.number(at, width))]
        extra = 2 if flags & 4 else 0
        found = []
        while blocks:
            at, size = blocks.pop()
            end = at + size
            while at + 4 + extra <= end:
                kind, length = self.bytes[at], self.number(at + 1, 2)
                at += 4 + extra
                found.append((kind, at, length))
                if kind == 0x10:
                    start, size_of_block = self.number(at, 8), self.number(at + 8, 8)
                    assert self.bytes[start : start + 4] == b"OCHK"
                    blocks.append((start + 4, size_of_block - 8))
                at += length
        return found

    def message(self, address, kind):
        """Offset of the only message of a kind, or None."""
        found = [at for k, at, _ in self.messages(address) if k == kind]
        assert len(found) <= 1
        return found[0] if found else None

    def links(self, address):
        """Whether the group keeps its links in its header; otherwise heap and index are of the kind that neggia walks."""
        info = self.message(address, 0x02)
        assert info is not None and self.bytes[info] == 0, "a new-style group"
        skip = 8 if self.bytes[info + 1] & 1 else 0
        heap, tree = self.number(info + 2 + skip, 8), self.number(info + 10 + skip, 8)
        if heap == UNDEFINED:
            return True
        assert self.bytes[heap : heap + 4] == b"FRHP" and self.number(heap + 7, 2) == 0, "no filter in the heap"
        assert self.bytes[tree : tree + 6] == b"BTHD\x00\x05", "links indexed by name"
        return False

    def layout(self, address):
        """Layout class (0 compact, 1 contiguous, 2 chunked) and the offset of the message."""
        at = self.message(address, 0x08)
        assert self.bytes[at] == 3, "layout message version 3"
        return self.bytes[at + 1], at

    def filters(self, address):
        """Filters as (id, values)."""
        at = self.message(address, 0x0B)
        if at is None:
            return []
        version, count = self.bytes[at], self.bytes[at + 1]
        assert version == 2 and count <= 1, "at most one filter"
        code, name, _, values = struct.unpack_from("<4H", self.bytes, at + 2)
        return [(code, struct.unpack_from(f"<{values}I", self.bytes, at + 10 + name))]

    def contiguous(self, address):
        """Bytes of a compact or contiguous data set."""
        kind, at = self.layout(address)
        if kind == 0:
            return self.bytes[at + 4 : at + 4 + self.number(at + 2, 2)]
        assert kind == 1
        start, size = self.number(at + 2, 8), self.number(at + 10, 8)
        assert start != UNDEFINED
        return self.bytes[start : start + size]

    def chunk(self, address, image):
        """Bytes of the chunk of one image, found as neggia does."""
        kind, at = self.layout(address)
        assert kind == 2
        rank = self.bytes[at + 2]
        assert rank == 4, "three dimensions and the element"
        node = self.number(at + 3, 8)
        key_size = 8 + 8 * rank
        wanted = [image, 0, 0, 0]
        while True:
            assert self.bytes[node : node + 5] == b"TREE\x01", "a version 1 B-tree of chunks"
            level, used = self.bytes[node + 5], self.number(node + 6, 2)
            keys = [node + 24 + i * (key_size + 8) for i in range(used)]
            offsets = [list(struct.unpack_from("<4Q", self.bytes, key + 8)) for key in keys]
            if level == 0:
                key = keys[offsets.index(wanted)]
                size, mask = struct.unpack_from("<2I", self.bytes, key)
                assert mask == 0
                start = self.number(key + key_size, 8)
                return self.bytes[start : start + size]
            below = max(i for i, offset in enumerate(offsets) if offset <= wanted)
            node = self.number(keys[below] + key_size, 8)
