"""Bluesky: an unmodified RunEngine drives the service through `konkordia.bluesky.KonkordiaDetector` (ophyd-async)."""

import json
import os
import pathlib
import subprocess

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import BINARY, free_ports, program
from programs import BUILD, HERE, PYTHON, ROOT, needs, python
from service import Service

PACKAGES = BUILD / "bluesky-1.15"
pytestmark = [pytest.mark.peer("Bluesky and ophyd-async"), needs(PACKAGES, "Bluesky")]


class Beamline:
    """A service whose `start` lets the simulator send as many images as the run has."""

    def __init__(self, folder, *, images="$KONKORDIA_IMAGES", rate=200, extra="", service=""):
        port = free_ports(4)
        send = f"{BINARY} simulate eiger --to 127.0.0.1:{port} --bits 8 --images {images} --rate {rate} -q > /dev/null 2>&1 &"
        (folder / "run.toml").write_text(f"""[detector]
type = "eiger"
bits = 8
[source]
address = "127.0.0.1"
first_port = {port}
[output]
directory = "{folder}"
prefix = "run"
[run]
buffer_mib = 64
start_timeout_s = 5
stall_timeout_s = 1
[control]
on_start = ["sh", "-c", {json.dumps(send)}]
{extra}
[service]
{service}
""")
        self.folder = folder
        self.service = Service(folder / "run.toml")

    def run(self, *plan, name="-", end="-", timeout=90, **environment):
        """The documents of a plan, by kind."""
        path = os.pathsep.join([str(ROOT / "python"), str(PACKAGES)])
        done = python(HERE / "run_bluesky.py", self.service.url, self.folder, name, end, *plan, packages=path, timeout=timeout, **environment)
        documents = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        return {kind: [document for k, document in documents if k == kind] for kind in dict(documents)}


@pytest.fixture
def beamline(tmp_path):
    lines = []

    def start(**options):
        lines.append(Beamline(tmp_path, **options))
        return lines[-1]

    yield start
    for line in lines:
        line.service.end()


def resolved(documents):
    """The images that the documents of a run name, by a reader that knows nothing of Konkordia."""
    (resource,) = documents["stream_resource"]
    path = pathlib.Path(resource["uri"].removeprefix("file://localhost"))
    assert resource["mimetype"] == "application/x-hdf5"
    datums = documents["stream_datum"]
    starts, stops = ([datum["indices"][end] for datum in datums] for end in ("start", "stop"))
    assert starts == [0, *stops[:-1]], "the stream grows without gaps"
    with h5py.File(path) as file:
        images = file[resource["parameters"]["dataset"]]
        (descriptor,) = documents["descriptor"]
        key = descriptor["data_keys"]["det"]
        assert key["shape"][1:] == list(images.shape[1:]) and np.dtype(key["dtype_numpy"]) == images.dtype
        assert file["/entry/instrument/beam/incident_wavelength"][()] == pytest.approx(1, rel=1e-3)
        return images[: stops[-1]], path


def test_a_step_scan_is_one_file_that_grows_with_each_point(beamline):
    """bp.count: each event arms again, and its image comes behind those before in one file; the counter only grows."""
    line = beamline()
    documents = line.run("count", 7, name="scan")
    assert documents["stop"][0]["exit_status"] == "success" and len(documents["event"]) == 7
    images, path = resolved(documents)
    assert path == line.folder / "scan_master.h5" and len(images) == 7
    # Each point is the first image of the simulator.
    assert all(np.array_equal(image, images[0]) for image in images) and images[0].any()
    program("check", path, check=0)
    assert line.service.status()["run"] == 7
    assert documents["detector"] == [{"triggers": ["EXTERNAL_EDGE", "EXTERNAL_LEVEL", "INTERNAL"], "dead_time_s": 2e-05}]


def test_the_exposure_time_of_the_plan_is_in_the_file(beamline):
    """A step scan with a prepared exposure time: count time and frame time, with the dead time, reach the file."""
    line = beamline()
    documents = line.run("steps", 3, 0.005)
    images, path = resolved(documents)
    assert len(images) == 3 and path.name == "run_000001_master.h5"
    with h5py.File(path) as file:
        assert file["/entry/instrument/detector/count_time"][()] == pytest.approx(5e-3)
        assert file["/entry/instrument/detector/frame_time"][()] == pytest.approx(5.02e-3)


@pytest.mark.parametrize("trigger", ["internal", "edge", "level"])
def test_a_fly_scan_of_1000_images(beamline, trigger):
    """Fly scans of 1000 images with internal, edge and level triggers; the file is checked."""
    line = beamline()
    documents = line.run("fly", trigger, 1000, 1, 0.0005)
    assert documents["stop"][0]["exit_status"] == "success"
    images, path = resolved(documents)
    assert len(images) == 1000 and documents["stop"][0]["num_events"] == {"main": 1000}
    assert len(np.unique(images[:, 0, :8], axis=0)) > 1, "the images differ"
    program("check", path, check=0)
    assert line.service.status()["message"].endswith("1 000 of 1 000 images complete")


