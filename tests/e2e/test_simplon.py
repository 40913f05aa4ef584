"""The SIMPLON port (`[adapters.simplon]`), by plain HTTP: keys, types, errors, states, files and monitor images."""

import io
import json
import threading
import urllib.request

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from PIL import Image
from driving import program
from service import served_bench, until
from simplon_client import TABLE, Refused, Simplon

bench = pytest.fixture(served_bench)

# What ophyd_async.fastcs.eiger needs: key, type, writable.
OPHYD = {
    "bit_depth_image": ("uint", "r"),
    "count_time": ("float", "rw"),
    "frame_time": ("float", "rw"),
    "nimages": ("uint", "rw"),
    "ntrigger": ("uint", "rw"),
    "trigger_mode": ("string", "rw"),
    "roi_mode": ("string", "rw"),
    "photon_energy": ("float", "rw"),
    "beam_center_x": ("float", "rw"),
    "beam_center_y": ("float", "rw"),
    "detector_distance": ("float", "rw"),
    "omega_start": ("float", "rw"),
    "omega_increment": ("float", "rw"),
}
# What ADEiger cannot do without, beside commands.
ADEIGER = ["filewriter/config/mode", "stream/config/mode", "stream/config/format", "monitor/config/mode", "detector/status/state"]
TYPES = {"float": (int, float), "uint": int, "string": str, "bool": bool, "string[]": list, "datetime": str}
FACTS = {
    "detector": {
        "type": "eiger", "bits": 8, "energy_kev": 12.4, "detector_distance_mm": 150.0, "beam_center_x_px": 500.25,
        "beam_center_y_px": 250.5, "serial_number": "E-7",
    }
}


@pytest.fixture
def served(bench):
    def serve(*arguments, extra=TABLE, **tables):
        bench.service = bench.serve(*arguments, extra=extra, **tables)
        return Simplon(bench.service)

    return serve


def sending(bench, **options):
    thread = threading.Thread(target=bench.send, kwargs=options)
    thread.start()
    return thread


def run(bench, simplon, images=20):
    """A whole run, by trigger. Returns its number."""
    simplon.put("detector/config/nimages", images)
    number = simplon.command("arm")["sequence id"]
    sender = sending(bench, images=images)
    simplon.command("trigger")
    sender.join()
    simplon.command("disarm")
    return number


def test_every_key_has_a_value_of_its_type(served):
    simplon = served(**FACTS)
    for subsystem in ["detector", "stream", "monitor", "filewriter", "system"]:
        assert json.loads(simplon.send("GET", f"{subsystem}/api/version")[2])["value"] == "1.8.0"
        for section in ["config", "status"]:
            names = simplon.get(f"{subsystem}/{section}/keys")
            assert isinstance(names, list) and len(names) == len(set(names))
            for name in names:
                for version in ["1.6.0", "1.8.0"]:
                    found = simplon.get(f"{subsystem}/{section}/{name}", version)
                    assert {"value", "value_type", "access_mode"} <= found.keys(), found
                    value = found["value"]
                    assert value is None or isinstance(value, TYPES[found["value_type"]]), (name, found)
                    if "allowed_values" in found:
                        assert value is None or value in found["allowed_values"], found
                    if "min" in found and value is not None:
                        assert found["min"] <= value <= found["max"], found
    for name, kind in OPHYD.items():
        found = simplon.get(f"detector/config/{name}")
        assert (found["value_type"], found["access_mode"]) == kind, (name, found)
        assert name in simplon.get("detector/config/keys")
    for path in [*ADEIGER, "detector/status/error", "stream/status/error", "detector/config/wavelength"]:
        assert simplon.get(path)
    assert "wavelength" not in simplon.get("detector/config/keys")
    for name in ["abort", "arm", "cancel", "disarm", "initialize", "trigger"]:
        assert name in simplon.get("detector/command/keys")


