"""Many images and many tabs; and the bundle in the repository is the one that its sources give."""

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request

import numpy as np
import pytest
from browser import WEB
from lanes import lanes, slow_lane
from service import until
from streams import Stins
from test_live import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

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
        self.took_s = 0.0
        self.is_ended = threading.Event()
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def _send(self):
        self.service.send(self.stins.start())
        begun = time.monotonic()
        while self.sent < self.count and not self.is_ended.wait(max(0, begun + self.sent / self.hz - time.monotonic())):
            self.service.send(self.stins.image(self.sent, self.images[self.sent % len(self.images)]))
            self.sent += 1
        self.took_s = time.monotonic() - begun
        self.service.send(self.stins.end())

    def wait(self):
        self.thread.join()

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


def frames_made(service):
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("konkordia_live_frames_total{"))


class Quick(threading.Thread):
    """A client that acknowledges each frame as soon as it has it."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.images, self.is_over = client, [], False
        self.start()

    def run(self):
        with contextlib.suppress(ConnectionClosed):
            while not self.is_over:
                with contextlib.suppress(TimeoutError):
                    self.images.append(self.client.frame()[0]["image"])


@pytest.mark.alone
@slow_lane
def test_fifty_tabs_of_which_half_are_stuck_change_nothing_in_the_run(serve, open_tab):
    images, hz = 200, 20
    service = serve()
    alone = Sender(service, images, hz)
    alone.wait()
    assert service.taken(1)["images_committed"] == images
    tabs = [open_tab(service) for _ in range(5)]
    clients = [Client(service) for _ in range(45)]
    for client in clients:
        client.watch(pixels_max=65536, hz_max=10)
    quick = [Quick(client) for client in clients[::2]]
    for tab in tabs:
        tab.shows_image(images - 1, run=1)
    before = frames_made(service)
    sender = Sender(service, images, hz)
    sender.stins.number = alone.stins.number
    sender.wait()
    ended = time.monotonic()
    done = service.taken(2)
    assert (done["images_committed"], done["images_lost"], done["images_partial"]) == (images, 0, 0), done
    assert time.monotonic() - ended < 3 and sender.took_s < 1.05 * alone.took_s + 0.5, (sender.took_s, alone.took_s)
    # A frame for the tabs and one for the others of each image at most, whoever wants it; and those of new views.
    made = frames_made(service) - before
    assert made <= 2 * images + 20, made
    for one in quick:
        until(lambda one=one: one.images and one.images[-1] == images - 1, "the last image", timeout=10)
        one.is_over = True
        assert len(one.images) > images / hz * 2, "a few frames a second, in spite of the stuck ones"
    for tab in tabs:
        tab.shows_image(images - 1, run=2)


def memory_of(session, browser):
    """What a tab keeps: bytes of scripts and their buffers after a collection, nodes, listeners; and what all processes of
    the browser have together."""
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    processes = [one["id"] for one in browser.send("SystemInfo.getProcessInfo")["processInfo"]]
    resident = 0
    for process in processes:
        with contextlib.suppress(OSError), open(f"/proc/{process}/statm", encoding="ascii") as file:
            resident += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "heap": usage["usedSize"] + usage.get("backingStorageSize", 0),
        "nodes": metrics["Nodes"],
        "listeners": metrics["JSEventListeners"],
        "resident": resident,
    }


# Two frames on their way are 2 MB; all that were shown would be fifty, or gigabytes. Processes keep what they freed.
GROWTH_MAX = {"heap": 6e6, "nodes": 500, "listeners": 50, "resident": 150e6}


@pytest.mark.parametrize(
    ("images", "hz", "renderer"),
    lanes([(300, 60, "2d")], slow=[(10_000, 60, "2d"), (10_000, 60, "webgl")]),
)
def test_memory_stays_flat_over_many_frames(serve, open_tab, chromium, images, hz, renderer):
    service = serve()
    tab = open_tab(service, query=f"renderer={renderer}")
    tab.state("Idle")
    session, browser = tab.context.new_cdp_session(tab.page), chromium.new_browser_cdp_session()
    session.send("Performance.enable")
    sender = Sender(service, images, hz)
    try:
        tab.shows(lambda frame: frame["image"] > images // 6, "the first images", timeout=60 + images / hz)
        before = memory_of(session, browser)
        tab.shows(lambda frame: frame["image"] > images * 0.9, "almost all images", timeout=60 + 2 * images / hz)
        after = memory_of(session, browser)
    finally:
        sender.end()
    assert [name for name, most in GROWTH_MAX.items() if after[name] - before[name] > most] == [], (before, after)


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
