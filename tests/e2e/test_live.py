"""The live connection of the pages (docs/live.md), driven by the PyPI package websockets: frames equal the pixels that
HTTP gives, nothing waits in the service for slow clients, and nobody gets in without a right."""

import io
import json
import time
import urllib.request

import lz4.block
import numpy as np
import pytest
from driving import program, simulate
from service import Bench, Problem, Service, free_port, until, write_config
from streams import Stins, StreamService
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

SPECIAL = {0: "missing", 1: "masked", 2: "invalid", 65535: "saturated"}


class Client:
    def __init__(self, service, token=None, hello=True, **options):
        url = service.url.replace("http", "ws", 1) + "/api/v1/live"
        self.socket = connect(url, proxy=None, max_size=None, **options).__enter__()
        self.status = self.statistics = self.no_image = None
        if hello:
            self.say("hello", token=token)

    def say(self, kind, **fields):
        self.socket.send(json.dumps({"type": kind, **fields}))

    def watch(self, **frames):
        self.say("watch", detector=None, frames=frames)

    def message(self, kind, timeout=10):
        """The next message of this type; a frame is of type `frame`."""
        end = time.monotonic() + timeout
        while True:
            found = self.socket.recv(timeout=max(0.01, end - time.monotonic()))
            if isinstance(found, bytes):
                if kind == "frame":
                    return decoded(found)
            elif (found := json.loads(found))["type"] == kind:
                return found

    def frame(self, acknowledge=True, **wanted):
        """The next frame with these fields."""
        while True:
            header, values = self.message("frame")
            if acknowledge:
                self.say("ack", sequence=header["sequence"])
            if all(header[name] == value for name, value in wanted.items()):
                return header, values

    def closed(self):
        """The code with which the service closes, and the problem that it names first."""
        problem = None
        try:
            while True:
                found = self.socket.recv(timeout=10)
                if not isinstance(found, bytes) and json.loads(found)["type"] == "problem":
                    problem = json.loads(found)
        except ConnectionClosed as closed:
            return closed.rcvd.code, problem


def decoded(message):
    """Header and values: special ones as NaN."""
    assert message[:4] == b"KFR1"
    length = int.from_bytes(message[4:8], "little")
    header, pixels = json.loads(message[8 : 8 + length]), message[8 + length :]
    assert length % 8 == 0
    if header["packing"] == "lz4":
        pixels = lz4.block.decompress(pixels, uncompressed_size=header["bytes"])
    assert len(pixels) == header["bytes"]
    shape = (header["frame_rows"], header["frame_columns"])
    codes = np.frombuffer(pixels, {"code16": "<u2", "int32": "<i4", "float32": "<f4"}[header["format"]]).reshape(shape)
    values = codes.astype(float)
    if header["format"] == "code16" and header["coding"] == "count":
        values = np.where(codes <= 24576, values - 4112, 20464 * 2 ** ((values - 24576) / 2048))
        values[np.isin(codes, list(SPECIAL))] = np.nan
    elif header["format"] == "int32":
        values[(codes < -(2**31) + 3) | (codes == 2**31 - 1)] = np.nan
    return header, values


def pixels(service, number="latest"):
    return np.load(io.BytesIO(fetched(service, f"/api/v1/images/{number}?format=npy")))


def fetched(service, path):
    with urllib.request.urlopen(service.url + path, timeout=10) as answer:
        return answer.read()


