"""Prints as JSON how small copies with `--compression spots` are for some steps of the background, and that their spots are the same.

usage: spots.py PROGRAM DATA       DATA holds raw_*.u16 of one module with pedestals and gains (../shared/data/jungfrau-lyso)
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy as np
from sz3 import bits_per_pixel, images_of, konkordia

SIGMAS = (0.5, 1, 1.5, 2)


def spots_of(program, recipe, master):
    """Places and intensities of the spots of each image."""
    done = subprocess.run([program, "analyse", master, "--recipe", recipe, "--json"], check=True, capture_output=True, text=True)
    images = [line["spots"] for line in map(json.loads, done.stdout.splitlines()) if line["event"] == "image"]
    return [[spots[name] for name in ("x_px", "y_px", "intensity")] for spots in images]


def main():
    program, data = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        recipe = work / "recipe.toml"
        recipe.write_text('[spots]\nmethod = "dispersion"\n')
        raw = sorted(data.glob("raw_*.u16"))
        konkordia(program, "convert", *raw, "-o", work / "run", "--calibration", data, "--energy-kev", "12.4", "--quiet")
        konkordia(program, "repack", work / "run_master.h5", "-o", work / "zstd", "--compression", "bszstd")
        images, spots = images_of(work / "run_master.h5"), spots_of(program, recipe, work / "run_master.h5")
        report = {"images": len(images), "lossless": {"bits_per_pixel": bits_per_pixel(work, "zstd")}, "sigmas": {}}
        for sigma in SIGMAS:
            name = f"s{sigma}"
            konkordia(program, "repack", work / "run_master.h5", "-o", work / name, "--compression", "spots", "--background-sigma", sigma)
            copy, again = images_of(work / f"{name}_master.h5"), spots_of(program, recipe, work / f"{name}_master.h5")
            with h5py.File(work / f"{name}_master.h5") as file:
                lossless = int(file["/entry/konkordia/repack/images_lossless"][()])
            count = sum(len(of_image[0]) for of_image in spots)
            same = sum(len({*zip(*before)} & {*zip(*after)}) for before, after in zip(spots, again, strict=True))
            report["sigmas"][str(sigma).replace(".", "_")] = {
                "bits_per_pixel": bits_per_pixel(work, name),
                "pixels_changed_share": float((copy != images).mean()),
                "sum_bias": float(abs(copy.sum(dtype=np.int64) / images.sum(dtype=np.int64) - 1)),
                "images_lossless": lossless,
                "spots": count,
                "spots_lost": count - same,
                "spots_new": sum(len(of_image[0]) for of_image in again) - same,
            }
        print(json.dumps(report))


if __name__ == "__main__":
    main()
