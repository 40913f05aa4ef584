"""Prints as JSON how long images of a running service take to the screen: from the moment at which an image is committed until it was drawn in a page of Chromium, median and 95 %, for both renderers. All on one machine, over loopback and UDP, without a graphics card: a software stand-in for a screen.

The service says how old an image is when it sends a frame. Two clients besides the page take frames of 64 x 64 pixels; the earlier of their two times is that of the commit, late by the way over loopback and at most a millisecond of rounding. An image is drawn when the browser has gone through a picture of the screen after which the page shows it; WebGL must also have given back a dot of it. Images that the page left out are not counted; their number is printed.

usage: live_glass.py PROGRAM [SECONDS]
"""

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/web"), str(ROOT / "tests/e2e")]
program, seconds = sys.argv[1], float((sys.argv[2:] or [15])[0])
os.environ["KONKORDIA_BIN"] = program

import numpy as np  # noqa: E402  the program's path is read when the helpers are imported
from browser import CHROMIUM, CHROMIUM_ARGUMENTS, Tab, serve_bundle  # noqa: E402
from driving import raw_tables  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from service import Service, free_ports, write_config  # noqa: E402
from streams import Stins, StreamService, bslz4  # noqa: E402
from test_live import Client  # noqa: E402
from websockets.exceptions import ConnectionClosed  # noqa: E402

RATE_HZ = 10
SHAPE_4M = (2162, 2068)
# Notes the time of each image after the picture of the screen with it, by the clock of the machine in milliseconds.
NOTE_DRAWN = """() => {
    const seen = (window.drawn = []), channel = new MessageChannel();
    let last = null;
    channel.port1.onmessage = () => {
        const header = window.__konkordia?.frame();
        if (header && header.image !== last) {
            last = header.image;
            const gl = __konkordia.renderer === "webgl" && document.querySelector(".image-canvas").getContext("webgl2");
            if (gl) gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
            seen.push([header.image, performance.timeOrigin + performance.now(), header.age_ms]);
        }
    };
    const look = () => { channel.port2.postMessage(0); requestAnimationFrame(look); };
    requestAnimationFrame(look);
}"""


class Commits(threading.Thread):
    """The times at which images were committed, by the clock of the machine in milliseconds."""

    def __init__(self, service):
        super().__init__(daemon=True)
        self.client, self.times_ms = Client(service, ping_interval=None), {}
        self.client.watch(region=[0, 0, 64, 64], hz_max=60)
        self.start()

    def run(self):
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            while True:
                header, _ = self.client.frame()
                self.times_ms[header["image"]] = time.time() * 1e3 - header["age_ms"]


def jungfrau(folder, images):
    """A service that receives one module, and what sends to it."""
    port, tables = free_ports(1), raw_tables(images=images, buffer_mib=512)
    service = Service(write_config(folder, port, detector=tables.pop("detector"), **tables))
    service.command("arm")
    send = ["simulate", "jungfrau", "--to", f"127.0.0.1:{port}", "--images", images, "--rate", RATE_HZ]
    process = subprocess.Popen([program, *map(str, send)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return service, process.wait, service.end


def stream(folder, images):
    """The same for a stream of 4 megapixels, packed as detectors pack it."""
    service, stins = StreamService(folder), Stins()
    counts = [np.random.default_rng(n).poisson(3, SHAPE_4M).astype("uint16") for n in range(3)]
    packed = [bslz4(one) for one in counts]

    def send():
        service.send(stins.start())
        begun = time.monotonic()
        for n in range(images):
            time.sleep(max(0, begun + n / RATE_HZ - time.monotonic()))
            service.send(stins.image(n, counts[n % 3], pack=lambda _, n=n: packed[n % 3]))
        service.send(stins.end())

    thread = threading.Thread(target=send)
    thread.start()
    return service, thread.join, service.close


def percentiles(values):
    return {"median": statistics.median(values), "p95": float(np.percentile(values, 95))} if values else None


def measure(browser, start, renderer):
    folder, images = pathlib.Path(tempfile.mkdtemp(prefix="konkordia-bench-", dir="/dev/shm")), int(RATE_HZ * (seconds + 12))
    service, ended, close = start(folder, images)
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    try:
        serve_bundle(context)
        commits = [Commits(service) for _ in range(2)]
        tab = Tab(context, service.url).go(query=f"renderer={renderer}")
        first = tab.shows(lambda frame: True, "an image")["image"]
        tab.shows(lambda frame: frame["image"] > first + RATE_HZ, "newer images")
        tab.page.evaluate(NOTE_DRAWN)
        tab.page.wait_for_timeout(seconds * 1e3)
        drawn = tab.page.evaluate("window.drawn")
        ended()
        status = service.wait(60)
        assert status["images_lost"] == 0 and tab.hook("__konkordia.renderer") == renderer, status
        known = [(image, at, age) for image, at, age in drawn[1:] if all(image in one.times_ms for one in commits)]
        glass_ms = [at - min(one.times_ms[image] for one in commits) for image, at, _ in known]
        return {
            "images_drawn": len(known),
            "images_left_out": drawn[-1][0] - drawn[0][0] + 1 - len(drawn),
            "commit_to_drawn_ms": percentiles(glass_ms),
            "commit_to_sent_ms": percentiles([age for _, _, age in known]),
        }
    finally:
        context.close()
        close()
        shutil.rmtree(folder)


def main():
    report = {"seconds": seconds, "rate_hz": RATE_HZ}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        for name, start in {"JUNGFRAU of one module": jungfrau, "stream of 4M": stream}.items():
            report[name] = {renderer: measure(browser, start, renderer) for renderer in ("2d", "webgl")}
        browser.close()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
