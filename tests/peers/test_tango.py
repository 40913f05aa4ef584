"""Programs of Tango with our device: a database, Sardana, Taurus."""

import json
import os

import numpy as np
import pytest
from driving import BINARY, Master
from programs import HERE, PYTHON, needs, python
from service import served_bench

bench = pytest.fixture(served_bench)
pytestmark = needs(PYTHON.with_name("PyDatabaseds"), "the database of Tango")


@pytest.fixture
def world(bench):
    counter = bench.folder / "next"
    sender = bench.folder / "send"
    sender.write_text(
        f"#!/bin/sh\nfirst=$(cat {counter} 2>/dev/null || echo 1)\n"
        f"{BINARY} simulate eiger --to 127.0.0.1:{bench.port} --bits 8 --images ${{1:-1}} --rate 200 --first-frame $first -q\n"
        f"echo $((first + ${{1:-1}})) > {counter}\n"
    )
    sender.chmod(0o755)
    control = {
        "on_trigger": [str(sender)],
        "on_arm": ["sh", "-c", f"test ! -e {bench.folder}/fly || ({sender} 5 > /dev/null 2>&1 < /dev/null) &"],
    }
    service = bench.serve(control=control, source={"senders": "any"}, run={"stall_timeout_s": 30})

    def run(name):
        done = python(HERE / "tango_world.py", bench.folder, service.url, sender, TANGO_WORLD=name, KONKORDIA_URL="http://127.0.0.1:1")
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"program"')]
        assert len(said) == 1, done.stdout + done.stderr
        return said[0]

    return run


@pytest.mark.peer("pytango-db")
def test_the_device_is_found_by_its_name_in_a_database(world):
    """A database names our device and its properties; a PyTango client drives a run, with archive events."""
    found = world("database")
    assert found["state"] == "STANDBY" and found["timeout_s"] == 30 and found["archived"][-1] == 20
    assert len(Master(found["file"]).images) == 20 and os.path.basename(found["file"]) == "by_name_master.h5"


@pytest.mark.peer("Sardana")
def test_a_step_scan_of_sardana_is_one_run(world, bench):
    """Its pool loads our controller and measures three points with software triggers: one run, one file, the right images."""
    found = world("sardana")
    assert [point["frames"] for point in found["points"]] == [1, 2, 3] and [point["trigger"] for point in found["points"]] == [0, 1, 2]
    assert found["points"][0]["state"] == "RUNNING" and found["exposure_s"] == 0.05
    images = Master(found["file"]).images
    assert np.array_equal(images, np.load(bench.folder / "sardana.npy"))
    assert found["reference"] == f"h5file://{found['file']}::/entry/data/images"


@pytest.mark.peer("Sardana")
def test_a_continuous_scan_of_sardana_is_one_run(world, bench):
    """Its pool arms once for five hardware triggers and ends when the device leaves RUNNING, with a closed file."""
    (bench.folder / "fly").touch()
    found = world("sardana_fly")
    assert found["state"] == "STANDBY" and found["mode"] == "EXTERNAL_MULTI" and found["triggers"] == 5
    assert len(Master(found["file"]).images) == 5
    assert found["references"] == 5 * [f"h5file://{found['file']}::/entry/data/images"], found


@pytest.mark.peer("Taurus")
def test_a_form_of_taurus_opens_and_follows_a_run(world, bench):
    """A TaurusForm with attributes of the device shows their values while a run goes on and when it has ended."""
    found = world("taurus")
    assert (
        found["armed"]["State"] == "RUNNING"
        and found["armed"]["nTriggers"].startswith("7")
        and found["armed"]["TriggerMode"].startswith("EXTERNAL")
    )
    assert (
        found["ended"]["State"] == "STANDBY"
        and found["ended"]["nFramesAcquired"].startswith("7")
        and found["ended"]["ImagesWritten"] == "7"
    )
    assert (bench.folder / "form.png").stat().st_size > 1000
