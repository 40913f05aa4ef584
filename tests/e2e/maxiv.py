"""A detector of `detectors.yaml` as at MAX IV: its sender(s), the program in place of the streaming-receiver, and a
consumer."""

import json
import struct
import time
import urllib.request

import pytest
import zmq
from service import Service, free_port

DSET = "/entry/instrument/zyla/data"


class Receiver:
    """A running detector of `detectors.yaml`, with its sender(s) and a consumer."""

    def __init__(self, folder, entry, *, hosts=("127.0.0.1",), ports=None, options=(), consume=True):
        self.folder, self.context = folder, zmq.Context()
        self.ports = list(ports or [])
        self.senders = []
        for n, host in enumerate(hosts):
            sender = self.context.socket(zmq.PUSH)
            sender.linger = 0
            if ports is None:
                self.ports.append(sender.bind_to_random_port(f"tcp://{host}"))
            else:
                sender.bind(f"tcp://{host}:{ports[n]}")
            self.senders.append(sender)
        self.api_port, self.data_port = free_port(), free_port()
        lines = {
            "class": "Detector",
            "dcu_host_purple": json.dumps(list(hosts)) if len(hosts) > 1 else hosts[0],
            "dcu_port_purple": json.dumps(self.ports) if len(hosts) > 1 else self.ports[0],
            "api_port": self.api_port,
            "data_port": self.data_port,
            "dset_name": DSET,
            "rep_port": 1,
        } | entry
        config = folder / "detectors.yaml"
        config.write_text("other:\n  class: Detector\n  dcu_host_purple: x\n  dset_name: /a/b\nzyla:\n" + "".join(f"  {k}: {v}\n" for k, v in lines.items()))
        self.service = Service(config, "--detector", "zyla", "--data-root", folder, *options)
        self.consumer = self.context.socket(zmq.PULL)
        self.consumer.linger = 0
        self.consumer.rcvtimeo = 20_000
        if consume:
            self.consumer.connect(f"tcp://127.0.0.1:{self.data_port}")
            self.service.consumers_connect()
        self.number = self.runs = 0

    def send(self, *parts, sender=0, number=None):
        first = {"msg_number": self.number if number is None else number} | parts[0]
        self.number = max(self.number, first["msg_number"] + 1)
        rest = [json.dumps(part).encode() if isinstance(part, dict) else bytes(part) for part in parts[1:]]
        self.senders[sender].send_multipart([json.dumps(first).encode(), *rest])

    def get(self, path, method="GET"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.api_port}/{path}", method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.headers["Content-Type"], answer.read()

    def run(self, severity):
        """The status of the next run, once it has ended and its files are closed. Call it once for each run."""
        self.runs += 1
        done = self.service.until(lambda s: s["state"] in ("idle", "error") and s["ended"] and s["run"] == self.runs, 60)
        assert done["severity"] == severity, (done, "".join(self.service.log))
        return done

    def is_logged(self, *words):
        """Whether a line of the log contains all of these words."""
        return any(all(word in line for word in words) for line in self.service.log)

    def json(self, path, method="GET"):
        return json.loads(self.get(path, method)[1])

    def until(self, state, frames=None, why=""):
        end = time.monotonic() + 20
        while True:
            # Asks for the frames first: "idle" after them then means the end of the series, not the time before it.
            received = self.json("received_frames")["value"]
            status = self.json("status")
            if status["state"] == state and why in status.get("error", "") and frames in (None, received):
                return status
            assert time.monotonic() < end, (status, self.json("received_frames"), "".join(self.service.log))
            time.sleep(0.02)

    def receive(self):
        first, *rest = self.consumer.recv_multipart()
        return json.loads(first), rest

    def close(self):
        if self.service.process.poll() is None:
            assert self.service.end()[0] == 0
        self.context.destroy(linger=0)


def header(filename, **more):
    return {"htype": "header", "filename": str(filename)} | more


def image(frame, data, compression="none", **more):
    return {"htype": "image", "frame": frame, "shape": list(data.shape), "type": str(data.dtype), "compression": compression} | more


END = {"htype": "series_end"}


def numbers(file):
    return list(file[DSET].parent["sequence_number"][:])


def bslz4(data):
    bitshuffle = pytest.importorskip("bitshuffle")
    return struct.pack(">QI", data.nbytes, 8192) + bitshuffle.compress_lz4(data).tobytes()


def cbf_of(data, folder):
    fabio = pytest.importorskip("fabio")
    name = folder / "frame.cbf"
    fabio.cbfimage.CbfImage(data=data).write(str(name))
    return name.read_bytes()
