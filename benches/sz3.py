"""Prints as JSON how small and how true copies with `--compression sz3` are, beside SZ3's own encoder in hdf5plugin with the same bounds.

usage: sz3.py PROGRAM DATA       DATA holds raw_*.u16 of one module with pedestals and gains (../shared/data/jungfrau-lyso)
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import h5py
import hdf5plugin
import numpy as np

BOUNDS = (1, 2, 4)


def konkordia(program, *arguments):
    subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def images_of(master):
    with h5py.File(master) as file:
        data = file["/entry/data"]
        return np.concatenate([data[name][()] for name in sorted(data) if name.startswith("data_0")])


def bits_per_pixel(folder, prefix):
    stored = pixels = 0
    for path in pathlib.Path(folder).glob(f"{prefix}_data_*.h5"):
        with h5py.File(path) as file:
            stored += file["/entry/data/data"].id.get_storage_size()
            pixels += file["/entry/data/data"].size
    return 8 * stored / pixels


def main():
    program, data = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        raw = sorted(data.glob("raw_*.u16"))
        konkordia(program, "convert", *raw, "-o", work / "run", "--calibration", data, "--energy-kev", "12.4", "--quiet")
        images = images_of(work / "run_master.h5")
        report = {"images": len(images), "lossless": {"bslz4": {"bits_per_pixel": bits_per_pixel(work, "run")}}, "bounds": {}}
        konkordia(program, "repack", work / "run_master.h5", "-o", work / "zstd", "--compression", "bszstd")
        report["lossless"]["bszstd"] = {"bits_per_pixel": bits_per_pixel(work, "zstd")}
        # The four special values of int16.
        valid = (images > -32766) & (images < 32767)
        for bound in BOUNDS:
            name = f"sz{bound}"
            konkordia(program, "repack", work / "run_master.h5", "-o", work / name, "--compression", "sz3", "--error-bound", bound)
            copy = images_of(work / f"{name}_master.h5")
            assert np.array_equal(copy[~valid], images[~valid]), "special values stay"
            difference = np.abs(copy.astype(int) - images)[valid]
            assert difference.max() <= bound
            with h5py.File(work / f"{name}_plugin.h5", "w") as file:
                own = file.create_dataset("d", data=images, chunks=(1, *images.shape[1:]), **hdf5plugin.SZ3(absolute=bound))
                plugin_bits = 8 * own.id.get_storage_size() / own.size
            sums = images[valid].sum(dtype=np.int64), copy[valid].sum(dtype=np.int64)
            report["bounds"][str(bound)] = {
                "bits_per_pixel": bits_per_pixel(work, name),
                "plugin_bits_per_pixel": plugin_bits,
                "pixels_changed_share": float((difference > 0).mean()),
                "sum_bias": float(abs(sums[1] - sums[0]) / sums[0]),
                "verified": True,
            }
        print(json.dumps(report))


if __name__ == "__main__":
    main()
