"""The client of the Jungfraujoch broker, unmodified, drives `konkordia serve` with the simulator: `[adapters.jfjoch]`."""

import base64
import io
import json
import subprocess
import urllib.request

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from programs import HERE, PYTHON, needs

import driving
from jfjoch import table
from service import Service, served_bench, until
from test_analyse import DIALS, recipe
from test_calibration import dark_file, has_pedestals, staged, truth


def has_client():
    """Whether the client is in the environment of the peers."""
    found = PYTHON.exists() and subprocess.run([PYTHON, "-c", "import jfjoch_client"], capture_output=True, check=False)
    return bool(found) and found.returncode == 0


pytestmark = [
    pytest.mark.peer("jfjoch-client"),
    needs(PYTHON, "the environment of the peers"),
    pytest.mark.skipif(not has_client(), reason="jfjoch-client is not in the environment of the peers: scripts/peers --prepare"),
]
bench_of_service = pytest.fixture(served_bench)
GEOMETRY = {"beam_x_pxl": 512.5, "beam_y_pxl": 256, "detector_distance_mm": 75.5, "incident_energy_keV": 12.4}


class Client:
    """The client in a process of its own."""

    def __init__(self, port, *token):
        command = [PYTHON, HERE / "jfjoch_calls.py", f"http://127.0.0.1:{port}", *token]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, name, **values):
        self.process.stdin.write(json.dumps({"call": name, "with": values}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __getattr__(self, name):
        def call(**values):
            said = self.call(name, **values)
            assert "answer" in said, said
            answer = said["answer"]
            return base64.b64decode(answer["base64"]) if isinstance(answer, dict) and "base64" in answer else answer

        return call

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture
def bench(tmp_path):
    return driving.Bench(tmp_path)


@pytest.fixture
def client_of():
    clients = []

    def start(port, *token):
        clients.append(Client(port, *token))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def start(client, **more):
    return client.start_post(dataset_settings=GEOMETRY | more)


def test_a_whole_run_of_1000_images(bench_of_service, client_of, tmp_path):
    """Initialises, starts, waits; status, statistics, previews, plots and results are those of the service."""
    by = recipe(tmp_path, spots=DIALS, hits={"spots_min": 3})
    port, text = table()
    bench = bench_of_service
    service = bench.serve(extra=f'{text}[analysis]\nrecipe = "{by}"\n')
    client = client_of(port)
    client.initialize_post()
    client.wait_till_done_post(timeout=5)
    assert client.status_get()["state"] == "Idle" and client.version_get().startswith("konkordia ")
    axis = {"name": "omega", "step": 0.1, "start": 5.0, "vector": [1.0, 0.0, 0.0]}
    start(client, images_per_trigger=500, ntrigger=2, file_prefix="lyso", sample_name="lysozyme", image_time_us=2000, goniometer=axis)
    client.wait_until_running_post(timeout=5)
    assert client.status_get()["state"] == "Measuring"
    assert client.call("wait_till_done_post", timeout=0)["status"] == 504
    bench.send(images=1000, rate=500)
    client.wait_till_done_post(timeout=60)
    status, data = client.status_get(), client.statistics_data_collection_get()
    assert (status["state"], status["message_severity"]) == ("Idle", "success"), status
    assert (data["images_expected"], data["images_collected"], data["images_written"], data["cancelled"]) == (1000, 1000, 1000, False)
    bench.check("lyso")
    tiff = client.image_buffer_image_tiff_get(id=-1)
    ours = lambda path: urllib.request.urlopen(f"{service.url}/api/v1/{path}", timeout=20).read()
    assert tiff == ours("images/latest?format=tiff") and client.image_buffer_image_tiff_get(id=990) == ours("images/990?format=tiff")
    with h5py.File(bench.master("lyso")) as file:
        images, entry = file["entry/data/data_000001"], file["entry"]
        assert len(images) == 1000 and entry["sample/name"].asstr()[()] == "lysozyme"
        assert entry["instrument/detector/beam_center_x"][()] == 512.5
        assert entry["sample/transformations/omega"][[0, 999]] == pytest.approx([5.0, 104.9])
        assert np.array_equal(images[999], np.load(io.BytesIO(ours("images/999?format=npy"))))
    buffer = client.image_buffer_status_get()
    assert buffer["max_image_number"] == 999 and buffer["image_numbers"] == list(range(984, 1000))
    assert client.image_buffer_image_cbor_get()[:3] == client.image_buffer_start_cbor_get()[:3] == b"\xd9\xd9\xf7"
    for theirs, name in [("bkg_estimate", "background"), ("spot_count", "spots")]:
        plot, result = client.preview_plot_get(type=theirs), service.request("GET", "results", result=name)
        assert (plot["plot"][0]["x"], plot["plot"][0]["y"]) == (result["first_image"], result["mean"])
    scan = client.result_scan_get()
    assert [one["number"] for one in scan["images"]] == list(range(1000)) and scan["file_prefix"].endswith("/lyso")
    assert len(client.config_mask_get()) == 4 * images_size(tiff) and client.statistics_get()["broker"]["state"] == "Idle"
    assert client.config_detector_get()["frame_time_us"] == 2000
    assert service.end()[0] == 0


def images_size(tiff):
    """Pixels of an image, from the width and length in its TIFF."""
    entries = int.from_bytes(tiff[4:8], "little")
    count = int.from_bytes(tiff[entries : entries + 2], "little")
    fields = [tiff[entries + 2 + 12 * n : entries + 14 + 12 * n] for n in range(count)]
    sizes = {int.from_bytes(field[:2], "little"): int.from_bytes(field[8:12], "little") for field in fields}
    return sizes[256] * sizes[257]


def test_a_refused_start_has_its_reason(bench_of_service, client_of):
    """An arm that is refused, a wrong state and what is not offered come in the error model of the client."""
    port, text = table()
    service = bench_of_service.serve(extra=text)
    client = client_of(port)
    bench_of_service.master("taken").touch()
    ours = service.refused("arm", {"prefix": "taken"}).body
    refused = client.call("start_post", dataset_settings=GEOMETRY | {"file_prefix": "taken"})
    assert (refused["error"], refused["status"]) == ("ServiceException", 500)
    assert refused["data"] == {"msg": f"{ours['detail']}; {ours['hint']}", "reason": "Other"}
    refused = client.call("start_post", dataset_settings=GEOMETRY | {"tokens": ["secret"]})
    assert (refused["error"], refused["status"]) == ("BadRequestException", 400) and "tokens of the service" in refused["data"]
    start(client)
    assert client.call("pedestal_post")["data"]["reason"] == "WrongDAQState"
    client.cancel_post()
    client.wait_till_done_post()
    missing = client.call("image_buffer_image_jpeg_get")
    assert missing["status"] == 501 and "/image_buffer/image.tiff has the numbers" in missing["body"]
    assert service.end()[0] == 0


def test_it_cancels_in_each_state(bench_of_service, client_of):
    """Idle, waiting for the first image, and in the middle of a run, whose images are kept."""
    port, text = table()
    bench = bench_of_service
    service = bench.serve(extra=text, run={"stall_timeout_s": 30})
    client = client_of(port)
    client.cancel_post()
    start(client, images_per_trigger=100, file_prefix="waiting")
    client.cancel_post()
    client.wait_till_done_post()
    start(client, images_per_trigger=100, file_prefix="part")
    bench.send(images=20)
    service.until(lambda status: status["images_committed"] >= 18)
    client.cancel_post()
    client.wait_till_done_post()
    data = client.statistics_data_collection_get()
    assert data["cancelled"] and client.status_get()["state"] == "Idle"
    with h5py.File(bench.master("part")) as file:
        assert len(file["entry/data/data_000001"]) == data["images_written"] >= 18
    assert service.end()[0] == 0


def test_a_viewer_cannot_start(bench_of_service, client_of, tmp_path):
    """A port with the role view refuses commands; a token of the service has its own role."""
    tokens = tmp_path / "tokens"
    operator = driving.program("token", "create", "olga", "--role", "operate", "--file", tokens, check=0).stdout.strip()
    port, text = table(role="view")
    service = bench_of_service.serve(extra=f'{text}[service]\ntokens = "{tokens}"\n')
    client = client_of(port)
    refused = client.call("start_post", dataset_settings=GEOMETRY)
    assert (refused["error"], refused["status"]) == ("ForbiddenException", 403) and "has the role 'view'" in refused["body"]
    assert client.status_get()["state"] == "Idle"
    client = client_of(port, operator)
    start(client)
    assert client.status_get()["state"] == "Measuring"
    client.cancel_post()
    assert service.end()[0] == 0


def test_it_takes_pedestals(bench, client_of):
    """Dark frames of all three stages of a simulated JUNGFRAU become its calibration."""
    folder, pedestals, _ = truth(bench)
    driving.program("pedestal", dark_file(bench)[0], "-o", "cal.h5", "--gain", folder / "gain_adu_per_kev.f32", check=0, cwd=bench.folder)
    port, text = table()
    config = staged(bench, images=1000, rate=1000)
    config.write_text(config.read_text() + text)
    service = Service(config)
    try:
        client = client_of(port)
        client.pedestal_post()
        until(lambda: client.status_get()["state"] == "Pedestal", "dark frames are taken", 20)
        client.wait_till_done_post(timeout=60)
        assert client.status_get()["message_severity"] == "success"
        has_pedestals(bench.folder / "cal.h5", pedestals, frames=1000)
    finally:
        assert service.end()[0] == 0