def test_what_the_configuration_says_is_shown_in_the_units_of_simplon(served):
    simplon = served(**FACTS)
    shown = {name: simplon.value(f"detector/config/{name}") for name in simplon.get("detector/config/keys")}
    assert (shown["photon_energy"], shown["incident_energy"], shown["detector_distance"]) == (12400, 12400, 0.15)
    assert (shown["beam_center_x"], shown["beam_center_y"], shown["detector_number"]) == (500.25, 250.5, "E-7")
    assert (shown["x_pixels_in_detector"], shown["y_pixels_in_detector"]) == (512, 1024)
    assert (shown["x_pixel_size"], shown["sensor_material"], shown["sensor_thickness"]) == (7.5e-5, "Si", 3.2e-4)
    assert (shown["bit_depth_image"], shown["bit_depth_readout"], shown["description"]) == (16, 8, "EIGER 1 module")
    assert simplon.value("detector/config/wavelength") == pytest.approx(12.39842 / 12.4, rel=1e-6)
    # What nobody said is not made up.
    assert (shown["count_time"], shown["omega_start"], shown["sample_name"]) == (None, None, "")
    assert simplon.refused("get", "detector/config/detector_readout_time").status == 404
    assert (shown["nimages"], shown["ntrigger"], shown["trigger_mode"]) == (1, 1, "ints")
    assert simplon.value("filewriter/config/nimages_per_file") == 1000
    assert (simplon.value("stream/config/mode"), simplon.value("stream/config/format")) == ("disabled", None)
    assert simplon.value("stream/status/state") == "disabled" and simplon.value("filewriter/status/state") == "ready"
    assert simplon.value("filewriter/status/buffer_free") > 1000 and simplon.value("filewriter/status/files") == []
    # fastcs-eiger rounds what it sends to the decimals of the lowest value.
    assert simplon.get("detector/config/omega_increment")["min"] == -3599.999999


def test_what_a_client_sets_is_in_the_file_of_the_next_run(served, bench):
    simplon = served(**FACTS)
    assert simplon.put("detector/config/photon_energy", 8047.78) == ["photon_energy", "incident_energy", "wavelength"]
    assert simplon.value("detector/config/wavelength") == pytest.approx(1.5406, rel=1e-4)
    assert simplon.put("detector/config/wavelength", 1.0)[0] == "photon_energy"
    for name, value in {
        "count_time": 0.00199, "frame_time": 0.002, "detector_distance": 0.2, "beam_center_x": 12.5, "omega_start": 30.0,
        "omega_increment": 0.125, "sample_name": "Lysozym ä", "total_flux": 1e12, "ntrigger": 2.0,
    }.items():
        assert simplon.put(f"detector/config/{name}", value) == [name]
        assert simplon.value(f"detector/config/{name}") == value
    simplon.put("filewriter/config/name_pattern", "series_$id")
    simplon.put("detector/config/nimages", 10)
    simplon.put("detector/config/trigger_mode", "exts")
    number = simplon.command("arm")["sequence id"]
    assert number == 1 and simplon.state == "ready"
    refused = simplon.refused("command", "trigger")
    assert refused.status == 409 and "trigger_mode is exts" in refused.text
    bench.send(images=20)
    bench.service.wait()
    assert simplon.value("filewriter/status/files") == ["series_1_data_000001.h5", "series_1_master.h5"]
    bench.check("series_1")
    with h5py.File(bench.master("series_1")) as file:
        detector = file["/entry/instrument/detector"]
        assert detector["count_time"][()] == pytest.approx(1.99e-3) and detector["frame_time"][()] == pytest.approx(2e-3)
        assert detector["beam_center_x"][()] == 12.5 and detector["detector_distance"][()] == pytest.approx(0.2)
        assert file["/entry/instrument/beam/incident_wavelength"][()] == pytest.approx(1.0)
        assert file["/entry/sample/name"][()].decode() == "Lysozym ä"
        omega = file["/entry/sample/transformations/omega"][()]
        assert len(omega) == 20 and omega[:2] == pytest.approx([30, 30.125])
    # The next run has them too, and initialize forgets them.
    assert simplon.command("initialize") == []
    assert (simplon.value("detector/config/photon_energy"), simplon.value("detector/config/nimages")) == (12400, 1)
    assert simplon.value("filewriter/config/name_pattern") == ""


BAD = {
    "detector/config/count_time": [-1, 0, 1e9, "0.1", True, None, [1], {"value": 1}],
    "detector/config/photon_energy": [12.4, -12400, 1e300, "12400", None],
    "detector/config/wavelength": [0, -1, 1e-300, "1"],
    "detector/config/nimages": [0, -1, 1.5, 1e30, "10", True, None, 2**64],
    "detector/config/ntrigger": [0, 2**41],
    "detector/config/trigger_mode": ["inte", "INTS", "", 1],
    "detector/config/beam_center_x": [1e7, "nan", "Infinity"],
    "detector/config/omega_start": [1e5],
    "detector/config/sample_name": [1, "x" * 2000, "\u007f"],
    "detector/config/x_pixel_size": [1e-4],
    "detector/config/roi_mode": ["4M-L"],
    "detector/config/compression": ["none", 1],
    "filewriter/config/name_pattern": ["../outside", "/etc/passwd_$id", "a/../../b", "x" * 3000, ".hidden", "a\nb", 5],
    "filewriter/config/nimages_per_file": [1],
    "filewriter/config/mode": ["on"],
    "stream/config/mode": ["enabled"],
}


