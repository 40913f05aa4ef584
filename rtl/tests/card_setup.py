"""Ethernet frames for rtl/card/main.cpp, and the constants of a JUNGFRAU by docs/formats/fixed-point.md, with which the
tests compare those of `konkordia card`."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from model_udp import Frame

FRACTION_BITS, PEDESTAL_BITS = (8, 2, 2), (22, 16, 16)
# Bits of a pixel: pedestals, then factors, as pixel_lane has them.
WIDTHS = (22, 16, 16, 16, 16, 16)


def factors_of(pedestals: npt.NDArray[np.float32], gains: npt.NDArray[np.float32], energy_kev: float) -> npt.NDArray[np.float32]:
    """Photons per ADU of the three stages, NaN where the program calls a pixel unusable (crates/calibration): a pedestal
    at an end of the ADC, a gain of the wrong sign. A pixel that is unusable in G0 is so in all stages."""
    signs = np.array([1, -1, -1], np.float32)[:, None]
    bad = ~((pedestals > 0) & (pedestals < 16383)) | ~(np.isfinite(gains) & (gains * signs > 0))
    with np.errstate(divide="ignore"):
        return np.where(bad | bad[0], np.float32(np.nan), np.float32(1) / (gains * np.float32(energy_kev)))


def quantise(pedestals: npt.NDArray[np.float32], factors: npt.NDArray[np.float32]) -> tuple[list[npt.NDArray[np.int64]], tuple[int, int, int]]:
    """The three pedestals and factors of each pixel as integers, and the shifts: docs/formats/fixed-point.md, "From
    calibration to integers". `factors` are photons per ADU with their sign."""
    planes: list[npt.NDArray[np.int64]] = []
    sizes, shifts = [], []
    for stage, fraction in enumerate(FRACTION_BITS):
        size = factors[stage].astype(np.float64) * (1 if stage == 0 else -1)
        size[~(np.isfinite(size) & (size > 0))] = 0
        usable = np.sort(size[size > 0])
        largest = usable[usable <= 8 * usable[(len(usable) - 1) // 2]].max()
        shift = max(s for s in range(1, 48) if np.rint(largest * 2.0 ** (s - fraction)) <= 65535)
        pedestal = np.rint(pedestals[stage].astype(np.float64) * (1 << fraction))
        fits = np.isfinite(pedestal) & (pedestal >= 0) & (pedestal < 1 << PEDESTAL_BITS[stage])
        size = np.rint(np.where((size <= largest) & fits, size, 0) * 2.0 ** (shift - fraction))
        planes.append(np.where(fits, pedestal, 0).astype(np.int64).ravel())
        sizes.append(size.astype(np.int64).ravel())
        shifts.append(shift)
    return planes + sizes, (shifts[0], shifts[1], shifts[2])


def packed_constants(planes: list[npt.NDArray[np.int64]]) -> bytes:
    """102 bits for each pixel, 32 pixels side by side."""
    bits = [(plane[:, None] >> np.arange(width) & 1).astype(np.uint8) for plane, width in zip(planes, WIDTHS, strict=True)]
    return np.packbits(np.concatenate(bits, axis=1).reshape(-1, 32 * sum(WIDTHS)), axis=1, bitorder="little").tobytes()


def write_frames(path: pathlib.Path, frames: Iterable[bytes]) -> pathlib.Path:
    """Ethernet frames, each behind its length."""
    with path.open("wb") as out:
        for frame in frames:
            out.write(len(frame).to_bytes(4, "little") + frame)
    return path


def ethernet(datagram: bytes, stream: int, **changes: Any) -> bytes:
    """The frame of a datagram, with changes that make it wrong."""
    return Frame(datagram, stream=stream, **changes).bytes()
