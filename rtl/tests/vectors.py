"""Writes rtl/vectors/ anew from the models: python rtl/tests/vectors.py. Rust tests compare the files with the program."""

from __future__ import annotations

import csv
import pathlib
import random

import model_udp

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


if __name__ == "__main__":
    frames()