def test_wrong_values_are_refused_with_the_reason_and_change_nothing(served):
    simplon = served(**FACTS)
    for path, values in BAD.items():
        before = simplon.get(path)
        for value in values:
            refused = simplon.refused("put", path, value)
            assert refused.status == 400 and len(refused.text) < 3000, (path, value, refused)
            assert path.split("/")[-1] in refused.text, (path, value, refused)
        assert simplon.get(path) == before
    no_json = [b'{"value": NaN}', b'{"value": 1e999}', b'{"value": -Infinity}', b"{", b"\xff"]
    for body in [*no_json, b"[1]", b'{"value": 1, "more": 2}', b'"1"', b""]:
        refused = simplon.refused("put_body", "detector/config/count_time", body)
        assert refused.status == 400 and refused.text, (body, refused)
    assert simplon.value("detector/config/count_time") is None
    looks_like = simplon.refused("put", "detector/config/photon_energy", 12.4).text
    assert looks_like == "photon_energy: 12.4 is not between 500.0 and 300000.0. What to do: the unit of photon_energy is eV"
    # The value that it has anyway is no mistake.
    for path in ["detector/config/x_pixel_size", "detector/config/roi_mode", "detector/config/compression"]:
        assert simplon.put(path, simplon.value(path)) == []
    assert simplon.put("filewriter/config/image_nr_start", 1.0) == []


def test_what_is_not_there_is_404(served):
    simplon = served()
    for path in [
        "detector/api/1.8.0/config/no_such_key", "detector/api/1.8.0/config/", "detector/api/1.8.0/nothing/x",
        "detector/api/1.8.0/status/temperature",
        "detector/api/9.9.9/config/nimages", "detector/api/1.8/config/nimages", "printer/api/1.8.0/config/nimages", "printer/api/version",
        "detector/api/1.8.0/images/next", "monitor/api/1.8.0/images/first", "", "api/v1/status", "stream/api/1.8.0/config/nimages",
        "detector/api/1.8.0/config/" + "x" * 3000, "detector/api/1.8.0/config/%00", "detector/api/1.8.0/config/%ff",
    ]:
        refused = simplon.refused("send", "GET", path)
        assert refused.status in (404, 400) and refused.text, (path, refused)
    assert "1.6.0 and 1.8.0" in simplon.refused("get", "detector/config/nimages", "1.5.0").text
    assert simplon.refused("command", "explode").status == 404
    assert simplon.refused("send", "POST", "detector/api/1.8.0/command/arm", b"").status == 405
    assert simplon.refused("send", "GET", "detector/api/1.8.0/command/arm").status == 405
    refused = simplon.refused("put", "detector/command/trigger", 0.5)
    assert refused.status == 400 and "trigger takes no value here" in refused.text
    assert simplon.refused("command", "restart", "system").status == 409
    assert simplon.refused("command", "clear", "filewriter").status == 409
    for subsystem in ["stream", "monitor", "filewriter"]:
        assert simplon.command("initialize", subsystem) == []


def test_a_run_by_triggers(served, bench):
    simplon = served()
    assert simplon.state == "idle"
    refused = simplon.refused("command", "trigger")
    assert refused.status == 409 and "it is not armed" in refused.text
    simplon.put("detector/config/nimages", 15)
    simplon.put("detector/config/ntrigger", 2)
    assert simplon.command("arm") == {"sequence id": 1}
    assert simplon.state == "ready" and simplon.value("filewriter/status/state") == "ready"
    done = []
    first = threading.Thread(target=lambda: done.append(simplon.command("trigger")))
    first.start()
    first.join(0.3)
    assert first.is_alive(), "a trigger answers when its images have come"
    bench.send(images=15)
    first.join(10)
    # The state is published a moment after the images.
    bench.service.until(lambda status: status["state"] == "running")
    assert done == [[]] and simplon.state == "acquire" and bench.service.status()["images_committed"] == 15
    assert simplon.value("filewriter/status/state") == "acquire"
    sender = threading.Thread(target=bench.send, kwargs={"images": 15, "first_frame": 16})
    sender.start()
    assert simplon.command("trigger") == []
    sender.join()
    bench.service.wait()
    assert simplon.state == "idle" and simplon.command("disarm") == []
    status = bench.service.status()
    assert (status["images_written"], status["run"]) == (30, 1)
    bench.check("run_000001")
    # A third trigger has no run.
    assert simplon.refused("command", "trigger").status == 409


