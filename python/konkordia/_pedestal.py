"""Pedestals from dark frames."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._calibration import Calibration, PlaneFiles, _paths, _table
from ._open import open as open_files
from ._raw import RawFrames

Frames: TypeAlias = "RawFrames | NDArray[np.uint16] | Iterable[NDArray[np.uint16]] | str | os.PathLike[str] | Sequence[str]"

TOGETHER = 8
"""Frames between two moments at which Ctrl-C is noticed."""


@dataclass(frozen=True, eq=False)
class StagePedestal:
    """Pedestals of a gain stage and storage cell; arrays have modules x 512 rows and 1024 columns.

    Attributes
    ----------
    mean_adu, rms_adu : ndarray of float32
        Mean and standard deviation of the words of each pixel; NaN without data.
    count : ndarray of uint32
        Words of which the mean was taken.
    mask : ndarray of uint32
        Why a pixel is not usable, 0 = good: 1 no data, 2 dead, 4 stuck, 8 noisy, 16 unstable, 32 wrong stage, 64 no gain.
    frames : int
        Frames that were used.
    """

    mean_adu: NDArray[np.float32]
    rms_adu: NDArray[np.float32]
    count: NDArray[np.uint32]
    mask: NDArray[np.uint32]
    frames: int


class Pedestals:
    """Pedestals of dark frames, from `pedestal`: ``pedestals["g0"]`` is a `StagePedestal`; of several storage cells,
    ``pedestals["g0", 3]``.

    Attributes
    ----------
    stages : list of (str, int)
        Gain stages ("g0", "g1", "g2", "hg0") with their storage cells.
    report : str
        A table for people: medians, masked pixels and remarks of each module.
    rows : list of dict
        The same for programs.
    refused : dict
        Frames that were not used, by reason.
    incomplete_frames : int
        Frames with missing packets.
    notes : list of str
    """

    def __init__(self, native: _native.Pedestals) -> None:
        self._native = native
        self.stages = native.keys()
        self.report = native.table
        self.rows: list[dict[str, Any]] = [json.loads(row) for row in native.rows]
        self.refused = dict(native.refused)
        self.incomplete_frames = native.incomplete_frames
        self.notes = native.notes

    def __getitem__(self, key: str | tuple[str, int]) -> StagePedestal:
        stage, cell = (key, None) if isinstance(key, str) else key
        found = [known for known in self.stages if known[0] == stage and cell in (None, known[1])]
        if len(found) != 1:
            known = ", ".join(f"{name!r} of storage cell {of}" for name, of in self.stages)
            raise KeyError(f"{key!r} names {'no' if not found else 'more than one'} of {known}")
        planes = self._native.planes(*found[0])
        assert planes is not None
        return StagePedestal(**planes)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> str:
        """Writes a calibration file, as ``konkordia pedestal`` does, and returns its hash.

        Raises
        ------
        KonkordiaError
            There is such a file (unless `overwrite`), or it cannot be written.
        """
        return self._native.save(os.fspath(path), overwrite)

    def calibration(self, gain: PlaneFiles | None = None, *, high_gain: bool = False) -> Calibration:
        """The calibration with these pedestals; `gain` as in `Calibration.from_files`, if `pedestal` was given none."""
        table = _table(kind="konkordia", file="(pedestals in memory)", gain=_paths(gain), high_gain=high_gain)
        return Calibration(self._native.calibration(table))

    def __repr__(self) -> str:
        words = ", ".join(f"{stage} of cell {cell}" for stage, cell in self.stages)
        return f"<konkordia.Pedestals: {words}>"


def pedestal(
    frames: Frames,
    *,
    stage: str = "auto",
    skip: int = 0,
    cell: int = 0,
    gain: PlaneFiles | None = None,
    serial: str | None = None,
    force: bool = False,
    noisy_k: float = 3.0,
    stuck_fraction: float = 0.2,
    outside_max: float = 0.05,
    wrong_stage_max: float = 0.01,
) -> Pedestals:
    """Pedestals, noise and mask of dark frames of a JUNGFRAU, with the numbers of ``konkordia pedestal``.

    Parameters
    ----------
    frames : RawFrames, path or paths, ndarray, or iterable of ndarrays
        Raw files, or words as uint16: frames x rows x columns, or any number of arrays of rows x columns (modules x 512,
        1024), which need not be in memory together.
    stage : {"auto", "g0", "g1", "g2", "hg0"}
        Frames of other stages are refused. "auto": each frame goes to the stage of its header and its gain bits.
    skip : int
        Frames at the beginning that are not used.
    cell : int
        Storage cell of frames that are arrays; files say it themselves.
    gain : path or paths, optional
        Gains to store with the pedestals, as in `Calibration.from_files`.
    serial : str, optional
        Serial number of the detector.
    force : bool
        Frames are used even if they do not look dark; this is recorded.
    noisy_k, stuck_fraction
        A pixel is noisy if its RMS is above, stuck if it is below this multiple of the median of its module.
    outside_max, wrong_stage_max
        A pixel is unstable, or in the wrong stage, if more than this fraction of its words is.

    Raises
    ------
    KonkordiaError
        Frames are of the wrong stage, too few (at least 10), or not dark.

    Examples
    --------
    >>> import konkordia, numpy as np
    >>> random = np.random.default_rng(1)
    >>> dark = (random.normal(3000, 20, (512, 1024)).astype(np.uint16) for _ in range(12))
    >>> pedestals = konkordia.pedestal(dark)
    >>> pedestals
    <konkordia.Pedestals: g0 of cell 0>
    >>> round(float(pedestals["g0"].mean_adu.mean()))
    3000
    """
    limits = _limits(noisy_k, stuck_fraction, outside_max, wrong_stage_max)
    if skip < 0 or not 0 <= cell < 16:
        raise ValueError("skip counts from 0, and storage cells are 0 to 15")
    if isinstance(frames, (str, os.PathLike)) or (isinstance(frames, Sequence) and frames and isinstance(frames[0], (str, os.PathLike))):
        frames = open_files(frames, raw=True)
    if isinstance(frames, RawFrames):
        darks = _native.Darks(frames.modules, stage, skip)
        for first in range(0, len(frames), TOGETHER):
            darks.add_raw(frames._raw, first, first + TOGETHER)
        taken, notes = frames._raw.taken, frames.notes
    else:
        darks, taken, notes = _of_arrays(frames, stage, skip, cell), ("", "frames in memory"), []
    made = Pedestals(darks.finish(limits, force, _paths(gain), serial, taken))
    made.notes = [*notes, *made.notes]
    return made


def _of_arrays(frames: Any, stage: str, skip: int, cell: int) -> _native.Darks:
    darks: _native.Darks | None = None
    for words in [frames] if isinstance(frames, np.ndarray) else frames:
        if not isinstance(words, np.ndarray) or words.ndim not in (2, 3):
            raise TypeError("dark frames are numpy arrays of rows x columns, or of frames x rows x columns")
        if darks is None:
            darks = _native.Darks(max(1, words.shape[-2] // 512), stage, skip)
        for part in [words] if words.ndim == 2 else (words[n : n + TOGETHER] for n in range(0, len(words), TOGETHER)):
            darks.add(part, cell)
    return darks or _native.Darks(1, stage, skip)


def _limits(noisy_k: float, stuck_fraction: float, outside_max: float, wrong_stage_max: float) -> tuple[float, float, float, float]:
    if not (noisy_k > 1 and math.isfinite(noisy_k)):
        raise ValueError(f"noisy_k is a number above 1, not {noisy_k}")
    for name, fraction in {"stuck_fraction": stuck_fraction, "outside_max": outside_max, "wrong_stage_max": wrong_stage_max}.items():
        if not 0 <= fraction <= 1:
            raise ValueError(f"{name} is a number from 0 to 1, not {fraction}")
    return noisy_k, stuck_fraction, outside_max, wrong_stage_max
