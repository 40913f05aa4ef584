"""Chunks are those of HDF5's filters: other programs read ours, and we read theirs."""

import bitshuffle
import h5py
import hdf5plugin
import konkordia
import numpy as np
import pytest

CODECS = {"bslz4": 32008, "bszstd": 32008, "lz4": 32004, "zstd": 32015, "gzip": 1, "none": None}
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
FILTERS = {
    "bslz4": hdf5plugin.Bitshuffle(cname="lz4"),
    "bszstd": hdf5plugin.Bitshuffle(cname="zstd"),
    "lz4": hdf5plugin.LZ4(),
    "zstd": hdf5plugin.Zstd(),
    "gzip": {"compression": "gzip"},
    "none": {},
}


def pixels(dtype, shape, seed=5):
    return (np.random.default_rng(seed).poisson(3, shape) * (np.random.default_rng(seed + 1).random(shape) > 0.3)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (67, 131), (256, 300)])
def test_h5py_reads_ours_and_we_read_what_h5py_writes(tmp_path, codec, dtype, shape):
    image = pixels(dtype, shape)
    chunk = konkordia.compress(image, codec)
    with h5py.File(tmp_path / "file.h5", "w") as file:
        ours = file.create_dataset("ours", shape, dtype, chunks=shape, **FILTERS[codec])
        ours.id.write_direct_chunk((0,) * len(shape), chunk)
        theirs = file.create_dataset("theirs", data=image, chunks=shape, **FILTERS[codec])
        assert np.array_equal(ours[()], image)
        _, stored = theirs.id.read_direct_chunk((0,) * len(shape))
    assert np.array_equal(konkordia.decompress(stored, shape, dtype, codec), image)
    out = np.empty(shape, dtype)
    assert konkordia.decompress(chunk, codec=codec, out=out) is out and np.array_equal(out, image)


def test_bitshuffle_of_pypi_reads_our_chunks():
    image = pixels("uint16", (512, 1024))
    chunk = np.frombuffer(konkordia.compress(image), np.uint8)
    total, block = int.from_bytes(chunk[:8], "big"), int.from_bytes(chunk[8:12], "big")
    assert total == image.nbytes
    assert np.array_equal(bitshuffle.decompress_lz4(chunk[12:], image.shape, image.dtype, block // 2), image)


def test_levels_make_it_smaller():
    image = pixels("uint32", (200, 300))
    for codec in ("bszstd", "zstd", "gzip"):
        assert len(konkordia.compress(image, codec, 9)) <= len(konkordia.compress(image, codec, 1))
    for codec, level in (("zstd", 23), ("gzip", 0), ("gzip", 10), ("bslz4", 3)):
        with pytest.raises(ValueError, match="no level"):
            konkordia.compress(image, codec, level)


def test_damaged_chunks_and_wrong_arguments_are_refused():
    image = pixels("uint16", (100, 100))
    for codec in CODECS:
        chunk = konkordia.compress(image, codec)
        for broken in (chunk[: len(chunk) // 2], b"", chunk + b"\0", chunk[:14]):
            if codec in ("zstd", "gzip") and broken == chunk + b"\0":
                continue  # Decoders of streams may stop at their end.
            with pytest.raises(ValueError, match="no chunk of 20000 bytes"):
                konkordia.decompress(broken, image.shape, image.dtype, codec)
    with pytest.raises(ValueError, match="choose one of bslz4, bszstd"):
        konkordia.compress(image, "jpeg")
    with pytest.raises(ValueError, match="shape and dtype"):
        konkordia.decompress(b"")
    with pytest.raises(ValueError, match="ascontiguousarray"):
        konkordia.compress(image[:, ::2])
    with pytest.raises(TypeError, match="numpy array"):
        konkordia.compress([1, 2, 3])
    with pytest.raises(TypeError, match=">u2"):
        konkordia.compress(image.astype(">u2"))
    with pytest.raises(TypeError, match="complex"):
        konkordia.compress(image.astype("complex64"))
    empty = np.empty((0, 5), "uint16")
    assert konkordia.decompress(konkordia.compress(empty), empty.shape, empty.dtype).shape == (0, 5)


def test_arrays_whose_columns_follow_each_other_are_refused():
    """Their memory is in one piece, in another order than that of the pixels."""
    image = np.asfortranarray(pixels("uint16", (64, 80)))
    for ask in (konkordia.compress, konkordia.find_spots):
        with pytest.raises(ValueError, match="ascontiguousarray"):
            ask(image)
    chunk = konkordia.compress(np.ascontiguousarray(image))
    with pytest.raises(ValueError, match="ascontiguousarray"):
        konkordia.decompress(chunk, out=np.empty_like(image))
