"""The Tango device: PyTango clients drive the real service by it, with and without failures."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import konkordia
import numpy as np
import pytest
from driving import Master, demo_service
from lanes import lanes, slow_lane

tango = pytest.importorskip("tango", reason="PyTango is not installed: pip install pytango")

import tango_loop  # noqa: E402
from konkordia.tango import Konkordia  # noqa: E402
from streams import Stins, StreamService, pictures  # noqa: E402
from tango_loop import CASES, PAGE, Loop, Server, diagram, mermaid, row, run  # noqa: E402

IMAGES = 1000
ROOT = Path(__file__).resolve().parents[2]


class Events:
    """What a client is sent, by attribute."""

    def __init__(self, device, *names):
        self.got, self.errors = {name: [] for name in names}, []
        self.device = device
        self.ids = [device.subscribe_event(name, tango.EventType.CHANGE_EVENT, self.take(name)) for name in names]

    def take(self, name):
        def take(event):
            if event.err:
                self.errors.append(event.errors[0].reason)
            elif event.attr_value.quality != tango.AttrQuality.ATTR_INVALID:
                self.got[name].append((event.attr_value.value, event.attr_value.time.totime()))

        return take

    def values(self, name):
        return [value for value, _ in self.got[name]]

    def end(self):
        for one in self.ids:
            self.device.unsubscribe_event(one)


def until(condition, what, timeout=20):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.02)


@pytest.fixture
def loop(tmp_path):
    loop = Loop(tmp_path)
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    with demo_service(tmp_path_factory.mktemp("demo"), rate=400) as url:
        yield url


@pytest.mark.alone
def test_a_run_of_1000_images_from_arm_to_file_and_images_by_events(demo):
    # A server of its own, as a beamline runs it: a fork of this process, which has threads, is held up now and then.
    with contextlib.closing(Server(demo)) as server, konkordia.Client(demo) as client:
        device = server.device
        until(lambda: device.state() == tango.DevState.STANDBY, device.status)
        device.nTriggers, device.nFramesPerTrigger = 100, 10
        device.ExposureTime, device.LatencyTime, device.PhotonEnergy, device.SampleName = 0.001, 0.001, 12.4, "lysozyme"
        device.DestinationFilename = "tango_run"
        events = Events(device, "Image", "ImageNumber", "TriggerNumber", "State", "nFramesAcquired")
        device.Arm()
        assert device.state() == tango.DevState.RUNNING and device.nImages == IMAGES
        until(lambda: device.state() != tango.DevState.RUNNING, device.status, 120)
        # The file is closed: it has all images now.
        file = Master(device.File)
        assert device.state() == tango.DevState.STANDBY and device.nFramesAcquired == IMAGES and device.nTriggersAcquired == 100
        assert len(file.images) == IMAGES and device.ImagesLost == 0 and device.ImagesWritten == IMAGES
        until(
            lambda: events.values("ImageNumber")[-1:] == [IMAGES - 1] and len(events.got["Image"]) >= len(events.got["ImageNumber"]),
            "the last image",
        )
        until(lambda: events.values("State")[-1] == tango.DevState.STANDBY, "the state")
        events.end()
        assert tango.DevState.RUNNING in events.values("State") and not events.errors
        images = {at: pixels for pixels, at in events.got["Image"]}
        numbers = {at: number for number, at in events.got["ImageNumber"]}
        common = [at for at in numbers if at in images]
        # Number and pixels of an image have the same time.
        assert len(common) > 20, (len(images), len(numbers))
        own = [at for at in common if np.array_equal(images[at], file.images[numbers[at]])]
        # The image that the run before left may be the first.
        assert len(own) >= len(common) - 1, (len(own), len(common))
        assert np.array_equal(device.Image, client.image().pixels) and device.Image.dtype == client.image().pixels.dtype
        assert device.TriggerNumber == 99 and json.loads(device.ImageFacts)["image"] == IMAGES - 1
        with h5py.File(device.File) as opened:
            detector = opened["/entry/instrument/detector"]
            assert detector["count_time"][()] == pytest.approx(0.001) and detector["frame_time"][()] == pytest.approx(0.002)
            assert opened["/entry/sample/name"][()] == b"lysozyme"


ALL = [(arrow, title, case) for arrow, cases in CASES.items() for title, case in cases]
SHORT = (tango_loop.view_token, tango_loop.no_data)


@pytest.mark.parametrize(
    ("arrow", "title", "case"),
    lanes([one for one in ALL if one[2] in SHORT], [one for one in ALL if one[2] not in SHORT]),
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_fails_is_shown_as_the_page_says(arrow, title, case, tmp_path):
    try:
        found = row(title, *run(case, tmp_path))
    except OSError as error:
        pytest.skip(str(error))
    assert f"| {arrow} {found}" in PAGE.read_text(encoding="utf-8").splitlines()


@slow_lane
def test_the_diagram_of_the_page_is_that_of_a_run(tmp_path):
    lines = diagram(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    # Between the same two lines of a client, threads may report in another order.
    wanted = page.split("```mermaid")[1].split("```")[0].strip().splitlines()
    assert sorted(mermaid(lines).split("```mermaid")[1].split("```")[0].strip().splitlines()) == sorted(wanted)
    assert lines.index("Note over K: file complete and closed") < lines.index("T->>C: State STANDBY", 2)


def test_cancel_in_each_state(loop):
    device = loop.serve()
    device.Cancel()
    assert loop.state() == "STANDBY"
    loop.arm()
    device.Abort()
    loop.until("STANDBY")
    loop.arm()
    loop.bench.send(4)
    loop.images(4)
    device.Cancel()
    loop.until("STANDBY")
    assert device.nFramesAcquired == 4 and device.Ended == "cancelled"
    loop.arm(ImageTimeout=0.3)
    loop.until("ALARM")
    device.Cancel()
    device.Reset()
    loop.until("STANDBY")


@slow_lane
def test_cancel_of_an_arm_that_takes_long(loop):
    device = loop.serve(control={"on_arm": ["sleep", "3"]})
    loop.arm()
    assert loop.state() == "MOVING" and "answer to Arm" in device.WaitsFor
    device.Cancel()
    loop.until("MOVING", is_so=False)
    if loop.state() == "RUNNING":
        device.Cancel()
    loop.until("RUNNING", is_so=False)
    device.Reset()
    loop.until("STANDBY")


def test_of_two_controllers_at_once_one_is_refused_and_both_show_the_run(loop):
    one = loop.serve()
    other_server = Server(loop.service.url)
    loop.servers.append(other_server)
    other, results = other_server.device, []
    other.TriggerMode = one.TriggerMode = "EXTERNAL"
    until(lambda: other.state() == tango.DevState.STANDBY, other.status)

    def arm(device):
        try:
            device.Arm()
            results.append("armed")
        except tango.DevFailed as error:
            results.append(error.args[0].reason)

    threads = [threading.Thread(target=arm, args=(device,)) for device in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "armed" in results and set(results) <= {"armed", "wrong_state", "busy"} and len(set(results)) == 2, results
    until(lambda: one.state() == other.state() == tango.DevState.RUNNING, one.status)
    # Who did not arm it does not stop it either, whatever the own time-out says.
    quiet = one if results[0] != "armed" else other
    quiet.ImageTimeout = 0.2
    time.sleep(0.6)
    one.Stop()
    until(lambda: one.state() != tango.DevState.RUNNING and other.state() != tango.DevState.RUNNING, other.status)


def test_settings_that_make_no_sense_are_refused(loop):
    device = loop.serve()
    for name, value, code in [
        ("ExposureTime", float("nan"), "API_WAttrOutsideLimit"),
        ("ExposureTime", -1.0, "bad_setting"),
        ("LatencyTime", float("inf"), "API_WAttrOutsideLimit"),
        ("nTriggers", -1, "bad_setting"),
        ("nFramesPerTrigger", 0, "bad_setting"),
        ("ImageTimeout", -1.0, "bad_setting"),
        ("TriggerMode", "PERHAPS", "bad_setting"),
        ("Metadata", '{"energy_kev": NaN}', "bad_setting"),
        ("Metadata", "[1]", "bad_setting"),
    ]:
        with pytest.raises(tango.DevFailed) as error:
            device.write_attribute(name, value)
        assert error.value.args[0].reason == code, (name, value, error.value.args[0])
    for given, is_read in [("internal", "INTERNAL"), ("EXTERNAL_EDGE", "EXTERNAL_MULTI"), ("software", "SOFTWARE")]:
        device.TriggerMode = given
        assert device.TriggerMode == is_read
    assert device.read_attribute("ExposureTime").quality == tango.AttrQuality.ATTR_INVALID
    assert device.read_attribute("Image").quality == tango.AttrQuality.ATTR_INVALID
    device.Metadata = '{"no_such_key": 1}'
    for wrong in [("Metadata", '{"no_such_key": 1}'), ("SampleName", "x" * 2000), ("nTriggers", 2**62)]:
        device.Metadata = "{}"
        device.write_attribute(*wrong)
        with pytest.raises(tango.DevFailed) as error:
            device.Arm()
        assert error.value.args[0].reason in ("bad_request", "bad_body", "arm_failed") and error.value.args[0].origin == "Konkordia.Arm"
        device.SampleName, device.nTriggers = "Größe", 1
    with pytest.raises(tango.DevFailed, match="a software trigger is not expected"):
        device.TriggerMode = "EXTERNAL"
        device.SoftwareTrigger()


def test_software_triggers(loop):
    folder = loop.bench.folder
    device = loop.serve(control={"on_trigger": ["sh", "-c", f"echo {folder} >> {folder}/triggers"]})
    loop.arm(images=2, mode="SOFTWARE")
    assert device.ReadyForSwTrigger
    device.SoftwareTrigger()
    device.Trigger()
    assert len((folder / "triggers").read_text().splitlines()) == 2
    loop.bench.send(2)
    loop.until("STANDBY")
    assert device.nTriggersAcquired == 2 and not device.ReadyForSwTrigger


def test_texts_that_tango_cannot_write_are_shown_in_another_way(loop):
    device = loop.serve()
    device.Metadata = json.dumps({"sample_name": "λ"})
    loop.service.command("arm", {"images": 5, "prefix": "λ"})
    loop.until("RUNNING")
    loop.bench.send(5)
    loop.until("STANDBY")
    assert device.File.endswith("\\u03bb_master.h5") and (loop.bench.folder / "λ_master.h5").exists()
    device.Arm()
    loop.until("RUNNING")


def test_types_of_pixels_and_subscriptions_that_go_on(tmp_path):
    service = StreamService(tmp_path)
    server = Server(service.url)
    try:
        device = server.device
        until(lambda: device.state() == tango.DevState.STANDBY, device.status)
        events, run_number = Events(device, "Image"), 0
        for dtype in ("uint16", "float32", "uint32", "int32", "uint8", "float64", "int16", "int16"):
            images = [picture.astype(dtype) for picture in pictures(3)]
            events.got["Image"].clear()
            service.send(*Stins().series(images))
            run_number += 1
            service.taken(run_number)
            until(
                lambda images=images: any(np.array_equal(pixels, images[-1]) for pixels in events.values("Image")), f"no event of {dtype}"
            )
            assert all(pixels.dtype == dtype for pixels in events.values("Image")), dtype
            assert np.array_equal(device.Image, images[-1]) and device.Image.dtype == dtype
        device.Init()
        until(lambda: device.state() == tango.DevState.STANDBY, device.status)
        assert np.array_equal(device.Image, images[-1]) and device.Image.dtype == dtype
        events.end()
    finally:
        server.close()
        service.close()


def test_every_attribute_and_command_is_described_in_the_page(loop):
    device = loop.serve()
    page = (ROOT / "docs/tango.md").read_text(encoding="utf-8")
    missing = [
        name
        for name in [*device.get_attribute_list(), *device.get_command_list(), *Konkordia.__dict__]
        if name[0].isupper() and f"`{name}`" not in page
    ]
    assert set(missing) <= {"TangoClassName", "TangoClassClass"}, missing


def test_a_program_without_pytango_says_what_to_install():
    code = "import sys; sys.modules['tango'] = None; import konkordia.tango"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True
    )
    assert "pip install 'konkordia[tango]'" in done.stderr
