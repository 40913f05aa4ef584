"""`[control] driver = "slsdet"`: "arm" and "pedestal" drive the virtual JUNGFRAU and EIGER of the SLS detector package
by its client slsdet."""

import contextlib
import os
import signal
import subprocess

import h5py
import numpy as np
import pytest
from programs import PYTHON, ROOT, needs
from test_sls import CLIENT_9, CLIENT_10, SERVERS, TILES, ready, server, words_of_the_jungfrau

from driving import BINARY, Bench, Master, raw_tables
from ports import free_ports
from service import Service, until

IMAGES = 1000
pytestmark = [
    pytest.mark.peer("slsdet driver"),
    needs(PYTHON, "the environment of the peers"),
    needs(SERVERS / "jungfrauDetectorServer_virtual", "the virtual detectors"),
    needs(CLIENT_9, "slsdet 9.2"),
]


def environment(client=CLIENT_9):
    """The driver's Python finds our package and this release of slsdet; its shared memory is that of this test."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{client}"}


def control(*hosts, values=None, **settings):
    """The tables of a detector whose modules stand at these ports."""
    hosts = {"hosts": [f"localhost:{port}" for port in hosts], "udp_srcip": "127.0.0.1", "udp_dstmac": "11:22:33:44:55:66"}
    tables = {"control": {"driver": "slsdet", "python": str(PYTHON), "timeout_s": 60}, "control.settings": {**hosts, **settings}}
    return {**tables, "control.settings.set": values} if values else tables


def served(bench, name, tables, client=CLIENT_9, streams=1):
    """A service; its detector has a name of its own, after which the shared memory of slsdet is called."""
    tables = {**tables, "service": {"name": f"{name}{os.getpid()}", "arm_timeout_s": 60}}
    return Service(bench.config(streams=streams, **tables), environment=environment(client))


def jungfrau(**run):
    tables = raw_tables(first_frame="auto", **run)
    tables["detector"] |= {"count_time_us": 10.0, "frame_time_us": 2000.0}
    return tables


@pytest.fixture(autouse=True)
def no_shared_memory_is_left():
    yield
    for path in os.listdir("/dev/shm"):
        if path.startswith("slsDetectorPackage") and f"{os.getpid()}_" in path:
            os.unlink(f"/dev/shm/{path}")


@pytest.fixture
def virtual_jungfrau(tmp_path):
    port = free_ports(2)
    with server("jungfrau", tmp_path / "server", port):
        ready(tmp_path / "server")
        yield port
    kill_in(tmp_path / "server")


def kill_in(folder):
    """Ends both processes of a server: that of its control port and that of its stop port, which run in this folder."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{name}/cwd") == str(folder):
                os.kill(int(name), signal.SIGKILL)


def logs(service, part):
    return [event for event in service.request("GET", "logs")["logs"] if part in event["message"]]


