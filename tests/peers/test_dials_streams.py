"""DIALS on Pilatus frames that went through `konkordia serve`. It must find the spots that it finds in the detector's
own files, and none in lost images."""

import bz2
import re
import shutil
from pathlib import Path

import pytest

import programs  # noqa: F401  puts our other tests on the path
from dials import dials, needs_dials
from driving import DATA

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
