"""Drives an acquisition with the slsdet client of the SLS detector package. Run in the environment of the peers:
sls_client.py '{"kind": ...}'

Prints one line of JSON at the end. With "wait" it prints "ready" and waits for a line on standard input before it
starts the detector.
"""

import json
import os
import sys
import time

task = json.loads(sys.argv[1])
os.environ["SLSDETNAME"] = f"konkordia{os.getpid()}"

from slsdet import Detector  # noqa: E402  the name of its shared memory is taken at import
from slsdet._slsdet import freeSharedMemory  # noqa: E402
from slsdet.enums import fileFormat, runStatus  # noqa: E402

number = os.getpid() % 10000
detector = Detector(number)
try:
    halves = task.get("halves", 1)
    detector.setVirtualDetectorServers(halves, task["port"])
    if "receiver" in task:
        detector.rx_hostname = f"localhost:{task['receiver']}"
        detector.udp_dstip, detector.udp_srcip = "auto", "127.0.0.1"
    else:
        detector.udp_dstip, detector.udp_srcip, detector.udp_dstmac = "127.0.0.1", "127.0.0.1", "11:22:33:44:55:66"
    for half in range(halves):
        ports_each = 2 if task["kind"] == "eiger" else 1
        detector.setDestinationUDPPort(task["udp"] + ports_each * half, half)
        if ports_each == 2:
            detector.setDestinationUDPPort2(task["udp"] + ports_each * half + 1, half)
    if task["kind"] == "jungfrau":
        detector.powerchip = True
    else:
        detector.tengiga, detector.dr = True, task["bits"]
    detector.frames, detector.period, detector.exptime = task["frames"], 0.05, 0.001
    if "receiver" in task:
        detector.fformat, detector.fpath, detector.fname = fileFormat.BINARY, task["folder"], "run"
        detector.fwrite, detector.findex = True, 0
    report = {"client": detector.clientversion, "first": []}
    for _ in range(task.get("acquisitions", 1)):
        report["first"].append(detector.nextframenumber if isinstance(detector.nextframenumber, int) else detector.nextframenumber[0])
        if task.get("wait"):
            print("ready", flush=True)
            sys.stdin.readline()
        if "receiver" in task:
            detector.acquire()
            continue
        detector.startDetector()
        end = time.monotonic() + 60
        while (status := detector.status) not in (runStatus.IDLE, runStatus.STOPPED, [runStatus.IDLE] * halves):
            assert time.monotonic() < end, status
            time.sleep(0.05)
    print(json.dumps(report))
finally:
    freeSharedMemory(number)
