"""Several viewers that ask for the newest image while a run goes on: each answer is an image of the run, the same for all
who get it, and the run loses nothing by them."""

import io
import threading
import urllib.request

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import free_ports, program
from service import Service, until, write_config

IMAGES = 100
FORMATS = ["npy", "png", "npy", "tiff", "npy", "cbor"]


class Viewer(threading.Thread):
    """Asks for the newest image in one format, again and again."""

    def __init__(self, service, form):
        super().__init__()
        self.service, self.form = service, form
        self.seen = {}
        self.is_done, self.failure = threading.Event(), None

    def look(self, which="latest"):
        with urllib.request.urlopen(f"{self.service.url}/api/v1/images/{which}?format={self.form}", timeout=60) as answer:
            assert answer.headers["X-Konkordia-Run"] == "1"
            return int(answer.headers["X-Konkordia-Image"]), answer.read()

    def run(self):
        try:
            newest = 0
            while not self.is_done.wait(0.03):
                number, body = self.look()
                assert number >= newest, "the newest image is never older than the one before"
                newest = number
                assert self.seen.setdefault(number, body) == body, f"image {number} has changed"
        except Exception as why:
            self.failure = why


@pytest.mark.parametrize("compression", ["bslz4", "zstd"])
def test_viewers_share_the_newest_image_and_cost_the_run_nothing(tmp_path, compression):
    port = free_ports(4)
    output = {"compression": compression}
    service = Service(write_config(tmp_path, port, run={"images": IMAGES}, output=output))
    viewers = []
    try:
        service.command("arm")
        send = ["simulate", "eiger", "--to", f"127.0.0.1:{port}", "--bits", 8, "--images", IMAGES, "--rate", 25, "-q"]
        sender = threading.Thread(target=program, args=send, kwargs={"check": 0})
        sender.start()
        until(lambda: service.request("GET", "images")["images"], "the first image")
        viewers = [Viewer(service, form) for form in FORMATS]
        for viewer in viewers:
            viewer.start()
        sender.join()
        status = service.wait()
        for viewer in viewers:
            viewer.is_done.set()
            viewer.join()
            assert viewer.failure is None, viewer.failure
        counts = [status[key] for key in ("images_written", "images_lost", "images_partial")]
        assert (status["severity"], counts) == ("success", [IMAGES, 0, 0]), status
        with h5py.File(tmp_path / "run_000001_master.h5") as file:
            data = file["/entry/data"]
            stored = data[data.attrs["signal"]][()]
        # Who asks now gets the last image, whatever others have looked at; and by its number the same bytes.
        for viewer in viewers:
            last, body = viewer.look()
            assert (last, body) == viewer.look(IMAGES - 1) and last == IMAGES - 1
            assert viewer.seen.setdefault(last, body) == body
        by_form = {}
        for viewer in viewers:
            for number, body in viewer.seen.items():
                assert by_form.setdefault((viewer.form, number), body) == body, f"two viewers see image {number} differently"
        found = {number: np.load(io.BytesIO(body)) for (form, number), body in by_form.items() if form == "npy"}
        assert len(found) > 1, "the viewers have seen the run"
        for number, pixels in found.items():
            assert pixels.dtype == stored.dtype and (pixels == stored[number]).all(), number
    finally:
        for viewer in viewers:
            viewer.is_done.set()
        service.end()
