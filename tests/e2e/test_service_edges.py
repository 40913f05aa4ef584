"""Coincidences in the service: a series right after an armed one, images that cannot be stored, an end while a consumer
takes no images."""

import json
import pathlib
import shutil
import signal

import h5py
import pytest
import zmq
from driving import free_ports, program
from service import Service, at_rest, free_port, until, write_config


class Edge:
    """A service with a STINS detector that listens, and a socket that sends to it."""

    def __init__(self, folder, text=""):
        self.folder = folder
        self.address = f"tcp://127.0.0.1:{free_port()}"
        config = folder / "edge.toml"
        config.write_text(
            f'[detector]\ntype = "stream"\n[source]\nprotocol = "stins"\nupstreams = ["{self.address}"]\nbind = true\ndrain_ms = 300\n'
            f'[output]\ndirectory = "{folder}"\nprefix = "s"\n{text}'
        )
        self.service = Service(config)
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PUSH)
        self.socket.connect(self.address)
        self.number = 0

    def send(self, pixels=None, **message):
        parts = [json.dumps({"msg_number": self.number, **message}).encode()]
        self.number += 1
        self.socket.send_multipart(parts if pixels is None else [*parts, pixels])

    def image(self, frame, value, **more):
        more = {"shape": [8, 8], "type": "uint8", "compression": "none", **more}
        self.send(bytes([value]) * 64, htype="image", frame=frame, **more)

    def series(self, images, value):
        self.send(htype="header", filename="")
        for frame in range(images):
            self.image(frame, value)
        self.send(htype="series_end")

    def close(self):
        self.socket.close(0)
        self.context.term()
        if self.service.process.poll() is None:
            self.service.process.kill()
            self.service.process.wait()


@pytest.fixture
def edge(tmp_path):
    made = []

    def make(text=""):
        made.append(Edge(tmp_path, text))
        return made[-1]

    yield make
    for one in made:
        one.close()


def values_in(path):
    with h5py.File(path) as file:
        data = file["/entry/data"]
        return data[data.attrs["signal"]][:, 0, 0].tolist()


@pytest.mark.parametrize("overwrite", ["refuse", "replace"])
def test_the_name_of_an_arm_is_for_one_series(edge, overwrite):
    edge = edge(f'overwrite = "{overwrite}"\n')
    edge.service.command("arm", {"prefix": "mine"})
    for value in range(1, 6):
        edge.series(3, value)
    edge.service.until(lambda s: s["run"] == 5 and s["state"] in ("idle", "error"))
    states = [(entry["run"], entry["state"]) for entry in edge.service.request("GET", "files")["files"]]
    assert states == [(run, "complete") for run in range(1, 6)], states
    assert values_in(edge.folder / "mine_master.h5") == [1] * 3
    assert sorted(value for path in edge.folder.glob("s_*_master.h5") for value in values_in(path)) == [2] * 3 + [3] * 3 + [4] * 3 + [5] * 3


def runs_of_images(service):
    """Runs that HTTP gives for the newest image and for the list of images."""
    return service.request("GET", "images/latest", format="json")["run"], service.request("GET", "images")["run"]


def test_an_image_of_an_earlier_run_is_not_given_for_one_of_the_next(edge):
    edge = edge()
    edge.series(2, 1)
    edge.series(2, 2)
    edge.service.until(lambda s: s["run"] == 2 and s["state"] == "idle")
    assert runs_of_images(edge.service) == (2, 2)
    edge.service.command("arm", {"prefix": "third"})
    assert edge.service.status()["run"] == 3
    assert runs_of_images(edge.service) == (2, 2), "the third run has no image yet"
    edge.series(1, 3)
    edge.service.until(lambda s: s["run"] == 3 and s["state"] == "idle")
    assert runs_of_images(edge.service) == (3, 3)
    assert edge.service.request("GET", "images/1", format="json")["run"] == 2


