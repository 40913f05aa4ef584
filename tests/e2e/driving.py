"""Drives the built program as a user does: configuration files, command lines, sockets, files, exit codes."""

import contextlib
import json
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from ports import free_ports  # noqa: E402  shared by all folders of tests

BINARY = os.environ.get("KONKORDIA_BIN", str(ROOT / "target" / "release" / "konkordia"))
DATA = pathlib.Path(os.environ.get("KONKORDIA_DATA", ROOT.parent / "shared" / "data"))
LYSO = DATA / "jungfrau-lyso"
EIGER = DATA / "eiger-udp"

PACKET_ROWS = 4  # rows of a JUNGFRAU packet
HEADER_BYTES = 48

# Special values of the output types, docs/formats.md.
MISSING = {"int16": -32766, "int32": -(2**31) + 2, "uint16": 65535, "uint32": 2**32 - 1}
MASKED = {"int16": -32768, "int32": -(2**31), "uint16": 65534, "uint32": 2**32 - 2}
SATURATED = {"int16": 32767, "int32": 2**31 - 1, "uint16": 65532, "uint32": 2**32 - 4}

needs_lyso = pytest.mark.skipif(not LYSO.is_dir(), reason=f"no real frames in {LYSO}")
needs_eiger = pytest.mark.skipif(not EIGER.is_dir(), reason=f"no real packets in {EIGER}")


def program(*arguments, check=None, timeout=60, **options):
    """Runs the program to its end; `check` is the exit code that it must have."""
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **options)
    if check is not None:
        assert done.returncode == check, f"exit code {done.returncode}, expected {check}\n{done.stdout}\n{done.stderr}"
    assert "panicked" not in done.stderr and "RUST_BACKTRACE" not in done.stderr, done.stderr
    return done


