"""Prints as JSON how fast `konkordia convert` is: real frames of one module, eight times side by side as a 4M, from a folder in memory into another one.

usage: convert.py PROGRAM DATA [FRAMES]       DATA holds raw_*.u16 of one module with pedestals and gains (../shared/data/jungfrau-lyso)
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np

MODULES, PIXELS = 8, 512 * 1024


def run(command, cores):
    """Runs it on these cores; returns seconds and the most memory that it held."""
    began = os.times().elapsed
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, cores)
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 1)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    assert status == 0, f"{command} ended with {os.waitstatus_to_exitcode(status)}"
    return os.times().elapsed - began, usage.ru_maxrss * 1024


def main():
    program, data, count = sys.argv[1], pathlib.Path(sys.argv[2]), int((sys.argv[3:] or [400])[0])
    work = pathlib.Path(tempfile.mkdtemp(prefix="konkordia-bench-", dir="/dev/shm"))
    try:
        for plane in (f"pedestal_g{stage}.f32" for stage in range(3)):
            (work / plane).write_bytes((data / plane).read_bytes() * MODULES)
        gains = np.fromfile(data / "gain_adu_per_kev.f32", "<f4").reshape(3, 1, PIXELS)
        np.tile(gains, (1, MODULES, 1)).tofile(work / "gain_adu_per_kev.f32")
        frames = [path.read_bytes() * MODULES for path in sorted(data.glob("raw_*.u16"))]
        with open(work / "run.u16", "wb") as file:
            for number in range(count):
                file.write(frames[number % len(frames)])
        options = ["--energy-kev", "12.4", "--quiet"]
        alone = [program, "convert", str(data / "raw_00.u16"), "-o", str(work / "alone"), "--calibration", str(data), *options]
        run(alone, os.sched_getaffinity(0))
        with h5py.File(work / "alone_master.h5") as file:
            truth = file["/entry/data/data_000001"][0]
        report = {"frames": count}
        available = sorted(os.sched_getaffinity(0))
        for name, cores in (("one core", available[:1]), ("two cores", available[:2])):
            out = work / name.replace(" ", "-")
            command = [program, "convert", str(work / "run.u16"), "-o", str(out), "--modules", str(MODULES), "--calibration", str(work), *options]
            seconds, resident = run([*command, "--workers", str(len(cores))], cores)
            with h5py.File(f"{out}_master.h5") as file:
                image = file["/entry/data/data_000001"][0]
            verified = all(np.array_equal(module, truth) for module in image.reshape(MODULES, *truth.shape))
            assert verified, "the pixels of the modules are not those of one module alone"
            rate = count * MODULES * PIXELS * 2 / seconds / 1e9
            report[name] = {"gigabytes_raw_per_second": rate, "resident_bytes_max": resident, "verified": verified}
            for path in work.glob(f"{out.name}_*"):
                path.unlink()
        print(json.dumps(report))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
