"""Makes, with the program of an older state, the files that tests/e2e/test_upgrade.py opens with the present one.

usage: tests/upgrade/make.py PROGRAM NAME     writes tests/upgrade/NAME.tar.xz (NAME: date and commit of that state)

The files are small because most pixels are alike. They are made once for each state, and never again.
"""

import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
FRAMES, SHAPE = 5, (512, 1024)
PLANES = {"pedestal": (3000.0, 14000.0, 13500.0), "gain": (40.0, -1.5, -0.1)}


def words():
    """Frames of a JUNGFRAU in all gain stages; few pixels differ from the pedestal."""
    frames = np.full((FRAMES, *SHAPE), 3000, np.uint16)
    for n in range(FRAMES):
        frames[n, 10 * n : 10 * n + 5, 100:150] = 3000 + 40 * (np.arange(50) + n)
        frames[n, 200 + n, 300:310] = 0x4000 | 12000  # stage 1
        frames[n, 250 + n, 300:310] = 0xC000 | 13000  # stage 2
    frames[:, 300, :] = 0xFFFF
    return frames


def call(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{program} {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout


def calibration(program, folder):
    paths = {}
    for key, values in PLANES.items():
        paths[key] = [folder / f"{key}_{stage}.f32" for stage in range(3)]
        for path, value in zip(paths[key], values, strict=True):
            np.full(SHAPE, value, "<f4").tofile(path)
    made = ["calibration", "import", "--modules", 1, "--cell", 0, "--taken", "2026-11-20T12:00:00Z", "-o", folder / "calibration.h5"]
    call(program, *made, "--pedestal", *paths["pedestal"], "--gain", *paths["gain"])
    for path in paths["pedestal"] + paths["gain"]:
        path.unlink()


def images_of(master):
    with h5py.File(master) as file:
        data = file["/entry/data"]
        return data[data.attrs["signal"]][()] if "signal" in data.attrs else np.concatenate([data[name][()] for name in sorted(data) if name.startswith("data_0")])


def files(program, folder):
    """A calibration, a raw run and its conversion."""
    calibration(program, folder)
    words().tofile(folder / "words.u16")
    few = ["--images-per-file", 2, "--quiet"]
    call(program, "convert", folder / "words.u16", "--dtype", "raw", "-o", folder / "raw", *few)
    call(program, "convert", folder / "raw_master.h5", "--calibration", folder / "calibration.h5", "--energy-kev", 12.4, "-o", folder / "run", *few)
    (folder / "words.u16").unlink()


def main(program, name):
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        files(program, folder)
        (folder / "example.toml").write_text(call(program, "config", "init"))
        sums = [int(image.astype(np.int64).sum()) for image in images_of(folder / "run_master.h5")]
        facts = {"state": name, "version": call(program, "version").split()[1], "sums": sums}
        (folder / "facts.json").write_text(json.dumps(facts))
        with tarfile.open(HERE / f"{name}.tar.xz", "w:xz", preset=9) as out:
            for path in sorted(folder.iterdir()):
                out.add(path, path.name)
    print(HERE / f"{name}.tar.xz", (HERE / f"{name}.tar.xz").stat().st_size, facts)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
