"""What the present program wrote, with a program of an older state, after a rollback (docs/upgrade.md). KONKORDIA_OLDER
names that program; `make test` has none, because its build takes as long as that of the present one."""

import os
import subprocess

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
import raw_files
from driving import program

OLDER = os.environ.get("KONKORDIA_OLDER", "")
pytestmark = pytest.mark.skipif(not os.access(OLDER, os.X_OK), reason="KONKORDIA_OLDER names no program of an older state (docs/upgrade.md)")
FRAMES, PER_FILE = 6, 2
FEW = ["--images-per-file", PER_FILE, "--quiet"]


def older(*arguments, check=0):
    done = subprocess.run([OLDER, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert check is None or done.returncode == check, f"exit code {done.returncode}, expected {check}\n{done.stdout}\n{done.stderr}"
    return done


def images(master):
    with h5py.File(master) as file:
        data = file["/entry/data"]
        if "signal" in data.attrs:
            return data[data.attrs["signal"]][()]
        return np.concatenate([data[name][()] for name in sorted(data) if name.startswith("data_0")])


@pytest.fixture
def newer(tmp_path):
    """A calibration, a raw run and its conversion by the present program."""
    planes = {"pedestal": (3000, 14000, 13500), "gain": (40, -1.5, -0.1)}
    paths = {}
    for name, values in planes.items():
        paths[name] = [tmp_path / f"{name}_{stage}.f32" for stage in range(3)]
        for path, value in zip(paths[name], values, strict=True):
            np.full((512, 1024), value, "<f4").tofile(path)
    made = ["calibration", "import", "--modules", 1, "--cell", 0, "--taken", "2026-11-20T12:00:00Z", "-o", tmp_path / "calibration.h5"]
    program(*made, "--pedestal", *paths["pedestal"], "--gain", *paths["gain"], check=0)
    source = raw_files.write_sls(tmp_path, raw_files.frames(FRAMES), name="words")
    program("convert", source, "--dtype", "raw", "-o", tmp_path / "raw", *FEW, check=0)
    program("convert", tmp_path / "raw_master.h5", *with_calibration(tmp_path), "-o", tmp_path / "run", check=0)
    return tmp_path


def with_calibration(folder):
    return ["--calibration", folder / "calibration.h5", "--energy-kev", 12.4, *FEW]


def test_files_of_runs(newer):
    """The older program checks and shows them, and what it makes of them has the same pixels."""
    for name in ("raw_master.h5", "run_master.h5", "run_data_000002.h5"):
        older("check", newer / name)
        older("inspect", newer / name, "--image", 0)
    older("repack", newer / "run_master.h5", "-o", newer / "packed", "--compression", "bszstd", "--verify")
    assert (images(newer / "packed_master.h5") == images(newer / "run_master.h5")).all()
    program("check", newer / "packed_master.h5", check=0)
    recipe = newer / "box.toml"
    recipe.write_text('[[region]]\nname = "box"\nshape = "box"\ncorners_px = [10, 20, 29, 49]\n')
    older("analyse", newer / "run_master.h5", "--output", newer / "results.h5", "--quiet", "--recipe", recipe)


def test_calibrations(newer):
    """The older program converts with one that was taken meanwhile, to the same pixels, and adds gains to it."""
    older("calibration", "show", newer / "calibration.h5")
    older("convert", newer / "raw_master.h5", *with_calibration(newer), "-o", newer / "again", "--verify")
    assert (images(newer / "again_master.h5") == images(newer / "run_master.h5")).all()
    gains = newer / "gains.bin"
    np.stack([np.full((512, 1024), gain, "<f8") for gain in (41.0, -1.4, -0.12)]).tofile(gains)
    older("pedestal", "--gain", gains, "--into", newer / "calibration.h5")
    program("calibration", "show", newer / "calibration.h5", check=0)
    with h5py.File(newer / "calibration.h5") as file:
        assert (file["gain/g0"][()] == 41).all() and (file["cell_00/g0/mean"][()] == 3000).all()


def test_an_interrupted_conversion(newer):
    """`--resume` of the older program makes the same pixels, or refuses and changes nothing; the present one ends it."""
    for name in ("run_master.h5", f"run_data_{FRAMES // PER_FILE:06d}.h5"):
        (newer / name).rename(newer / f"kept_{name}")
    before = {path.name: path.read_bytes() for path in newer.glob("run_*")}
    done = older("convert", newer / "raw_master.h5", *with_calibration(newer), "-o", newer / "run", "--resume", check=None)
    if done.returncode != 0:
        assert "--resume" in done.stderr or "resume" in done.stderr, done.stderr
        assert {path.name: path.read_bytes() for path in newer.glob("run_*")} == before
        program("convert", newer / "raw_master.h5", *with_calibration(newer), "-o", newer / "run", "--resume", check=0)
    program("check", newer / "run_master.h5", check=0)
    program("convert", newer / "raw_master.h5", *with_calibration(newer), "-o", newer / "whole", check=0)
    assert (images(newer / "run_master.h5") == images(newer / "whole_master.h5")).all()


def test_configurations(tmp_path):
    """The example of the older program is valid for both; that of the present one is valid for the older program, or is
    refused with the name of a key that came later."""
    (tmp_path / "older.toml").write_text(older("config", "init").stdout)
    (tmp_path / "newer.toml").write_text(program("config", "init", check=0).stdout)
    print(older("config", "check", tmp_path / "newer.toml", check=None))