def largest(image, side):
    """The largest number of each square; NaN where there is none."""
    rows, columns = image.shape
    padded = np.full((-(-rows // side) * side, -(-columns // side) * side), -np.inf)
    padded[:rows, :columns] = np.where(np.isnan(image), -np.inf, image)
    found = padded.reshape(padded.shape[0] // side, side, padded.shape[1] // side, side).max((1, 3))
    return np.where(np.isinf(found), np.nan, found)


def meets_beam(geometry, center_px, distance_mm):
    """The beam of 12.4 keV meets the detector there."""
    origin, fast, slow = (np.array(geometry[name]) for name in ("origin_mm", "fast_mm", "slow_mm"))
    assert np.allclose(origin + center_px[0] * fast + center_px[1] * slow, [0, 0, distance_mm])
    assert abs(geometry["wavelength_angstrom"] - 0.99987) < 1e-4


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    for service in bench.services:
        service.end()


def eiger(bench, images=20):
    service = bench.serve(run={"images": images})
    service.command("start")
    bench.send(images, rate=200)
    assert service.wait()["images_committed"] == images
    return service


def test_frames_have_the_numbers_that_http_gives(bench):
    service = eiger(bench)
    client = Client(service)
    assert client.message("welcome")["role"] == "configure"
    image = pixels(service).astype(float)
    client.watch(pixels_max=4 << 20)
    header, values = client.frame()
    assert (header["bin"], header["image"], header["dtype"], header["status"]) == (1, 19, "uint16", "complete")
    assert (header["rows"], header["columns"]) == image.shape and (values == image).all()
    results = service.request("GET", "images/19", format="json")["results"]
    assert header["results"] == results and results["max_value"] == image.max()
    for region, at_most in [([0, 0, 5000, 5000], 4096), ([37, 11, 300, 200], 4096), ([500, 200, 30, 20], 4096)]:
        client.watch(region=region, pixels_max=at_most)
        header, values = client.frame()
        left, top, columns, rows = header["region"]
        side = header["bin"]
        assert values.size <= at_most and left % side == top % side == 0
        assert left <= region[0] and top <= region[1] and left + columns >= min(region[0] + region[2], image.shape[1])
        assert (values == largest(image[top : top + rows, left : left + columns], side)).all()
    client.watch(image=17)
    assert (client.frame(image=17)[1] == largest(pixels(service, 17).astype(float), 1)).all()


@pytest.mark.parametrize("dtype", ["int32", "uint16", "uint32", "float32"])
def test_special_values_and_large_numbers_are_what_they_are(tmp_path, dtype):
    service = StreamService(tmp_path)
    try:
        rng = np.random.default_rng(5)
        image = rng.integers(0, 60000 if dtype == "uint16" else 2_000_000, (24, 40)).astype(dtype)
        image[:6] = rng.integers(0, 9, (6, 40))
        if dtype == "float32":
            image[7] += np.float32(0.25)
            special = np.array([np.nan, -np.inf, np.finfo("f4").min, np.inf], "f4")
        elif dtype == "int32":
            special = np.array([-(2**31), -(2**31) + 1, -(2**31) + 2, 2**31 - 1], dtype)
        else:
            special = np.array([0, 1, 2, 3], dtype) + (np.iinfo(dtype).max - 3)
        image[10, 4:8] = special
        service.send(*Stins().series([image]))
        until(lambda: service.status()["images_committed"] == 1, "the image came")
        client = Client(service)
        client.watch(pixels_max=4096)
        header, values = client.frame()
        expected = image.astype(float)
        expected[10, 4:8] = np.nan
        values[~np.isfinite(values) | (values == float(np.finfo("f4").min))] = np.nan
        assert header["bin"] == 1 and header["format"] == ("float32" if dtype == "float32" else "int32")
        assert np.array_equal(values, expected, equal_nan=True)
    finally:
        service.close()


def test_a_client_that_acknowledges_nothing_gets_two_frames_and_then_the_newest(bench):
    service = bench.serve(run={"images": 400})
    service.command("start")
    slow, quick = Client(service), Client(service)
    for client in (slow, quick):
        client.watch(pixels_max=4096, hz_max=60)
    bench.send(400, rate=200)
    assert service.wait()["images_committed"] == 400
    assert quick.frame(image=399)[0]["sequence"] >= 3
    first, second = (slow.frame(acknowledge=False)[0] for _ in range(2))
    assert [first["sequence"], second["sequence"]] == [1, 2]
    with pytest.raises(TimeoutError):
        slow.message("frame", timeout=1.5)
    slow.say("ack", sequence=2)
    header = slow.frame()[0]
    assert (header["image"], header["skipped"]) == (399, 398 - second["image"])


def test_nothing_is_done_while_nobody_looks(bench):
    service = eiger(bench)
    number = lambda name: float(next(line.split()[-1] for line in fetched(service, "/metrics").decode().splitlines() if line.startswith(name + "{")))
    assert number("konkordia_live_looks_total") == number("konkordia_live_frames_total") == 0
    clients = [Client(service) for _ in range(5)]
    for client in clients:
        client.watch(pixels_max=4096)
        client.frame()
    assert number("konkordia_live_viewers") == 5 and number("konkordia_live_frames_total") == 1
    for client in clients:
        client.say("watch", detector=None, frames=None)
    until(lambda: number("konkordia_live_viewers") == 0, "nobody looks any more")
    time.sleep(0.1)
    looks = number("konkordia_live_looks_total")
    time.sleep(0.5)
    assert number("konkordia_live_looks_total") == looks
    assert clients[0].message("statistics")["images"][1] == 19, "the connection goes on"


def test_a_frame_is_made_once_for_all_who_see_the_same_part(bench):
    service = eiger(bench)
    made = lambda: float(next(line.split()[-1] for line in fetched(service, "/metrics").decode().splitlines() if line.startswith("konkordia_live_frames_total{")))
    clients = [Client(service) for _ in range(12)]
    parts = [{"pixels_max": 4096}, {"pixels_max": 65536}, {"region": [0, 0, 64, 64]}]
    for n, client in enumerate(clients):
        client.watch(**parts[n % 3])
    frames = [client.frame(acknowledge=n % 2 == 0) for n, client in enumerate(clients)]
    assert made() == 3
    for n, (header, values) in enumerate(frames):
        other, same = frames[n % 3]
        assert header["region"] == other["region"] and np.array_equal(values, same)
    # Who looks somewhere else gets a frame of that alone.
    clients[0].watch(region=[8, 8, 64, 64])
    clients[0].frame()
    assert made() == 4


def test_a_frame_may_be_acknowledged_twice_but_not_one_that_was_never_sent(bench):
    service = bench.serve(run={"images": 5})
    client = Client(service)
    client.watch(pixels_max=4096)
    service.command("start")
    bench.send(5, rate=50)
    service.wait()
    first = client.frame(acknowledge=False)[0]["sequence"]
    for sequence in (first, first):
        client.say("ack", sequence=sequence)
    assert client.message("statistics")["images"] == [0, 4]
    client.say("ack", sequence=first + 100)
    code, problem = client.closed()
    assert (code, problem["code"]) == (4400, "bad_message") and problem["hint"]


def test_a_part_that_the_next_image_does_not_have_is_answered_with_what_there_is(tmp_path):
    """The size of images may change from run to run, and a client learns it from a frame."""
    service, stins = StreamService(tmp_path), Stins()
    try:
        for run, (rows, columns) in enumerate([(300, 500), (1, 1280), (24, 40)], 1):
            service.send(*stins.series([np.full((rows, columns), run, "uint16")]))
            service.taken(run)
            for region in ([0, 0, 500, 300], [400, 200, 100, 100], [2000, 3000, 10, 10]):
                client = Client(service)
                client.watch(region=region)
                header, values = client.frame()
                assert (header["run"], header["rows"], header["columns"]) == (run, rows, columns)
                assert values.size > 0 and (values == run).all(), (region, header["region"])
    finally:
        service.close()


def test_what_is_not_there_is_said(bench):
    service = eiger(bench)
    client = Client(service)
    client.watch(image=3000)
    missing = client.message("no_image")
    assert missing["image"] == 3000 and "3000 is not there" in missing["detail"] and missing["hint"]
    client.watch(image="hit")
    assert "hit" in client.message("no_image")["detail"]
    client.watch(channel="no such channel")
    assert "no channel" in client.message("no_image")["detail"]
    client.say("watch", detector="other", frames=None)
    assert client.message("problem")["code"] == "unknown_detector"
    client.watch(pixels_max=5)
    assert "pixels_max" in client.message("problem")["detail"]
    client.watch(image="latest")
    assert client.frame()[0]["image"] == 19


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"type": "shout"}', '{"type": "watch", "frames": {"colour": 1}}', '{"type": "ack", "sequence": 7}', '{"type": "hello"}', b"\0"]
)
def test_messages_that_are_not_understood_end_the_connection(bench, text):
    service = bench.serve(run={"images": 1})
    client = Client(service)
    client.message("welcome")
    client.socket.send(text)
    code, problem = client.closed()
    assert (code, problem["code"]) == (4400, "bad_message") and problem["hint"]
    first = Client(service, hello=False)
    first.say("ack", sequence=0)
    assert first.closed()[0] == 4400


def test_tokens_are_needed_and_can_be_withdrawn(tmp_path):
    tokens = tmp_path / "tokens"
    viewer = program("token", "create", "vera", "--role", "view", "--file", tokens, check=0).stdout.strip()
    config = write_config(tmp_path, free_port(), extra=f'\n[service]\ntokens = "{tokens}"\n')
    service = Service(config)
    try:
        for token, problem in [(None, "no_token"), ("konkordia_wrong", "bad_token")]:
            code, found = Client(service, token=token).closed()
            assert (code, found["code"]) == (4401, problem)
        client = Client(service, token=viewer)
        assert (client.message("welcome")["name"], client.message("status")["detectors"][0]["state"]) == ("vera", "idle")
        program("token", "remove", "vera", "--file", tokens, check=0)
        code, problem = client.closed()
        assert (code, problem["code"]) == (4401, "bad_token")
    finally:
        service.end()


def test_foreign_pages_are_kept_away(bench):
    service = bench.serve(run={"images": 1})
    with pytest.raises(Exception, match="403"):
        Client(service, origin="https://evil.example")
    assert Client(service, origin=service.url).message("welcome")


def test_fifty_tabs_of_which_half_are_stuck_cost_no_image(bench):
    service = bench.serve(run={"images": 600})
    service.command("start")
    clients = [Client(service) for _ in range(50)]
    for client in clients:
        client.watch(pixels_max=65536, hz_max=10)
    bench.send(600, rate=200)
    status = service.wait()
    assert (status["images_committed"], status["images_lost"], status["severity"]) == (600, 0, "success")
    # The others read nothing and acknowledge nothing.
    for client in clients[::2]:
        assert client.frame(image=599)


def test_states_and_events_come_as_they_change(bench):
    service = bench.serve(run={"images": 5})
    client = Client(service)
    assert client.message("status")["detectors"][0]["state"] == "idle"
    client.say("watch", detector=None, frames=None)
    service.command("start")
    until(lambda: client.message("status")["detectors"][0]["state"] in ("armed", "running"), "it is armed")
    bench.send(5, rate=50)
    until(lambda: client.message("event")["event"]["event"] == "run_ended", "the end of the run")
    until(lambda: client.message("status")["detectors"][0]["images_committed"] == 5, "the images")
    assert client.message("statistics")["run"] == 1


def test_simulated_jungfraus_have_a_geometry(tmp_path):
    bench = Bench(tmp_path)
    facts = {"type": "jungfrau", "energy_kev": 12.4, "detector_distance_mm": 120, "beam_center_x_px": 500.5, "beam_center_y_px": 200.0}
    service = bench.serve(detector=facts, processing={"dtype": "raw"}, run={"images": 2})
    try:
        service.command("start")
        simulate("jungfrau", "--to", f"127.0.0.1:{bench.port}", "--images", 2, "--rate", 20)
        service.wait()
        client = Client(service)
        client.watch()
        meets_beam(client.frame()[0]["geometry"], (500.5, 200.0), 120)
    finally:
        service.end()


def test_results_of_all_images_can_be_plotted(bench):
    service = eiger(bench, images=40)
    names = [result["name"] for result in service.request("GET", "results")["results"]]
    assert "max_value" in names
    plot = service.request("GET", "results", result="max_value")
    assert (plot["first_image"], plot["images"], plot["without"], plot["bin_images"]) == (list(range(40)), [1] * 40, [0] * 40, 1)
    shown = service.request("GET", "images/39", format="json")["results"]["max_value"]
    assert plot["mean"][39] == plot["lowest"][39] == plot["highest"][39] == shown and plot["time_s"][0] == 0 < plot["time_s"][39]
    with pytest.raises(Problem) as refused:
        service.request("GET", "results", result="glow")
    assert refused.value.code == "no_result"
