"""CrystFEL's indexamajig on our files, with the spots that Konkordia found."""

import json
import os
import re
import subprocess

import h5py
import hdf5plugin
import numpy as np
import pytest
from programs import BUILD, needs

from driving import Bench, lyso_raw, lyso_tables, needs_lyso, program, simulate
from streams import Stins, StreamService
from test_analyse import DIALS, others_file, recipe
from test_live_analysis import frames

INDEXAMAJIG = BUILD / "crystfel/indexamajig"

pytestmark = [pytest.mark.peer("CrystFEL"), needs(INDEXAMAJIG, "CrystFEL")]

# CrystFEL reads bitshuffle through the plug-in.
ENVIRONMENT = {**os.environ, "HDF5_PLUGIN_PATH": hdf5plugin.PLUGIN_PATH}

# For the file of results; for a run `konkordia inspect --geom` writes it.
GEOMETRY = """
photon_energy = 12400 eV
clen = 0.1 m
res = 13333.333              ; pixels per metre
adu_per_photon = 1
data = {images}
dim0 = %
dim1 = ss
dim2 = fs
peak_list = {lists}
peak_list_type = cxi
0/min_fs = 0
0/max_fs = {fs_max}
0/min_ss = 0
0/max_ss = {ss_max}
0/corner_x = 500.5
0/corner_y = 260.25
0/fs = -x                    ; columns
0/ss = -y
"""


def chunks(text):
    """Event and peaks (fs, ss, 1/d, intensity) of each image of a stream."""
    for chunk in text.split("----- Begin chunk -----\n")[1:]:
        event = int(re.search(r"^Event: //(\d+)$", chunk, re.M)[1])
        listed = re.search(r"Peaks from peak search\n.*\n((?:.*\n)*?)End of peak list", chunk)
        lines = listed[1].splitlines() if listed else []
        yield event, np.array([[float(part) for part in line.split()[:4]] for line in lines])


def compare(folder, file, images, lists, *options, shift_px, spots_min=4):
    """Runs indexamajig, with the geometry of `konkordia inspect` where it can be, over all images of a file and compares its peaks with the lists, number by number. CrystFEL prints
    two decimals, and holds single precision."""
    with h5py.File(file) as opened:
        count, rows, columns = opened[images].shape
        names = ["nPeaks", "peakXPosRaw", "peakYPosRaw", "peakTotalIntensity"]
        counts, x, y, intensity = (opened[f"{lists}/{name}"][()] for name in names)
    if images == "/images":
        (folder / "run.geom").write_text(GEOMETRY.format(images=images, lists=lists, fs_max=columns - 1, ss_max=rows - 1))
    else:
        program("inspect", file, "--geom", folder / "run.geom", check=0)
        text = (folder / "run.geom").read_text()
        assert f"data = {images}\n" in text and f"peak_list = {lists}\n" in text
    (folder / "run.lst").write_text(f"{file}\n")
    command = [INDEXAMAJIG, "-i", "run.lst", "-g", "run.geom", "-o", "run.stream", "--peaks=cxi", "--indexing=none", "--no-revalidate", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-4000:]
    found = dict(chunks((folder / "run.stream").read_text()))
    assert sorted(found) == list(range(count)) and (counts >= spots_min).all(), (sorted(found), counts, done.stderr[-4000:])
    for image, peaks in found.items():
        own = slice(0, counts[image])
        ours = np.transpose([x[image, own], y[image, own], intensity[image, own]])
        assert len(peaks) == len(ours), image
        difference = np.abs(peaks[:, [0, 1, 3]] - [shift_px, shift_px, 0] - ours)
        assert (difference <= 0.00501 + 1e-6 * np.abs(ours)).all(), (image, difference.max(axis=0))
    return len(np.unique(counts))


