"""Calibration files of detectors of two modules with a gap between them, and what numpy makes of them."""

import datetime

import h5py
import numpy as np
from driving import program

MODULE = (512, 1024)
STAGES = ("g0", "g1", "g2")
# The second module lies below a gap, moved and upside down.
TILES = [{"row": 0, "column": 0}, {"row": 520, "column": 3, "rotate_deg": 180}]
ROWS, COLUMNS = 520 + 512, 3 + 1024
MASKED = 2**32 - 2


def two_modules(**more):
    """Tables of a configuration."""
    detector = {"type": "jungfrau", "modules": 2, "energy_kev": 12.4, "tile": [dict(tile) for tile in TILES]}
    return {"detector": detector, "calibration": {"kind": "konkordia", "file": "cal.h5"}, "run": {"images": 6}, **more}


def ago(**time):
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(**time)).strftime("%Y-%m-%dT%H:%M:%SZ")


def write(folder, seed, taken, *, name="cal.h5", shift=0.0, modules=2):
    """Writes a calibration of plausible random planes with dead and noisy pixels and pixels without gain; the one before
    is kept as the previous one."""
    rng = np.random.default_rng(seed)
    shape = (modules, *MODULE)
    means = [rng.normal(mean + shift, 100, shape) for mean in (2900, 14500, 14000)]
    noise = rng.normal(25, 2, shape)
    gains = [np.full(shape, gain) * rng.normal(1, 0.02, shape) for gain in (41.0, -1.44, -0.114)]
    dead, noisy = rng.random(shape) < 1e-3, rng.random(shape) < 1e-3
    means[0][dead] = 16383
    noise[noisy] = 200
    gains[1][rng.random(shape) < 1e-3] = 0
    paths = {}
    for key, planes in {"pedestal": means, "rms": [noise], "gain": gains}.items():
        paths[key] = [folder / f"{key}_{place}.f32" for place in range(len(planes))]
        for path, plane in zip(paths[key], planes, strict=True):
            plane.astype("<f4").tofile(path)
    program(
        *("calibration", "import", "--modules", modules, "--cell", 3, "--taken", taken, "--noisy-k", 3, "--overwrite", "-o", folder / name),
        *("--pedestal", *paths["pedestal"], "--rms", *paths["rms"], "--gain", *paths["gain"]),
        check=0,
    )
    return folder / name


def placed(plane, gap):
    """A plane of the file where its pixels lie in the image."""
    image = np.full((ROWS, COLUMNS), gap, plane.dtype)
    image[:512, :1024] = plane[:512]
    image[520:, 3:] = np.rot90(plane[512:], 2)
    return image


def expected(path, quantity, stage):
    """The map as h5py and numpy make it of the file."""
    with h5py.File(path) as file:
        group = file[f"cell_03/{STAGES[stage]}"]
        mask = group["mask"][()]
        if quantity == "mask":
            return placed(mask, MASKED)
        if quantity == "gain":
            gain = file[f"gain/{STAGES[stage]}"][()]
            return placed(np.where((gain > 0) == (stage == 0), np.where(gain == 0, np.nan, gain), np.nan), np.nan)
        return placed(np.where(mask == 0, group[{"pedestal": "mean", "noise": "rms"}[quantity]][()], np.nan), np.nan)
