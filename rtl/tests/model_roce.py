"""Frames of RoCEv2 and their iCRC (docs/fabrics.md). Captured packets of other people's cards and programs are among
the tests, and `tests/rtl_vectors.rs` of crates/wire compares rtl/vectors/roce.csv with the program."""

from __future__ import annotations

import dataclasses
import random
import struct
import zlib

from model_udp import ones_sum

MAC_DESTINATION, MAC_SOURCE = bytes.fromhex("02000a1e1406"), bytes.fromhex("02000a1e1409")
IP_SOURCE, IP_DESTINATION = bytes([10, 30, 20, 9]), bytes([10, 30, 20, 6])
PORT_SOURCE, SERVICE, PARTITION, QUEUE_PAIR = 0xC001, 2, 0xFFFF, 0x0012AB
WITH_ADDRESS, WITH_IMMEDIATE = (0x26, 0x2A, 0x2B), (0x29, 0x2B)
OPCODES = (0x26, 0x27, 0x28, 0x29, 0x2A, 0x2B)


def icrc(packet: bytes) -> bytes:
    """The iCRC of an IPv4 packet without it, as its 4 bytes on the wire."""
    masked = bytearray(b"\xff" * 8 + packet)
    for at in (1, 8, 10, 11, 26, 27, 32):
        masked[8 + at] = 0xFF
    return zlib.crc32(masked).to_bytes(4, "little")


@dataclasses.dataclass(frozen=True)
class Write:
    """A packet that writes."""

    opcode: int
    number: int
    address: int
    key: int
    message_bytes: int
    immediate: int
    payload: bytes

    def frame(self, migrated: bool = True, addresses: tuple[bytes, bytes] = (IP_SOURCE, IP_DESTINATION)) -> bytes:
        """The frame on the wire."""
        pad = -len(self.payload) % 4
        inner = struct.pack(">BBHII", self.opcode, migrated << 6 | pad << 4, PARTITION, QUEUE_PAIR, self.number)
        if self.opcode in WITH_ADDRESS:
            inner += struct.pack(">QII", self.address, self.key, self.message_bytes)
        if self.opcode in WITH_IMMEDIATE:
            inner += struct.pack(">I", self.immediate)
        inner += self.payload + bytes(pad)
        udp_bytes = 8 + len(inner) + 4
        ip = struct.pack(">BBHHHBBH", 0x45, SERVICE, 20 + udp_bytes, 0, 0x4000, 64, 17, 0) + b"".join(addresses)
        ip = ip[:10] + (0xFFFF - ones_sum(ip)).to_bytes(2, "big") + ip[12:]
        packet = ip + struct.pack(">HHHH", PORT_SOURCE, 4791, udp_bytes, 0) + inner
        return MAC_DESTINATION + MAC_SOURCE + b"\x08\x00" + packet + icrc(packet)


def random_write(dice: random.Random, payload_max: int = 300) -> Write:
    """A packet of any opcode and length."""
    count = dice.choice((0, 1, 2, 3, 4, 5, 60, 64, dice.randrange(payload_max + 1), dice.randrange(payload_max + 1)))
    return Write(
        dice.choice(OPCODES),
        dice.randrange(1 << 24),
        dice.randrange(1 << 64),
        dice.randrange(1 << 32),
        dice.randrange(1 << 32),
        dice.randrange(1 << 32),
        dice.randbytes(count),
    )
