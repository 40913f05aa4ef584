"""Prints as JSON what the EPICS server (python -m konkordia.epics) costs while a client of another process gets every image
of a stream as NTNDArray: the part of a core that the server uses, and how many images came.

usage: epics.py PROGRAM [SECONDS]       after scripts/python
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests"), str(ROOT / "tests/e2e"), str(ROOT / "tests/python")]
CASES = {
    "512x1024_uint16_100_hz": ((512, 1024), "uint16", 100),
    "4m_uint16_10_hz": ((2162, 2068), "uint16", 10),
    "4m_uint32_10_hz": ((2162, 2068), "uint32", 10),
}
TICKS_HZ = os.sysconf("SC_CLK_TCK")
COUNT = """
import json, sys, time
from p4p.client.thread import Context
name, images, conf = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
numbers = []
def on_image(value):
    if value["value"] is not None:
        numbers.append((value["uniqueId"], time.time() - value["timeStamp.secondsPastEpoch"] - 1e-9 * value["timeStamp.nanoseconds"]))
context = Context("pva", conf=conf, useenv=False, nt=False)
subscription = context.monitor(name, on_image, request="field()record[queueSize=20]")
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[4])
while time.monotonic() < end and not (numbers and numbers[-1][0] == images - 1):
    time.sleep(0.05)
print(json.dumps(numbers))
context.close()
"""


def used_s(pid):
    """Seconds of processor time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_HZ


def measure(service, server, shape, dtype, rate_hz, seconds):
    from epics_server import PREFIX
    from streams import Stins, pictures

    images = int(rate_hz * seconds)
    sent = pictures(4, shape, dtype)
    server.put("AutoSave", 0)
    server.put("NumImages", images)
    server.put("Arm", 1)
    arguments = [f"{PREFIX}Pva1:Image", str(images), json.dumps(server.client_environment), str(seconds + 10)]
    client = subprocess.Popen([sys.executable, "-c", COUNT, *arguments], stdout=subprocess.PIPE, text=True)
    client.stdout.readline()
    time.sleep(1)
    sender = Stins()
    service.send(sender.start())
    before_s, began = used_s(server.process.pid), time.perf_counter()
    for number in range(images):
        time.sleep(max(0.0, began + number / rate_hz - time.perf_counter()))
        service.send(sender.image(number, sent[number % len(sent)]))
    took_s = time.perf_counter() - began
    cores = (used_s(server.process.pid) - before_s) / took_s
    service.send(sender.end())
    found = json.loads(client.communicate(timeout=seconds + 30)[0])
    late_ms = sorted(1e3 * late_s for _, late_s in found)
    return {
        "cores": cores,
        "images_sent": images,
        "images_at_client": len({number for number, _ in found}),
        "rate_hz": images / took_s,
        "from_ring_to_client_ms": {"median": late_ms[len(late_ms) // 2], "p95": late_ms[len(late_ms) * 95 // 100]},
    }


def main():
    os.environ["KONKORDIA_BIN"] = sys.argv[1]
    from epics_server import EpicsServer
    from streams import StreamService

    seconds = float((sys.argv[2:] or [20])[0])
    report = {}
    for name, (shape, dtype, rate_hz) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            service = StreamService(folder)
            try:
                server = EpicsServer(service.url)
                try:
                    report[name] = measure(service, server, shape, dtype, rate_hz, seconds)
                finally:
                    server.close()
            finally:
                service.close()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
