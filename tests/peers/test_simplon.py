"""fastcs-eiger 0.4 and ophyd-async, unmodified, drive a detector of Konkordia through `[adapters.simplon]`."""

import json
import os
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import pytest
from driving import BINARY, program
from programs import HERE, PYTHON, python, running, wait_until
from service import served_bench
from simplon_client import TABLE, Simplon

HAS = PYTHON.exists() and python("import fastcs_eiger, ophyd_async", check=False).returncode == 0
WHY = f"fastcs-eiger is not in {PYTHON.parent}; scripts/peers says why"
pytestmark = [pytest.mark.peer("fastcs-eiger"), pytest.mark.skipif(not HAS, reason=WHY)]

IMAGES = 1000
FACTS = {"detector": {"type": "eiger", "bits": 8, "energy_kev": 12.4, "detector_distance_mm": 150.0}}
bench = pytest.fixture(served_bench)


@pytest.fixture
def simplon(bench):
    bench.service = bench.serve(extra=TABLE, run={"buffer_mib": 256}, **FACTS)
    return Simplon(bench.service)


def sending(bench, images=IMAGES):
    """The program that makes the simulated detector send."""
    return [BINARY, "simulate", "eiger", "--to", f"127.0.0.1:{bench.port}", "--bits", "8", "--images", str(images), "--rate", "100", "-q"]


def checked(bench, path):
    """Some facts of the master file, after all images and all pixels were read."""
    program("check", path, check=0)
    with h5py.File(path) as file:
        data = file["/entry/data"]
        images = data[data.attrs["signal"]]
        assert images.shape == (IMAGES, 1024, 512) and images[-1].any()
        times = [file["/entry/instrument/detector"][name][()] for name in ("count_time", "frame_time")]
        omega = file.get("/entry/sample/transformations/omega")
        return times, None if omega is None else omega[()]


def test_fastcs_eiger_takes_1000_images(bench, simplon):
    """The controller introspects all keys, sets, arms and triggers 1000 images, and shows why values and an arm are refused."""
    told = bench.folder / "told"
    done = python(HERE / "run_fastcs_eiger.py", told, simplon.url.rsplit(":", 1)[1], IMAGES, *sending(bench), timeout=90)
    steps = [json.loads(line) for line in told.read_text().splitlines()]
    by_step = {step["step"]: step for step in steps}
    found = by_step["introspected"]
    # Every key that we list, and those that fastcs-eiger knows without a list, are attributes of its controllers.
    for part in ("detector", "stream", "monitor"):
        listed = [key.replace("/", "_") for section in ("config", "status") for key in simplon.get(f"{part}/{section}/keys")]
        assert set(listed) <= set(found[part]), part
    assert (found["energy"], found["columns"]) == (12400.0, 512) and "wavelength" in found["detector"]
    refused = [step["text"] for step in steps if step["step"] == "refused"]
    assert len(refused) == 3 and "accepted" not in by_step, steps
    assert "Response(400)" in refused[0] and "photon_energy: 1.0 is not between 500.0 and 300000.0" in refused[0] and "is eV" in refused[0]
    assert "Response(400)" in refused[1] and '"ints", "exts", "exte"' in refused[1]
    assert "Response(409)" in refused[2] and "the detector is already armed" in refused[2] and "to arm again, cancel first" in refused[2]
    assert by_step["exposed"]["code"] == 0 and by_step["done"] == {"step": "done", "state": "idle", "error": "", "stream": "disabled"}
    assert "Failed to find updater" not in done.stdout and "Traceback" not in done.stderr, done.stdout + done.stderr
    status = bench.service.status()
    assert (status["images_written"], status["images_lost"], status["ended"]) == (IMAGES, 0, "finished")
    assert simplon.value("filewriter/status/files") == ["run_000001_data_000001.h5", "run_000001_master.h5"]
    times, omega = checked(bench, bench.master())
    assert times == pytest.approx([1.9e-3, 2e-3])
    assert omega[:2] == pytest.approx([10.5, 10.625]) and len(omega) == IMAGES


def test_ophyd_async_drives_the_ioc_of_fastcs_eiger(bench, simplon):
    """ophyd-async prepares, arms and stops through the IOC of fastcs-eiger (its command line, unmodified): 1000 images, checked."""
    prefix = f"KONKORDIA-{os.getpid()}"
    port = simplon.url.rsplit(":", 1)[1]
    log = bench.folder / "ioc.log"
    command = [PYTHON, "-m", "fastcs_eiger", "ioc", prefix, "--ip", "127.0.0.1", "--port", port, "--log-level", "INFO"]
    kept_open, end = os.pipe()
    try:
        # It ends with its standard input.
        with running(*command, log=log, stdin=kept_open, cwd=bench.folder):
            wait_until(lambda: "iocRun" in log.read_text() or "Starting FastCS" in log.read_text(), 40, log)
            time.sleep(1)
            done = python(HERE / "run_ophyd_eiger.py", f"{prefix}:", IMAGES, *sending(bench), timeout=90)
    finally:
        os.close(end)
        os.close(kept_open)
    found = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    assert (found["code"], found["state"], found["bit_depth_image"]) == (0, "idle", 16) and found["count_time"] == pytest.approx(2e-3)
    status = bench.service.status()
    assert (status["images_written"], status["ended"]) == (IMAGES, "finished")
    assert checked(bench, bench.master())[0] == pytest.approx([2e-3, 2e-3])
    said = log.read_text()
    assert "409" in said and "to arm again, cancel first" in said, said[-3000:]
