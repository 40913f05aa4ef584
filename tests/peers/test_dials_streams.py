"""DIALS on Pilatus frames that went through `konkordia serve`. It must find the spots that it finds in the detector's
own files, and none in lost images."""

import bz2
import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import programs  # noqa: F401  puts our other tests on the path
from dials import dials, needs_dials
from driving import DATA
from test_analyse import matched, recipe

THAUMATIN = DATA / "thaumatin"
# Number of spots that DIALS 3.12 finds in the CBF files themselves with its default settings.
SPOTS = {"thau_3_2_0001.cbf": 290, "thau_3_2_0008.cbf": 1104}

pytestmark = [
    pytest.mark.peer("DIALS"),
    pytest.mark.skipif(not THAUMATIN.is_dir(), reason=f"no real frames in {THAUMATIN}"),
    needs_dials,
]


def spots(folder, file):
    """Strong pixels by image (from 1), and the number of spots, as dials.find_spots reports them."""
    folder.mkdir()
    dials(folder, "dials.import", file)
    said = dials(folder, "dials.find_spots", "imported.expt", "nproc=1")
    counted = re.findall(r"Found (\d+) strong pixels on image (\d+)", said)
    saved = re.search(r"Saved (\d+) reflections", said)
    return {int(image): int(pixels) for pixels, image in counted}, int(saved.group(1))


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frames")
    for name in SPOTS:
        (folder / name).write_bytes(bz2.decompress((THAUMATIN / f"{name}.bz2").read_bytes()))
    return folder


def through_the_service(folder, files):
    """Puts these files into a folder that the service reads; returns the master of the series."""
    from streams import StreamService

    (folder / "in").mkdir(parents=True)
    (folder / "out").mkdir()
    source = f'folder = "{folder}/in"\nsettle_ms = 100\npoll_ms = 50'
    service = StreamService(folder, "directory", source=source, output_folder=folder / "out", run="stall_timeout_s = 2")
    try:
        for file in files:
            hidden = folder / f".{file.name}"
            shutil.copy(file, hidden)
            hidden.rename(folder / "in" / file.name)
        return Path(service.until(lambda s: s["run"] == 1 and s["state"] == "idle", timeout=60)["file"])
    finally:
        service.close()


@pytest.mark.parametrize("name", SPOTS)
def test_a_frame_has_the_spots_of_the_original(frames, tmp_path, capsys, name):
    """Real Pilatus frames of thaumatin through the service: as many spots as in the original (290 and 1104)."""
    pixels, original = spots(tmp_path / "original", frames / name)
    assert original == SPOTS[name], "this DIALS finds something else in the original: compare with its own number"
    master = through_the_service(tmp_path / "series", [frames / name])
    ours, found = spots(tmp_path / "ours", master)
    with capsys.disabled():
        print(f"\n{name}: {original} spots in the original, {found} in ours; strong pixels {pixels} and {ours}")
    assert found == original and list(ours.values()) == list(pixels.values())


def test_lost_images_have_no_spots(frames, tmp_path):
    """Frames 1 and 8 of a series: the six images between them are lost, and have no spots."""
    master = through_the_service(tmp_path / "series", [frames / name for name in SPOTS])
    pixels, found = spots(tmp_path / "ours", master)
    assert found == sum(SPOTS.values())
    assert sum(count for image, count in pixels.items() if 1 < image < 8) == 0


FOUND = """
import json, sys
from dials.array_family import flex
found = flex.reflection_table.from_file(sys.argv[1])
print(json.dumps([place[:2] for place in found["xyzobs.px.value"]]))
"""


def test_the_spots_of_a_rotation_run_are_those_of_dials(tmp_path):
    """A rotation run of real Pilatus frames: dials.import has its goniometer and oscillation, and dials.find_spots at least 98 % of the spots that are stored with each image, and they at most 3 % more."""
    from streams import StreamService
    from test_angles import cbf_series, imported

    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    by = recipe(tmp_path, spots={"method": "dispersion"})
    source = f'folder = "{tmp_path}/in"\nsettle_ms = 100\npoll_ms = 50'
    extra = f'[goniometer]\nomega_vector = [0, 1, 0]\n[analysis]\nrecipe = "{by}"\nqueue_images = 64\n'
    service = StreamService(tmp_path, "directory", source=source, output_folder=tmp_path / "out", run="stall_timeout_s = 5\nimages = 3", extra=extra)
    try:
        cbf_series(tmp_path / "in", 3)
        master = service.taken(1, timeout=90)["file"]
    finally:
        service.close()
    found = imported(tmp_path, master)
    assert "sweep:    1" in found["said"] and found["scan"] == (10.0, 1.0, 1, 3) and found["axis"] == [0, 1, 0]
    with h5py.File(master) as file:
        columns = file["/entry/konkordia/images"]
        counts, x, y = (columns[name][()] for name in ("nPeaks", "peakXPosRaw", "peakYPosRaw"))
    (tmp_path / "found.py").write_text(FOUND)
    for n in range(3):
        # Its default, dispersion_extended, is ours.
        settings = [f"spotfinder.scan_range={n + 1},{n + 1}", "nproc=1", "output.reflections=one.refl"]
        dials(tmp_path, "dials.find_spots", "imported.expt", *settings)
        theirs = np.array(json.loads(dials(tmp_path, "/usr/bin/python3", "found.py", "one.refl").splitlines()[-1]))
        # DIALS counts from the corner of the first pixel.
        ours = np.column_stack([x[n][: counts[n]], y[n][: counts[n]]]) + 0.5
        same, extra_ones = matched(ours, theirs)
        assert len(theirs) > 200 and same >= 0.98 * len(theirs) and extra_ones <= 0.03 * len(theirs), (len(theirs), same, extra_ones)
