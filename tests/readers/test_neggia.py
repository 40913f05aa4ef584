"""Every path, type, shape and storage detail that neggia (XDS) and with it ALBULA need, and every image through neggia's way of reading.

neggia itself is on no registry, so its demands are written down here: its README ("HDF5 file compatibility requirements"), its parser's
subset of HDF5 (hdf5_bytes.py), and the rules of its plug-in (frames per file taken from data_000001, unsigned pixels).
"""

import bitshuffle
import h5py
import numpy as np
import pytest
from content import MISSING, RUNS, image
from hdf5_bytes import File

LINKED = [run for run in RUNS if run != "virtual"]
INTEGER = [run for run in LINKED if run != "float32"]
DETECTOR = "/entry/instrument/detector"
SPECIFIC = f"{DETECTOR}/detectorSpecific"


def address(file, path):
    return h5py.h5o.get_info(file[path].id).addr


@pytest.mark.parametrize("run", LINKED)
def test_master_has_what_neggia_reads(samples, run):
    path = samples / f"{run}_master.h5"
    raw = File(path)
    with h5py.File(path) as file:
        for name in ("x_pixel_size", "y_pixel_size"):
            value = file[f"{DETECTOR}/{name}"]
            assert value.dtype in (np.float32, np.float64) and value.shape == ()
            assert np.frombuffer(raw.contiguous(address(file, value.name)), value.dtype)[0] == 75e-6
        for name, wanted in (("nimages", RUNS[run][1]), ("ntrigger", 1)):
            value = file[f"{SPECIFIC}/{name}"]
            assert value.dtype.kind in "iu" and value.shape == ()
            stored = np.frombuffer(raw.contiguous(address(file, value.name)), value.dtype)[0]
            assert stored == wanted
        mask = file[f"{SPECIFIC}/pixel_mask"]
        assert mask.dtype == np.uint32 and mask.shape == RUNS[run][5] and mask.chunks is None
        assert raw.layout(address(file, mask.name))[0] == 1 and not raw.filters(address(file, mask.name))
        stored = np.frombuffer(raw.contiguous(address(file, mask.name)), np.uint32).reshape(mask.shape)
        np.testing.assert_array_equal(stored, mask)
        assert file[f"{DETECTOR}/pixel_mask"] == mask, "the same data set for NXmx"
        assert "eiger_fw_version" not in file[SPECIFIC], "it makes dxtbx insist on EIGER sizes"
        for group in ("/", "/entry", "/entry/instrument", DETECTOR, SPECIFIC, "/entry/data"):
            raw.links(address(file, group))


@pytest.mark.parametrize("run", LINKED)
def test_links_are_external_and_relative(samples, run):
    _, images, per_file, *_ = RUNS[run]
    with h5py.File(samples / f"{run}_master.h5") as file:
        for number in range(1, -(-images // per_file) + 1):
            link = file["/entry/data"].get(f"data_{number:06d}", getlink=True)
            assert isinstance(link, h5py.ExternalLink)
            assert (link.filename, link.path) == (f"{run}_data_{number:06d}.h5", "/entry/data/data")
        if run != "links":
            assert isinstance(file["/entry/data"].get("images", getlink=True), h5py.HardLink)


@pytest.mark.parametrize("run", INTEGER)
def test_every_image_is_found_and_decodes(samples, run):
    """Frame f is image f % n of link f // n + 1, where n is the length of data_000001; also lost images have a chunk."""
    dtype, images, _, lost, _, shape = RUNS[run]
    dtype = np.dtype(dtype)
    with h5py.File(samples / f"{run}_master.h5") as file:
        per_file = file["/entry/data/data_000001"].shape[0]
    for frame in range(images):
        number, local = frame // per_file + 1, frame % per_file
        path = samples / f"{run}_data_{number:06d}.h5"
        raw = File(path)
        with h5py.File(path) as file:
            data = file["/entry/data/data"]
            assert data.ndim == 3 and data.shape[1:] == shape and local < data.shape[0]
            at = address(file, "/entry/data/data")
            if frame in lost and (run == "plain" or not has_pixels(run, number, per_file)):
                continue
        chunk = raw.chunk(at, local)
        if run == "plain":
            assert raw.filters(at) == []
            pixels = np.frombuffer(chunk, dtype).reshape(shape)
        else:
            ((code, values),) = raw.filters(at)
            assert code == 32008 and len(values) >= 5 and values[2] == dtype.itemsize and values[4] == 2
            payload = np.frombuffer(chunk[12:], np.uint8)
            pixels = bitshuffle.decompress_lz4(payload, shape, dtype, 8192 // dtype.itemsize)
        np.testing.assert_array_equal(pixels, image(run, frame))


def has_pixels(run, number, per_file):
    """Whether some image of a data file was taken; in a file of lost images alone only the fill value speaks."""
    _, images, _, lost, _, _ = RUNS[run]
    return any(frame not in lost for frame in range((number - 1) * per_file, min(number * per_file, images)))


@pytest.mark.parametrize("run", ["uint16", "uint32"])
def test_special_values_are_what_neggia_calls_invalid(samples, run):
    """neggia takes values above the signed range of 16 or 32 bits as invalid (-1)."""
    limit = np.iinfo(f"int{np.dtype(run).itemsize * 8}").max
    with h5py.File(samples / f"{run}_master.h5") as file:
        special = file["/entry/konkordia/special_values"]
        for name in ("missing", "masked", "invalid", "saturated"):
            assert special[name][()] > limit
    assert MISSING[run] > limit
