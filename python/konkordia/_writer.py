"""Files of images."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _native
from ._geometry import Geometry

MASKED_BY_USER = 1 << 8
"""Bit of the NXmx pixel mask."""


class NXmxWriter:
    """Writes images into NXmx files, as the service does: PREFIX_master.h5 and PREFIX_data_000001.h5 and so on, with masks,
    geometry and an account of the images. A context manager: at the end of the block the files are complete; an error in the
    block closes them too, and they say that they are incomplete and why. What was written when the process was killed is
    recovered by ``konkordia repair``.

    Parameters
    ----------
    path : path
        Folder and first part of the file names; ``lyso_master.h5`` is the same as ``lyso``.
    shape : (int, int)
        Rows and columns.
    dtype
        int8 to uint64, float32 or float64.
    compression : {"bslz4", "bszstd", "lz4", "zstd", "gzip", "none"}
        With `compression_level` for bszstd, zstd and gzip.
    images_per_file : int
        Images of one data file.
    images : int, optional
        Images that are to come. Fewer make the file incomplete.
    geometry : Geometry, optional
        Where the pixels lie.
    energy_kev : float, optional
        Energy of a photon; that of the geometry if it is not given.
    mask : ndarray of bool or uint32, optional
        True where a pixel is not to be used, or bits of the NXmx pixel mask.
    valid_range : (int, int), optional
        Lowest and highest number that is a measurement.
    metadata : mapping, optional
        By the names of a configuration (docs/configuration.md), for example ``{"sample_name": "lysozyme",
        "count_time_us": 1000.0}``; the same as of an arm.
    overwrite : bool
        Replace files of this name.

    Raises
    ------
    KonkordiaError
        There are such files, the folder does not exist, or an option is not possible.

    Examples
    --------
    >>> import konkordia, numpy as np, pathlib, tempfile
    >>> prefix = pathlib.Path(tempfile.mkdtemp()) / "lyso"
    >>> with konkordia.NXmxWriter(prefix, shape=(32, 48), dtype="uint16", energy_kev=12.4) as writer:
    ...     for n in range(3):
    ...         number = writer.append(np.full((32, 48), n, np.uint16))
    >>> konkordia.open(writer.path).shape
    (3, 32, 48)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shape: tuple[int, int],
        dtype: DTypeLike,
        compression: str = "bslz4",
        compression_level: int | None = None,
        images_per_file: int = 1000,
        images: int | None = None,
        geometry: Geometry | None = None,
        energy_kev: float | None = None,
        mask: NDArray[np.bool_] | NDArray[np.uint32] | None = None,
        valid_range: tuple[int, int] | None = None,
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        facts = dict(metadata or {}) | ({} if energy_kev is None else {"energy_kev": energy_kev})
        if mask is not None and np.asarray(mask).dtype == np.bool_:
            mask = np.asarray(mask).astype(np.uint32) * np.uint32(MASKED_BY_USER)
        limits = None if valid_range is None else (int(valid_range[0]), int(valid_range[1]))
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._native = _native.ImageWriter(
            (os.fspath(path), overwrite),
            (self.shape, self.dtype.name),
            (compression, compression_level),
            (images_per_file, images),
            (json.dumps(facts, ensure_ascii=False, allow_nan=False, default=_plain), limits),
            (mask, None if geometry is None else geometry._native),
        )
        self.path = self._native.path
        self._images = 0

    def append(self, image: NDArray[Any], number: int | None = None) -> int:
        """Writes an image, and returns its number.

        Parameters
        ----------
        image : ndarray
            C-contiguous, of `shape` and `dtype`.
        number : int, optional
            Its position, above that of the image before; images between them are lost. The next one if it is not given.

        Raises
        ------
        ValueError
            The image does not fit.
        KonkordiaError
            The number does not fit, the files cannot be written, or they are closed.
        """
        if number is not None and number < 0:
            raise ValueError(f"images are counted from 0; {number} is below")
        return self._native.append(number, image)

    def __len__(self) -> int:
        """Positions in the files, lost images included."""
        return self._native.next or self._images

    @property
    def closed(self) -> bool:
        """True if nothing can be written any more."""
        return self._native.next is None

    def close(self) -> None:
        """Completes the files. A second call does nothing."""
        self._close(None)

    def _close(self, broken: str | None) -> None:
        self._images = len(self)
        self._native.close(broken)

    def __enter__(self) -> NXmxWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close(None if kind is None else f"{kind.__name__}: {error}"[:500])

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        rows, columns = self.shape
        return f"<konkordia.NXmxWriter {os.fspath(self.path)!r}: {len(self)} images of {rows} x {columns} pixels, {self.dtype}, {state}>"


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as JSON has them."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"metadata: {value!r} is no text, number or list of numbers")
