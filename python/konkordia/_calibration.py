"""Calibrations of a JUNGFRAU, and photons of its raw frames."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _native
from ._analysis import _toml

PlaneFiles: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


def _paths(files: PlaneFiles | None) -> list[str]:
    if files is None:
        return []
    return [os.path.abspath(os.fspath(one)) for one in ([files] if isinstance(files, (str, os.PathLike)) else files)]


def _table(**keys: Any) -> str:
    """Lines of a table with the keys that have a value."""
    return _toml({"calibration": {key: value for key, value in keys.items() if value not in (None, [], False)}}).split("\n", 1)[1]


class Calibration:
    """Pedestals and gains of each pixel of a JUNGFRAU, judged as by the program. Made by `from_files`, or by
    `Pedestals.calibration`. Modules lie one below the other, as in `RawFrames`: arrays have modules x 512 rows and 1024
    columns. Axis 0 of `pedestal` and `gain` is the gain stage: G0 (HG0 with `high_gain`), G1, G2.

    Attributes
    ----------
    modules : int
        Number of modules.
    cells : list of int or None
        Storage cells that have pedestals; one None if the pedestals are for all cells.
    high_gain : bool
        The first stage is HG0.
    module_ids : list of int or None
        Of each module, as far as they are known.
    hash : str
        Over all that conversion uses.
    report : str
        What was found, in words.
    """

    def __init__(self, native: _native.Calibration, files: tuple[str, int] | None = None) -> None:
        self._native, self._files = native, files
        self.modules = native.modules
        self.cells = native.cells
        self.high_gain = native.high_gain
        self.module_ids = native.module_ids
        self.hash = native.hash
        self.report = native.report
        self._converters: dict[Any, Converter] = {}

    @classmethod
    def from_files(
        cls,
        pedestal: PlaneFiles,
        gain: PlaneFiles | None = None,
        *,
        noise: PlaneFiles | None = None,
        high_gain: bool = False,
        modules: int | None = None,
    ) -> Calibration:
        """A calibration from files, as ``[calibration]`` of a configuration names them.

        Parameters
        ----------
        pedestal : path or sequence of paths
            A calibration file of ``konkordia pedestal``; an HDF5 file of jungfrau_utils with ``/gains`` and
            ``/pixel_mask``; float32 planes without header, G0 of all modules, then G1, then G2, in one or several files; or
            a folder with pedestal_g0.f32, pedestal_g1.f32, pedestal_g2.f32 and gain_adu_per_kev.f32.
        gain : path or sequence of paths, optional
            PSI ``.bin`` files (one per module), HDF5 with ``/gains``, or float32 planes. A calibration file may have gains.
        noise : path or sequence of paths, optional
            RMS of the first stage in ADU, one float32 plane per module. A calibration file has its own.
        high_gain : bool
            Frames were taken with HG0 in place of G0.
        modules : int, optional
            Modules of the detector. If it is not given: as the calibration file says, else the number of ``.bin`` files,
            else 1.

        Raises
        ------
        KonkordiaError
            A file cannot be read, has the wrong size, or cannot be of a JUNGFRAU.
        """
        pedestals, gains = _paths(pedestal), _paths(gain)
        if len(pedestals) == 1 and os.path.isdir(pedestals[0]):
            gains = gains or [os.path.join(pedestals[0], "gain_adu_per_kev.f32")]
            pedestals = [os.path.join(pedestals[0], f"pedestal_g{stage}.f32") for stage in range(3)]
        kind = "files"
        if len(pedestals) == 1 and pedestals[0].lower().endswith((".h5", ".hdf5")):
            kind = _native.Calibration.kind_of(pedestals[0])
        if kind == "konkordia":
            table = _table(kind=kind, file=pedestals[0], gain=gains, pedestal_rms=_paths(noise), high_gain=high_gain)
        else:
            table = _table(kind=kind, pedestal=pedestals, gain=gains, pedestal_rms=_paths(noise), high_gain=high_gain)
        psi = len(gains) if gains and all(one.lower().endswith(".bin") for one in gains) else 1
        return cls._again(table, modules or (0 if kind == "konkordia" else psi))

    @classmethod
    def _again(cls, table: str, modules: int) -> Calibration:
        return cls(_native.Calibration.of_files(table, modules), (table, modules))

    @property
    def pedestal(self) -> NDArray[np.float32]:
        """Pedestals in ADU of the first of `cells`: 3 stages x rows x columns; NaN where there is none."""
        return self._native.pedestal(0)

    def pedestal_of(self, cell: int) -> NDArray[np.float32]:
        """Pedestals in ADU of a storage cell: 3 stages x rows x columns."""
        return self._native.pedestal(self._nth(cell))

    @property
    def gain(self) -> NDArray[np.float32]:
        """Gains in ADU/keV: 3 stages x rows x columns; negative in G1 and G2."""
        return self._native.gain()

    @property
    def noise(self) -> NDArray[np.float32] | None:
        """RMS in ADU of the first stage, of the first of `cells`: rows x columns; None if it is not known."""
        return self._native.noise(0)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where a pixel is not to be used, in any of `cells`: rows x columns."""
        return self._native.mask().astype(np.bool_)

    @property
    def mask_bits(self) -> NDArray[np.uint32]:
        """Why, as bits of the NXmx pixel mask: 1 dead, 4 noisy, 8 marked by the source."""
        return self._native.mask()

    @property
    def unusable(self) -> NDArray[np.bool_]:
        """True where a stage of a pixel is not usable, of the first of `cells`: 3 stages x rows x columns."""
        bits = self._native.unusable(0)
        return np.stack([(bits >> stage & 1).astype(np.bool_) for stage in range(3)])

    def _nth(self, cell: int | None) -> int:
        if self.cells == [None] or (cell is None and len(self.cells) == 1):
            return 0
        if cell not in self.cells:
            known = ", ".join(map(str, self.cells))
            raise ValueError(f"there is no calibration of storage cell {cell}; give cell, one of {known}")
        return self.cells.index(cell)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._files is None:
            raise TypeError("a calibration of pedestals that are in no file cannot be pickled; save them: Pedestals.save(path)")
        return (Calibration._again, self._files)

    def __repr__(self) -> str:
        cells = "" if self.cells == [None] else f", storage cell {', '.join(map(str, self.cells))}"
        masked = int(np.count_nonzero(self._native.mask()))
        stage = ", HG0" if self.high_gain else ""
        return f"<konkordia.Calibration of {self.modules} module{'s' if self.modules != 1 else ''}{cells}{stage}: {masked} pixels masked>"


