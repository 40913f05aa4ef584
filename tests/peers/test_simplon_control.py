"""`[control] driver = "simplon"`: "arm" drives the simulated EIGER of tickit-devices by its SIMPLON interface, and its
images come by Stream V1 and V2."""

import contextlib
import http.server
import json
import os
import threading

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import pytest
from programs import PYTHON, ROOT, needs, running, wait_until
from test_tickit import EIGER, TICKIT, Simplon

from driving import program
from ports import free_ports
from service import until
from streams import StreamService

pytestmark = [pytest.mark.peer("tickit-devices"), needs(PYTHON, "the environment of the peers")]
API = "detector/api/1.8.0"
METADATA = {"count_time_us": 40_000.0, "frame_time_us": 50_000.0, "energy_kev": 12.4}
PORTS = {"stream1": 1, "stream2": 2}


@pytest.fixture(scope="module")
def dcu(tmp_path_factory):
    """The simulator, initialised; all tests of this file arm the same one."""
    folder, port = tmp_path_factory.mktemp("dcu"), free_ports(3)
    (folder / "eiger.yaml").write_text(EIGER.format(port, port + 1, port + 2))
    with running(PYTHON, "-c", TICKIT, "all", folder / "eiger.yaml", log=folder / "tickit.log"):
        simplon = Simplon(port)
        wait_until(lambda: simplon.get(f"{API}/status/state") == "na", what=f"the simulator ({folder / 'tickit.log'})")
        simplon.put(f"{API}/command/initialize")
        simplon.port = port
        yield simplon
        simplon.put(f"{API}/command/abort")


@pytest.fixture(autouse=True)
def the_dcu_is_idle(dcu):
    """A test that failed leaves nothing armed for the next one."""
    if state(dcu) != "idle":
        dcu.put(f"{API}/command/abort")


