"""Verdicts and frames of a bridge by the rules of crates/fabric/src/bridge/frames.rs, without the decision whether a
stream has moved far ahead. `tests/rtl_vectors.rs` of that crate compares rtl/vectors/bridge.csv with the program."""

from __future__ import annotations

import dataclasses
import random

from program import SLOTS, WINDOW, Program

CODES = (
    "placed",
    "duplicate",
    "late",
    "no_slot",
    "foreign",
    "ahead",
    "unknown",
    "malformed_length",
    "malformed_required",
    "malformed_packet_number",
)
FAR_MAX = 1 << 20


@dataclasses.dataclass(frozen=True)
class Closed:
    """A finished frame."""

    image: int
    slot: int
    missing: int
    masks: tuple[int, ...]


class Model:
    """One bridge."""

    def __init__(self, program: Program, first_frame: int) -> None:
        self.program, self.first = program, first_frame
        self.low = self.newest_end = 0
        # By tile and image modulo 16: image, refused, mask.
        self.tiles: dict[tuple[int, int], tuple[int, bool, int]] = {}
        self.filling: dict[int, tuple[int, int]] = {}
        self.refusal: dict[int, int] = {}
        self.held: list[int] = []
        self.closed: list[Closed] = []

    def address(self, port: int, datagram: bytes) -> str | tuple[int, int, int]:
        """Tile, packet and number of the frame, or why there is none."""
        program = self.program
        tiles = [n for n, tile in enumerate(program.tiles) if tile.get("port") == port]
        tiles = tiles or [n for n, tile in enumerate(program.tiles) if "port" not in tile]
        if not tiles:
            return "unknown"
        if len(datagram) != program.datagram_bytes:
            return "malformed_length"
        mask, value = program.require()
        if int.from_bytes(datagram[:64], "little") & mask != value:
            return "malformed_required"
        module = program.module.read(datagram) if program.module else 0
        tiles = [n for n in tiles if program.tiles[n].get("module", module) == module]
        if not tiles:
            return "unknown"
        packet = program.packet.read(datagram) - program.first_packet
        if not 0 <= packet < program.packets:
            return "malformed_packet_number"
        return tiles[0], packet, program.frame.read(datagram)

    def slot(self, image: int) -> int:
        """The slot of a frame."""
        return (self.first + image) % SLOTS

    def packet(self, port: int, datagram: bytes) -> tuple[str, list[tuple[int, int, int]]]:
        """The verdict of a datagram, and where its payload goes: first byte in the datagram, address, bytes."""
        found = self.address(port, datagram)
        if isinstance(found, str):
            return found, []
        tile, packet, frame = found
        field = self.program.frame.mask >> self.program.frame.shift
        newest = max(self.newest_end - 1, 0)
        step = (frame - self.first - newest) & field
        image = newest + (step - field - 1 if step > field >> 1 else step)
        if image < 0 or image - self.newest_end > FAR_MAX:
            return "foreign", []
        if image - self.newest_end >= SLOTS:
            return "ahead", []
        if image >= self.newest_end:
            self.newest_end = image + 1
            self._close()
        verdict = self._judge(tile, packet, image)
        if verdict != "placed":
            return verdict, []
        slot = self.slot(image)
        self.filling[slot] = (image, self.filling[slot][1] + 1)
        self._close()
        start = self.program.toml.get("base_bytes", 0) + slot * self.program.toml["slot_bytes"]
        return verdict, [(source, start + to, count) for source, to, count in self.program.segments(tile, packet)]

    def _judge(self, tile: int, packet: int, image: int) -> str:
        at, slot = (tile, image % (2 * WINDOW)), self.slot(image)
        known, refused, mask = self.tiles.get(at, (-1, False, 0))
        if image < self.low:
            return "late" if known != image else "no_slot" if refused else "duplicate" if mask >> packet & 1 else "late"
        if known != image:
            refused, mask = not self._claim(slot, image), 0
        is_new = not mask >> packet & 1
        if not refused:
            mask |= 1 << packet
        self.tiles[at] = (image, refused, mask)
        return "no_slot" if refused else "placed" if is_new else "duplicate"

    def _claim(self, slot: int, image: int) -> bool:
        if self.filling.get(slot, (-1, 0))[0] == image:
            return True
        oldest = self.held[0] if self.held else self.low
        if self.refusal.get(slot) == image or image >= oldest + SLOTS:
            self.refusal[slot] = image
            return False
        self.filling[slot] = (image, 0)
        return True

    def flush(self) -> None:
        """The run ends: frames that wait for packets are finished as they are."""
        self._close(ends=True)

    def _close(self, ends: bool = False) -> None:
        total = self.program.packets * len(self.program.tiles)
        while self.low < self.newest_end:
            slot = self.slot(self.low)
            known, arrived = self.filling.get(slot, (-1, 0))
            if not ends and self.low >= self.newest_end - WINDOW and not (known == self.low and arrived == total):
                break
            if known == self.low:
                tiles = [self.tiles.get((tile, self.low % (2 * WINDOW)), (-1, False, 0)) for tile in range(len(self.program.tiles))]
                masks = tuple(mask if image == self.low else 0 for image, _, mask in tiles)
                self.closed.append(Closed(self.low, slot, total - arrived, masks))
                self.held.append(self.low)
            self.low += 1

    def release(self) -> None:
        """The oldest finished frame gives its slot back."""
        if self.held:
            self.held.pop(0)


