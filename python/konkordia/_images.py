"""The images of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import EllipsisType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._analysis import Analyser, Profile
from ._errors import KonkordiaError
from ._geometry import Geometry
from ._pictures import shown


class Images:
    """Images of files: ``len()``, ``images[n]`` (rows x columns), ``images[3:6]`` (images x rows x columns), iteration.
    Made by `open`. Threads may share it; processes get one of their own by pickling.

    Attributes
    ----------
    shape : (int, int, int)
        Images, rows, columns.
    dtype : numpy.dtype
        Of a pixel.
    valid_range : (float, float)
        Lowest and highest number that is a measurement; others are missing, masked, invalid or saturated.
    mask : ndarray of bool
        True where a pixel is not to be used: gaps, dead and noisy pixels, those that somebody masked.
    geometry : Geometry or None
        Where the pixels lie; `geometry_missing` says why there is none.
    notes : list of str
        What a person should know of these files.
    """

    def __init__(self, files: list[str], channel: str | None) -> None:
        self._files, self._channel = files, channel
        opened = _native.Images(files, channel)
        self._know(opened)
        self.valid_range = opened.valid_range
        self.writer = opened.writer
        self.is_rotation = opened.is_rotation
        geometry, self.geometry_missing = opened.geometry
        self.geometry = None if geometry is None else Geometry._of(geometry)

    def _know(self, opened: _native.Images | _native.RawFrames) -> None:
        self._native = opened
        self.shape = opened.shape
        self.dtype = np.dtype(opened.dtype)
        self.notes = opened.notes
        self._mask: NDArray[np.bool_] | None = None
        self._analysers: dict[str, Analyser] = {}

    valid_range: tuple[float, float]
    writer: str
    is_rotation: bool
    geometry: Geometry | None
    geometry_missing: str | None

    ndim = 3

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where a pixel is not to be used: rows x columns."""
        if self._mask is None:
            self._mask = self._mask_of_files()
            self._mask.setflags(write=False)
        return self._mask

    def _mask_of_files(self) -> NDArray[np.bool_]:
        assert isinstance(self._native, _native.Images)
        return self._native.mask()

    def _number(self, image: int) -> int:
        number = int(image) + (len(self) if image < 0 else 0)
        if not 0 <= number < len(self):
            raise IndexError(f"there is no image {image}; there are {len(self)}, from 0")
        return number

    def read(self, image: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """One image.

        Parameters
        ----------
        image : int
            Number of the image, from 0; negative numbers count from the end.
        out : ndarray, optional
            C-contiguous array of `dtype` and rows x columns that is filled and returned.

        Raises
        ------
        IndexError
            There is no such image.
        KonkordiaError
            It was never written, cannot be read or decoded, or the files are closed.
        """
        number = self._number(image)
        if out is None:
            out = np.empty(self.shape[1:], self.dtype)
        if not self._native.read(number, out):
            raise KonkordiaError(f"image {number} was never written", "the images before and after it can be read", 1)
        return out

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: tuple[int | slice | EllipsisType, ...]) -> NDArray[Any]: ...
    def __getitem__(self, index: int | slice | tuple[int | slice | EllipsisType, ...]) -> NDArray[Any]:
        if isinstance(index, tuple):
            return self._part(index)
        if not isinstance(index, slice):
            return self.read(index)
        numbers = range(*index.indices(len(self)))
        out = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for place, number in zip(out, numbers, strict=True):
            self.read(number, place)
        return out

    def _part(self, index: tuple[int | slice | EllipsisType, ...]) -> NDArray[Any]:
        """Parts of images, as numpy takes them: only the images that are named are read."""
        if Ellipsis in index:
            at = index.index(Ellipsis)
            index = (*index[:at], *[slice(None)] * (4 - len(index)), *index[at + 1 :])
        if len(index) > 3:
            raise IndexError(f"there are 3 axes, and {len(index)} indices")
        first, rest = (index[0] if index else slice(None)), index[1:]
        if isinstance(first, slice):
            part: NDArray[Any] = self[first][(slice(None), *rest)]
        else:
            assert first is not Ellipsis
            part = self[first][rest]
        return part

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self.read(number) for number in range(len(self)))

    def find_spots(self, image: int, **settings: Any) -> NDArray[Any]:
        """Bragg spots of an image, with mask, valid range and geometry of the files; settings as in `konkordia.find_spots`."""
        spots = self.analyser({"spots": {"method": "dispersion", **settings}}).analyse(self.read(image), self.valid_range).spots
        if spots is None:
            raise KonkordiaError("no spots can be looked for", f"{self.geometry_missing}; another method needs no geometry", 3)
        return spots

    def azint(self, image: int, *, bins: int = 1000, unit: str = "q", **settings: Any) -> Profile:
        """Powder profile of an image, with mask, valid range and geometry of the files; settings as in `konkordia.azint`."""
        analyser = self.analyser({"azimuthal": {"axis": unit, "bins": bins, **settings}})
        profile = analyser.analyse(self.read(image), self.valid_range).profile
        if profile is None:
            raise KonkordiaError("no profile can be made", f"{self.geometry_missing}", 3)
        return profile

    def analyser(self, recipe: Any) -> Analyser:
        """An `Analyser` for these images; that of the newest recipes is kept."""
        key = repr(recipe)
        if key not in self._analysers:
            if len(self._analysers) >= 4:
                self._analysers.pop(next(iter(self._analysers)))
            self._analysers[key] = Analyser(recipe, self.shape[1:], self.geometry, self.mask)
        return self._analysers[key]

    def to_xarray(self) -> Any:
        """The images as an ``xarray.DataArray`` with the axes image, y, x, which reads them when they are computed with.

        Raises
        ------
        ImportError
            xarray is not installed.
        """
        from ._xarray import lazy

        return lazy(self)

    def close(self) -> None:
        """Closes the files. Images that were read stay."""
        self._native.close()

    def __enter__(self) -> Images:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Images, (self._files, self._channel))

    def __repr__(self) -> str:
        return f"<konkordia.Images {self._words('images')}>"

    def _words(self, what: str) -> str:
        count, rows, columns = self.shape
        closed = ", closed" if self._native.is_closed else ""
        name = os.path.basename(self._files[0]) + (f" and {len(self._files) - 1} more" if len(self._files) > 1 else "")
        return f"{name!r}: {count} {what} of {rows} x {columns} pixels, {self.dtype}{closed}"

    def _repr_html_(self) -> str:
        """For notebooks: what the files are, and the first image."""
        lines = [repr(self), *([] if self.geometry is None else [repr(self.geometry)]), *self.notes]
        if not len(self) or self._native.is_closed:
            return shown(lines)
        try:
            return shown(lines, self.read(0), "image 0")
        except KonkordiaError as error:
            return shown([*lines, str(error)])
