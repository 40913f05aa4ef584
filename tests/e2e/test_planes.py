"""Blocks from our encoders of bit-transposed pixels, read by the HDF5 filter of hdf5plugin and by bitshuffle itself."""

import struct

import bitshuffle
import h5py
import hdf5plugin  # noqa: F401
import numpy as np
import pytest

from driving import LYSO, needs_lyso, program
from lanes import SLOW

# An image of 1024 x 1024 pixels has 256 blocks of 8 KiB for 16 bits, 512 for 32 bits.
SHAPE = (1024, 1024)
IMAGES = 196 if SLOW else 6


def pixels(dtype, number):
    """Counts, signed noise, planes that repeat each other, noise of all bits, sparse images, special values."""
    rng = np.random.default_rng(number)
    info = np.iinfo(dtype)
    kind = number % 6
    if kind == 0:
        image = rng.poisson(rng.choice([0.02, 0.5, 4, 60]), SHAPE)
    elif kind == 1:
        image = np.rint(rng.normal(0, rng.choice([0.7, 8, 300]), SHAPE))
    elif kind == 2:
        image = rng.integers(info.min, info.max, SHAPE, dtype=dtype, endpoint=True)
    elif kind == 3:
        image = np.zeros(SHAPE)
        image[rng.integers(0, 1024, 300), rng.integers(0, 1024, 300)] = rng.integers(0, 30_000, 300)
    elif kind == 4:
        image = np.repeat(rng.integers(0, 200, (1024, 64)), 16, axis=1)
    else:
        image = rng.poisson(3, SHAPE)
        image[rng.integers(0, 1024, 40)] = info.max
        image[:, rng.integers(0, 1024, 40)] = info.max - 2
    return np.clip(image, info.min, info.max).astype(dtype)


def stack(path, images):
    """A file of images without compression."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("/entry/data/data", shape=(len(images), *SHAPE), chunks=(1, *SHAPE), dtype=images[0].dtype)
        for number, image in enumerate(images):
            data[number] = image
    return path


def packed(tmp_path, source, compression):
    """The data set of a copy."""
    folder = tmp_path / compression
    folder.mkdir()
    program("repack", source, "-o", folder, "--compression", compression, check=0)
    return h5py.File(folder / source.name)["/entry/data/data"]


@pytest.mark.parametrize("compression", ["bslz4", "bszstd"])
@pytest.mark.parametrize("dtype", ["uint16", "int16", "uint32", "int32", "uint8"])
def test_others_decode_every_block(tmp_path, dtype, compression):
    images = [pixels(np.dtype(dtype), number) for number in range(IMAGES)]
    data = packed(tmp_path, stack(tmp_path / "stack.h5", images), compression)
    blocks = 0
    for number, image in enumerate(images):
        np.testing.assert_array_equal(data[number], image)
        _, chunk = data.id.read_direct_chunk((number, 0, 0))
        length, block = struct.unpack(">QI", chunk[:12])
        assert (length, block) == (image.nbytes, 8192 if compression == "bslz4" else 65536)
        body, elements = np.frombuffer(chunk, np.uint8, offset=12), block // image.itemsize
        decompress = bitshuffle.decompress_lz4 if compression == "bslz4" else getattr(bitshuffle, "decompress_zstd", None)
        if decompress:
            np.testing.assert_array_equal(decompress(body, image.shape, image.dtype, elements), image)
        blocks += image.nbytes // block
    # All types and both codecs together: more than 100 000 blocks in the slow lane.
    assert blocks >= IMAGES * 16


@needs_lyso
@pytest.mark.parametrize("compression", ["bslz4", "bszstd"])
@pytest.mark.parametrize("photons", [0.125, 1, 8])
def test_others_decode_real_frames(tmp_path, photons, compression):
    frames = [np.fromfile(path, np.float32) for path in sorted(LYSO.glob("photons_*.f32"))]
    images = [np.clip(np.rint(frame / photons), -32_000, 32_000).astype(np.int16).reshape(512, 1024) for frame in frames]
    images = [np.vstack([a, b]) for a, b in zip(images[::2], images[1::2], strict=True)]
    data = packed(tmp_path, stack(tmp_path / "frames.h5", images), compression)
    for number, image in enumerate(images):
        np.testing.assert_array_equal(data[number], image)