@pytest.mark.parametrize("trigger", ["internal", "edge"])
def test_a_raster_of_fly_scans_is_one_file(beamline, trigger):
    """Three lines of 40 images, each prepared and started anew: one stream of 120 images in one file."""
    line = beamline()
    documents = line.run("fly", trigger, 40, 3, 0.001)
    images, path = resolved(documents)
    assert len(images) == 120 and documents["stop"][0]["num_events"] == {"main": 120}
    assert np.array_equal(images[:40], images[40:80]) and np.array_equal(images[:40], images[80:])
    program("check", path, check=0)


def test_several_images_for_each_event(beamline):
    """collections_per_event: 40 events of 5 images each."""
    line = beamline()
    documents = line.run("fly_per_event", 200, 5)
    assert documents["descriptor"][0]["data_keys"]["det"]["shape"][0] == 5
    assert documents["stream_datum"][-1]["indices"]["stop"] == 40
    assert line.service.status()["images_written"] == 200


@pytest.mark.parametrize("verb", ["abort", "stop", "halt"])
def test_an_interrupted_scan_leaves_a_closed_file(beamline, verb):
    """abort, stop and halt in mid-run: the run ends, and the file is closed and valid with what had come."""
    line = beamline(rate=200)
    documents = line.run("fly", "internal", 3000, 1, 0.005, end=f"{verb}:3")
    assert documents["ended"] == [{"by": verb}] or "failed" in documents
    status = line.service.wait() if verb != "halt" else line.service.status()
    if verb == "halt":
        # A halt does not clean up. Whoever comes next is told, and may end it.
        assert status["state"] in ("running", "idle")
        line.service.command("cancel")
        status = line.service.wait()
    assert "open_file" not in status and 0 < status["images_written"] < 3000
    program("check", status["file"], check=0)


def test_missed_triggers_fail_the_plan_with_the_reason(beamline):
    """The detector sends 6 of 10 images: the plan fails as soon as the run has ended, and says what it waited for."""
    line = beamline(images=6)
    documents = line.run("fly", "edge", 10, 1, 0.001)
    (failed,) = documents["failed"]
    assert "stalled" in failed["why"] and "6 of 6 images complete, 4 not received" in failed["why"], failed
    assert documents["stop"][0]["exit_status"] == "fail"
    program("check", line.service.status()["file"])
    assert "open_file" not in line.service.status()


def test_a_refused_arm_says_why(beamline):
    """Arm refused (the file exists): the plan fails with the service's reason and its hint."""
    line = beamline()
    (line.folder / "taken_master.h5").write_bytes(b"")
    documents = line.run("count", 1, name="taken")
    assert "taken_master.h5" in documents["failed"][0]["why"] and "hint" in documents["failed"][0]["why"]


def test_the_run_of_somebody_else_is_not_ended(beamline):
    """Two controllers: a plan is refused while another operator's run lasts, and that run is unharmed."""
    line = beamline(rate=20)
    line.service.command("start", {"images": 300, "prefix": "mine"})
    line.service.until(lambda status: status["images_written"] > 10)
    documents = line.run("count", 1)
    assert "the detector has run 1 (local 127.0.0.1" in documents["failed"][0]["why"]
    assert line.service.wait()["images_written"] == 300


def test_a_viewer_cannot_scan(beamline, tmp_path):
    """A view token may read, and the arm is refused with the reason."""
    tokens = tmp_path / "tokens.json"
    made = {}
    for name, role in ("boss", "operate"), ("eve", "view"):
        done = subprocess.run([BINARY, "token", "create", name, "--role", role, "--file", tokens], capture_output=True, text=True, check=True)
        made[name] = done.stdout.strip().splitlines()[-1].strip()
    line = beamline(service=f'tokens = "{tokens}"')
    documents = line.run("count", 1, KONKORDIA_TOKEN=made["eve"])
    assert "operate" in documents["failed"][0]["why"], documents
    assert line.run("count", 2, KONKORDIA_TOKEN=made["boss"])["stop"][0]["exit_status"] == "success"


def test_a_service_that_is_not_there(tmp_path, beamline):
    """No service at this address: the plan fails and names the address."""
    line = beamline()
    line.service.end()
    documents = line.run("count", 1)
    assert line.service.url in documents["failed"][0]["why"]


def test_tiled_resolves_the_images(beamline):
    """The documents go through bluesky's TiledWriter into a tiled server, which gives the images of the file."""
    line = beamline()
    documents = line.run("fly", "internal", 20, 1, 0.001)
    images, _ = resolved(documents)
    (line.folder / "documents.json").write_text(json.dumps([[kind, one] for kind in documents for one in documents[kind]]))
    path = os.pathsep.join([str(ROOT / "python"), str(PACKAGES)])
    done = python(HERE / "read_with_tiled.py", line.folder, packages=path)
    assert done.stdout.split()[-1] == "equal", done.stdout


def test_its_types_are_strict():
    """mypy --strict with the types of ophyd-async itself."""
    if not (PACKAGES / "mypy").exists():
        pytest.skip("mypy is not installed beside it")
    path = os.pathsep.join([str(ROOT / "python"), str(PACKAGES)])
    command = [PYTHON, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={os.devnull}", "-p", "konkordia.bluesky"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "python", env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout
