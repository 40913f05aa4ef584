"""Trains of European XFEL, written from docs/protocols.md 7 with numpy, and `konkordia trains` as a user starts it."""

import json
import signal
import socket
import struct
import subprocess
import time

import numpy as np

import driving

SHAPES = {"lpd": (1, 256, 256), "dssc": (1, 128, 512), "agipd": (2, 512, 128)}
SPECIFIC = {"lpd": 416, "dssc": 416, "agipd": 5408}
NAMES = {"lpd": "FXE_DET_LPD1M-1", "dssc": "SCS_DET_DSSC1M-1", "agipd": "SPB_DET_AGIPD1M-1"}
BEGIN, END = 0x58544446BEEFFACE, 0x58544446DEADABCD
DATA = 8184
FIRST_ID = 1_000_000_000


def on_the_wire(model, images):
    """The pixels in the order in which the detector sends them: LPD walks over the pixels of a chip from the bottom row
    up, and for each over all chips, from the bottom row of chips up."""
    if model != "lpd":
        return images
    # (image, chip row, pixel row, chip column, pixel column)
    chips = images.reshape(-1, 8, 32, 16, 16)
    return chips[:, ::-1, ::-1].transpose(0, 2, 4, 1, 3)


class Detector:
    """Modules with random pixels that are known."""

    def __init__(self, model="lpd", modules=16, images=2, seed=1):
        self.model, self.modules, self.images, self.seed = model, modules, images, seed
        self.pulses = np.arange(images, dtype="<u8") * 4
        self.cells = np.arange(images, dtype="<u2") + 3

    def pixels(self, train, module):
        rng = np.random.default_rng([self.seed, train, module])
        return rng.integers(1, 4096, (self.images, *SHAPES[self.model]), dtype="<u2")

    def bytes_of(self, train, module, train_id=None):
        specific = SPECIFIC[self.model]
        train_id = FIRST_ID + train if train_id is None else train_id
        head = struct.pack("<QIIQQQQIIQ", BEGIN, 2, 1, train_id, 7, 0xFFFFFFFF_00000000 | module, self.images, specific, 0, 0)
        data = np.ascontiguousarray(on_the_wire(self.model, self.pixels(train, module))).tobytes()
        lists = [self.cells, self.pulses, np.zeros(self.images, "<u2"), np.full(self.images, len(data) // self.images, "<u4")]
        padded = b"".join(one.tobytes().ljust(-(-one.nbytes // 32) * 32, b"\0") for one in lists)
        return head + data + padded + bytes([module]) * specific + bytes(24) + struct.pack("<Q", END)

    def packets(self, train, module, **options):
        return packets_of(self.bytes_of(train, module, **options), train + 1)


def packets_of(data, frame):
    parts = [data[at : at + DATA] for at in range(0, len(data), DATA)]
    last = len(parts) - 1
    word = [n | (1 << 31) * (n == 0) | (1 << 30) * (n == last) for n in range(len(parts))]
    return [part + struct.pack("<II", frame, mark) for part, mark in zip(parts, word, strict=True)]


class Trains:
    """The program, and a socket that sends to it."""

    def __init__(self, detector, *options, first_port=None, images_max=None):
        self.detector = detector
        self.first_port = first_port or driving.free_ports(detector.modules)
        command = [driving.BINARY, "trains", "--listen", f"127.0.0.1:{self.first_port}", "--model", detector.model]
        command += ["--modules", str(detector.modules), "--images-max", str(images_max or detector.images), "--json", *map(str, options)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.first_line = self.process.stderr.readline()
        assert "receiving" in self.first_line, self.first_line + "".join(self.process.communicate())

    def send(self, module, packets):
        for packet in packets:
            self.socket.sendto(packet, ("127.0.0.1", self.first_port + module))

    def send_train(self, train, keep=lambda module, packet: True, pause=0.05):
        for module in range(self.detector.modules):
            self.send(module, [p for n, p in enumerate(self.detector.packets(train, module)) if keep(module, n)])
        time.sleep(pause)

    def finish(self, timeout=60):
        """Waits for the end that the options say; the exit code and the report."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert "panicked" not in err, err
        report = json.loads(out) if out else {}
        assert report.get("balances", False), (out, err)
        for module in report["modules"]:
            verdicts = ["placed", "duplicate", "late", "no_room", "malformed", "wrong_magic", "other_detector"]
            assert module["packets"] == sum(module[name] for name in verdicts)
        return self.process.returncode, report

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.finish()