class Converter:
    """Makes images of raw frames of a JUNGFRAU, with the tables of one calibration and one set of options; `convert` keeps
    such converters. Threads may share it.

    Parameters
    ----------
    calibration, energy_kev, dtype, unit, geometry, double_pixels, rows, detector, processing
        As in `convert`.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of an image.
    dtype : numpy.dtype
        Of a pixel.
    """

    def __init__(
        self,
        calibration: Calibration,
        *,
        energy_kev: float | None = None,
        dtype: DTypeLike = "int16",
        unit: str = "photons",
        geometry: str | None = None,
        double_pixels: str | None = None,
        rows: int = 512,
        detector: Mapping[str, Any] | None = None,
        processing: Mapping[str, Any] | None = None,
    ) -> None:
        tables = _tables(energy_kev, dtype, unit, geometry, double_pixels, rows, detector, processing)
        self._make(calibration, tables)

    def _make(self, calibration: Calibration, tables: str) -> None:
        self._calibration = calibration
        self._native = calibration._native.images(tables)
        self.shape = self._native.shape
        self.dtype = np.dtype(self._native.dtype)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where a pixel of an image is not to be used: rows x columns."""
        return self._native.mask().astype(np.bool_)

    def __call__(
        self, raw: NDArray[np.uint16], out: NDArray[Any] | None = None, *, cell: int | None = None, first_image: int = 0
    ) -> NDArray[Any]:
        """The image of a frame, or the images of a stack of frames; as `convert`."""
        if not isinstance(raw, np.ndarray):
            raise TypeError(f"raw frames are a numpy array, not {type(raw).__name__}")
        if first_image < 0:
            raise ValueError(f"images are counted from 0, not from {first_image}")
        of_planes = self._calibration.cells[self._calibration._nth(cell)]
        if out is None:
            out = np.empty((*raw.shape[:-2], *self.shape), self.dtype)
        self._native.convert(raw, cell or 0 if of_planes is None else of_planes, first_image, out)
        return out

    def __repr__(self) -> str:
        return f"<konkordia.Converter to images of {self.shape[0]} x {self.shape[1]} pixels, {self.dtype}>"


def _tables(
    energy_kev: float | None,
    dtype: DTypeLike,
    unit: str,
    geometry: str | None,
    double_pixels: str | None,
    rows: int,
    detector: Mapping[str, Any] | None,
    processing: Mapping[str, Any] | None,
) -> str:
    """The tables `[detector]` and `[processing]` of a configuration that asks for the same."""
    known = {"energy_kev": None if energy_kev is None else float(energy_kev), "geometry": geometry, "double_pixels": double_pixels}
    of_detector = {name: value for name, value in known.items() if value is not None} | dict(detector or {})
    if rows != 512:
        of_detector["rows"] = rows
    return _toml({"detector": of_detector, "processing": {"dtype": np.dtype(dtype).name, "unit": unit, **(processing or {})}})


def convert(
    raw: NDArray[np.uint16],
    calibration: Calibration,
    *,
    energy_kev: float | None = None,
    dtype: DTypeLike = "int16",
    out: NDArray[Any] | None = None,
    cell: int | None = None,
    first_image: int = 0,
    unit: str = "photons",
    geometry: str | None = None,
    double_pixels: str | None = None,
    detector: Mapping[str, Any] | None = None,
    processing: Mapping[str, Any] | None = None,
) -> NDArray[Any]:
    """Photons of raw frames of a JUNGFRAU: ``(ADC - pedestal) / (gain * energy)``, rounded to whole numbers, with the same
    code and the same pixels as ``konkordia convert`` and a run of the service.

    Parameters
    ----------
    raw : ndarray of uint16
        A frame (modules x 512 rows, 1024 columns; fewer rows of partial readout), or frames x rows x columns; C-contiguous.
        `RawFrames` gives such arrays. A packet (4 rows) whose words are all 0xFFFF is missing.
    calibration : Calibration
        Of the same modules.
    energy_kev : float
        Energy of a photon; not needed with ``unit="kev"``.
    dtype : {"int16", "int32", "uint16", "uint32", "float32"}
        Of the pixels. Numbers outside of ``valid_range`` are no measurements: missing, masked, invalid and saturated
        pixels have the values of docs/formats.md.
    out : ndarray, optional
        C-contiguous array of `dtype` that is filled and returned: rows x columns of an image, with frames before them if
        `raw` has.
    cell : int, optional
        Storage cell of the frames; needed if the calibration has several. `RawFrames.header` says it.
    first_image : int
        Number of the first image in its run, on which the shares of split double pixels depend.
    unit : {"photons", "kev"}
        What a pixel counts.
    geometry : str, optional
        Arrangement of the modules, for example "jungfrau-4m"; one below the other if it is not given.
    double_pixels : {"keep", "gap", "split", "mask"}, optional
        Pixels at the borders of chips, which are twice as wide or high.
    detector, processing : mapping, optional
        Further keys of these tables of a configuration (docs/configuration.md), for example
        ``processing={"negative": "clamp"}``.

    Returns
    -------
    ndarray
        Image, or images x rows x columns.

    Raises
    ------
    ValueError
        Shape or dtype of `raw` or `out` do not fit, or the calibration has no such storage cell.
    KonkordiaError
        An option is not possible, or the calibration does not fit it.

    Examples
    --------
    >>> import konkordia, numpy as np, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> stages = np.array([[3000, 15000, 15000], [41, -1.4, -0.11]], np.float32).repeat(512 * 1024, axis=1)
    >>> for name, planes in zip(("pedestal.f32", "gain.f32"), stages):
    ...     planes.tofile(folder / name)
    >>> calibration = konkordia.Calibration.from_files(folder / "pedestal.f32", folder / "gain.f32")
    >>> raw = np.full((512, 1024), 3000 + 2 * 41 * 12, np.uint16)
    >>> image = konkordia.convert(raw, calibration, energy_kev=12.0)
    >>> image.dtype, int(image[100, 100])
    (dtype('int16'), 2)
    """
    if not isinstance(raw, np.ndarray) or raw.ndim not in (2, 3):
        raise TypeError("raw frames are a numpy array of rows x columns, or of frames x rows x columns")
    rows = raw.shape[-2] // calibration.modules if raw.shape[-2] < calibration.modules * 512 else 512
    energy_kev = None if energy_kev is None else float(energy_kev)
    options = (energy_kev, np.dtype(dtype), unit, geometry, double_pixels, rows)
    key: Any = options if not detector and not processing else _tables(*options, detector, processing)
    converter = calibration._converters.get(key)
    if converter is None:
        converter = Converter.__new__(Converter)
        converter._make(calibration, _tables(*options, detector, processing))
        while len(calibration._converters) >= 4:
            calibration._converters.pop(next(iter(calibration._converters)), None)
        calibration._converters[key] = converter
    return converter(raw, out, cell=cell, first_image=first_image)