def test_a_program_triggers_the_detector(served, bench):
    note = bench.folder / "triggered"
    simplon = served(control={"on_trigger": ["sh", "-c", f"echo x >> {note}"]})
    simplon.put("detector/config/nimages", 5)
    simplon.command("arm")
    sender = sending(bench, images=5)
    simplon.command("trigger")
    sender.join()
    assert note.read_text() == "x\n" and bench.service.wait()["images_written"] == 5


def test_an_exposure_that_does_not_come_is_reported(served, bench):
    simplon = served(run={"start_timeout_s": 1})
    simplon.put("detector/config/nimages", 10)
    simplon.command("arm")
    refused = simplon.refused("command", "trigger")
    assert refused.status == 409 and "the exposures of trigger 1 were not completed" in refused.text and "What to do" in refused.text
    assert "no packet came within" in refused.text and simplon.state == "idle"


def test_an_arm_that_is_refused_says_why(served, bench):
    simplon = served()
    run(bench, simplon)
    simplon.put("filewriter/config/name_pattern", "run_000001")
    refused = simplon.refused("command", "arm")
    assert refused.status in (409, 422) and "run_000001" in refused.text and "exist" in refused.text, refused
    assert "What to do: " in refused.text
    simplon.put("detector/config/nimages", 2**40)
    simplon.put("detector/config/ntrigger", 2**40)
    refused = simplon.refused("command", "arm")
    assert refused.status == 422 and "a run cannot have" in refused.text
    # The state is that of before, and the next arm is accepted.
    assert simplon.state == "idle"
    simplon.command("initialize")
    assert simplon.command("arm")["sequence id"] == 2


@pytest.mark.parametrize("verb", ["abort", "cancel", "disarm"])
def test_a_run_can_be_ended_in_each_state(served, bench, verb):
    simplon = served()
    assert simplon.command(verb) == [] and simplon.state == "idle"
    simplon.put("detector/config/nimages", 1500)
    simplon.command("arm")
    assert simplon.command(verb) == [] and simplon.state == "idle"
    simplon.command("arm")
    told = []

    def trigger():
        try:
            told.append(simplon.command("trigger"))
        except Refused as refused:
            told.append(refused)

    waiting = threading.Thread(target=trigger)
    waiting.start()
    sender = sending(bench, images=1500, rate=500)
    bench.service.until(lambda status: status["images_committed"] > 20)
    until(lambda: simplon.state == "acquire", "it receives", 10)
    refused = simplon.refused("command", "initialize")
    assert refused.status == 409 and "while run 2 is receiving" in refused.text
    assert simplon.command(verb) == []
    until(lambda: simplon.state == "idle", "it is idle", 10)
    waiting.join(10)
    [answer] = told
    assert isinstance(answer, Refused) and "were not completed" in answer.text
    assert simplon.command(verb) == []
    status = bench.service.status()
    assert 0 < status["images_written"] < 1500
    program("check", status["file"])
    sender.join()


