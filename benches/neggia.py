"""Prints as JSON how long all images of one run take to read for each codec: by neggia, the plug-in through which XDS reads HDF5 (the codecs that it knows), by the Python package of this program, and by h5py with hdf5plugin; milliseconds for an image, medians, and the spread between codecs.

Leonarski et al. 2020, Table IV: XDS took 73.5 s without compression, LZ4 73.3, bitshuffle/LZ4 74.3, Zstd 75.4, bitshuffle/Zstd 73.2, gzip 75.1: less than 3 % between codecs. XDS itself does far more work on an image than its reading, and hides the codec. Here nothing but the reading is measured, so the spread is that of the codecs.

usage: neggia.py PROGRAM PLUGIN DATA [IMAGES]       after scripts/python and scripts/peers --of neggia,durin --prepare
       PLUGIN is dectris-neggia.so, DATA holds raw_*.u16 of one module with pedestals and gains (../shared/data/jungfrau-lyso)
"""

import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import h5py  # noqa: E402
import hdf5plugin  # noqa: E402, F401  registers the filters
import konkordia  # noqa: E402
import numpy as np  # noqa: E402

# Codecs, and the seconds of XDS in the paper's Table IV.
CODECS = {"none": 73.5, "lz4": 73.3, "bslz4": 74.3, "zstd": 75.4, "bszstd": 73.2, "gzip": 75.1}
# neggia knows these; any other filter is an error for it.
KNOWN = ("none", "lz4", "bslz4")
ROUNDS = 7
MASK = "/entry/instrument/detector/pixel_mask"


class Neggia:
    """plugin_open, plugin_get_header, plugin_get_data and plugin_close, as XDS calls them."""

    def __init__(self, path, master):
        self.library, self.info, self.error = ctypes.CDLL(str(path)), (ctypes.c_int * 1024)(), ctypes.c_int(0)
        at = ctypes.byref
        self.library.plugin_open(str(master).encode(), self.info, at(self.error))
        self.check("open")
        self.columns, self.rows, nbytes, frames, qx, qy = (kind(0) for kind in (ctypes.c_int,) * 4 + (ctypes.c_float,) * 2)
        self.library.plugin_get_header(at(self.columns), at(self.rows), at(nbytes), at(qx), at(qy), at(frames), self.info, at(self.error))
        self.check("header")
        self.images = frames.value
        self.pixels = np.empty((self.rows.value, self.columns.value), np.int32)

    def check(self, what):
        if self.error.value:
            raise OSError(f"neggia gives error {self.error.value} at {what}")

    def read(self, number):
        at, pixels = ctypes.byref, self.pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_int))
        # XDS counts from 1.
        self.library.plugin_get_data(at(ctypes.c_int(number + 1)), at(self.columns), at(self.rows), pixels, self.info, at(self.error))
        self.check(f"image {number}")
        return self.pixels

    def close(self):
        self.library.plugin_close(ctypes.byref(self.error))


class Ours:
    def __init__(self, master):
        self.file = konkordia.open(master)
        self.images, self.out = len(self.file), self.file[0]

    def read(self, number):
        return self.file.read(number, self.out)

    def close(self):
        self.file.close()


class H5py:
    def __init__(self, master):
        self.file = h5py.File(master)
        data = self.file["/entry/data"]
        self.parts = [data[name] for name in sorted(data) if name.startswith("data_0")]
        self.place = [(part, number) for part in self.parts for number in range(len(part))]
        self.images, self.out = len(self.place), np.empty(self.parts[0].shape[1:], self.parts[0].dtype)

    def read(self, number):
        part, place = self.place[number]
        part.read_direct(self.out, np.s_[place])
        return self.out

    def close(self):
        self.file.close()


def make(program, data, images, work):
    """A run of real frames as XDS reads it, in each codec; returns the masters."""
    frames = [path.read_bytes() for path in sorted(data.glob("raw_*.u16"))]
    with open(work / "run.u16", "wb") as file:
        for number in range(images):
            file.write(frames[number % len(frames)])
    command = [program, "convert", work / "run.u16", "-o", work / "run", "--calibration", data, "--energy-kev", "12.4", "--quiet"]
    for setting in ("processing.dtype=uint32", "output.xds=true", "detector.detector_distance_mm=100.0"):
        command += ["--set", setting]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    masters = {}
    for codec in CODECS:
        (work / codec).mkdir()
        subprocess.run([program, "repack", work / "run_master.h5", "-o", work / codec, "--compression", codec, "--quiet"], check=True, capture_output=True)
        masters[codec] = work / codec / "run_master.h5"
    return masters


def as_neggia_gives(stored, mask):
    """Numbers above those of a signed type are -1, masked pixels -2, gaps -1."""
    pixels = np.where(stored > 2**31 - 1, -1, stored.astype(np.int64))
    return np.where(mask & 1, -1, np.where(mask & 0x1E, -2, pixels)).astype(np.int32)


def verify(readers, codec, expected, mask):
    """Each reader gives each image; the first pass also puts the files into memory."""
    for name, reader in readers.items():
        assert reader.images == len(expected), (codec, name, reader.images)
        for number, stored in enumerate(expected):
            wanted = as_neggia_gives(stored, mask) if name == "neggia" else stored
            assert np.array_equal(reader.read(number), wanted), f"{codec}, {name}: image {number} differs"


def spread(times):
    """How far the slowest codec is above the fastest."""
    return {"percent": 100 * (max(times.values()) / min(times.values()) - 1), "milliseconds": max(times.values()) - min(times.values())}


def measure(program, plugin, data, images, work):
    masters = make(program, data, images, work)
    with h5py.File(masters["none"]) as file:
        mask = file[MASK][()]
    reader = H5py(masters["none"])
    expected = [reader.read(number).copy() for number in range(reader.images)]
    reader.close()
    kinds = {"neggia": lambda master: Neggia(plugin, master), "konkordia": Ours, "h5py": H5py}
    times = {name: {codec: [] for codec in CODECS if name != "neggia" or codec in KNOWN} for name in kinds}
    for turn in range(ROUNDS + 1):
        for codec, master in masters.items():
            for name in (name for name in kinds if codec in times[name]):
                reader = kinds[name](master)
                if turn == 0:
                    verify({name: reader}, codec, expected, mask)
                begun = time.perf_counter()
                for number in range(images):
                    reader.read(number)
                if turn:
                    times[name][codec].append(1e3 * (time.perf_counter() - begun) / images)
                reader.close()
    return {name: {codec: statistics.median(found) for codec, found in of.items()} for name, of in times.items()}


def main():
    program, plugin, data = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    images = int((sys.argv[4:] or [100])[0])
    if not plugin.exists():
        sys.exit(f"neggia.py: {plugin} is not there: run scripts/peers --of neggia,durin --prepare")
    # neggia says who it is on stdout, which belongs to the JSON.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory(prefix="konkordia-bench-", dir="/dev/shm") as folder:
        times = measure(program, plugin, data, images, pathlib.Path(folder))
    readers = {name: {"ms": of, "spread": spread(of), "spread_of_packed": spread({c: t for c, t in of.items() if c != "none"})} for name, of in times.items()}
    paper = {"xds_s": CODECS, "spread": 100 * (max(CODECS.values()) / min(CODECS.values()) - 1)}
    print(json.dumps({"images": images, "rounds": ROUNDS, "readers": readers, "paper": paper, "verified": True}), file=out)


if __name__ == "__main__":
    main()
