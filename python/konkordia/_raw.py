"""Frames of raw files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._analysis import Analyser
from ._errors import KonkordiaError
from ._images import Images


@dataclass(frozen=True)
class FrameHeader:
    """What the packets of a frame say of it.

    Attributes
    ----------
    frame_number : int
        Number that the detector gave it.
    packets, packets_missing : int
        Packets of a whole frame, and how many of them are missing.
    timestamp_s : float
        When its exposure began, seconds since the start of the measurement.
    storage_cell : int or None
        Of a JUNGFRAU, as the fields below.
    high_gain : bool or None
        The detector was set to HG0.
    bunch_id : int or None
    exposure_s : float or None
    """

    frame_number: int
    packets: int
    packets_missing: int
    timestamp_s: float
    storage_cell: int | None = None
    high_gain: bool | None = None
    bunch_id: int | None = None
    exposure_s: float | None = None


class RawFrames(Images):
    """Raw frames of files: as `Images`, but of the words that the detector sent. Made by `open`.

    Of a JUNGFRAU, the modules lie one below the other (modules x 512 rows, 1024 columns) as in a `Calibration`; a word has
    the gain in bits 15 and 14 (0, 1, 3) and the ADC in the others. `convert` makes photons of them. Of an EIGER, they are
    counts, arranged as the files say. Words of packets that are missing have all bits set. Frames that are missing as a
    whole are not there; `frame_number` shows the gaps.

    Attributes
    ----------
    shape : (int, int, int)
        Frames, rows, columns.
    dtype : numpy.dtype
        uint16; uint32 for an EIGER of 32 bit.
    frame_number : ndarray of uint64
        Of each frame, ascending.
    modules : int
        Modules of the detector.
    module_ids : list of int or None
        Of each module; None where the files have none.
    notes : list of str
        What is missing, doubled or cut off.
    """

    def __init__(self, files: list[str], format: str | None = None, modules: int | None = None, detector: str | None = None) -> None:
        self._files, self._channel, self._options = files, None, (format, modules, detector)
        opened = _native.RawFrames(files, format, modules, detector)
        self._know(opened)
        self._raw = opened
        # Of words of a JUNGFRAU only those are no measurements that stand for missing packets.
        words = (0.0, float(np.iinfo(self.dtype).max) - 1.0)
        self.valid_range = words if opened.is_jungfrau else _native.valid_range(opened.dtype)
        self.writer, self.is_rotation = opened.kind, False
        self.geometry, self.geometry_missing = None, "raw frames have no geometry"
        self.frame_number = opened.frame_numbers()
        self.frame_number.setflags(write=False)
        self.modules = opened.modules
        self.module_ids = opened.module_ids

    def _mask_of_files(self) -> NDArray[np.bool_]:
        return np.zeros(self.shape[1:], np.bool_)

    def header(self, frame: int) -> FrameHeader:
        """What the packets of a frame say of it, and how many of them are missing. `frame` counts from 0, or from the end."""
        number = self._number(frame)
        return FrameHeader(**self._raw.read(number, np.empty(self.shape[1:], self.dtype)))

    def analyser(self, recipe: Any) -> Analyser:
        """As `Images.analyser`; only counts of an EIGER can be analysed."""
        if self._raw.is_jungfrau:
            raise KonkordiaError("words of a JUNGFRAU are no counts", "make photons of them: konkordia.convert(raw[n], calibration, ...)", 3)
        return super().analyser(recipe)

    def __reduce__(self) -> tuple[Any, ...]:
        return (RawFrames, (self._files, *self._options))

    def __repr__(self) -> str:
        return f"<konkordia.RawFrames {self._words('frames')}, {self.modules} module{'s' if self.modules != 1 else ''}>"
