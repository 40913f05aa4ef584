"""Our filter plug-in in a libhdf5 of others: h5py loads it by HDF5_PLUGIN_PATH, without hdf5plugin, and reads and writes
what hdf5plugin writes and reads."""

import os
import pathlib
import subprocess
import sys

import h5py
import hdf5plugin
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

RECORD3 = np.dtype([("a", "u1"), ("b", "<u2")])
RECORD12 = np.dtype([("x", "<f8"), ("n", "<i4")])
DTYPES = ["u1", "<i2", "<u4", "<f4", "<f8", "<u8", "<c16", RECORD3, RECORD12]
# Parameters that a user gives: elements of a block, coding, level.
OPTIONS = [(), (0, 0), (0, 2), (8, 2), (1024, 2), (65536, 2), (0, 3), (128, 3, 1), (32768, 3, 1), (4096, 3, 9)]
# Chunks of less than a block of 8 elements, of blocks with a rest, and of many blocks.
SHAPES = [(1, 1), (1, 7), (3, 3), (1, 4096), (37, 211), (259, 131)]

# What a user of h5py does who has our folder in HDF5_PLUGIN_PATH and never imports hdf5plugin.
READ_AND_WRITE = """
import sys, h5py
with h5py.File(sys.argv[1]) as source, h5py.File(sys.argv[2], "w") as target:
    for name, stack in source.items():
        pixels = stack[...]
        options = tuple(stack.attrs["options"])
        made = target.create_dataset(name, data=pixels, chunks=stack.chunks, compression=32008, compression_opts=options)
        # The copy of a property list has parameters that are complete already.
        plist = stack.id.get_create_plist()
        again = h5py.h5d.create(target.id, (name + "_again").encode(), stack.id.get_type(), stack.id.get_space(), dcpl=plist)
        h5py.Dataset(again)[...] = pixels
        assert made.id.get_create_plist().get_filter(0)[2][2] == stack.dtype.itemsize
assert "hdf5plugin" not in sys.modules
maps = open("/proc/self/maps").read()
assert "libh5konkordia_bitshuffle.so" in maps and "libh5bshuf" not in maps
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    built = os.environ.get("KONKORDIA_PLUGIN")
    if built:
        return pathlib.Path(built)
    out = tmp_path_factory.mktemp("plugin")
    subprocess.run([ROOT / "scripts/plugin", out], check=True, capture_output=True, timeout=1800)
    return out


def with_plugin(folder, code, *arguments):
    environment = {**os.environ, "HDF5_PLUGIN_PATH": str(folder)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def pixels(dtype, shape, seed):
    numbers = np.random.default_rng(seed)
    raw = numbers.poisson(1.5, (*shape, np.dtype(dtype).itemsize)).astype("u1")
    raw[..., 1::2] = 0
    return np.ascontiguousarray(raw).view(dtype)[..., 0]


def test_h5py_reads_what_hdf5plugin_wrote_and_writes_what_hdf5plugin_reads(folder, tmp_path):
    source, target = tmp_path / "source.h5", tmp_path / "target.h5"
    expected = {}
    with h5py.File(source, "w") as file:
        for n, (dtype, options, shape) in enumerate((d, o, s) for d in DTYPES for o in OPTIONS for s in SHAPES):
            name = f"stack_{n:04d}"
            expected[name] = pixels(dtype, shape, n)
            made = file.create_dataset(name, data=expected[name], chunks=shape, compression=32008, compression_opts=options)
            made.attrs["options"] = np.array(options, "u4")
    assert hdf5plugin.get_config().registered_filters["bshuf"], "the source is by hdf5plugin"
    with_plugin(folder, READ_AND_WRITE, source, target)
    with h5py.File(target) as file:
        assert len(file) == 2 * len(expected) == 2 * len(DTYPES) * len(OPTIONS) * len(SHAPES)
        for name, image in expected.items():
            for copy in (name, f"{name}_again"):
                assert file[copy][...].tobytes() == image.tobytes(), (copy, image.dtype, image.shape, file[copy].attrs)


def test_a_damaged_chunk_is_an_error_of_h5py_and_the_process_goes_on(folder, tmp_path):
    path = tmp_path / "damaged.h5"
    image = pixels("<i2", (100, 100), 1)
    with h5py.File(path, "w") as file:
        for name, options in (("lz4", (0, 2)), ("zstd", (0, 3))):
            stack = file.create_dataset(name, data=np.stack([image] * 9), chunks=(1, 100, 100), compression=32008, compression_opts=options)
            _, whole = stack.id.read_direct_chunk((0, 0, 0))
            huge = (2**62).to_bytes(8, "big")
            bad = [whole[:50], whole[:-1], huge + whole[8:], whole[:8] + b"\xff" * 4 + whole[12:], whole[:12] + b"\xff" * 4 + whole[16:], b"\0", whole + b"\0"]
            for n, chunk in enumerate(bad):
                stack.id.write_direct_chunk((n + 1, 0, 0), chunk)
    code = """
import sys, h5py
with h5py.File(sys.argv[1]) as file:
    for name in ("lz4", "zstd"):
        for n in range(9):
            try:
                print(name, n, file[name][n].sum())
            except OSError as error:
                print(name, n, "refused")
"""
    said = with_plugin(folder, code, path).stdout.splitlines()
    total = int(image.sum())
    good = [f"{name} {n} {total if n in (0, 8) else 'refused'}" for name in ("lz4", "zstd") for n in range(9)]
    assert said == good


def test_wrong_parameters_are_named(folder, tmp_path):
    code = """
import sys, h5py, numpy as np
with h5py.File(sys.argv[1], "w") as file:
    for options in ((12, 2), (0, 9)):
        try:
            file.create_dataset("a", data=np.zeros((8, 8), "i2"), compression=32008, compression_opts=options)
        except ValueError as error:
            print(error)
"""
    said = with_plugin(folder, code, tmp_path / "a.h5").stdout
    assert "blocks of 24 bytes with elements of 2 bytes" in said and "coding 9 behind bitshuffle" in said


def test_the_library_exports_only_what_libhdf5_asks_for(folder):
    library = folder / "libh5konkordia_bitshuffle.so"
    said = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    assert sorted(line.split()[-1] for line in said.splitlines()) == ["H5PLget_plugin_info", "H5PLget_plugin_type"]
    needed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    assert "hdf5" not in needed
