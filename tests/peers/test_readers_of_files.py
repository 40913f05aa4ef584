"""Readers of files on all sample runs, and on files that the built program made through UDP and streams."""

import hashlib
import json
import pathlib
import subprocess
import sys

import fabio
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
import silx.io
from made import LAYOUTS, by_h5py, make_all
from programs import BUILD, HERE, PYTHON, needs, python
from silx.io.url import DataUrl

from content import RUNS, SERIES
from dials import dials, needs_dials
from driving import program

NODE = BUILD / "node/node_modules/h5wasm"
MADE = ["jungfrau-photons", "jungfrau-words", "eiger-counts", "stins", "stream1", "stream2", *LAYOUTS]
SAMPLES = [*RUNS, "scaled", *(f"series_{name}" for name in SERIES)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_all(tmp_path_factory.mktemp("made"))


def data_files(master):
    return sorted(master.parent.glob(f"{master.name.removesuffix('_master.h5')}_data_*.h5")) or [master]


@pytest.mark.peer("h5py")
@pytest.mark.parametrize("name", MADE)
def test_check_finds_the_made_files_whole(made, name):
    """Files from UDP and streams open, every image is there, and `konkordia check` finds nothing wrong."""
    program("check", made[name], check=0)
    assert len(by_h5py(made[name])) == 5


@pytest.mark.peer("h5wasm")
@needs(NODE, "h5wasm")
def test_h5wasm_reads_every_image_of_every_file(samples, made, tmp_path):
    """Every image of every data file has the same bytes as in h5py."""
    masters = [samples / f"{run}_master.h5" for run in SAMPLES] + list(made.values())
    files = [path for master in masters for path in data_files(master)]
    assert len(files) > 60
    command = ["node", HERE / "read_with_h5wasm.mjs", BUILD / "node", *files]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    read = json.loads(done.stdout.splitlines()[-1])
    for path in files:
        with h5py.File(path) as file:
            images = file["/entry/data/data"][()]
        assert read[str(path)]["shape"] == list(images.shape), path
        assert read[str(path)]["digests"] == [hashlib.sha256(image.tobytes()).hexdigest() for image in images], path


@pytest.mark.peer("nxvalidate")
@pytest.mark.parametrize("name", MADE)
def test_nxvalidate_finds_no_error(made, name):
    """No error against the NXmx definition, in files from UDP and from streams."""
    checker = pathlib.Path(sys.executable).with_name("nxvalidate")
    done = subprocess.run([checker, "-e", made[name]], capture_output=True, text=True, check=True)
    assert "Application Definition: NXmx" in done.stdout and "Total number of errors: 0" in done.stdout, done.stdout


@pytest.mark.peer("fabio")
@pytest.mark.parametrize("name", [name for name in MADE if name != "stream2"])
def test_fabio_reads_every_image(made, name):
    """Every image of a run equals what h5py reads."""
    images = by_h5py(made[name])
    with fabio.open(str(made[name])) as opened:
        assert opened.nframes == len(images)
        assert all(np.array_equal(opened.getframe(n).data, image) for n, image in enumerate(images))


@pytest.mark.peer("silx")
@pytest.mark.parametrize("name", MADE)
def test_silx_reads_the_default_images(made, name):
    """The data set that a viewer shows first holds every image."""
    images = by_h5py(made[name])
    with h5py.File(made[name]) as file:
        signal = file["/entry/data"].attrs["signal"].decode()
    for number, image in enumerate(images):
        url = DataUrl(file_path=str(made[name]), data_path=f"/entry/data/{signal}", data_slice=(number,), scheme="silx")
        assert np.array_equal(silx.io.get_data(url), image)


AZIMUTHAL = """
import json, sys, fabio, h5py, hdf5plugin, numpy as np
from pyFAI.integrator.azimuthal import AzimuthalIntegrator
out = {}
for path in sys.argv[1:]:
    with h5py.File(path) as f:
        detector, beam = f["/entry/instrument/detector"], f["/entry/instrument/beam"]
        mask = detector["pixel_mask"][()]
        pixel = float(detector["x_pixel_size"][()]), float(detector["y_pixel_size"][()])
        distance = float(detector["detector_distance"][()]) if "detector_distance" in detector else float(detector["distance"][()])
        centre = float(detector["beam_center_x"][()]), float(detector["beam_center_y"][()])
        wavelength = float(beam["incident_wavelength"][()]) * 1e-10
    image = fabio.open(path).data
    low, high = json.loads(sys.stdin.readline())
    bad = (mask != 0) | (image < low) | (image > high)
    ai = AzimuthalIntegrator(dist=distance, poni1=centre[1] * pixel[1], poni2=centre[0] * pixel[0], pixel1=pixel[1], pixel2=pixel[0], wavelength=wavelength)
    result = ai.integrate1d(image, 100, mask=bad, unit="2th_deg", correctSolidAngle=False, method=("no", "histogram", "cython"))
    out[path] = {"sum": float(np.sum(result.sum_signal)), "pixels": float(np.sum(result.count)), "good": int((~bad).sum()), "wanted": float(image[~bad].sum(dtype=float))}
print(json.dumps(out))
"""


@pytest.mark.peer("pyFAI")
@needs(PYTHON, "the environment of the peers")
def test_pyfai_integrates_with_our_geometry_and_mask(samples, made, tmp_path):
    """Azimuthal integration with geometry, mask and valid range from the file sums exactly the good pixels."""
    masters = [samples / f"{run}_master.h5" for run in ("int16", "uint16", "int32", "uint32", "odd")] + [made["jungfrau-photons"]]
    ranges = []
    for master in masters:
        with h5py.File(master) as file:
            detector = file["/entry/instrument/detector"]
            ranges.append([int(detector["underload_value"][()]), int(detector["saturation_value"][()])])
    lines = "".join(json.dumps(r) + "\n" for r in ranges)
    done = subprocess.run([str(PYTHON), "-c", AZIMUTHAL, *map(str, masters)], input=lines, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-4000:]
    for (low, high), (path, got) in zip(ranges, json.loads(done.stdout.splitlines()[-1]).items(), strict=True):
        image = by_h5py(path)[0].astype(float)
        with h5py.File(path) as file:
            good = (file["/entry/instrument/detector/pixel_mask"][()] == 0) & (image >= low) & (image <= high)
        assert got["pixels"] == pytest.approx(good.sum()) and got["sum"] == pytest.approx(image[good].sum(), rel=1e-6), path


@pytest.mark.peer("DIALS")
@needs_dials
@pytest.mark.parametrize("name", ["jungfrau-photons", "jungfrau-words", "eiger-counts", *LAYOUTS])
def test_dials_imports_files_from_udp(made, tmp_path, name):
    """dials.import reads files from UDP as NXmx with every image; dials.find_spots reads counts and photons."""
    imported = dials(tmp_path, "dials.import", made[name])
    assert "FormatNXmx" in imported and "num images: 5" in imported, imported
    # Raw words are not counts: every pixel would be a spot.
    if name != "jungfrau-words":
        assert "Saved" in dials(tmp_path, "dials.find_spots", "imported.expt", "nproc=1")
