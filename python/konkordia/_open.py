"""Files of any kind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias, overload

from . import _native
from ._images import Images
from ._raw import RawFrames

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


@overload
def open(
    path: Paths,
    *,
    channel: str | None = None,
    raw: Literal[True],
    format: str | None = None,
    modules: int | None = None,
    detector: str | None = None,
) -> RawFrames: ...
@overload
def open(
    path: Paths,
    *,
    channel: str | None = None,
    raw: bool | None = None,
    format: str | None = None,
    modules: int | None = None,
    detector: str | None = None,
) -> Images: ...
def open(
    path: Paths,
    *,
    channel: str | None = None,
    raw: bool | None = None,
    format: str | None = None,
    modules: int | None = None,
    detector: str | None = None,
) -> Images:
    """Opens files as a stack of images, which are read when they are asked for.

    Parameters
    ----------
    path : path or sequence of paths
        One HDF5 master or data file of Konkordia, DECTRIS or others, or any number of CBF files; or raw frames: the JSON
        master or data files of the slsReceiver, its HDF5, HDF5 of SwissFEL, a run of Konkordia with ``dtype = "raw"``, the
        raw copy of a run (``keep_raw``), records and plain words.
    channel : str, optional
        Of images with several channels, the one to read; the first if it is not given.
    raw : bool, optional
        True: the files hold raw frames, and anything else is an error; False: they hold images. If it is not given, the
        content decides.
    format : {"sls-raw", "raw112", "raw48", "raw16", "u16", "hdf5"}, optional
        Of raw files; if it is not given, the content decides.
    modules : int, optional
        Modules in raw files of plain words without headers; 1 if it is not given.
    detector : str, optional
        Which one, if a raw file of SwissFEL holds several.

    Returns
    -------
    Images or RawFrames
        `RawFrames`, which are `Images` too, of raw files.

    Raises
    ------
    KonkordiaError
        A file cannot be read, or files do not belong together; ``hint`` says what to do.
    """
    paths = [os.fspath(one) for one in ([path] if isinstance(path, (str, os.PathLike)) else path)]
    if raw is None:
        raw = (format, modules, detector) != (None, None, None) or (channel is None and _native.is_raw(paths))
    return RawFrames(paths, format, modules, detector) if raw else Images(paths, channel)
