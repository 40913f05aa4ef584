"""The port for clients of the Jungfraujoch broker, over plain HTTP: runs, pedestals, images, plots, refusals."""

import io
import json
import urllib.request

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import program
from jfjoch import Broker, settings, table
from lanes import slow_lane
from service import Service, served_bench, until
from test_analyse import DIALS, recipe
from test_calibration import dark_file, has_pedestals, staged, truth

bench_of_service = pytest.fixture(served_bench)


@pytest.fixture
def opened(bench_of_service):
    """Starts a service of an EIGER with the port; returns the bench, the service and the port."""

    def start(role="operate", extra="", **tables):
        port, text = table(role)
        service = bench_of_service.serve(extra=text + extra, **tables)
        return bench_of_service, service, Broker(port)

    return start


def test_a_run_is_started_and_its_file_says_what_was_sent(opened):
    bench, service, broker = opened()
    assert broker.state == "Idle" and broker.get("/version").startswith(b"konkordia ")
    assert broker.refused("GET", "/statistics/data_collection").status == 404
    assert broker.refused("GET", "/image_buffer/image.tiff").status == 404
    assert broker.get("/image_buffer/status") | {"total_slots": 16, "image_numbers": []} == broker.get("/image_buffer/status")
    broker.post("/initialize")
    axis = {"name": "phi", "step": 0.5, "start": 10, "vector": [0, 1, 0]}
    sent = settings(
        images_per_trigger=10, ntrigger=4, file_prefix="lyso", sample_name="lysozyme ä", image_time_us=2000, goniometer=axis,
        transmission=0.25, run_name="x", grid_scan=None,
    )  # fmt: skip
    broker.post("/start", sent)
    broker.post("/wait_until_running")
    assert broker.state == "Measuring"
    assert service.status()["operator"]["name"] == "adapter jfjoch"
    assert broker.refused("POST", "/wait_till_done?timeout=0").status == 504
    bench.send(images=40, rate=400)
    broker.post("/wait_till_done?timeout=20")
    status, data = broker.get("/status"), broker.get("/statistics/data_collection")
    assert (status["state"], status["message_severity"]) == ("Idle", "success") and "progress" not in status
    wanted = {"images_expected": 40, "images_collected": 40, "images_written": 40, "run_number": 1, "cancelled": False}
    assert wanted.items() <= data.items() and data["file_prefix"].endswith("/lyso"), data
    bench.check("lyso")
    with h5py.File(bench.master("lyso")) as file:
        entry = file["entry"]
        detector = entry["instrument/detector"]
        assert (detector["beam_center_x"][()], detector["frame_time"][()]) == (512.5, 0.002)
        assert entry["sample/name"].asstr()[()] == "lysozyme ä"
        assert detector["distance"][()] == pytest.approx(0.0755) and entry["instrument/attenuator/attenuator_transmission"][()] == 0.25
        phi = entry["sample/transformations/phi"]
        assert phi[:3].tolist() == [10.0, 10.5, 11.0] and phi.attrs["vector"].tolist() == [0, 1, 0]
    assert broker.get("/config/detector") == {"frame_time_us": 2000}
    service.until_logged(lambda line: "not kept, as there is no place for it: run_name" in line)
    assert service.end()[0] == 0


