"""Calibrates a simulated JUNGFRAU of 32 modules in several processes with `konkordia graph`, and checks every pixel.

It makes raw frames of known photons in all three gains, pedestals and gains of each pixel, and a graph file; runs the
graph; compares each pixel of the written file with the photons; and prints images and bytes per second. All files lie in
FOLDER: 33.6 MB per raw image, and 400 MB of calibration.

usage: calibrate_32_modules.py FOLDER [--images N] [--modules M] [--workers N] [--compress N]
"""

import argparse
import functools
import json
import os
import pathlib
import platform
import subprocess
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np

MODULE, ENERGY_KEV = (512, 1024), 12.4
#: ADU without photons, and ADU per keV, of G0, G1 and G2: mean, and how much pixels differ.
PEDESTALS = [(2900, 300), (14500, 200), (14000, 200)]
GAINS = [(41.0, 1.5), (-1.44, 0.05), (-0.114, 0.004)]
#: Photons up to which a pixel stays in G0 and G1, and the most.
SWITCH = (20, 500, 8000)
#: Bits 14 and 15 of a word.
GAIN_BITS = [0x0000, 0x4000, 0xC000]
#: Different frames; they are repeated.
DISTINCT = 4


def planes(rng, values, modules):
    """A plane of each gain; pixels differ."""
    shape = (modules * MODULE[0], MODULE[1])
    return [(mean + spread * (rng.random(shape, np.float32) - 0.5)).astype(np.float32) for mean, spread in values]


@functools.lru_cache(maxsize=DISTINCT)
def photons_of(number, modules):
    """The photons of one of the different frames: few in most pixels, and more in some, so that all gains come."""
    rng = np.random.default_rng(1000 + number)
    photons = rng.poisson(1.5, (modules * MODULE[0], MODULE[1])).astype(np.int32)
    bright = rng.integers(0, photons.size, photons.size // 50)
    photons.flat[bright] = rng.integers(0, SWITCH[2], bright.size)
    return photons


def words_of(photons, pedestals, gains):
    """The words that the detector sends for these photons."""
    words = np.zeros(photons.shape, np.uint16)
    for stage in range(3):
        low = SWITCH[stage - 1] if stage else -1
        here = (photons > low) & (photons <= SWITCH[stage])
        adu = np.rint(pedestals[stage][here] + gains[stage][here] * np.float32(ENERGY_KEV) * photons[here])
        words[here] = np.clip(adu, 1, 0x3FFE).astype(np.uint16) | GAIN_BITS[stage]
    return words


def make(folder, images, modules):
    """Writes calibration and raw frames, as SwissFEL stores them."""
    rng = np.random.default_rng(1)
    pedestals, gains = planes(rng, PEDESTALS, modules), planes(rng, GAINS, modules)
    (folder / "calibration").mkdir(exist_ok=True)
    for stage, pedestal in enumerate(pedestals):
        pedestal.tofile(folder / "calibration" / f"pedestal_g{stage}.f32")
    np.stack(gains).tofile(folder / "calibration" / "gain_adu_per_kev.f32")
    distinct = [words_of(photons_of(number, modules), pedestals, gains) for number in range(min(images, DISTINCT))]
    with h5py.File(folder / "raw.h5", "w") as file:
        group = file.create_group(f"data/JF07T{modules:02}V01")
        shape = (images, *distinct[0].shape)
        data = group.create_dataset("data", shape, np.uint16, chunks=(1, *shape[1:]))
        for number in range(images):
            data[number] = distinct[number % DISTINCT]
        numbers = np.arange(images, dtype=np.int64).reshape(-1, 1)
        columns = {"daq_rec": numbers * 0, "frame_index": numbers + 1, "is_good_frame": numbers * 0 + 1, "pulse_id": numbers + 10**10}
        for name, values in columns.items():
            group.create_dataset(name, data=values)
        group.create_dataset("module_map", data=np.arange(modules, dtype=np.int64))


def graph(folder, workers, compress):
    """The graph file. A queue of 16 images bounds the memory: each takes 34 MB in each process that has it."""
    text = f"""
[[stage]]
name = "read"
kind = "files"
files = ["{folder}/raw.h5"]
queue = 16

[[stage]]
name = "convert"
kind = "convert"
calibration = "{folder}/calibration"
energy_kev = {ENERGY_KEV}
workers = {workers}
response_ms_max = 120000

[[stage]]
name = "compress"
kind = "compress"
workers = {compress}
response_ms_max = 60000

[[stage]]
name = "write"
kind = "write"
file = "{folder}/photons"
response_ms_max = 60000
"""
    for before, after in [("read", "convert"), ("convert", "compress"), ("compress", "write")]:
        text += f'\n[[edge]]\nfrom = "{before}"\nto = "{after}"\ntransport = "ipc"\nwindow = 2\n'
    path = folder / "graph.toml"
    path.write_text(text)
    return path


def check(folder, images, modules):
    """Compares each pixel of each image with the photons; returns the count of pixels."""
    with h5py.File(folder / "photons_master.h5") as file:
        stack = file["entry/data/images"]
        assert stack.shape == (images, modules * MODULE[0], MODULE[1]), stack.shape
        for number in range(images):
            different = np.count_nonzero(stack[number] != photons_of(number % DISTINCT, modules))
            assert different == 0, f"image {number}: {different} pixels differ from the photons"
        return stack.size


def machine():
    """The processors of this machine, in words."""
    names = {line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")}
    return f"{os.cpu_count()} x {', '.join(sorted(names)) or platform.machine()}, Linux {platform.release()}"


def main():
    """Makes, runs, checks and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--modules", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compress", type=int, default=2)
    args = parser.parse_args()
    folder = args.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    make(folder, args.images, args.modules)
    path = graph(folder, args.workers, args.compress)
    program = os.environ.get("KONKORDIA_BIN", "konkordia")
    began = time.monotonic()
    subprocess.run([program, "graph", "run", path], check=True)
    seconds = time.monotonic() - began
    pixels = check(folder, args.images, args.modules)
    report = {
        "images": args.images, "modules": args.modules, "pixels_checked": pixels, "seconds": round(seconds, 2),
        "images_per_s": round(args.images / seconds, 2), "raw_gb_per_s": round(2e-9 * pixels / seconds, 3), "machine": machine(),
    }  # fmt: skip
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
