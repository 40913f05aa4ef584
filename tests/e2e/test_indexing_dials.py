"""A real indexer behind the hand-over of spots: DIALS finds the lattice of crystals while their images are measured, and says
of images without one that there is none."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from dials import dials
from dials import needs_dials as has_dials
from driving import Bench, program, simulate
from lanes import slow_lane
from streams import Stins
from test_analyse import CRYSTFEL, needs_thaumatin, recipe, thaumatin
from test_image_metadata import columns_of
from test_results import calibration


def needs_dials(test):
    """With DIALS, in the slow lane: it takes seconds for an image."""
    return slow_lane(has_dials(test))


SCRIPT = Path(__file__).resolve().parents[2] / "deploy/indexing/dials_indexer.py"
THAUMATIN_CELL = [58, 58, 151, 90, 90, 90]


def table(*options, **keys):
    """`[indexing]` with the program of DIALS."""
    return {"program": ["/usr/bin/python3", str(SCRIPT), *options], "spots_min": 10, "answer_timeout_ms": 5000, **keys}


def cell_of(cell, lengths, within=0.02):
    return np.allclose(np.asarray(cell)[:3], lengths, rtol=within)


def explained(columns, image, vectors):
    """Part of these scattering vectors that the lattice of an image explains to a quarter of an index."""
    reciprocal = columns["orientation_matrix"][image].reshape(3, 3)
    indices = vectors @ np.linalg.inv(reciprocal)
    return (np.abs(indices - np.rint(indices)) < 0.25).all(axis=1).mean()


def vectors_of(columns, image, place, wavelength):
    """Scattering vectors of the spots of an image, with a detector upright across the beam: centre, pixel size, distance."""
    (x0, y0), pixel_mm, distance_mm = place
    count = columns["nPeaks"][image]
    x, y = (columns[name][image][:count] + 0.5 for name in ("peakXPosRaw", "peakYPosRaw"))
    at = np.column_stack([-(x - x0) * pixel_mm, -(y - y0) * pixel_mm, np.full(count, distance_mm)])
    return (at / np.linalg.norm(at, axis=1)[:, None] - [0, 0, 1]) / wavelength


def place_of_the_simulator(folder):
    """Energy and place of the simulated detector, as `[detector]` says them."""
    config = folder / "simulated.toml"
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", folder, "--write-config", config, check=0)
    detector = dict(re.findall(r"(?m)^(\w+) = ([\d.]+)$", config.read_text()))
    names = ("energy_kev", "detector_distance_mm", "beam_center_x_px", "beam_center_y_px")
    return {name: float(detector[name]) for name in names}


@needs_dials
@needs_thaumatin
def test_stills_of_thaumatin(tmp_path, serve):
    fabio = pytest.importorskip("fabio")
    files = [thaumatin(tmp_path, number) for number in (1, 8)]
    header = files[0].read_bytes()[:4000].decode("latin-1")
    number = lambda pattern: float(re.search(pattern + r"\D+?([\d.]+)", header)[1])  # noqa: E731
    beam = [float(n) for n in re.search(r"Beam_xy \(([\d.]+), ([\d.]+)\)", header).groups()]
    wavelength, distance_mm = number("Wavelength"), 1000 * number("Detector_distance")
    place = (
        f"energy_kev = {12.398419843320026 / wavelength}\ndetector_distance_mm = {distance_mm}\npixel_size_um = 172.0\n"
        f"beam_center_x_px = {beam[0]}\nbeam_center_y_px = {beam[1]}\n"
    )
    images = [fabio.open(str(file)).data for file in files]
    noise = np.random.default_rng(5).poisson(2, images[0].shape).astype(images[0].dtype)
    # Noise with spots, but without a lattice.
    for row, column in np.random.default_rng(6).integers(100, 2300, (200, 2)):
        noise[row : row + 2, column : column + 2] += 200
    by = recipe(tmp_path, spots=CRYSTFEL, hits={"rule": "is_indexed == 1"})
    keys = table("--cell", " ".join(map(str, THAUMATIN_CELL)), "--space-group", "P41212")
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    extra = f'[analysis]\nrecipe = "{by}"\nworkers = 1\nqueue_images = 64\n[indexing]\n{lines}'
    service = serve(extra=extra, detector=place, folder=tmp_path)
    stins, sent = Stins(), 0

    def ledger(name):
        return service.statistics()["ledger"].get(f"analysis_images_{name}", 0)

    def answered(image):
        """Sends it until it is answered: DIALS takes seconds to start, and on a busy machine also for an image."""
        nonlocal sent
        until = time.monotonic() + 180
        while True:
            before = ledger("unanswered")
            service.send(stins.image(sent, image))
            sent += 1
            while ledger("analysed") < sent:
                assert time.monotonic() < until, service.log
                time.sleep(0.1)
            if ledger("unanswered") == before:
                return sent - 1
            time.sleep(3)

    service.send(stins.start())
    empty, *crystals = [answered(image) for image in (noise, *images)]
    service.send(stins.end())
    columns = columns_of(service.taken(1)["file"])
    assert columns["indexing_outcome"][[empty, *crystals]].tolist() == [1, 1, 1], service.log
    assert np.flatnonzero(columns["is_indexed"]).tolist() == np.flatnonzero(columns["is_hit"]).tolist() == crystals
    geometry = (beam, 0.172, distance_mm)
    # The second one shows more than one crystal.
    for image, part in zip(crystals, [0.85, 0.65], strict=True):
        assert cell_of(columns["cell_length_angstrom"][image], THAUMATIN_CELL[:3]), columns["cell_length_angstrom"][image]
        assert np.allclose(columns["cell_angle_deg"][image], 90, atol=1.5)
        assert explained(columns, image, vectors_of(columns, image, geometry, wavelength)) > part
    assert ledger("indexed") == 2


@needs_dials
def test_a_simulated_crystal_over_udp(tmp_path):
    """Tetragonal lysozyme, 79.1 and 37.9 angstrom."""
    bench, images = Bench(tmp_path), 4
    by = recipe(tmp_path, spots={"method": "dispersion"}, hits={"rule": "is_indexed == 1"})
    where = place_of_the_simulator(tmp_path)
    tables = {
        "detector": {"type": "jungfrau", "double_pixels": "split", **where},
        "calibration": calibration(tmp_path),
        "run": {"images": images, "stall_timeout_s": 20},
        "analysis": {"recipe": by.name, "workers": 1, "queue_images": 64},
        "indexing": table("--cell", "79.1 79.1 37.9 90 90 90", "--space-group", "P43212"),
    }
    receiver = bench.receive(bench.config(**tables))
    # It began when the run was armed.
    time.sleep(10)
    simulate("jungfrau", "--to", bench.to, "--rate", 0.3, "--images", images, "--distinct", images)
    code, report = receiver.finish()
    assert code == 0 and report["images"]["complete"] == images, receiver.errors
    columns = columns_of(bench.master)
    # On a busy machine DIALS may be late.
    answered = columns["indexing_outcome"] == 1
    assert answered.sum() >= 2 and columns["is_indexed"][answered].all(), (columns["nPeaks"], report["analysis_warning"])
    place = ((where["beam_center_x_px"], where["beam_center_y_px"]), 0.075, where["detector_distance_mm"])
    for image in np.flatnonzero(columns["is_indexed"]):
        assert cell_of(columns["cell_length_angstrom"][image], [79.1, 79.1, 37.9]), columns["cell_length_angstrom"][image]
        vectors = vectors_of(columns, image, place, 12.398419843320026 / where["energy_kev"])
        assert explained(columns, image, vectors) > 0.7
    assert report["analysis"]["indexed"] == columns["is_indexed"].sum()


DIALS_TABLE = """
import json, sys
from dials.array_family import flex
table = flex.reflection_table.from_file(sys.argv[1])
place = [list(map(float, xyz)) for xyz in table["xyzobs.px.value"]]
print(json.dumps({"id": list(table["id"]), "place": place, "bbox": [list(box) for box in table["bbox"]], "flags": list(table["flags"])}))
"""


def rotation(folder):
    """40 images of a simulated crystal that turns by 0.2 degrees with each."""
    bench, images = Bench(folder), 40
    tables = {
        "detector": {"type": "jungfrau", "double_pixels": "split", **place_of_the_simulator(folder)},
        "calibration": calibration(folder),
        "run": {"images": images, "stall_timeout_s": 5},
        "goniometer": {"omega_start_deg": 0.0, "omega_increment_deg": 0.2},
    }
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 20, "--images", images, "--distinct", images)
    code, _ = receiver.finish()
    assert code == 0, receiver.errors
    return bench.master


@needs_dials
def test_dials_indexes_a_rotation_from_our_reflections(tmp_path):
    master, by = rotation(tmp_path), recipe(tmp_path, spots={"method": "dispersion"})
    program("analyse", master, "--recipe", by, "--reflections", tmp_path / "ours.refl", "--quiet", check=0, timeout=120)
    dials(tmp_path, "dials.import", master)
    dials(tmp_path, "dials.find_spots", "imported.expt", "nproc=1")
    tables, cells = {}, {}
    (tmp_path / "table.py").write_text(DIALS_TABLE)
    for name in ("ours", "strong"):
        tables[name] = json.loads(dials(tmp_path, "/usr/bin/python3", "table.py", f"{name}.refl"))
        dials(tmp_path, "dials.index", "imported.expt", f"{name}.refl", "detector.fix=all", "beam.fix=all")
        crystal = json.loads((tmp_path / "indexed.expt").read_text())["crystal"][0]
        cells[name] = sorted(np.linalg.norm(crystal[f"real_space_{axis}"]) for axis in "abc")
    assert cell_of(cells["ours"], [37.9, 79.1, 79.1], within=0.005), cells
    assert np.allclose(cells["ours"], cells["strong"], rtol=1e-3), cells
    ours, theirs = (np.array(tables[name]["place"]) for name in ("ours", "strong"))
    distances = np.abs(ours[:, None, :] - theirs[None, :, :])
    near = (distances[:, :, :2].max(axis=2) <= 0.5) & (distances[:, :, 2] <= 1.0)
    assert near.any(axis=0).mean() >= 0.97 and (~near.any(axis=1)).mean() <= 0.05, (near.any(axis=0).mean(), near.any(axis=1).mean())


def test_without_dials_it_says_what_it_needs(tmp_path):
    """With a Python that has no DIALS."""
    done = subprocess.run([sys.executable, SCRIPT], input="", capture_output=True, text=True)
    assert done.returncode == 1 and "dials_indexer: No module named" in done.stderr
    assert "run it with the Python of an installation of DIALS" in done.stderr and len(done.stderr.splitlines()) == 1


@needs_dials
@pytest.mark.parametrize("options", [("--cell", "58 58 151 90 90 90", "--space-group", "P41212"), ()])
def test_spots_without_a_lattice_are_not_indexed(options):
    rng = np.random.default_rng(3)
    requests = []
    for count in [5, 10, 11, 12, 14, 16, 20, 25, 30, 40, 60, 100]:
        # Anywhere on the sphere of Ewald to 2 angstrom.
        two_theta, azimuth = rng.uniform(0.03, 0.5, count), rng.uniform(0, 2 * np.pi, count)
        vectors = [np.sin(two_theta) * np.cos(azimuth), np.sin(two_theta) * np.sin(azimuth), np.cos(two_theta) - 1]
        spots = [[0, 0, 1, *vector] for vector in np.column_stack(vectors).tolist()]
        requests.append(json.dumps({"version": 1, "id": len(requests), "wavelength_angstrom": 1.0, "spots": spots}))
    command = ["/usr/bin/python3", SCRIPT, *options]
    done = subprocess.run(command, input="\n".join(requests) + "\n", capture_output=True, text=True, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == list(range(len(requests))), done.stderr
    assert not any(answer["is_indexed"] for answer in answers), answers