@dataclasses.dataclass
class Datagram:
    """A datagram of a detector of PSI, described by what decides about it."""

    port: int
    frame: int
    packet: int
    kind: int
    version: int = 2
    cut: int = 0

    def bytes(self, program: Program) -> bytes:
        """The datagram; its pixels follow from port, frame and packet."""
        header = bytearray(48)
        header[0:8] = (self.frame % (1 << 64)).to_bytes(8, "little")
        header[12:16] = (self.packet % (1 << 32)).to_bytes(4, "little")
        header[46], header[47] = self.kind, self.version
        seed = self.port * 7919 + self.frame * 104729 + self.packet * 31
        pixels = bytes((seed + i * 37) % 251 for i in range(251))
        count: int = program.header["payload_bytes"]
        payload = (pixels * (count // 251 + 1))[:count]
        whole = bytes(header) + payload
        return whole[: len(whole) + self.cut] if self.cut <= 0 else whole + bytes(self.cut)


def traffic(name: str, program: Program, seed: int, frames: int, first: int) -> list[Datagram]:
    """Frames with losses, repeats, disorder within and over the window, and packets that are wrong in every way."""
    dice = random.Random(seed)
    kind = 3 if name.startswith("jungfrau") else 1
    ports = [tile["port"] for tile in program.tiles]
    made: list[tuple[float, Datagram]] = []
    for frame in range(frames):
        loss = dice.choice((0.0, 0.0, 0.02, 0.3))
        for port in ports:
            for packet in range(program.packets):
                if dice.random() < loss:
                    continue
                due = frame + packet / program.packets
                due += dice.choice((0, 0, 0, 0.1, 0.9)) * dice.random()
                if dice.random() < 0.01:
                    due += dice.uniform(2, 18)
                made.append((due, Datagram(port, first + frame, packet, kind)))
                if dice.random() < 0.02:
                    made.append((due + dice.choice((0.001, 1, 5, 12)), Datagram(port, first + frame, packet, kind)))
    wrong = (
        {"port": ports[0] + 4},
        {"kind": 7},
        {"version": 1},
        {"cut": -1},
        {"cut": 1},
        {"cut": -program.header["payload_bytes"]},
        {"cut": -program.header["payload_bytes"] - 40},
        {"packet": program.packets},
        {"packet": program.packets + 512},
        {"packet": -1},
        {"frame": first - 1},
        {"frame": first - 1000},
        {"frame": first + frames + 200},
        {"frame": first + (1 << 30)},
    )
    for n, change in enumerate(wrong):
        good = Datagram(ports[-1], first + frames // 2, 1, kind)
        made.append((frames * (n + 0.5) / len(wrong), dataclasses.replace(good, **change)))
    return [datagram for _, datagram in sorted(made, key=lambda pair: pair[0])]