def test_two_controllers_at_once(served, bench):
    simplon, second = served(), Simplon(bench.service)
    simplon.put("detector/config/nimages", 10)
    answers = []

    def arm(client):
        try:
            answers.append(client.command("arm"))
        except Refused as refused:
            answers.append(refused)

    both = [threading.Thread(target=arm, args=(client,)) for client in (simplon, second)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert len(refused) == 1 and {"sequence id": 1} in answers
    assert refused[0].status in (409, 503) and "What to do" in refused[0].text
    # The service's own interface, at the same time: it sees who holds the detector, and both see the same state.
    assert bench.service.status()["operator"]["name"] == "adapter simplon"
    assert bench.service.refused("arm").code == "wrong_state"
    bench.service.command("cancel")
    assert second.state == "idle"
    bench.service.command("arm", {"images": 7})
    assert simplon.state == "ready" and simplon.refused("command", "arm").status == 409
    # A run that somebody else armed takes a trigger too.
    sender = sending(bench, images=7)
    assert simplon.command("trigger") == []
    sender.join()
    assert bench.service.wait()["images_written"] == 7


def test_a_viewer_looks_and_changes_nothing(served, bench):
    tokens = bench.folder / "tokens"
    create = lambda role: program("token", "create", role, "--role", role, "--file", tokens, check=0).stdout.strip()
    made = {role: create(role) for role in ["view", "operate"]}
    service = bench.serve(extra=f'[service]\ntokens = "{tokens}"\n{TABLE}role = "view"\n')
    simplon = Simplon(service, made["view"])
    assert simplon.state == "idle" and simplon.get("detector/config/keys")
    forbidden = [
        ("command", "arm"), ("command", "trigger"), ("command", "abort"), ("command", "initialize"), ("command", "clear", "monitor"),
        ("put", "detector/config/nimages", 5), ("put", "filewriter/config/name_pattern", "x"), ("send", "DELETE", "data/run_master.h5"),
    ]
    for token in [None, made["view"]]:
        simplon.token = token
        for what in forbidden:
            refused = simplon.refused(*what)
            assert refused.status == 403 and "role 'view'" in refused.text and "'operate'" in refused.text, (token, what, refused)
    # A token that may do it.
    simplon.token = made["operate"]
    assert simplon.put("detector/config/nimages", 5) == ["nimages"] and simplon.command("arm") == {"sequence id": 1}
    assert simplon.state == "ready" and simplon.command("abort") == []
    simplon.token = "konkordia_wrong"
    assert simplon.refused("command", "arm").status == 401 and simplon.refused("get", "detector/status/state").status == 401


def test_commands_of_web_pages_are_refused(served):
    simplon = served()
    refused = simplon.refused("send", "PUT", "detector/api/1.8.0/command/arm", b"", Origin="http://evil.example")
    assert refused.status == 403 and simplon.state == "idle"


def test_files_are_read_and_deleted_and_nothing_else_is(served, bench):
    simplon = served(output={"create_folders": True})
    simplon.put("filewriter/config/name_pattern", "a/run_$id")
    run(bench, simplon)
    names = simplon.value("filewriter/status/files")
    assert names == ["a/run_1_data_000001.h5", "a/run_1_master.h5"]
    on_disk = (bench.folder / names[1]).read_bytes()
    status, headers, body = simplon.send("GET", f"data/{names[1]}")
    assert (status, headers["Content-Type"], body) == (200, "application/x-hdf5", on_disk)
    status, headers, body = simplon.send("HEAD", f"data/{names[1]}")
    assert (int(headers["Content-Length"]), headers["Accept-Ranges"], body) == (len(on_disk), "bytes", b"")
    status, headers, body = simplon.send("GET", f"data/{names[1]}", Range="bytes=8-19")
    assert (status, body) == (206, on_disk[8:20]) and headers["Content-Range"] == f"bytes 8-19/{len(on_disk)}"
    assert simplon.refused("send", "GET", f"data/{names[1]}", Range=f"bytes={len(on_disk)}-").status == 416
    # Nothing else, by whatever name.
    secret = bench.folder.parent / "secret_data_000001.h5"
    secret.write_text("secret")
    (bench.folder / "own.h5").write_text("not of a run")
    (bench.folder / "a/run_1_data_000002.h5").symlink_to(secret)
    (bench.folder / "link").symlink_to(bench.folder.parent)
    assert "a/run_1_data_000002.h5" not in simplon.value("filewriter/status/files")
    for name in [
        "../secret_data_000001.h5", "..%2fsecret_data_000001.h5", "%2e%2e/secret_data_000001.h5",
        "a/../../secret_data_000001.h5", "a/run_1_data_000002.h5",
        "link/secret_data_000001.h5", "own.h5", "run.toml", "/etc/passwd", "%2fetc%2fpasswd", "a/./run_1_master.h5", "a%00", "a", "a/", "",
        str(secret), "a/run_1_master.h5%00", "x" * 3000,
    ]:
        for method in ["GET", "DELETE"]:
            refused = simplon.refused("send", method, f"data/{name}")
            assert refused.status in (400, 404) and "secret\n" not in refused.text, (name, refused)
    assert secret.read_text() == "secret" and (bench.folder / "run.toml").exists()
    assert simplon.send("DELETE", f"data/{names[0]}")[0] == 204
    assert not (bench.folder / names[0]).exists() and simplon.value("filewriter/status/files") == [names[1]]
    assert simplon.refused("send", "DELETE", f"data/{names[0]}").status == 404


def test_files_of_a_run_in_progress_are_not_there(served, bench):
    simplon = served()
    simplon.put("detector/config/nimages", 1000)
    simplon.command("arm")
    assert simplon.value("filewriter/status/files") == []
    assert simplon.refused("send", "DELETE", "data/run_000001_master.h5").status == 404
    simplon.command("abort")


def test_no_file_is_written_where_the_filewriter_is_disabled(served, bench):
    simplon = served()
    assert simplon.put("filewriter/config/mode", "disabled") == ["mode"]
    assert simplon.value("filewriter/status/state") == "disabled"
    run(bench, simplon)
    assert simplon.value("filewriter/status/files") == [] and not list(bench.folder.glob("*.h5"))


def test_the_monitor_image_is_that_of_the_service(served, bench):
    simplon = served()
    refused = simplon.refused("send", "GET", "monitor/api/1.8.0/images/monitor?timeout=10")
    assert refused.status == 408 and "no image yet" in refused.text
    for wrong in ["-1", "x", "1e3", "60001"]:
        assert simplon.refused("send", "GET", f"monitor/api/1.8.0/images/next?timeout={wrong}").status == 400
    run(bench, simplon, images=3)
    status, headers, body = simplon.send("GET", "monitor/api/1.8.0/images/monitor", Accept="application/tiff")
    assert headers["Content-Type"] == "application/tiff"
    newest = simplon.send("GET", "monitor/api/1.8.0/images/monitor")[2]
    of_service = urllib.request.urlopen(f"{bench.service.url}/api/v1/images/latest?format=tiff", timeout=20).read()
    assert body == newest == of_service
    with h5py.File(bench.master()) as file:
        images = file["/entry/data"][file["/entry/data"].attrs["signal"]][()]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(body))), images[-1])
    for number in range(3):
        body = simplon.send("GET", "monitor/api/1.8.0/images/next")[2]
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(body))), images[number]), number
    assert simplon.refused("send", "GET", "monitor/api/1.8.0/images/next?timeout=0").status == 408
    # An image that comes while somebody waits.
    waited = []
    waiting = threading.Thread(target=lambda: waited.append(simplon.send("GET", "monitor/api/1.8.0/images/next?timeout=20000")[0]))
    waiting.start()
    run(bench, simplon, images=2)
    waiting.join(20)
    assert waited == [200]
    simplon.command("clear", "monitor")
    assert simplon.refused("send", "GET", "monitor/api/1.8.0/images/next?timeout=0").status == 408
    simplon.put("monitor/config/mode", "disabled")
    assert simplon.refused("send", "GET", "monitor/api/1.8.0/images/monitor").status == 404


