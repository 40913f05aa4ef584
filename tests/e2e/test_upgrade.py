"""Files, configurations and calibrations of older states open, and work with them goes on (docs/upgrade.md). The older
states are in tests/upgrade/, one archive each, made by tests/upgrade/make.py with the program of that state."""

import json
import sys
import tarfile

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import BINARY, MASKED, MISSING, ROOT, program

sys.path.insert(0, str(ROOT / "tests/upgrade"))
import make  # noqa: E402

ARCHIVES = sorted((ROOT / "tests/upgrade").glob("*.tar.xz"))
STATES_MIN = 3


def test_there_are_older_states():
    """The tests below run for at least so many; each archive is small."""
    assert len(ARCHIVES) >= STATES_MIN and all(path.stat().st_size < 100_000 for path in ARCHIVES)


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def older(request, tmp_path):
    """The folder with the files of an older state."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def images(master):
    with h5py.File(master) as file:
        data = file["/entry/data"]
        if "signal" in data.attrs:
            return data[data.attrs["signal"]][()]
        return np.concatenate([data[name][()] for name in sorted(data) if name.startswith("data_0")])


def test_files_of_runs(older):
    """They are valid, their pixels are what they were, and what is made of them has the same pixels."""
    sums = json.loads((older / "facts.json").read_text())["sums"]
    for name in ("raw_master.h5", "run_master.h5", "run_data_000002.h5"):
        program("check", older / name, check=0)
        program("inspect", older / name, "--image", 0, check=0)
    stored = images(older / "run_master.h5")
    assert [int(image.astype(np.int64).sum()) for image in stored] == sums
    # One more photon per column in each image, by the calibration of tests/upgrade/make.py, whichever state converted it.
    photons = np.rint(40 * (np.arange(50) + 4) / 40 / 12.4)
    assert (stored[4, 40:45, 100:150] == photons).all() and (stored[:, 300] != 0).all()
    assert set(np.unique(stored[:, 300])) <= {MISSING["int16"], MASKED["int16"], 32767, -32767}
    program("repack", older / "run_master.h5", "-o", older / "packed", "--compression", "bszstd", "--verify", check=0)
    program("check", older / "packed_master.h5", check=0)
    assert (images(older / "packed_master.h5") == stored).all()
    program("analyse", older / "run_master.h5", "--output", older / "results.h5", "--quiet", "--recipe", region(older), check=0)


def region(folder):
    recipe = folder / "box.toml"
    recipe.write_text('[[region]]\nname = "box"\nshape = "box"\ncorners_px = [10, 20, 29, 49]\n')
    return recipe


def test_a_raw_run_is_converted_again_with_its_calibration(older):
    """The present program makes the same chunks of an older raw run and an older calibration as the older one did."""
    more = ["--calibration", older / "calibration.h5", "--energy-kev", 12.4, "--images-per-file", 2]
    program("convert", older / "raw_master.h5", *more, "-o", older / "again", "--verify", "--quiet", check=0)
    assert (images(older / "again_master.h5") == images(older / "run_master.h5")).all()


def test_a_calibration_is_read_and_added_to(older):
    """It can be shown, compared with itself, and gains can be added to it."""
    path = older / "calibration.h5"
    program("calibration", "show", path, check=0)
    program("calibration", "compare", path, path, check=0)
    with h5py.File(path) as file:
        before = file["cell_00/g0/mean"][()]
    assert (before == 3000).all()
    gains = older / "gains.bin"
    np.stack([np.full((512, 1024), gain, "<f8") for gain in (41.0, -1.4, -0.12)]).tofile(gains)
    program("pedestal", "--gain", gains, "--into", path, check=0)
    with h5py.File(path) as file:
        assert (file["gain/g0"][()] == 41).all() and (file["cell_00/g0/mean"][()] == before).all()


def test_a_configuration_is_read(older):
    """The example of an older state, with every key that it had, is valid."""
    text = (older / "example.toml").read_text()
    (older / "calibration").mkdir()
    planes = {"pedestal_g0": [3000], "pedestal_g1": [14000], "pedestal_g2": [13500], "gain_adu_per_kev": [40, -1.5, -0.1]}
    for name, values in planes.items():
        np.repeat(np.float32(values), 512 * 1024).tofile(older / f"calibration/{name}.f32")
    lines = ['directory = "."' if line.startswith("directory") else line for line in text.splitlines()]
    (older / "run.toml").write_text("\n".join(lines))
    program("config", "check", "run.toml", check=0, cwd=older)


@pytest.fixture(scope="module")
def present(tmp_path_factory):
    """The folder with the same files by the present program."""
    folder = tmp_path_factory.mktemp("present")
    make.files(BINARY, folder)
    return folder


def layout(path):
    """All objects and attributes of a file, by path. Texts have no length, and values that name the day or the folder none."""
    found = {}

    def note(name, item):
        found[name] = "group" if isinstance(item, h5py.Group) else (item.dtype.kind, item.shape, repr(item._filters))
        if isinstance(item, h5py.Dataset) and item.dtype.kind != "S":
            found[name] += (item.dtype,)
        for key, value in item.attrs.items():
            found[f"{name}@{key}"] = "" if key == "created" or key.endswith("source") else repr(value)

    with h5py.File(path) as file:
        note("", file)
        file.visititems(note)
    return found


def test_after_a_rollback_nothing_that_an_older_program_knows_is_absent(older, present):
    """What the present program writes has every object and attribute, with type, shape, filters and value (the version of
    the format of calibrations among them), that the same files of the older state have; others are beside them."""
    names = sorted(path.name for path in older.glob("*.h5"))
    assert names == sorted(path.name for path in present.glob("*.h5"))
    for name in names:
        before, now = layout(older / name), layout(present / name)
        assert len(before) > 30 and {key: now.get(key) for key in before} == before
    assert layout(older / "calibration.h5")["@format_version"] == layout(present / "calibration.h5")["@format_version"]
