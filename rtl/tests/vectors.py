"""Writes rtl/vectors/ anew from the models: python rtl/tests/vectors.py. Rust tests compare the files with the program."""

from __future__ import annotations

import csv
import pathlib
import random

import model_loss
import model_pixels
import model_place
import model_roce
import model_udp
import program

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "vectors"


def frames() -> None:
    """frames.csv: Ethernet frames and what becomes of them."""
    dice = random.Random(19)
    named = [frame for name, (frame, _) in model_udp.named_frames().items() if len(frame) < 2000]
    made = named + [model_udp.random_frame(dice, 200) for _ in range(400)]
    with (FOLDER / "frames.csv").open("w", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(("frame", "verdict", "stream", "payload"))
        for frame in made:
            verdict = model_udp.judge(frame)
            rows.writerow((frame.hex(), verdict.name, verdict.stream, verdict.payload.hex()))


def bridge() -> None:
    """bridge.csv: packets of an EIGER at 4 bit over a bad link, their verdicts, and the frames that each one finishes;
    segments.csv: where each packet of each program goes."""
    programs = program.shipped()
    name, first = "eiger-4bit", 4000
    model = model_place.Model(programs[name], first)
    with (FOLDER / "bridge.csv").open("w", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(("first_frame", "port", "frame", "packet", "kind", "version", "cut", "verdict", "closed"))
        for d in model_place.traffic(name, programs[name], 23, 22, first):
            before = len(model.closed)
            verdict, _ = model.packet(d.port, d.bytes(programs[name]))
            closed = "/".join(
                ":".join((str(c.image), str(c.slot), str(c.missing), *(f"{mask:x}" for mask in c.masks))) for c in model.closed[before:]
            )
            rows.writerow((first, d.port, d.frame, d.packet, d.kind, d.version, d.cut, verdict, closed))
    with (FOLDER / "segments.csv").open("w", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(("program", "tile", "packet", "segments"))
        for name, one in programs.items():
            for tile in range(len(one.tiles)):
                for packet in range(one.packets):
                    rows.writerow((name, tile, packet, "/".join(":".join(map(str, piece)) for piece in one.segments(tile, packet))))


def pixels() -> None:
    """sums.csv: sums of two pixels and the sum in every type; pixels.bin and pixels-shuffled.bin: four blocks."""
    dice = random.Random(29)
    special = sorted({*model_pixels.SPECIAL["int32"], *(v + d for v in (-32768, 32767, 65535, 0) for d in range(-4, 5))})
    pairs = [(a, b) for a in special for b in special if (a * 31 + b) % 5 == 0]
    pairs += [(model_pixels.random_sum(dice), dice.choice((0, dice.randrange(-9000, 9000)))) for _ in range(400)]
    with (FOLDER / "sums.csv").open("w", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(("earlier", "pixel", "sum", *model_pixels.KINDS))
        for earlier, pixel in pairs:
            total = model_pixels.add(earlier, pixel)
            rows.writerow((earlier, pixel, total, *(model_pixels.narrow(total, kind) for kind in model_pixels.KINDS)))
    counts = [min(65535, int(dice.expovariate(0.3))) for _ in range(8192)] + [dice.randrange(1 << 16) for _ in range(8192)]
    words = b"".join(count.to_bytes(2, "little") for count in counts)
    (FOLDER / "pixels.bin").write_bytes(words)
    shuffled = b"".join(model_pixels.shuffle(words[at : at + 8192]) for at in range(0, len(words), 8192))
    (FOLDER / "pixels-shuffled.bin").write_bytes(shuffled)


def roce() -> None:
    """roce.csv: packets of RoCEv2 and their frames."""
    dice = random.Random(31)
    with (FOLDER / "roce.csv").open("w", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(("opcode", "number", "address", "key", "message_bytes", "immediate", "payload", "frame"))
        for _ in range(150):
            w = model_roce.random_write(dice, 200)
            rows.writerow((w.opcode, w.number, w.address, w.key, w.message_bytes, w.immediate, w.payload.hex(), w.frame().hex()))


def loss() -> None:
    """loss.csv: packets over a bad link and over the wrap of 24 bits, and what is found to be lost."""
    bits, first = 24, (1 << 24) - 1500
    model = model_loss.Model(bits, first)
    with (FOLDER / "loss.csv").open("w", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(("bits", "first", "number", "drain", "last", "verdict", "lost"))
        for event in model_loss.traffic(37, 2600, bits, first):
            verdict, lost = model.event(event)
            ranges = "/".join(f"{start}:{end}" for start, end in lost)
            rows.writerow((bits, first, event.number, int(event.drain), int(event.last), verdict, ranges))


if __name__ == "__main__":
    frames()
    bridge()
    pixels()
    roce()
    loss()
