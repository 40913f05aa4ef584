"""Prints as JSON what viewers of the live connection cost a service: processor time of `konkordia serve` while images come, without viewers, with one and with several of the same size, and how old an image is when its frame has arrived and is unpacked. UDP over loopback, a software stand-in for a network; simulator and viewers are not counted.

usage: live.py PROGRAM [SECONDS]
"""

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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
program, seconds = sys.argv[1], float((sys.argv[2:] or [15])[0])
os.environ["KONKORDIA_BIN"] = program

from driving import raw_tables  # noqa: E402  the program's path is read when it is imported
from service import Service, free_ports, until, write_config  # noqa: E402
from test_live import Client  # noqa: E402

# Modules of 512 x 1024 pixels, images per second, viewers at once.
CASES = {"4M at 10 Hz": (8, 10, (0, 1, 5)), "16M at 5 Hz": (32, 5, (0, 1))}


class Viewer(threading.Thread):
    """Takes frames of at most a megapixel as they come, and notes how old their images are then."""

    def __init__(self, service):
        super().__init__()
        self.client, self.ages_ms, self.is_over = Client(service), [], False
        self.client.watch(pixels_max=1 << 20, hz_max=30)

    def run(self):
        while not self.is_over:
            try:
                header, values = self.client.frame()
            except TimeoutError:
                continue
            assert values.size <= 1 << 20 and header["status"] == "complete"
            self.ages_ms.append(header["age_ms"])


def processor_s(service):
    with open(f"/proc/{service.process.pid}/stat", encoding="utf-8") as file:
        user, system = file.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(modules, rate_hz, viewers):
    """Cores that the service keeps busy, and the viewers' frames."""
    folder, port = pathlib.Path(tempfile.mkdtemp(prefix="konkordia-bench-", dir="/dev/shm")), free_ports(modules)
    tables = raw_tables(modules=modules, images=int(rate_hz * (seconds + 6)), buffer_mib=1024)
    detector = tables.pop("detector")
    service = Service(write_config(folder, port, detector=detector, **tables))
    try:
        service.command("arm")
        send = ["simulate", "jungfrau", "--to", f"127.0.0.1:{port}", "--modules", modules, "--images", int(rate_hz * (seconds + 6)), "--rate", rate_hz]
        sender = subprocess.Popen([program, *map(str, send)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: service.status()["images_committed"] > rate_hz, "images come")
        watching = [Viewer(service) for _ in range(viewers)]
        for viewer in watching:
            viewer.start()
        time.sleep(1)
        for viewer in watching:
            viewer.ages_ms.clear()
        before, began = processor_s(service), time.monotonic()
        time.sleep(seconds)
        cores = (processor_s(service) - before) / (time.monotonic() - began)
        ages_ms = [age for viewer in watching for age in viewer.ages_ms]
        for viewer in watching:
            viewer.is_over = True
        sender.wait()
        status = service.wait(60)
        assert status["severity"] == "success" and status["images_lost"] == 0, status
        return {"cores": cores, "frames_hz": len(ages_ms) / seconds / viewers if viewers else 0, "age_ms": statistics.median(ages_ms) if ages_ms else 0}
    finally:
        service.end()
        shutil.rmtree(folder)


def main():
    report = {"seconds": seconds}
    for name, (modules, rate_hz, counts) in CASES.items():
        found = {viewers: measure(modules, rate_hz, viewers) for viewers in counts}
        report[name] = {f"{viewers} viewers": figures for viewers, figures in found.items()}
        report[name]["cores_of_one_viewer"] = found[1]["cores"] - found[0]["cores"]
        most = max(counts)
        report[name]["cores_of_each_viewer"] = (found[most]["cores"] - found[0]["cores"]) / most
    print(json.dumps(report))


if __name__ == "__main__":
    main()
