"""The content of the sample runs, computed in Python independently of the Rust code that writes them."""

import numpy as np

SHAPE = (64, 200)
MISSING = {
    "int16": -32766,
    "int32": -(2**31) + 2,
    "uint16": 65535,
    "uint32": 2**32 - 1,
    "float32": -np.inf,
}
VALID = {
    "int16": (-32765, 32766),
    "int32": (-2147483392, 2147483392),
    "uint16": (0, 65531),
    "uint32": (0, 2147483392),
}
# name: (dtype, images, images per file, lost, partial, shape)
RUNS = {
    "int16": ("int16", 10, 4, [5], [2, 9], SHAPE),
    "int32": ("int32", 10, 4, [5], [2, 9], SHAPE),
    "uint16": ("uint16", 10, 4, [5], [2, 9], SHAPE),
    "uint32": ("uint32", 10, 4, [5], [2, 9], SHAPE),
    "float32": ("float32", 10, 4, [5], [2, 9], SHAPE),
    "virtual": ("uint16", 10, 4, [5], [2, 9], SHAPE),
    "links": ("uint16", 10, 4, [5], [2, 9], SHAPE),
    "plain": ("uint16", 10, 4, [5], [2, 9], SHAPE),
    "raw": ("uint16", 10, 4, [5], [2, 9], SHAPE),
    "short": ("uint16", 15, 4, [5, 10, 11, 12, 13, 14], [2, 9], SHAPE),
    "many": ("uint16", 24, 1, [], [3], SHAPE),
    "whole": ("uint16", 10, 4, [], [], SHAPE),
    "bare": ("uint16", 10, 4, [5], [2, 9], SHAPE),
    "repaired": ("int16", 10, 4, [5], [2, 9], SHAPE),
    "odd": ("uint16", 10, 4, [5], [2, 9], (67, 131)),
}


def image(run, number):
    """Pixels of one image of a sample run."""
    dtype, _, _, lost, partial, (rows, columns) = RUNS[run]
    if number in lost:
        return np.full((rows, columns), MISSING[dtype], dtype)
    row, column = np.mgrid[0:rows, 0:columns]
    pixels = ((number * 7 + row * 3 + column) % 1000).astype(dtype)
    if number in partial:
        pixels[4:8] = MISSING[dtype]
    return pixels


def stack(run):
    """All images of a sample run."""
    return np.stack([image(run, number) for number in range(RUNS[run][1])])

# name: (dtype, shape of one channel, channels, pieces of a channel, filter)
SERIES = {
    "strip": ("float64", (300,), 1, 1, 32008),
    "rows": ("uint16", (24, 33), 1, 24, 32008),
    "block": ("uint32", (24, 33), 1, 1, 32004),
    "cube": ("int64", (3, 8, 17), 1, 3, None),
    "deep": ("int8", (2, 3, 4, 8), 1, 2, 32008),
    "channels": ("uint8", (12, 16), 3, 1, 32008),
    "cut": ("uint16", (12, 16), 3, 4, None),
}
# Image 3 is lost; the sender said of image 5 that it is not to be stored.
SERIES_STATUS = [1, 1, 1, 0, 1, 3, 1, 1, 1, 1]


def series_missing(dtype):
    """The value of missing pixels."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return -np.inf
    limits = np.iinfo(kind)
    return limits.max if kind.kind == "u" else limits.min + 2


def series_image(name, number):
    """Pixels of one image of a sample series. Several channels form one more axis, in front."""
    dtype, shape, channels, _, _ = SERIES[name]
    at = np.arange(np.prod(shape))
    planes = [((number * 31 + channel * 57 + at * 3) % 101).astype(dtype).reshape(shape) for channel in range(channels)]
    return planes[0] if channels == 1 else np.stack(planes)
