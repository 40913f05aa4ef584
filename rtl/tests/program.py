"""Bridge programs (docs/bridge.md) as the tables of place.sv.

The logic holds less than the program of the host: one layout of headers, of 16, 32, 48 or 64 bytes; pieces that take
the payload from its first byte to its last in order and are multiples of 64 bytes; a window of 8 frames; 64 slots; 16
tiles on ports in a row; 4 places with 4 patterns. Another program is refused here, with the reason.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib
from typing import Any

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "crates/fabric/programs"
SLOTS = 64
WINDOW = 8


class NotForLogic(Exception):
    """The program needs more than the logic has."""


@dataclasses.dataclass
class Key:
    """(number & mask) >> shift of 8 bytes from an offset."""

    offset: int
    mask: int
    shift: int
    big: bool

    def read(self, header: bytes) -> int:
        """The number, as place.sv reads it."""
        eight = (header + bytes(64))[self.offset : self.offset + 8]
        return (int.from_bytes(eight, "big" if self.big else "little") & self.mask) >> self.shift


def key(spec: dict[str, Any]) -> Key:
    """A key of a program. One of fewer than 8 bytes is read as 8 with a narrower mask."""
    bits = 8 * spec["bytes"]
    big = spec.get("endian", "little") == "big"
    unused = 64 - bits if big else 0
    mask = spec.get("mask", (1 << bits) - 1)
    return Key(spec["offset"], mask << unused, spec.get("shift", 0) + unused, big)


class Program:
    """A program, checked against what the logic has."""

    def __init__(self, text: str) -> None:
        self.toml = tomllib.loads(text)
        if len(self.toml["headers"]) != 1:
            raise NotForLogic(f"{len(self.toml['headers'])} layouts of headers; the logic has one")
        self.header = next(iter(self.toml["headers"].values()))
        if self.header["bytes"] not in (16, 32, 48, 64) or self.header["payload_bytes"] % 64:
            raise NotForLogic("the logic has headers of 16 to 64 bytes, and payloads of whole beats of 64 bytes")
        if self.toml["window_frames"] != WINDOW or self.toml["slots"] != SLOTS or self.toml["slot_bytes"] >= 1 << 28:
            raise NotForLogic(f"the logic has {SLOTS} slots below 2^28 bytes and a window of {WINDOW} frames")
        self.packets, self.first_packet = self.header["packets"], self.header.get("first_packet", 0)
        self.frame, self.packet = key(self.header["frame"]), key(self.header["packet"])
        self.module = key(self.header["module"]) if "module" in self.header else None
        self.datagram_bytes = self.header["bytes"] + self.header["payload_bytes"]
        self.names = list(self.toml["places"])
        self.tiles = self.toml["tiles"]
        if len(self.tiles) > 16 or len(self.names) > 4:
            raise NotForLogic("the logic has 16 tiles and 4 places")
        ports = [tile["port"] for tile in self.tiles if "port" in tile]
        self.port_first = min(ports, default=0)
        if ports and max(ports) - self.port_first > 15:
            raise NotForLogic("the ports of the logic are at most 16 in a row")
        for place in self.toml["places"].values():
            self._check(place["patterns"])

    def _check(self, patterns: list[list[dict[str, int]]]) -> None:
        if len(patterns) > 4:
            raise NotForLogic("the logic has 4 patterns")
        for pattern in patterns:
            at = 0
            for piece in pattern:
                if piece["source"] != at or piece["bytes"] % 64:
                    raise NotForLogic("pieces take the payload in order, in multiples of 64 bytes")
                at += piece["bytes"]
            if at != self.header["payload_bytes"]:
                raise NotForLogic("pieces take all of the payload")

    def require(self) -> tuple[int, int]:
        """Bits of the header that must have a value, and the value."""
        mask = value = 0
        for rule in self.header.get("require", ()):
            count = rule["bytes"]
            bits = rule.get("mask", (1 << 8 * count) - 1)
            order = "big" if rule.get("endian", "little") == "big" else "little"
            for number, is_mask in ((bits, True), (rule["value"], False)):
                placed = int.from_bytes(number.to_bytes(count, order), "little") << 8 * rule["offset"]
                mask, value = (mask | placed, value) if is_mask else (mask, value | placed)
        return mask, value

    def origin(self, place: str, packet: int) -> int:
        """Sum of the terms."""
        return sum(packet // t["divide"] % t.get("modulo", 1 << 30) * t["multiply"] for t in self.toml["places"][place]["terms"])

    def segments(self, tile: int, packet: int) -> list[tuple[int, int, int]]:
        """First byte in the datagram, first byte in the slot, bytes."""
        place = self.toml["places"][self.tiles[tile]["places"]]
        start = self.tiles[tile]["offset"] + self.origin(self.tiles[tile]["places"], packet)
        pattern = place["patterns"][packet % len(place["patterns"])]
        return [(self.header["bytes"] + p["source"], start + p["destination"], p["bytes"]) for p in pattern]

    def tables(self) -> list[tuple[int, int, int]]:
        """(table, row, value) for the port of the logic."""
        mask, value = self.require()
        rows = [(0, i, mask >> 64 * i & (1 << 64) - 1) for i in range(8)] + [(1, i, value >> 64 * i & (1 << 64) - 1) for i in range(8)]
        for number, name in enumerate(self.names):
            patterns = self.toml["places"][name]["patterns"]
            for packet in range(self.packets):
                rows.append((2, number << 9 | packet, packet % len(patterns) << 32 | self.origin(name, packet) & 0xFFFFFFFF))
            for which, pattern in enumerate(patterns):
                for n, piece in enumerate(pattern):
                    rows.append((3, number << 6 | which << 4 | n, piece["bytes"] // 64 << 32 | piece["destination"] & 0xFFFFFFFF))
        for number, tile in enumerate(self.tiles):
            any_port, any_module = "port" not in tile, "module" not in tile
            stream = 0 if any_port else tile["port"] - self.port_first
            word = 1 << 24 | any_port << 23 | any_module << 22 | stream << 18 | self.names.index(tile["places"]) << 16 | tile.get("module", 0)
            rows += [(4, number, word), (5, number, tile["offset"])]
        return rows

    def owners(self) -> tuple[int, list[tuple[int, int, int]]]:
        """Which packet brings each unit of a slot: the logarithm of the beats of a unit, and rows of table 6 (frame_out)."""
        found: dict[int, int] = {}
        for tile in range(len(self.tiles)):
            for packet in range(self.packets):
                for _, start, count in self.segments(tile, packet):
                    found |= {beat: tile << 9 | packet for beat in range(start // 64, (start + count) // 64)}
        beats = self.toml["slot_bytes"] // 64
        if sorted(found) != list(range(beats)) or beats % 128:
            raise NotForLogic("each beat of a slot belongs to one packet, and a slot has whole blocks of 8192 bytes")
        for log2 in range(10, -1, -1):
            unit = 1 << log2
            if beats % unit == 0 and all(found[beat] == found[beat // unit * unit] for beat in range(beats)):
                if beats // unit > 2048:
                    raise NotForLogic(f"the logic has 2048 units, and a slot has {beats // unit}")
                return log2, [(6, n, found[n * unit]) for n in range(beats // unit)]
        raise AssertionError("a unit may be one beat")

    def registers(self) -> dict[str, int]:
        """Values of the other configuration inputs."""
        values: dict[str, int] = {}
        for name, what in (("frame", self.frame), ("packet", self.packet), ("module", self.module or Key(0, 0, 0, False))):
            values |= {f"{name}_offset": what.offset, f"{name}_big": int(what.big), f"{name}_mask": what.mask, f"{name}_shift": what.shift}
        return values | {
            "frame_bits": self.frame.mask >> self.frame.shift,
            "first_packet": self.first_packet,
            "packets": self.packets,
            "frame_packets": self.packets * len(self.tiles),
            "datagram_bytes": self.datagram_bytes,
            "header_sixteenths": self.header["bytes"] // 16 % 4,
            "tiles": len(self.tiles),
            "base": self.toml.get("base_bytes", 0),
            "slot_bytes": self.toml["slot_bytes"],
        }


def shipped() -> dict[str, Program]:
    """The programs of the repository, and that of an EIGER at 12 bit."""
    paths = [*sorted(PROGRAMS.glob("*.toml")), PROGRAMS.parents[2] / "rtl/vectors/eiger-12bit.toml"]
    return {path.stem: Program(path.read_text()) for path in paths}