def test_a_run_of_the_virtual_jungfrau(tmp_path, virtual_jungfrau):
    """Two runs of 1000 images: the command line arms and starts, and the detector is configured, runs and is stopped."""
    bench = Bench(tmp_path)
    service = served(bench, "jf", {**jungfrau(images=IMAGES), **control(virtual_jungfrau, values={"powerchip": True})})
    try:
        for name in ("first", "second"):
            for command in (["arm", "--prefix", name], ["start"], ["wait", "--timeout", "120"]):
                done = subprocess.run([BINARY, *command, "--url", service.url], capture_output=True, text=True, timeout=180)
                assert done.returncode == 0, (command, done.stdout, done.stderr)
            status = service.status()
            assert (status["severity"], status["images_written"], status["images_lost"]) == ("success", IMAGES, 0), status
            with h5py.File(tmp_path / f"{name}_master.h5") as file:
                data = file["/entry/data"]
                images = data[data.attrs["signal"]]
                assert images.shape == (IMAGES, 512, 1024)
                for number in (0, IMAGES // 2, IMAGES - 1):
                    assert np.array_equal(images[number], words_of_the_jungfrau())
                assert file["/entry/instrument/detector/count_time"][()] == pytest.approx(1e-5)
    finally:
        assert service.end()[0] == 0


def test_a_run_of_the_virtual_eiger(tmp_path):
    """Both half modules, each with two ports: 1000 images of 16 bit, every pixel of some of them."""
    port, bench = free_ports(4), Bench(tmp_path)
    with server("eiger", tmp_path / "top", port), server("eiger", tmp_path / "bottom", port + 2, top=False):
        for half in ("top", "bottom"):
            ready(tmp_path / half)
        detector = {"type": "eiger", "bits": 16, "detector_distance_mm": 100.0, "energy_kev": 12.4, "tile": TILES}
        detector |= {"count_time_us": 500.0, "frame_time_us": 10_000.0}
        run = {"images": IMAGES, "first_frame": "auto", "stall_timeout_s": 20}
        tables = {"detector": detector, "run": run, **control(port, port + 2)}
        service = served(bench, "eiger", tables, streams=4)
        try:
            service.command("start", timeout=120)
            done = service.wait(120)
            assert (done["severity"], done["images_written"], done["images_lost"]) == ("success", IMAGES, 0), done
            pixel = np.arange(256 * 1024).reshape(256, 1024)
            half = pixel // 2048 % 2**16
            images = Master(done["file"]).images
            assert images.shape[0] == IMAGES
            for number in (0, IMAGES - 1):
                assert np.array_equal(images[number], np.concatenate([half[::-1], half]))
        finally:
            assert service.end()[0] == 0
            kill_in(tmp_path / "top")
            kill_in(tmp_path / "bottom")


def test_pedestals_are_taken_stage_by_stage(tmp_path, virtual_jungfrau):
    """The detector is set to each forced gain and started. Its words have all gain bits, so that they are refused as dark
    frames; by then it has sent them, and its gain is no longer forced."""
    bench = Bench(tmp_path)
    service = served(bench, "dark", {**jungfrau(), **control(virtual_jungfrau, values={"powerchip": True})})
    try:
        service.command("pedestal", {"frames": 20, "file": "new"}, timeout=120)
        done = service.until(lambda s: s["state"] in ("idle", "error"), 90)
        log = (tmp_path / "server/log").read_text(errors="replace")
        assert done["ended"] == "failed" and "gain" in done["message"].lower(), done
        set_to = [line for line in log.splitlines() if "gain mode" in line.lower()]
        assert any("forceswitchg1" in line.replace("_", "").replace(" ", "").lower() for line in set_to), set_to
    finally:
        assert service.end()[0] == 0


def test_values_that_the_detector_does_not_take(tmp_path, virtual_jungfrau):
    """Both values are named, where the server changes what was set; and what it refuses, in its words."""
    bench = Bench(tmp_path)
    for tables, why in (
        ({"values": {"highvoltage": 500}}, "highvoltage = 500"),
        ({"values": {"readoutspeed": "warp"}}, "one of full_speed"),
        ({"values": {"nonsense": 1}}, "slsdet has no 'nonsense'"),
        ({"gainmode": "dynamo"}, "gainmode = 'dynamo'"),
        ({"host": "x"}, "unknown key 'host'"),
    ):
        service = served(bench, "odd", {**jungfrau(images=5), **control(virtual_jungfrau, **tables)})
        try:
            problem = service.refused("arm", timeout=120)
            assert problem.code == "arm_failed" and why in problem.body["detail"], problem.body
            assert service.status()["state"] == "idle"
        finally:
            service.end()
    # 12.3456789 us are no multiple of its clock of 25 ns, which is no difference. 1 ns becomes 50 ns.
    tables = jungfrau(images=5)
    service = served(bench, "odd", {**tables, **control(virtual_jungfrau, values={"powerchip": True})})
    try:
        service.command("arm", {"metadata": {"count_time_us": 12.3456789}}, timeout=120)
        service.command("cancel")
    finally:
        service.end()
    service = served(bench, "odd", {**tables, **control(virtual_jungfrau, values={"exptime": 1e-9})})
    try:
        refused = service.refused("arm", timeout=120).body["detail"]
        assert "has not taken exptime = 1e-09: it has 5e-08" in refused, refused
    finally:
        service.end()


def test_hosts_that_are_not_there(tmp_path, virtual_jungfrau):
    """A name that is none, a port where nobody listens, one module too many, another detector, no interface."""
    bench, port = Bench(tmp_path), virtual_jungfrau
    for settings, why in (
        ({"hosts": ["no-such-host.invalid"]}, "no-such-host.invalid"),
        ({"hosts": [f"localhost:{free_ports()}"]}, "cannot be used"),
        ({"hosts": [f"localhost:{port}", "localhost:1"]}, "localhost:1"),
        ({"udp_dstmac": ""}, "hardware address"),
    ):
        service = served(bench, "away", {**jungfrau(images=5), **control(port, **settings)})
        try:
            problem = service.refused("arm", timeout=120)
            assert problem.code == "arm_failed" and why in problem.body["detail"] and problem.body["hint"], problem.body
        finally:
            service.end()
    detector = {"type": "eiger", "detector_distance_mm": 100.0, "energy_kev": 12.4}
    service = served(bench, "away", {"detector": detector, "run": {"images": 5}, **control(port)}, streams=4)
    try:
        assert "is a jungfrau, and detector.type is eiger" in service.refused("arm", timeout=120).body["detail"]
    finally:
        service.end()


@needs(CLIENT_10, "slsdet 10")
def test_a_client_of_another_release(tmp_path, virtual_jungfrau):
    """slsdet 10 refuses the servers of 9, and its reason reaches who arms."""
    service = served(Bench(tmp_path), "other", {**jungfrau(images=5), **control(virtual_jungfrau)}, CLIENT_10)
    try:
        assert "incompatible with client version" in service.refused("arm", timeout=120).body["detail"]
    finally:
        service.end()


def test_the_server_is_killed(tmp_path, virtual_jungfrau):
    """In mid-run: the run stalls, its file holds what came, and it is said that the detector is gone. The next arm is
    refused."""
    bench, tables = Bench(tmp_path), jungfrau(images=100_000, stall_timeout_s=2)
    service = served(bench, "killed", {**tables, **control(virtual_jungfrau, values={"powerchip": True})})
    try:
        service.command("start", timeout=120)
        service.until(lambda s: s["images_committed"] > 50, 60)
        kill_in(tmp_path / "server")
        done = service.wait(60)
        assert done["ended"] == "stalled" and done["images_written"] > 50, done
        until(lambda: logs(service, "could not stop the detector"), "the failure of the stop")
        problem = service.refused("arm", {"prefix": "next"}, timeout=120)
        assert problem.code == "arm_failed" and problem.body["hint"], problem.body
    finally:
        service.end()


def test_a_detector_that_somebody_else_has_started(tmp_path, virtual_jungfrau):
    """An arm does not stop it; a cancel does, and then the arm is taken."""
    port = virtual_jungfrau
    tables = {**jungfrau(images=100_000), **control(port, values={"powerchip": True})}
    first = served(Bench(tmp_path), "first", tables)
    first.command("start", timeout=120)
    first.process.kill()
    first.process.wait()
    (tmp_path / "second").mkdir()
    service = served(Bench(tmp_path / "second"), "second", tables)
    try:
        problem = service.refused("arm", timeout=120)
        assert "not idle" in problem.body["detail"] and "cancel" in problem.body["hint"], problem.body
        service.command("cancel", timeout=60)
        service.command("arm", timeout=120)
        service.command("cancel")
    finally:
        service.end()
        first.end()
