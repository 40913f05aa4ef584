"""What is known of each image beside its pixels: in files, streams, rules, and in what `veto replay` knows."""

import json

import h5py
import numpy as np
from driving import Bench, Master, program, simulate
from streams import Stins
from test_analyse import recipe
from test_live_analysis import PLACE, eiger, frames, replayed, take
from test_results import calibration
import zmq


def columns_of(path):
    with h5py.File(path) as master:
        columns = master["/entry/konkordia/images"]
        return {name: columns[name][()] for name in columns}


def test_packets_angles_and_rasters(tmp_path):
    bench = Bench(tmp_path)
    tables = {
        "detector": {"type": "jungfrau", "energy_kev": 12.4},
        "calibration": calibration(tmp_path),
        "goniometer": {"omega_start_deg": 30.0, "omega_increment_deg": 0.25},
        "run": {"images": 12, "stall_timeout_s": 3},
        "processing": {"summation": 2},
        "image_metadata": {"angle": True, "raster_columns": 5, "raster_is_snake": True, "pulse_id": "bunch_id"},
    }
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 60, "--images", 24)
    code, report = receiver.finish()
    assert code == 0 and report["images"]["complete"] == 12, receiver.errors
    assert "analysis" not in report or report["analysis"] is None
    columns = Master(bench.master).columns
    with h5py.File(bench.master) as master:
        omega = master["/entry/sample/transformations/omega"][()]
    # An image is two frames.
    assert columns["angle_deg"].tolist() == omega.tolist() == [30 + 0.5 * n for n in range(12)]
    assert columns["raster_column"].tolist() == [0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 0, 1]
    assert columns["raster_row"].tolist() == [n // 5 for n in range(12)]
    assert columns["pulse_id"].tolist() == columns["bunch_id"].tolist() and len(set(columns["pulse_id"])) == 12
    assert columns["valid_pixels"].all(), "the results of the pixels are there too"


def test_what_a_sender_says_of_its_images(tmp_path, serve):
    by = recipe(tmp_path, above={"level": 20}, hits={"rule": "energy_kev > 12.0 && pixels_above > 0"}, veto={"rule": "pulse_id >= 1005", "mode": "drop"})
    lines = '[image_metadata]\npulse_id = "/pulse"\nenergy_ev = "/beam/energy"\nsample_x_mm = "/motors/0/x"\nraster_columns = 4\n'
    service = serve(extra=f'{lines}[analysis]\nrecipe = "{by}"\nqueue_images = 64\n', detector=PLACE)
    stins, images = Stins(), frames(8)
    # The sender does not say everything of each image.
    said = [{"pulse": 1000 + n, "beam": {"energy": 12000 + 100 * (n % 2)}, "motors": [{"x": 0.25 * n}]} for n in range(8)]
    del said[3]["beam"], said[4]["pulse"]
    service.send(stins.start(), *(stins.image(n, image, **said[n]) for n, image in enumerate(images)), stins.end())
    done = service.taken(1)
    words = ["1 images without energy_kev: their sender says no number at /beam/energy", "1 images without pulse_id"]
    service.until_logged(lambda line: "WARN" in line and all(word in line for word in words))
    columns = columns_of(done["file"])
    assert columns["pulse_id"].tolist() == [1000, 1001, 1002, 1003, 0, 1005, 1006, 1007]
    assert np.allclose(columns["energy_kev"], [12, 12.1, 12, np.nan, 12, 12.1, 12, 12.1], equal_nan=True)
    assert columns["sample_x_um"].tolist() == [250.0 * n for n in range(8)]
    assert columns["raster_column"].tolist() == [0, 1, 2, 3] * 2
    # Rules know them, live and again.
    assert columns["is_hit"].tolist() == [0, 1, 0, 0, 0, 1, 0, 1]
    assert columns["status"].tolist() == [1, 1, 1, 1, 1, 4, 4, 4]
    assert replayed(done["file"])["stored"]["differ"] == 0
    rate = service.request("GET", "hit_rate")
    assert (sum(rate["analysed"]), sum(rate["hits"]), rate["bin_s"]) == (8, 3, 1.0), "dropped images count too"
    raster = rate["raster"]
    assert (raster["row"], raster["column"]) == ([0] * 4 + [1] * 4, [0, 1, 2, 3] * 2)
    assert (raster["analysed"], raster["hits"], raster["not_counted"]) == ([1] * 8, columns["is_hit"].tolist(), 0)
    assert replayed(done["file"], "--rule", "raster_row == 1 && sample_x_um < 1600.0")["rejected"] == 3
    newest = service.request("GET", "images/latest", format="json")["results"]
    assert (newest["pulse_id"], newest["raster_row"]) == (0, 1), "the newest that was kept"


def test_consumers_get_them_without_analysis(tmp_path):
    service, ports, udp = eiger(tmp_path, None, image_metadata={"raster_columns": 3})
    context = zmq.Context()
    taker = take(context, ports["stins"])
    try:
        service.command("start")
        program("simulate", "eiger", "--to", f"127.0.0.1:{udp}", "--bits", 8, "--images", 8, "--rate", 20, "-q", check=0)
        service.wait()
        taker.recv_multipart()
        said = [json.loads(taker.recv_multipart()[0]) for _ in range(8)]
        assert [(image["raster_column"], image["raster_row"]) for image in said] == [(n % 3, n // 3) for n in range(8)]
    finally:
        context.destroy(linger=0)
        service.end()


def test_what_cannot_be_known_is_refused(tmp_path):
    bench = Bench(tmp_path)
    for keys, words in [
        ({"pulse_id": "/user/pulse"}, "is no name of a column"),
        ({"raster_is_snake": True}, "raster_columns"),
        ({"energy_kev": "a", "energy_ev": "b"}, "second place"),
    ]:
        done = program("config", "check", bench.config(detector={"type": "eiger"}, image_metadata=keys), check=3)
        assert words in done.stderr + done.stdout, done
    for keys, words in [({"pulse_id": "bunch"}, 'no "bunch", only timestamp, bunch_id'), ({"angle": True}, "omega_increment_deg")]:
        refused = program("receive", bench.config(detector={"type": "eiger"}, image_metadata=keys), check=3).stderr
        assert words in refused and "[image_metadata]" in refused, refused