def test_the_stream_is_that_of_the_configuration(served, bench):
    stream = f'[[stream]]\nname = "pipeline"\nprotocol = "stream2"\naddress = "ipc://{bench.folder}/out"\nbind = true\n'
    simplon = served(extra=stream + TABLE)
    assert (simplon.value("stream/config/mode"), simplon.value("stream/config/format")) == ("enabled", "cbor")
    assert simplon.put("stream/config/mode", "enabled") == [] and simplon.put("stream/config/format", "cbor") == []
    refused = simplon.refused("put", "stream/config/format", "legacy")
    assert refused.status == 400 and 'it is "cbor"' in refused.text
    assert simplon.value("stream/status/state") == "ready" and simplon.value("stream/status/dropped") == 0


def test_an_error_is_shown_and_initialize_clears_it(served, bench):
    simplon = served(control={"on_arm": ["sh", "-c", "echo the valve is closed >&2; exit 3"]})
    refused = simplon.refused("command", "arm")
    assert refused.status == 409 and "the valve is closed" in refused.text and "What to do" in refused.text


def test_what_clients_send_is_recorded(served, bench):
    log = bench.folder / "audit.log"
    simplon = served(extra=f'[service]\naudit_log = "{log}"\n' + TABLE)
    simplon.put("detector/config/nimages", 5)
    simplon.refused("put", "detector/config/nimages", -5)
    simplon.command("arm")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["path"].split("/")[-1] for line in lines] == ["nimages", "nimages", "arm"]
    assert [line["status"] for line in lines] == [200, 400, 200] and {line["who"] for line in lines} == {"adapter simplon"}
    assert lines[0]["request"] == {"nimages": 5} and lines[2]["request"]["images"] == 5
    assert lines[1]["code"] == "bad_message"
