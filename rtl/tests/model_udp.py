"""What becomes of a frame, by the rules of crates/sources/src/frame.rs; and frames of every kind for tests.

`tests/rtl_vectors.rs` of that crate compares rtl/vectors/frames.csv, which is written from here, with the program.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import random
import struct

FRAME_BYTES_MAX = 9238
ADDRESS_V4 = ipaddress.IPv4Address("10.30.20.6")
ADDRESS_V6 = ipaddress.IPv6Address("fd00::30:20:6")
PORT_FIRST = 50010
STREAMS = 4
CODES = ("taken", "other_traffic", "fragment", "vlan", "length", "checksum", "joined", "no_room", "damaged")
TAGS = (0x8100, 0x88A8)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What becomes of a frame; stream and payload only if it is taken."""

    name: str
    stream: int = 0
    payload: bytes = b""


class Refused(Exception):
    """A frame is not taken."""


def ones_sum(data: bytes) -> int:
    """Sum of the big-endian words, with its carries added (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def be16(data: bytes, offset: int) -> int:
    """The big-endian word at an offset; its absence refuses the frame."""
    if len(data) < offset + 2:
        raise Refused("length")
    return int.from_bytes(data[offset : offset + 2], "big")


def ethernet(frame: bytes) -> tuple[int, int, bool]:
    """Type, where the IP header begins, whether it is of another VLAN."""
    offset, other = 12, False
    for _ in range(3):
        kind = be16(frame, offset)
        if kind not in TAGS:
            return kind, offset + 2, other
        other |= be16(frame, offset + 2) & 0xFFF != 0
        offset += 4
    raise Refused("other_traffic")


def ipv4(frame: bytes, start: int) -> tuple[bytes, bytes, int, int, bool, bool]:
    """Source, destination, begin and end of the datagram, whether it is a fragment, whether the header is right."""
    ip = frame[start:]
    if len(ip) < 20:
        raise Refused("length")
    header, total = (ip[0] & 15) * 4, be16(ip, 2)
    if ip[0] >> 4 != 4 or header < 20 or total < header or len(ip) < header:
        raise Refused("length")
    fragment = be16(ip, 6) & 0x3FFF
    if ip[9] != 17 or fragment & 0x1FFF:
        raise Refused("other_traffic")
    return ip[12:16], ip[16:20], start + header, start + total, fragment != 0, ones_sum(ip[:header]) == 0xFFFF


def ipv6(frame: bytes, start: int) -> tuple[bytes, bytes, int, int, bool, bool]:
    """The same of IPv6, whose header has no checksum."""
    ip = frame[start:]
    if len(ip) < 40 or ip[0] >> 4 != 6:
        raise Refused("length")
    begin, end, following = start + 40, start + 40 + be16(ip, 4), ip[6]
    is_fragment = following == 44
    if is_fragment:
        if len(ip) < 48:
            raise Refused("length")
        following = 0 if be16(ip, 42) >> 3 else ip[40]
        begin += 8
    if following != 17:
        raise Refused("other_traffic")
    return ip[8:24], ip[24:40], begin, max(begin, end), is_fragment, True


def judge(frame: bytes, damaged: bool = False) -> Verdict:
    """The verdict of a frame for the streams of the tests."""
    try:
        found = datagram(frame)
    except Refused as why:
        found = Verdict(str(why))
    return Verdict("damaged") if damaged else found


def datagram(frame: bytes) -> Verdict:
    """The datagram of a frame, or a refusal."""
    kind, start, other_vlan = ethernet(frame)
    if kind not in (0x0800, 0x86DD):
        raise Refused("other_traffic")
    address = ADDRESS_V4.packed if kind == 0x0800 else ADDRESS_V6.packed
    source, destination, begin, end, is_fragment, header_right = (ipv4 if kind == 0x0800 else ipv6)(frame, start)
    if destination != address:
        raise Refused("other_traffic")
    udp = frame[begin:end] if begin < len(frame) else b""
    if len(udp) < 4:
        raise Refused("length")
    stream = be16(udp, 2) - PORT_FIRST
    if not 0 <= stream < STREAMS:
        raise Refused("other_traffic")
    if other_vlan:
        raise Refused("vlan")
    if is_fragment:
        raise Refused("fragment")
    if len(frame) > FRAME_BYTES_MAX:
        raise Refused("joined")
    count = be16(udp, 4) if len(udp) >= 6 else 0
    if end > len(frame) or count < 8 or count > end - begin or len(udp) < 8:
        raise Refused("length")
    if not header_right:
        raise Refused("checksum")
    if be16(udp, 6) == 0:
        if kind == 0x86DD:
            raise Refused("checksum")
    elif ones_sum(source + destination + struct.pack(">HH", 17, count) + udp[:count]) != 0xFFFF:
        raise Refused("checksum")
    return Verdict("taken", stream, udp[8:count])


@dataclasses.dataclass
class Frame:
    """How a frame is made; each field may be made wrong."""

    payload: bytes
    stream: int = 0
    v6: bool = False
    tags: tuple[tuple[int, int], ...] = ()
    options: int = 0
    udp_checksum: bool = True
    pad: int = 0
    protocol: int = 17
    fragment: int = 0
    v6_fragment: int | None = None
    address: bytes | None = None
    udp_bytes_off: int = 0
    total_off: int = 0
    source: bytes = bytes([10, 30, 20, 9])

    def bytes(self) -> bytes:
        """The frame."""
        count = 8 + len(self.payload)
        extra = 0 if self.v6_fragment is None else 8
        destination = self.address or (ADDRESS_V6.packed if self.v6 else ADDRESS_V4.packed)
        source = bytes(12) + self.source if self.v6 else self.source
        udp = struct.pack(">HHHH", 41000, PORT_FIRST + self.stream, (count + self.udp_bytes_off) & 0xFFFF, 0) + self.payload
        if self.udp_checksum:
            sum_ = 0xFFFF - ones_sum(source + destination + struct.pack(">HH", 17, count + self.udp_bytes_off & 0xFFFF) + udp)
            udp = udp[:6] + (sum_ or 0xFFFF).to_bytes(2, "big") + udp[8:]
        if self.v6:
            following = self.protocol if self.v6_fragment is None else 44
            ip = struct.pack(">IHBB", 0x60000000, (count + extra + self.total_off) & 0xFFFF, following, 64) + source + destination
            if self.v6_fragment is not None:
                ip += struct.pack(">BBHI", self.protocol, 0, self.v6_fragment, 7)
        else:
            header = 20 + 4 * self.options
            first = struct.pack(">BBHHHBBH", 0x40 | header // 4, 0, (header + count + self.total_off) & 0xFFFF, 7, self.fragment, 64, self.protocol, 0)
            ip = first + source + destination + bytes([1]) * (4 * self.options)
            ip = ip[:10] + (0xFFFF - ones_sum(ip)).to_bytes(2, "big") + ip[12:]
        tags = b"".join(struct.pack(">HH", kind, number) for kind, number in self.tags)
        return bytes(range(12)) + tags + struct.pack(">H", 0x86DD if self.v6 else 0x0800) + ip + udp + bytes([0xEE]) * self.pad


def random_frame(dice: random.Random, payload_max: int = 400) -> bytes:
    """A frame: most often good, often wrong in one way, sometimes with damaged bytes."""
    frame = Frame(dice.randbytes(dice.choice((0, 1, 6, 22, 48, dice.randrange(payload_max + 1)))), stream=dice.randrange(STREAMS))
    frame.v6 = dice.random() < 0.3
    frame.tags = dice.choice(((), (), (), ((0x8100, 0x6000),), ((0x88A8, 0), (0x8100, 0)), ((0x8100, 5),), ((0x88A8, 0), (0x8100, 3)), ((0x8100, 0),) * 3))
    frame.options = dice.choice((0, 0, 0, 1, 5, 10))
    frame.udp_checksum = dice.random() < 0.8
    frame.pad = dice.choice((0, 0, 1, 18, 70))
    kind = dice.randrange(16)
    if kind == 0:
        frame.protocol = 6
    elif kind == 1:
        frame.fragment = dice.choice((0x2000, 0x2001, 1, 0x1FFF, 0x4000))
        frame.v6_fragment = dice.choice((1, 8, 0))
    elif kind == 2:
        frame.address = dice.randbytes(16 if frame.v6 else 4)
    elif kind == 3:
        frame.stream = dice.choice((-1, STREAMS, -PORT_FIRST, 65535 - PORT_FIRST))
    elif kind == 4:
        frame.udp_bytes_off = dice.choice((-9, -1, 1, 60, 300, -len(frame.payload) - 8))
    elif kind == 5:
        frame.total_off = dice.choice((-30, -1, 1, 40, 700, -len(frame.payload) - 8, -len(frame.payload) - 5))
    made = bytearray(frame.bytes())
    if kind == 6:
        del made[dice.randrange(1, len(made)) :]
    elif kind == 7:
        for _ in range(dice.randrange(1, 3)):
            made[dice.randrange(12, min(len(made), 70))] ^= 1 << dice.randrange(8)
    elif kind == 8:
        made[dice.randrange(len(made))] ^= 1 << dice.randrange(8)
    return bytes(made)


def named_frames() -> dict[str, tuple[bytes, str]]:
    """One frame of every kind with its verdict, written by hand."""
    rows = bytes(i * 7 & 0xFF for i in range(8240))
    good = Frame(rows[:100])
    wrong_sum = bytearray(good.bytes())
    wrong_sum[-1] ^= 1
    wrong_header = bytearray(Frame(rows[:100], udp_checksum=False).bytes())
    wrong_header[22] ^= 1  # time to live
    too_long = Frame(bytes(FRAME_BYTES_MAX - 42 + 1))
    return {
        "a packet of a JUNGFRAU": (Frame(rows).bytes(), "taken"),
        "the longest frame": (Frame(bytes(FRAME_BYTES_MAX - 42)).bytes(), "taken"),
        "an empty datagram": (Frame(b"").bytes(), "taken"),
        "a padded datagram": (Frame(b"abc", pad=15).bytes(), "taken"),
        "without a checksum": (Frame(rows[:100], udp_checksum=False).bytes(), "taken"),
        "IPv6": (Frame(rows, v6=True).bytes(), "taken"),
        "IPv6 without a checksum": (Frame(rows[:9], v6=True, udp_checksum=False).bytes(), "checksum"),
        "a tag with a priority only": (Frame(rows[:99], tags=((0x8100, 0xE000),)).bytes(), "taken"),
        "two such tags and options": (Frame(rows[:99], tags=((0x88A8, 0), (0x8100, 0)), options=10).bytes(), "taken"),
        "another VLAN": (Frame(rows[:99], tags=((0x8100, 1),)).bytes(), "vlan"),
        "runt of one byte": (b"\0", "length"),
        "runt of an Ethernet header": (good.bytes()[:14], "length"),
        "cut in the UDP header": (good.bytes()[:40], "length"),
        "cut in the payload": (good.bytes()[:-1], "length"),
        "oversize": (too_long.bytes(), "joined"),
        "oversize by far": (bytes(too_long.bytes()) + bytes(60_000), "joined"),
        "bad checksum of the datagram": (bytes(wrong_sum), "checksum"),
        "bad checksum of the header": (bytes(wrong_header), "checksum"),
        "first fragment": (Frame(rows[:99], fragment=0x2000).bytes(), "fragment"),
        "later fragment": (Frame(rows[:99], fragment=9).bytes(), "other_traffic"),
        "another port": (Frame(rows[:99], stream=STREAMS).bytes(), "other_traffic"),
        "another address": (Frame(rows[:99], address=bytes([10, 30, 20, 7])).bytes(), "other_traffic"),
        "TCP": (Frame(rows[:99], protocol=6).bytes(), "other_traffic"),
        "ARP": (bytes(12) + b"\x08\x06" + bytes(46), "other_traffic"),
        "TCP in an IP packet shorter than its header": (Frame(rows[:99], protocol=6, total_off=-108).bytes(), "length"),
        "another address and such a length": (
            Frame(rows[:99], address=bytes([10, 30, 20, 7]), options=10, total_off=-108).bytes(),
            "length",
        ),
        "TCP in an IP packet of no bytes": (Frame(rows[:99], protocol=6, total_off=-107).bytes(), "other_traffic"),
        "UDP longer than IP": (Frame(rows[:99], udp_bytes_off=1).bytes(), "length"),
    }
