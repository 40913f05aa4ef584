"""Many images and many tabs; and the bundle in the repository is the one that its sources give."""

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest
from browser import WEB
from streams import Stins
from websockets.sync.client import connect

SLOW = os.environ.get("KONKORDIA_SLOW") == "1"
SHAPE = (512, 1024)


@contextlib.contextmanager
def live(service):
    """A client of the live connection that has said hello and wants frames."""
    with connect(service.url.replace("http", "ws") + "/api/v1/live", max_size=None) as client:
        client.send(json.dumps({"type": "hello", "token": None}))
        assert json.loads(client.recv(10))["type"] == "welcome"
        client.send(json.dumps({"type": "watch", "detector": None, "frames": {"hz_max": 60}}))
        yield client


class Sender:
    """Sends images of random counts in the background, so many in a second, until it is ended."""

    def __init__(self, service, count, hz):
        self.stins = Stins()
        self.images = [np.random.default_rng(n).poisson(3, SHAPE).astype("uint16") for n in range(5)]
        self.service, self.count, self.hz, self.sent = service, count, hz, 0
        self.is_ended = threading.Event()
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def _send(self):
        self.service.send(self.stins.start())
        begun = time.monotonic()
        while self.sent < self.count and not self.is_ended.wait(max(0, begun + self.sent / self.hz - time.monotonic())):
            self.service.send(self.stins.image(self.sent, self.images[self.sent % len(self.images)]))
            self.sent += 1
        self.service.send(self.stins.end())

    def end(self):
        self.is_ended.set()
        self.thread.join()


def test_a_tab_that_never_acknowledges_stops_nobody(serve, open_tab):
    service = serve()
    with live(service) as stalled:
        tabs = [open_tab(service) for _ in range(3)]
        for tab in tabs:
            tab.state("Idle")
        sender = Sender(service, 5000, 40)
        try:
            for tab in tabs:
                first = tab.shows(lambda frame: True, "an image")["image"]
                tab.shows(lambda frame, first=first: frame["image"] > first + 20, "newer images")
        finally:
            sender.end()
        done = service.taken(1)
        assert (done["images_committed"], done["images_lost"]) == (sender.sent, 0)
        for tab in tabs:
            tab.shows_image(sender.sent - 1)
        # It got the two frames that may be on their way, and the states.
        messages = []
        while not any("run 1 has ended" in str(message) for message in messages):
            messages.append(stalled.recv(10))
        assert sum(isinstance(message, bytes) for message in messages) == 2


def heap_bytes(session):
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"]


def buffers_bytes(session):
    usage = session.send("Runtime.getHeapUsage")
    return usage.get("backingStorageSize", 0)


@pytest.mark.parametrize(
    ("images", "hz"),
    [(300, 60), pytest.param(10_000, 60, marks=pytest.mark.skipif(not SLOW, reason="takes minutes: KONKORDIA_SLOW=1"))],
)
def test_memory_stays_flat_over_many_frames(serve, open_tab, images, hz):
    service = serve()
    tab = open_tab(service)
    tab.state("Idle")
    session = tab.context.new_cdp_session(tab.page)
    sender = Sender(service, images, hz)
    try:
        tab.shows(lambda frame: frame["image"] > images // 6, "the first images", timeout=60 + images / hz)
        before = heap_bytes(session) + buffers_bytes(session)
        tab.shows(lambda frame: frame["image"] > images * 0.9, "almost all images", timeout=60 + 2 * images / hz)
        after = heap_bytes(session) + buffers_bytes(session)
    finally:
        sender.end()
    # Two frames on their way are 2 MB; all that were shown would be fifty, or more than a thousand.
    assert after - before < 6e6, (before, after)


@pytest.mark.skipif(not shutil.which("node"), reason="no node: scripts/setup browser")
@pytest.mark.skipif(not (WEB / "node_modules").is_dir(), reason="no web/node_modules: npm ci in web/")
def test_the_bundle_is_the_one_that_its_sources_give(tmp_path):
    folder = tmp_path / "web"
    shutil.copytree(WEB, folder, ignore=shutil.ignore_patterns("node_modules", "dist", "build"))
    (folder / "node_modules").symlink_to(WEB / "node_modules")
    subprocess.run(["node", "build.mjs"], cwd=folder, check=True, capture_output=True, timeout=120)
    content = lambda root: {path.name: path.read_bytes() for path in root.iterdir()}
    built, kept = content(folder / "dist"), content(WEB / "dist")
    assert sorted(built) == sorted(kept)
    assert [name for name in built if built[name] != kept[name]] == [], "npm run build in web/, and commit web/dist"


def test_the_bundle_is_small():
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in (WEB / "dist").iterdir()}
    assert sum(sizes.values()) < 300_000, sizes
