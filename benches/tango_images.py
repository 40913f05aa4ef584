"""Prints as JSON how many images per second a PyTango client gets by change events of `Image`, and which part of a core the
device and the service take for it. The sender is faster than the events, and the last image is compared.

usage: tango_images.py PROGRAM [SECONDS]       after scripts/python; needs PyTango
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/e2e"), str(ROOT / "tests/python")]
os.environ["KONKORDIA_BIN"] = sys.argv[1]
seconds = float((sys.argv[2:] or [10])[0])
SHAPES = {"512 x 1024": (512, 1024), "2162 x 2068": (2162, 2068)}
SENT_HZ = 40


def cpu_s(process):
    """Seconds that a process has computed."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(shape, folder):
    import konkordia
    import numpy as np
    import tango
    from streams import StreamService
    from tango_loop import Server

    service = StreamService(folder, output="write = false")
    server = Server(service.url)
    try:
        got, newest, begun = [], [], threading.Event()

        def take(event):
            if not event.err and event.attr_value.quality == tango.AttrQuality.ATTR_VALID:
                got.append(time.monotonic())
                newest[:] = [event.attr_value.value]
                begun.set()

        one = server.device.subscribe_event("Image", tango.EventType.CHANGE_EVENT, take)

        sent = [
            "--shape",
            f"{shape[0]}x{shape[1]}",
            "--dtype",
            "uint16",
            "--rate",
            str(SENT_HZ),
            "--images",
            str(int(SENT_HZ * (seconds + 3))),
        ]
        sender = subprocess.Popen(
            [sys.argv[1], "stream", "--protocol", "stins", *sent, "--to", service.addresses[0], "--connect", "-q"],
            stdout=subprocess.DEVNULL,
        )
        begun.wait(20)
        time.sleep(1)
        before, first, start = [cpu_s(one.process) for one in (server, service)], len(got), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - start
        events = len(got) - first
        device_s, service_s = (cpu_s(one.process) - then for one, then in zip((server, service), before, strict=True))
        sender.wait(60)
        time.sleep(1)
        server.device.unsubscribe_event(one)
        with konkordia.Client(service.url) as client:
            if not np.array_equal(newest[0], client.image().pixels):
                sys.exit("the pixels differ")
        return {"events_hz": events / took, "device_cores": device_s / took, "service_cores": service_s / took}
    finally:
        server.close()
        service.close()


def main():
    report = {"sent_hz": SENT_HZ}
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            report[name] = measure(shape, folder)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