def test_images_mask_plots_and_results_are_those_of_the_service(opened, tmp_path):
    by = recipe(tmp_path, spots=DIALS, hits={"spots_min": 3})
    bench, service, broker = opened(extra=f'[analysis]\nrecipe = "{by}"\n')
    assert broker.refused("GET", "/config/mask").status == 404 and broker.refused("GET", "/result/scan").status == 404
    broker.post("/start", settings(images_per_trigger=30))
    # So slowly that a busy machine loses nothing: every image is whole.
    bench.send(images=30, rate=50)
    broker.post("/wait_till_done")
    assert service.status()["file"] is None, "without a prefix no file is written"
    ours = lambda path: urllib.request.urlopen(f"{service.url}/api/v1/{path}", timeout=20).read()
    assert broker.get("/image_buffer/image.tiff") == broker.get("/image_buffer/image.tiff?id=-1") == ours("images/latest?format=tiff")
    assert broker.get("/image_buffer/image.tiff?id=20") == ours("images/20?format=tiff")
    assert broker.get("/image_buffer/image.cbor?id=29") == ours("images/29?format=cbor")
    for query, status in [("id=5", 404), ("id=-2", 404), ("id=-3", 400), ("id=x", 400)]:
        assert broker.refused("GET", f"/image_buffer/image.tiff?{query}").status == status, query
    buffer = broker.get("/image_buffer/status")
    assert buffer["image_numbers"] == json.loads(ours("images"))["images"] and buffer["max_image_number"] == 29
    assert buffer["available_slots"] == 0 and buffer["total_slots"] == 16
    start = broker.get("/image_buffer/start.cbor")
    assert start[:3] == b"\xd9\xd9\xf7" and b"start" in start and b"number_of_images" in start
    image = np.load(io.BytesIO(ours("images/latest?format=npy")))
    mask = np.frombuffer(broker.get("/config/mask"), "<u4").reshape(image.shape)
    assert set(np.unique(mask)) <= {0, 1, 256} and (mask == 0).any()
    for theirs, name in [("spot_count", "spots"), ("bkg_estimate", "background"), ("max_pixel_value", "max_value"), ("spots", "spots")]:
        plot, result = broker.get(f"/preview/plot?type={theirs}&binning=0"), service.request("GET", "results", result=name)
        assert (plot["unit_x"], plot["plot"][0]["title"]) == ("image_number", name)
        assert plot["plot"][0]["x"] == result["first_image"] and plot["plot"][0]["y"] == result["mean"]
    unknown = broker.refused("GET", "/preview/plot?type=mosaicity")
    assert unknown.status == 400 and "bkg_estimate" in unknown.text and "spots" in unknown.text
    scan = broker.get("/result/scan")["images"]
    spots = service.request("GET", "results", result="spots")["mean"]
    assert [one["number"] for one in scan] == list(range(30)) and [one.get("spots") for one in scan] == spots
    assert {"bkg", "max", "pixel_sum", "sat"} <= scan[0].keys() and "index" not in scan[0]
    assert all(one["efficiency"] == 1.0 for one in scan)
    assert broker.get("/statistics")["measurement"]["detector_width"] == image.shape[1]
    assert service.end()[0] == 0


def test_refusals_come_in_the_form_of_the_broker(opened):
    bench, service, broker = opened()
    assert broker.get("/fpga_status") == []
    missing = broker.refused("POST", "/start", {"beam_x_pxl": 1})
    assert missing.status == 400 and "missing field `beam_y_pxl`" in missing.text and missing.kind.startswith("text/plain")
    for change, part in [
        ({"compression": "none"}, "[output] compression"),
        ({"tokens": ["t"]}, "tokens of the service"),
        ({"incident_energy_keV": 12400}, "looks like eV"),
        ({"file_prefix": "../../x"}, "."),
        ({"file_prefix": "no_such_folder/x"}, "create_folders"),
    ]:
        refused = broker.refused("POST", "/start", settings(**change))
        assert refused.status in (400, 500) and part in refused.text, (change, refused)
    bench.master("taken").touch()
    refused = broker.refused("POST", "/start", settings(file_prefix="taken"))
    ours = service.refused("arm", {"prefix": "taken"}).body
    assert (refused.status, json.loads(refused.body)["reason"]) == (500, "Other")
    assert refused.text == f"{ours['detail']}; {ours['hint']}"
    broker.post("/start", settings(images_per_trigger=3))
    for path, body in [("/start", settings()), ("/initialize", None), ("/pedestal", None)]:
        refused = broker.refused("POST", path, body)
        assert (refused.status, json.loads(refused.body)["reason"]) == (500, "WrongDAQState"), path
    broker.post("/cancel")
    broker.post("/wait_till_done")
    assert broker.state == "Idle"
    assert broker.refused("POST", "/trigger").status == 500
    for method, path, status in [
        ("GET", "/detector/status", 501), ("GET", "/config/spot_finding", 501), ("PUT", "/config/detector", 501),
        ("GET", "/image_buffer/image.jpeg", 501), ("POST", "/deactivate", 501), ("GET", "/nothing", 404), ("GET", "/start", 405),
        ("GET", "/xfel/pulse_id", 404), ("GET", "/xfel/event_code", 404), ("POST", "/wait_till_done?timeout=3601", 400),
        ("POST", "/wait_till_done?timeout=x", 400),
    ]:  # fmt: skip
        refused = broker.refused(method, path)
        assert refused.status == status and refused.text, (method, path, refused)
    page = broker.refused("POST", "/start", settings(), Origin="http://evil.example")
    assert page.status == 403 and "comes from a web page" in page.text
    assert service.end()[0] == 0