@contextlib.contextmanager
def demo_service(folder, rate):
    """`konkordia demo` that goes on serving: gives the address of a service with a simulated JUNGFRAU, which sends a series
    after each start, `rate` images per second."""
    command = [BINARY, "demo", "--keep-serving", "--images", "16", "--rate", str(rate), "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


class Receiver:
    """`konkordia receive --json` in the background, armed."""

    def __init__(self, config, **options):
        self.process = subprocess.Popen(
            [BINARY, "receive", "--json", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )
        self.events = []
        self.errors = ""
        self._queue = queue.Queue()
        self._threads = [threading.Thread(target=self._read_events), threading.Thread(target=self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read_events(self):
        for line in self.process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def wait_for(self, event, timeout=30):
        end = time.monotonic() + timeout
        while True:
            found = self._queue.get(timeout=max(0.01, end - time.monotonic()))
            if found is None:
                self.finish()
                raise AssertionError(f"ended without '{event}', exit code {self.process.returncode}\n{self.errors}")
            self.events.append(found)
            if found["event"] == event:
                return found

    def wait_until(self, condition, timeout=30):
        """Waits for a progress event that fulfils the condition."""
        while True:
            progress = self.wait_for("progress", timeout)
            if condition(progress):
                return progress

    def last_progress(self):
        """The newest progress event, without waiting."""
        while not self._queue.empty():
            found = self._queue.get()
            if found is not None:
                self.events.append(found)
        return [e for e in self.events if e["event"] == "progress"][-1]

    def signal(self, number):
        self.process.send_signal(number)

    def finish(self, timeout=60):
        """Waits for the end; returns (exit code, report or None)."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for thread in self._threads:
            thread.join()
        while not self._queue.empty():
            found = self._queue.get()
            if found is not None:
                self.events.append(found)
        # A failure is reported as JSON too. Tests look for its texts in `errors`.
        self.errors += "".join("\n".join(map(str, e["error"].values())) for e in self.events if e["event"] == "error")
        assert "panicked" not in self.errors, self.errors
        reports = [e for e in self.events if e["event"] == "report"]
        return self.process.returncode, (reports[-1] if reports else None)


class Bench:
    """A folder with a configuration, and the receivers started from it."""

    def __init__(self, folder):
        self.folder = folder
        self.receivers = []

    def config(self, streams=1, **tables):
        """Writes run.toml from {table: {key: value}}, with free ports."""
        self.port = free_ports(streams)
        tables = {name: dict(values) for name, values in tables.items()}
        tables.setdefault("source", {}).update(address="127.0.0.1", first_port=self.port)
        tables.setdefault("output", {}).setdefault("directory", str(self.folder))
        tables["output"].setdefault("prefix", "run")
        tables.setdefault("run", {}).setdefault("buffer_mib", 128)
        tables["run"].setdefault("start_timeout_s", 20)
        tiles = tables["detector"].pop("tile", [])
        lines = []
        for name, values in tables.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {toml(value)}" for key, value in values.items()]
            if name == "detector":
                for tile in tiles:
                    lines.append("[[detector.tile]]")
                    lines += [f"{key} = {toml(value)}" for key, value in tile.items()]
        path = self.folder / "run.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def receive(self, config, **options):
        receiver = Receiver(config, **options)
        self.receivers.append(receiver)
        receiver.wait_for("armed")
        return receiver

    @property
    def to(self):
        return f"127.0.0.1:{self.port}"

    @property
    def master(self):
        return self.folder / "run_master.h5"


def mount_small_disk(folder):
    """Mounts a tmpfs of 24 MiB over the folder; returns whether that is permitted here."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def ext4_over(folder):
    """Mounts a file system of 128 MiB over the folder, which `frozen` can hold; skips the test where that is not possible."""
    image, mounted = folder.with_name(folder.name + ".ext4"), False
    try:
        if os.geteuid() == 0 and all(shutil.which(tool) for tool in ("mkfs.ext4", "mount", "fsfreeze")):
            with open(image, "wb") as file:
                file.truncate(128 << 20)
            made = subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", image], capture_output=True, check=False)
            mount = ["mount", "-o", "loop", image, folder]
            mounted = made.returncode == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if not mounted:
            pytest.skip("needs root, mkfs.ext4, fsfreeze and a loop device")
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)
        image.unlink(missing_ok=True)


@contextlib.contextmanager
def frozen(folder):
    """Whatever writes into the folder waits."""
    subprocess.run(["fsfreeze", "--freeze", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", folder], check=True)


def toml(value):
    return json.dumps(value) if not isinstance(value, float) else repr(value)


def simulate(*arguments, timeout=60):
    """Runs `konkordia simulate`; returns its report of what was sent."""
    done = program("simulate", *arguments, "--json", "--quiet", check=0, timeout=timeout)
    return json.loads(done.stdout)


class Master:
    """All images of a run, read through its master file by h5py."""

    def __init__(self, path):
        with h5py.File(path, "r") as f:
            data = f["/entry/data"]
            self.images = data[data.attrs["signal"]][()]
            self.mask = f["/entry/instrument/detector/pixel_mask"][()]
            columns = f["/entry/konkordia/images"]
            self.columns = {name: columns[name][()] for name in columns if isinstance(columns[name], h5py.Dataset)}

    def arrived(self, image, packets):
        """Which packets of an image arrived: booleans (tile, packet)."""
        words = self.columns["packet_bitmap"][image]
        packet = np.arange(packets)
        return (words[:, packet // 64] >> (packet % 64).astype(np.uint64) & np.uint64(1)).astype(bool)


def balanced(code, report):
    """Checks that the exit code is that of the report and that every sum of the ledger balances."""
    assert report is not None and report["balances"], report
    for stream in report["streams"]:
        verdicts = ["placed", "duplicate", "late", "no_slot", "foreign", *(k for k in stream if k.startswith("malformed"))]
        assert stream["received"] == sum(stream[v] for v in verdicts), stream
    images = report["images"]
    assert images["expected"] == sum(images[k] for k in ("complete", "partial", "lost", "discarded")), images
    assert images["packets_placed"] + images["packets_missing"] == images["expected"] * report["packets_per_image"]
    assert report["exit_code"] == code


def lyso_tables(**run):
    """The configuration of the module whose real frames are in LYSO."""
    return {
        "detector": {"type": "jungfrau", "energy_kev": 12.4, "detector_distance_mm": 100.0},
        "calibration": {
            "kind": "files",
            "pedestal": [str(LYSO / f"pedestal_g{g}.f32") for g in range(3)],
            "gain": str(LYSO / "gain_adu_per_kev.f32"),
        },
        "run": run,
    }


def lyso_raw():
    return sorted(LYSO.glob("raw_*.u16"))


def raw_tables(modules=1, interfaces=1, **run):
    """A JUNGFRAU that stores raw words, without a calibration."""
    return {
        "detector": {"type": "jungfrau", "modules": modules, "interfaces": interfaces, "detector_distance_mm": 100.0, "energy_kev": 12.4},
        "processing": {"dtype": "raw"},
        "run": run,
    }


class PacedSocket(socket.socket):
    """Sends datagrams to receivers on this machine as fast as they are taken: before a receive buffer can overflow, it
    waits until little is left there. A busy machine makes a test slower, then, and not wrong; but its pauses show, so it is not
    for tests of how a run begins."""

    WAITING_MAX_BYTES, BETWEEN_LOOKS_BYTES, WAIT_S = 32 << 10, 64 << 10, 5

    def __init__(self):
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self.since_look_bytes, self.ports = 0, set()

    def sendto(self, datagram, address):
        self.since_look_bytes += len(datagram) + 512
        self.ports.add(address[1])
        if self.since_look_bytes > self.BETWEEN_LOOKS_BYTES:
            end = time.monotonic() + self.WAIT_S
            while self._waiting_bytes() > self.WAITING_MAX_BYTES and time.monotonic() < end:
                time.sleep(0.0005)
            self.since_look_bytes, self.ports = 0, set()
        return super().sendto(datagram, address)

    def _waiting_bytes(self):
        """The bytes in the fullest of the receive buffers. Fields of /proc/net/udp: number, local address:port, remote
        address:port, state, tx_queue:rx_queue, all in hexadecimal."""
        lines = [line.split() for line in pathlib.Path("/proc/net/udp").read_text(encoding="ascii").splitlines()[1:]]
        waiting = [int(line[4].split(":")[1], 16) for line in lines if int(line[1].split(":")[1], 16) in self.ports]
        return max(waiting, default=0)


def jungfrau_packet(frame, packet, fill=0, kind=3, version=2):
    """One datagram of a JUNGFRAU with one interface."""
    header = bytearray(HEADER_BYTES)
    header[0:8] = frame.to_bytes(8, "little")
    header[12:16] = packet.to_bytes(4, "little")
    header[46], header[47] = kind, version
    return bytes(header) + bytes([fill]) * 8192


INTERRUPT, TERMINATE = signal.SIGINT, signal.SIGTERM
