"""The EPICS server drives whole runs of the real service, and says what goes wrong, as p4p sees it from another process."""

import re
import signal
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import konkordia
import numpy as np
import pytest
from driving import Master, demo_service
from service import Service, served_bench, until
from streams import StreamService

pytest.importorskip("p4p", reason="p4p is not installed (tests/readers/requirements.txt)")
from epics_server import PREFIX, EpicsServer  # noqa: E402
from konkordia.epics._table import TABLE  # noqa: E402

bench = pytest.fixture(served_bench)
ROOT = Path(__file__).resolve().parents[2]
IMAGES = 1000
INVALID = 3


@pytest.fixture
def serve():
    """Starts EPICS servers, and ends them."""
    servers = []

    def start(*arguments):
        servers.append(EpicsServer(*arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Address of a service with a simulated JUNGFRAU, which sends a series after each start."""
    with demo_service(tmp_path_factory.mktemp("demo"), rate=300) as url:
        yield url


def of_run(updates, run):
    """The images of a run among the updates so far: number, attributes, pixels."""
    found = []
    while not updates.empty():
        value = updates.get()
        attributes = {one.name: one.value for one in value.attribute}
        if attributes.get("run") == run:
            shape = [one.size for one in value.dimension][::-1]
            found.append((value.uniqueId, attributes, value.value.reshape(shape)))
    return found


@pytest.mark.alone
def test_a_run_of_1000_images_by_puts(demo, serve):
    server = serve(demo)
    updates = server.watch(size=IMAGES)
    server.put("NumImages", IMAGES, wait=True)
    server.put("FilePath", "")
    server.put("FileName", "λ lysozyme", wait=True)
    server.put("AcquireTime", 0.00025)
    server.put("Acquire", 1, wait=True, timeout=60)
    assert server.get("DetectorState_RBV") == "Idle" and server.alarm("StatusMessage_RBV") == (0, "")
    assert server.get("NumImagesCounter_RBV") == server.get("NumImages_RBV") == server.get("ArrayCounter_RBV") == IMAGES
    path, run = server.get("FullFileName_RBV"), server.get("Run_RBV")
    assert path.endswith("/λ lysozyme_master.h5") and server.get("ImagesLost_RBV") == 0
    file = Master(path)
    assert len(file.images) == IMAGES
    until(lambda: server.get("UniqueId_RBV") == IMAGES - 1, "the last image is there")
    time.sleep(0.3)
    found = of_run(updates, run)
    numbers = [number for number, _, _ in found]
    assert numbers == sorted(set(numbers)) and len(numbers) > 50 and numbers[-1] == IMAGES - 1
    for number, attributes, pixels in found:
        assert np.array_equal(pixels, file.images[number]), number
        assert attributes["file"] == path and attributes["status"] == "complete" and attributes["max_value"] == pixels[file.mask == 0].max()
    assert (server.get("ArraySizeX_RBV"), server.get("ArraySizeY_RBV"), server.get("DataType_RBV")) == (1024, 512, "Int16")
    assert server.get("PacketsReceived_RBV") > 0 and server.get("PacketsLost_RBV") == 0


def test_what_is_refused_fails_the_put_with_reason_and_hint(bench, serve):
    service = bench.serve(run={"images": 5})
    server = serve(service.url)
    until(lambda: server.get("DetectorState_RBV") == "Idle", "it knows the service")
    causes = [
        ("NumImages", -4, "-4 is no whole number"),
        ("AcquireTime", float("nan"), "nan is no time: give seconds"),
        ("AcquirePeriod", float("-inf"), "-inf is no time"),
        ("AcquirePeriod", -1.0, "-1 is no time"),
        ("FileName", "../outside", "give a plain name"),
        ("FileName", "x" * 5000, "it has 5000"),
        ("FileName", "λ" * 101, "longer than 200 bytes"),
        ("Trigger", 1, "on_trigger"),
        ("WaitForPlugins", 0, "cannot be changed"),
        ("DetectorState_RBV", 1, "only be read"),
    ]
    for name, value, words in causes:
        said = server.refused(name, value)
        assert words in said, said
        if not name.endswith("_RBV"):
            assert server.get("StatusMessage_RBV") == said and server.alarm("StatusMessage_RBV") == (2, said)
    # The other fields of a PV are no commands.
    with pytest.raises(Exception, match="only its value can be put"):
        server.context.put(f"{PREFIX}cam1:Arm", {"alarm.severity": 1}, timeout=10)
    assert "none of its choices" in server.refused("ImageMode", 7)
    # A setting that was refused is not in force.
    assert server.get("NumImages") == 1 and np.isnan(server.get("AcquireTime")) and server.get("FileName") == ""
    server.put("FilePath", str(bench.folder / "nowhere"))
    assert "FileName is empty" in server.refused("Arm", 1)
    assert "nowhere does not exist" in server.refused("FileName", "ok")
    server.put("FilePath", "")
    server.put("FileName", "ok")
    assert server.get("StatusMessage_RBV") == service.status()["message"]


def test_two_controllers_at_once(bench, serve):
    service = bench.serve(run={"images": 5})
    one, other = serve(service.url), serve(service.url)
    one.put("NumImages", 2)
    one.put("Arm", 1)
    until(lambda: other.get("Armed_RBV") == "Yes", "the other one sees it")
    assert (other.get("DetectorState_RBV"), other.get("NumImages_RBV"), other.get("NumImages")) == ("Waiting", 2, 1)
    assert "cannot arm" in other.refused("Arm", 1)
    # Whoever acquires takes what is armed.
    other.put("Acquire", 1)
    bench.send(2)
    until(lambda: one.get("DetectorState_RBV") == "Idle" and one.get("NumImagesCounter_RBV") == 2, "both see the end")
    assert one.get("FullFileName_RBV") == service.status()["file"]


def test_a_viewer_cannot_arm(tmp_path, serve):
    sys.path.insert(0, str(ROOT / "tests/web"))
    from test_web_access import Tokens

    tokens = Tokens(tmp_path)
    service = StreamService(tmp_path, extra=tokens.extra)
    try:
        viewer, nobody = serve(service.url, tokens.viewer), serve(service.url)
        until(lambda: viewer.get("DetectorState_RBV") == "Idle", "a viewer sees the state")
        for name in ("Arm", "Acquire", "Stop", "Cancel", "Trigger"):
            assert "operate" in viewer.refused(name, 1), name
        viewer.put("NumImages", 7)  # it is checked by a dry run, which a viewer may ask for
        until(lambda: "token" in nobody.get("StatusMessage_RBV"), "it is said why nothing is known")
        severity, message = nobody.alarm("DetectorState_RBV")
        assert severity == INVALID and "token" in message and nobody.get("DetectorState_RBV") == "Disconnected"
        assert "token" in nobody.refused("Arm", 1)
    finally:
        service.close()


def test_abort_in_each_state(bench, serve):
    service = bench.serve(run={"images": 5})
    server = serve(service.url)
    server.put("NumImages", 100_000)
    server.put("Acquire", 0)
    server.put("Cancel", 1)  # nothing goes on, and nothing is wrong
    server.put("Arm", 1)
    server.put("Cancel", 1)
    until(lambda: server.get("DetectorState_RBV") == "Idle", "cancelled while armed")
    for ending in ("Stop", "Cancel", "Acquire"):
        ended = []
        # A put with completion, which the ending releases.
        thread = threading.Thread(target=lambda ended=ended: ended.append(server.put("Acquire", 1, wait=True)))
        thread.start()
        until(lambda: server.get("DetectorState_RBV") == "Waiting", "it is armed")
        run = service.status()["run"]
        until(lambda run=run: server.get("Run_RBV") == run, "the server knows the run")
        bench.send(3)
        until(lambda: service.status()["images_committed"] == 3, "three images have come")
        assert not ended and server.get("Acquire_RBV") == "Acquiring"
        server.put(ending, 0 if ending == "Acquire" else 1)
        thread.join(20)
        assert ended == [None], ending
        until(lambda: server.get("DetectorState_RBV") == "Idle", "it is over")
        assert server.get("Run_RBV") == run and server.get("Ended_RBV") == ("cancelled" if ending == "Cancel" else "stopped")
        assert len(Master(server.get("FullFileName_RBV")).images) == 3


def test_a_service_that_is_killed_and_comes_back(bench, serve):
    first = bench.serve(run={"images": 3})
    server = serve(first.url)
    images, states = server.watch(), server.watch("cam1:DetectorState_RBV")
    server.put("NumImages", 3)
    server.put("Acquire", 1)
    bench.send(3)
    until(lambda: server.get("UniqueId_RBV") == 2, "the images are seen")
    first.process.kill()
    first.process.wait()
    until(lambda: server.alarm("UniqueId_RBV")[0] == INVALID, "all is invalid")
    for name in ("DetectorState_RBV", "NumImagesCounter_RBV", "FullFileName_RBV", "StatusMessage_RBV"):
        severity, message = server.alarm(name)
        assert severity == INVALID and first.url in message, name
    assert first.url in server.refused("Arm", 1)

    def image_is_invalid():
        return any(value["alarm.severity"] == INVALID and first.url in value["alarm.message"] for value in list(images.queue))

    until(image_is_invalid, "the image is invalid too")
    again = Service(bench.folder / "run.toml", listen=first.url.removeprefix("http://"))
    bench.services.append(again)
    until(lambda: server.alarm("DetectorState_RBV") == (0, "") and server.get("DetectorState_RBV") == "Idle", "it recovers by itself")
    while not images.empty():
        images.get()
    # Its runs count from 1 again: they are other images.
    server.put("Acquire", 1)
    bench.send(3)
    until(lambda: not images.empty(), "images of the new service")
    until(lambda: server.get("NumImagesCounter_RBV") == 3, "the run is over")
    until(lambda: server.get("DetectorState_RBV") == "Idle", "it is idle")
    assert 9 in [value["value.index"] for value in list(states.queue)], "whoever looks on saw Disconnected"


def test_a_crash_of_the_server_does_not_touch_the_run(demo, serve):
    server = serve(demo)
    server.put("NumImages", 300)
    server.put("Acquire", 1)
    server.process.send_signal(signal.SIGKILL)
    with konkordia.Client(demo) as client:
        status = client.wait(30)
    assert status["images_committed"] == 300 and status["severity"] == "success"
    again = serve(demo)
    until(lambda: again.get("FullFileName_RBV") == status["file"], "the next server knows all")


def test_time_stamps_and_numbered_files(bench, serve):
    service = bench.serve(run={"images": 1})
    server = serve(service.url)
    server.put("FileName", "scan")
    server.put("AutoIncrement", 1)
    server.put("FileNumber", 7)
    names = []
    for _ in range(2):
        began = time.time()
        server.put("Acquire", 1)
        bench.send(1)
        until(lambda names=names: server.get("FullFileName_RBV") not in ["", *names], "another file")
        until(lambda: server.get("DetectorState_RBV") == "Idle", "it is over")
        names.append(server.get("FullFileName_RBV"))
        stamp = server.raw("DetectorState_RBV")["timeStamp"]
        assert began - 0.01 <= stamp.secondsPastEpoch + 1e-9 * stamp.nanoseconds <= time.time()
    assert [Path(name).name for name in names] == ["scan_000007_master.h5", "scan_000008_master.h5"]
    until(lambda: server.get("ArraySizeX_RBV") > 0, "the image is there for who asks once")
    value = server.context.get(f"{PREFIX}Pva1:Image")
    assert abs(value["timeStamp.secondsPastEpoch"] - time.time()) < 20 and value["alarm.severity"] == 0


def test_the_screen_and_the_page_have_the_pvs_that_there_are():
    ours = {pv.name for pv in TABLE}
    screen = ElementTree.parse(ROOT / "deploy/epics/konkordia.bob")
    named = [one.text for one in screen.iter("pv_name") if one.text != "$(pv_name)"]
    assert len(named) > 20
    for name in named:
        assert name == "pva://$(P)Pva1:Image" or (name.startswith("pva://$(P)$(R)") and name.removeprefix("pva://$(P)$(R)") in ours), name
    page = (ROOT / "docs/epics.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:\w+ ?)*[^|]*\| (.*) \|$", page, re.MULTILINE))
    assert set(rows) == ours, set(rows) ^ ours
    for pv in TABLE:
        assert rows[pv.name] == pv.meaning, pv.name


def test_whoever_gives_no_address_serves_this_host_only(monkeypatch):
    from konkordia.epics.__main__ import conf_of

    monkeypatch.delenv("EPICS_PVAS_INTF_ADDR_LIST", raising=False)
    assert conf_of(None) == {"EPICS_PVAS_INTF_ADDR_LIST": "127.0.0.1"}
    assert conf_of(["10.0.0.2"]) == {"EPICS_PVAS_INTF_ADDR_LIST": "10.0.0.2"}
    monkeypatch.setenv("EPICS_PVAS_INTF_ADDR_LIST", "10.0.0.3")
    assert conf_of(None) == {}
