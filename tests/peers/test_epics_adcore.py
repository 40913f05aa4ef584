"""EPICS: the classes of ophyd-async for areaDetector, unmodified, and a RunEngine drive the service over PV Access."""

import json
import os
import sys

import pytest
from driving import Master, demo_service
from programs import BUILD, HERE, ROOT, needs, python

sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]
pytest.importorskip("p4p", reason="p4p is not installed (tests/readers/requirements.txt)")
from epics_server import PREFIX, EpicsServer  # noqa: E402

PACKAGES = BUILD / "bluesky-1.15"
pytestmark = [pytest.mark.peer("Bluesky and ophyd-async"), needs(PACKAGES, "Bluesky")]


@pytest.fixture
def demo(tmp_path):
    with demo_service(tmp_path, rate=300) as url:
        yield url


def test_adcore_and_a_run_engine_take_images_over_pv_access(demo):
    """AreaDetector and ADBaseIO of ophyd_async.epics.adcore count, and take 1000 images, over PV Access."""
    server = EpicsServer(demo)
    try:
        path = os.pathsep.join(sys.path[:2] + [str(PACKAGES)])
        done = python(HERE / "run_epics.py", PREFIX, packages=path, timeout=90, **server.client_environment)
        said = json.loads(done.stdout.splitlines()[-1])
        assert said["exit"] == "success" and said["state"] == "Idle"
        counts = [event["detector-driver-array_counter"] for event in said["events"]]
        assert counts == [counts[0], counts[0] + 1, counts[0] + 2]
        assert "-3 is no whole number" in said["refused"]
        assert len(Master(server.get("FullFileName_RBV")).images) == 1000
    finally:
        server.close()
