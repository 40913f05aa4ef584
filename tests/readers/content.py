"""What the sample runs hold, written a second time in Python so that both sides are checked."""

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
