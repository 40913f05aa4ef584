"""Compression of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _native


def compress(pixels: NDArray[Any], codec: str = "bslz4", level: int | None = None) -> bytes:
    """The pixels of an array as one chunk of an HDF5 file or a stream.

    Parameters
    ----------
    pixels : ndarray
        int8 to uint64, float32 or float64, C-contiguous.
    codec : {"bslz4", "bszstd", "lz4", "zstd", "gzip", "none"}
        HDF5 filters 32008 (bitshuffle with LZ4 or Zstd), 32004, 32015, 1, and none.
    level : int, optional
        For bszstd and zstd 1 to 22, for gzip 1 to 9; 1 if it is not given.

    Raises
    ------
    ValueError
        The codec or its level is not known, or the array is not contiguous.
    TypeError
        Pixels of this dtype cannot be compressed.

    Examples
    --------
    >>> import konkordia, numpy as np
    >>> image = np.arange(1024, dtype=np.uint16).reshape(32, 32)
    >>> chunk = konkordia.compress(image)
    >>> bool((konkordia.decompress(chunk, image.shape, image.dtype) == image).all())
    True
    """
    return _native.compress(pixels, codec, level)


def decompress(
    chunk: bytes,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    codec: str = "bslz4",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """The image of a chunk.

    Parameters
    ----------
    chunk : bytes
        As the HDF5 filter of the codec stores it.
    shape, dtype
        Of the image. They are not needed with `out`.
    codec
        As in `compress`.
    out : ndarray, optional
        C-contiguous array that is filled and returned.

    Raises
    ------
    ValueError
        The chunk is damaged, or is no chunk of so many bytes.
    """
    if out is None:
        if shape is None or dtype is None:
            raise ValueError("give the shape and dtype of the image, or an array `out`")
        out = np.empty(tuple(shape), dtype)
    _native.decompress(chunk, codec, out)
    return out