def test_an_image_of_packets_says_its_run(tmp_path):
    port = free_port()
    service = Service(write_config(tmp_path, port))
    try:
        service.command("arm", {"images": 2, "prefix": "first"})
        program("simulate", "eiger", "--to", f"127.0.0.1:{port}", "--bits", 8, "--images", 2, "-q", check=0)
        service.until(lambda s: s["run"] == 1 and s["state"] == "idle")
        assert runs_of_images(service) == (1, 1)
        service.command("arm", {"images": 2, "prefix": "second"})
        assert service.status()["run"] == 2 and runs_of_images(service)[0] == 1
        service.command("cancel")
    finally:
        service.end()


def test_images_that_no_file_takes_are_reported(edge):
    edge = edge()
    edge.send(htype="header", filename="")
    edge.image(0, 1)
    # A compressed image in an uncompressed series is complete in the ledger, but cannot be stored in the file.
    packed = (64).to_bytes(8, "big") + (8192).to_bytes(4, "big") + bytes([7]) * 40
    edge.send(packed, htype="image", frame=1, shape=[8, 8], type="uint8", compression="bslz4")
    edge.image(2, 3)
    edge.send(htype="series_end")
    done = edge.service.until(lambda s: s["run"] == 1 and s["state"] == "idle")
    assert done["severity"] == "warning" and "1 not in the file" in done["message"], done
    assert (done["images_committed"], done["images_written"]) == (3, 2), done
    assert edge.service.request("GET", "files")["files"][0]["state"] == "incomplete"
    assert any("not in its file" in log["message"] for log in edge.service.request("GET", "logs")["logs"])


def test_an_end_does_not_wait_for_ever_for_a_consumer(edge):
    port = free_port()
    edge = edge(f'[[stream]]\nname = "stuck"\naddress = "tcp://127.0.0.1:{port}"\nservice = "reliable"\nqueue_images = 4\n')
    stuck = edge.context.socket(zmq.PULL)
    stuck.setsockopt(zmq.RCVHWM, 1)
    stuck.setsockopt(zmq.RCVBUF, 4096)
    stuck.connect(f"tcp://127.0.0.1:{port}")
    try:
        edge.service.consumers_connect()
        edge.send(htype="header", filename="")
        pixels = bytes(1 << 20)
        for frame in range(100):
            edge.send(pixels, htype="image", frame=frame, shape=[1024, 1024], type="uint8", compression="none")
        committed = at_rest(lambda: edge.service.status()["images_committed"], "the committed images", for_s=1)
        assert committed < 60, "everybody waits for it"
        code, _ = edge.service.end(signal.SIGTERM, timeout=40)
        assert code == 0
        program("check", edge.folder / "s_000001_master.h5", check=0)
        assert len(values_in(edge.folder / "s_000001_master.h5")) > committed
    finally:
        stuck.close(0)


def test_the_archive_copy_of_a_run_is_an_event(tmp_path):
    """Whoever looks at the service from afar sees that the copy was made, or why it could not be."""
    port, copies = free_ports(4), tmp_path / "copies"
    copies.mkdir()
    travel = {"enabled": True, "error_bound": 2, "directory": str(copies)}
    service = Service(write_config(tmp_path, port, travel=travel))
    try:
        for run, event in enumerate(["success", "warning"], start=1):
            service.command("arm", {"images": 4})
            if event == "warning":
                shutil.rmtree(copies)
            program("simulate", "eiger", "--to", f"127.0.0.1:{port}", "--bits", 8, "--images", 4, "--rate", 200, "-q", check=0)
            assert service.wait()["severity"] == "success", "the run is not affected"
            reports = lambda: [log for log in service.request("GET", "logs")["logs"] if (log["event"], log["data"].get("run")) == ("travel", run)]
            until(reports, f"the copy of run {run}")
            [log] = reports()
            assert (log["severity"], log["detector"]) == (event, service.status()["detector"]), log
            if event == "success":
                assert pathlib.Path(log["data"]["master"]).parent == copies and log["data"]["totals"]["images"] == 4
                program("check", log["data"]["master"], check=0)
            else:
                assert "could not be made" in log["message"] and log["data"]["why"] and log["data"]["fix"]
        service.end()
    finally:
        service.process.kill()
        service.process.wait()