def test_the_port_has_a_role_and_a_token_has_its_own(opened, tmp_path):
    tokens = tmp_path / "tokens"
    make = lambda name, role: program("token", "create", name, "--role", role, "--file", tokens, check=0).stdout.strip()
    operator, viewer = make("olga", "operate"), make("victor", "view")
    bench, service, broker = opened(role="view", extra=f'[service]\ntokens = "{tokens}"\n')
    for path, body in [("/start", settings()), ("/cancel", None), ("/initialize", None), ("/pedestal", None), ("/trigger", None)]:
        refused = broker.refused("POST", path, body)
        assert refused.status == 403 and "'adapter jfjoch' has the role 'view'" in refused.text, path
    assert broker.state == "Idle"
    broker.post("/wait_till_done?timeout=0")
    by = lambda token: {"Authorization": f"Bearer {token}"}
    assert broker.refused("POST", "/start", settings(), **by(viewer)).status == 403
    assert broker.refused("POST", "/start", settings(), **by("konkordia_wrong")).status == 401
    broker.post("/start", settings(), **by(operator))
    assert broker.state == "Measuring" and bench.folder
    broker.post("/cancel", **by(operator))
    assert service.end()[0] == 0


def test_cancel_in_each_state_keeps_what_has_arrived(opened):
    bench, service, broker = opened(run={"stall_timeout_s": 30})
    broker.post("/cancel")
    assert broker.state == "Idle"
    broker.post("/start", settings(images_per_trigger=100, file_prefix="part"))
    bench.send(images=20)
    service.until(lambda status: status["images_committed"] >= 18)
    broker.post("/cancel")
    broker.post("/wait_till_done")
    data = broker.get("/statistics/data_collection")
    assert data["cancelled"] and data["images_written"] >= 18, data
    with h5py.File(bench.master("part")) as file:
        assert len(file["entry/data/data_000001"]) == data["images_written"]
    broker.post("/start", settings(images_per_trigger=100, file_prefix="none"))
    broker.post("/cancel")
    broker.post("/wait_till_done")
    assert broker.state == "Idle" and service.end()[0] == 0


@slow_lane
def test_pedestals_are_taken_and_can_be_cancelled(bench):
    folder, pedestals, _ = truth(bench)
    program("pedestal", dark_file(bench)[0], "-o", "cal.h5", "--gain", folder / "gain_adu_per_kev.f32", check=0, cwd=bench.folder)
    port, text = table()
    config = staged(bench, images=1000, rate=400)
    config.write_text(config.read_text() + text)
    service = Service(config)
    try:
        broker = Broker(port)
        broker.post("/pedestal")
        until(lambda: broker.state == "Pedestal" and broker.get("/status")["progress"] > 0, "frames have come", 20)
        broker.post("/wait_till_done?timeout=60")
        status = broker.get("/status")
        assert (status["state"], status["message_severity"]) == ("Idle", "success"), status["message"]
        has_pedestals(bench.folder / "cal.h5", pedestals, frames=1000)
        broker.post("/pedestal")
        assert broker.state == "Pedestal"
        broker.post("/cancel")
        broker.post("/wait_till_done")
        assert broker.state == "Idle" and "no calibration file was written" in broker.get("/status")["message"]
    finally:
        assert service.end()[0] == 0