@needs_lyso
@pytest.mark.parametrize("options, shift_px", [([], 0.5), (["--no-half-pixel-shift"], 0)], ids=["usual", "no-half-pixel-shift"])
def test_indexamajig_takes_the_spots_of_a_run(tmp_path, options, shift_px):
    """Every spot of a run with several data files is a peak in the stream of CrystFEL, at the same place."""
    bench, by = Bench(tmp_path), recipe(tmp_path, spots=DIALS | {"spots_max": 300})
    tables = lyso_tables(images=10, stall_timeout_s=3)
    tables["detector"] |= {"energy_kev": 12.4, "detector_distance_mm": 100.0, "beam_center_x_px": 500.5, "beam_center_y_px": 260.25}
    tables["analysis"] = {"recipe": by.name, "queue_images": 64}
    tables["output"] = {"images_per_file": 4}
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 40, "--raw", *lyso_raw()[:5], "--images", 10)
    _, report = receiver.finish()
    assert report is not None and report["balances"], receiver.errors
    different = compare(tmp_path, bench.master, "/entry/data/images", "/entry/konkordia/images", *options, shift_px=shift_px)
    assert different > 3, "images have different numbers of spots, so an image with the list of another would show"


def test_indexamajig_takes_the_spots_of_analyse(tmp_path):
    """Lists of `konkordia analyse --output` for a file of another program; a link leads from them to the images."""
    rng = np.random.default_rng(5)
    images = rng.poisson(3, (6, 256, 320)).astype("uint32")
    for n, image in enumerate(images):
        for row, column in rng.integers(8, 240, (8 + 3 * n, 2)):
            image[row : row + 3, column : column + 3] += 60
    file, results = others_file(tmp_path / "other.h5", images), tmp_path / "results.h5"
    by = recipe(tmp_path, spots=DIALS | {"spots_max": 300})
    program("analyse", file, "--recipe", by, "--output", results, "--quiet", check=0)
    with h5py.File(results, "a") as opened:
        opened["images"] = h5py.ExternalLink("other.h5", "/entry/data/data")
    assert compare(tmp_path, results, "/images", "/entry_1/result_1", shift_px=0.5) > 3


PLACE = {"energy_kev": 12.4, "detector_distance_mm": 100.0, "beam_center_x_px": 38.25, "beam_center_y_px": 30.5, "pixel_size_um": 75.0}
TILTS = {"flat": {}, "tilted": {"tilt_fast_deg": 12.0, "tilt_slow_deg": -20.0}}


def measured(folder, **place):
    """The master file of a stream whose images were analysed while they came."""
    by = recipe(folder, spots={"method": "dispersion", "spots_max": 20}, hits={"spots_min": 1})
    detector = "".join(f"{key} = {value}\n" for key, value in (PLACE | place).items() if value is not None)
    service = StreamService(folder, detector=detector, extra=f'[analysis]\nrecipe = "{by}"\nqueue_images = 64\n')
    try:
        service.send(*Stins().series(list(frames(12))))
        return service.file(1).path, by
    finally:
        service.close()


@pytest.mark.parametrize("tilt", TILTS)
def test_indexamajig_has_our_resolution_of_each_spot(tmp_path, tilt):
    """The resolution of each spot by the geometry of `konkordia inspect --geom`, for flat and tilted detectors."""
    master, by = measured(tmp_path, **TILTS[tilt])
    compare(tmp_path, master, "/entry/data/images", "/entry/konkordia/images", shift_px=0.5, spots_min=1)
    theirs = dict(chunks((tmp_path / "run.stream").read_text()))
    again = program("analyse", master, "--recipe", by, "--json", check=0).stdout.splitlines()
    for n, image in enumerate(line for line in map(json.loads, again) if line["event"] == "image"):
        # 1/d in 1/nm, with two decimals.
        assert np.abs(theirs[n][:, 2] - 10 / np.array(image["spots"]["d_angstrom"])).max() < 0.006


def test_a_geometry_is_not_written_over_or_without_what_it_needs(tmp_path):
    """`konkordia inspect --geom` replaces no file, and says what is missing."""
    master, _ = measured(tmp_path)
    (tmp_path / "run.geom").write_text("mine")
    done = program("inspect", master, "--geom", tmp_path / "run.geom", check=6)
    assert "cannot create" in done.stderr and (tmp_path / "run.geom").read_text() == "mine"
    (tmp_path / "blind").mkdir()
    master, _ = measured(tmp_path / "blind", energy_kev=None)
    done = program("inspect", master, "--geom", tmp_path / "blind.geom", check=2)
    assert "energy is not known" in done.stderr and not (tmp_path / "blind.geom").exists()