@contextlib.contextmanager
def served(folder, protocol, port, url, mismatch="warn", timeout_s=30, **settings):
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"url": url, **settings}.items()]
    control = f'[control]\ndriver = "simplon"\npython = {json.dumps(str(PYTHON))}\nmismatch = "{mismatch}"\ntimeout_s = {timeout_s}\n'
    extra = "\n".join([control + "[control.settings]", *lines, "[service]", "arm_timeout_s = 40"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    to = f"tcp://127.0.0.1:{port}"
    service = StreamService(folder, protocol, connect_to=to, source='accept = "armed"', extra=extra, environment=environment)
    try:
        yield service
    finally:
        service.close()


def of_dcu(folder, dcu, protocol, **options):
    return served(folder, protocol, dcu.port + PORTS[protocol], dcu.url, **options)


def state(dcu):
    return dcu.get(f"{API}/status/state")


def test_a_run_by_stream_v1(tmp_path, dcu):
    """Arm, start, file, disarmed; the header says what was asked for. A second run follows."""
    with of_dcu(tmp_path, dcu, "stream1", header_detail="basic") as service:
        for run, images in ((1, 8), (2, 5)):
            service.command("arm", {"images": images, "metadata": METADATA}, timeout=60)
            assert state(dcu) == "ready"
            keys = ("nimages", "ntrigger", "count_time", "frame_time", "photon_energy")
            assert [dcu.get(f"{API}/config/{key}") for key in keys] == [images, 1, 0.04, 0.05, 12400.0]
            service.command("start", timeout=60)
            done = service.taken(run, timeout=60)
            assert done["images_written"] == images, done
            program("check", done["file"], check=0)
            with h5py.File(done["file"]) as file:
                assert file["/entry/instrument/detector/count_time"][()] == pytest.approx(0.04)
            until(lambda: state(dcu) == "idle", "the DCU is idle")


def test_the_start_of_stream_v2_that_says_something_else(tmp_path, dcu):
    """The start message of this simulator has fixed times and a fixed size: the images come, and the run warns."""
    with of_dcu(tmp_path, dcu, "stream2") as service:
        service.command("arm", {"images": 4, "metadata": METADATA}, timeout=60)
        assert state(dcu) == "ready" and dcu.get("stream/api/1.8.0/config/format") == "cbor"
        service.command("start", timeout=60)
        done = service.taken(1, "warning", timeout=60)
        assert done["images_written"] == 4 and "announced" in done["message"], done
        (event,) = [event for event in service.request("GET", "logs")["logs"] if event["event"] == "setup"]
        assert any(difference.startswith("count time: ") for difference in event["data"]["differences"]), event
        until(lambda: state(dcu) == "idle", "the DCU is idle")


def test_a_start_that_is_refused(tmp_path, dcu):
    """With mismatch = "refuse" the run ends at once, and the DCU is disarmed."""
    with of_dcu(tmp_path, dcu, "stream2", mismatch="refuse") as service:
        service.command("arm", {"images": 4, "metadata": METADATA}, timeout=60)
        done = service.taken(1, "error", timeout=60)
        assert "announced" in done["message"] and done["state"] == "error", done
        until(lambda: state(dcu) == "idle", "the DCU is disarmed")


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_what_was_armed_is_disarmed(tmp_path, dcu, how):
    """Before its first image, and in the middle of the run."""
    with of_dcu(tmp_path, dcu, "stream1", header_detail="basic") as service:
        service.command("arm", {"images": 5, "metadata": METADATA}, timeout=60)
        service.command(how)
        until(lambda: state(dcu) == "idle", "the DCU is disarmed")
        service.until(lambda s: s["state"] == "idle")
        service.command("start", {"images": 500, "metadata": METADATA}, timeout=60)
        service.until(lambda s: s["state"] == "running" and s["images_committed"] > 0, 60)
        service.command(how)
        until(lambda: state(dcu) == "idle", "the DCU is disarmed")
        service.until(lambda s: s["state"] == "idle")


def test_a_dcu_that_somebody_else_has_armed(tmp_path, dcu):
    """An arm is refused; a cancel disarms it."""
    dcu.put(f"{API}/command/arm")
    with of_dcu(tmp_path, dcu, "stream1") as service:
        problem = service.refused("arm", {"images": 5}, timeout=60)
        assert "in the state 'ready'" in problem.body["detail"] and "cancel" in problem.body["hint"], problem.body
        service.until(lambda s: s["state"] == "idle")
        service.command("cancel", timeout=60)
        until(lambda: state(dcu) == "idle", "the DCU is disarmed")


def test_a_dcu_that_is_not_there_or_refuses(tmp_path, dcu):
    """Nobody listens, no such host, no DCU, an unknown key, a number of images that triggers do not divide."""
    free = free_ports()
    for url, settings, why in (
        (f"http://127.0.0.1:{free}", {}, "cannot be reached"),
        ("http://no-such-dcu.invalid", {}, "cannot be reached"),
        (dcu.url, {"api_version": "9.9.9"}, "the DCU refuses GET /detector/api/9.9.9/status/state: 404"),
        (dcu.url, {"triggers": 3}, "5 images are no multiple of 3 triggers"),
        (dcu.url, {"urls": "x"}, "unknown key 'urls'"),
        ("dcu", {}, "cannot be reached"),
    ):
        with served(tmp_path, "stream1", dcu.port + 1, url, **settings) as service:
            problem = service.refused("arm", {"images": 5}, timeout=60)
            assert problem.code == "arm_failed" and why in problem.body["detail"] and problem.body["hint"], problem.body
            service.until(lambda s: s["state"] == "idle" and s["severity"] == "error")
    # A table of keys that this DCU does not have.
    lines = 'url = "%s"\n[control.settings.set]\nno_such_key = 1' % dcu.url
    with served(tmp_path, "stream1", dcu.port + 1, dcu.url) as service:
        service.close()
        config = tmp_path / "stream.toml"
        config.write_text(config.read_text().replace(f'url = "{dcu.url}"', lines).replace("\n[service]\narm_timeout_s = 40", ""))
        from service import Service

        again = Service(config, environment={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        try:
            assert "no_such_key = 1: 404" in again.refused("arm", {"images": 5}, timeout=60).body["detail"]
        finally:
            again.end()
    assert state(dcu) == "idle"


class Slow(http.server.BaseHTTPRequestHandler):
    """A web server that takes connections and never answers: what a hanging DCU does."""

    def do_GET(self):
        threading.Event().wait(20)

    def log_message(self, *arguments):
        pass


def test_a_dcu_that_does_not_answer(tmp_path, dcu):
    """The driver gives up after its own time, the service after control.timeout_s."""
    hanging = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    hanging.daemon_threads = True
    threading.Thread(target=hanging.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{hanging.server_port}"
    try:
        for options, why in (({"http_timeout_s": 1.0}, "did not answer in time"), ({"timeout_s": 2}, "was killed")):
            with served(tmp_path, "stream1", dcu.port + 1, url, **options) as service:
                problem = service.refused("arm", {"images": 5}, timeout=60)
                assert problem.code == "arm_failed" and why in problem.body["detail"], problem.body
    finally:
        hanging.shutdown()
