"""Prints as JSON how many images per second `konkordia serve` and the streaming-receiver of MAX IV write to files, by size of an image, in one run and in turns. Both read the same configuration of detectors, get the same messages from the same sender (`konkordia stream`, a process of its own) over loopback, and write to memory; a rate is from the first message until the program says that its file is closed.

usage: stream_peer.py PROGRAM PYTHON      PYTHON: that of an environment with the streaming-receiver (tests/peers/programs.toml)
"""

import contextlib
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/peers"), str(ROOT / "tests/e2e"), str(ROOT / "tests")]
program, python = sys.argv[1:3]
os.environ["KONKORDIA_BIN"] = program

import h5py  # noqa: E402
import hdf5plugin  # noqa: E402, F401  registers the filters
from ports import free_ports  # noqa: E402
from programs import HERE, running, wait_until  # noqa: E402
from service import Service  # noqa: E402
from test_streaming_receiver import DSET, Http  # noqa: E402

SIZES, REPEATS, BYTES, IMAGES_MAX = (20_000, 200_000, 2_000_000, 20_000_000), 3, 1_500_000_000, 30_000
LISTENS_HOST = "127.83.0.1"


@contextlib.contextmanager
def peer(config, log):
    with running(python, HERE / "run_streaming_receiver.py", config, "own", log=log, cwd=log.parent) as process:
        yield process


@contextlib.contextmanager
def konkordia(config, log):
    service = Service(config, "--detector", "own", "--data-root", log.parent)
    try:
        yield service.process
    finally:
        service.end()


def rate_hz(start, size, images):
    """Images per second of one series. The file is looked into."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="konkordia-bench-", dir="/dev/shm"))
    first = free_ports(3)
    entry = {"class": "Detector", "dcu_host_purple": LISTENS_HOST, "dset_name": DSET, "api_port": first, "data_port": first + 1}
    config = folder / "detectors.yaml"
    config.write_text(json.dumps({"own": entry}))
    send = [program, "stream", "--protocol", "stins", "--rate", "0", "--compression", "none", "--size", str(size), "--images", str(images)]
    send += ["--filename", str(folder / "file.h5"), "--to", f"tcp://{LISTENS_HOST}:9999", "--quiet", "--json"]
    try:
        with start(config, folder / "log") as process:
            http = Http(first)

            def state():
                assert process.poll() is None, "it has ended"
                return http.json("status")["state"]

            wait_until(lambda: state() == "idle", what="the receiver")
            with subprocess.Popen(send, stdout=subprocess.DEVNULL) as sender:
                wait_until(lambda: state() != "idle", what="the first message")
                begin = time.monotonic()
                while state() != "idle":
                    assert time.monotonic() - begin < 300, "it takes too long"
                    time.sleep(0.01)
                seconds = time.monotonic() - begin
                assert sender.wait(30) == 0
            with h5py.File(folder / "file.h5") as file:
                data = file[DSET]
                assert data.shape[0] == images and math.prod(data.shape[1:]) * data.dtype.itemsize == size, data.shape
                assert data[images - 1].any()
        return images / seconds
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    rows = []
    for size in SIZES:
        images = max(50, min(BYTES // size, IMAGES_MAX))
        pairs = [[rate_hz(start, size, images) for start in (konkordia, peer)] for _ in range(REPEATS)]
        ours, theirs = (statistics.median(column) for column in zip(*pairs))
        ratios = [ours / theirs for ours, theirs in pairs]
        row = {"name": f"{size} bytes to file", "image_bytes": size, "images": images, "rate_hz": ours, "peer_hz": theirs}
        rows.append(row | {"over_peer": statistics.median(ratios), "over_peer_lowest": min(ratios), "over_peer_highest": max(ratios)})
        print(f"{size} bytes: {ours:.0f} and {theirs:.0f} images/s, {statistics.median(ratios):.1f} times", file=sys.stderr)
    print(json.dumps({"repeats": REPEATS, "network": "loopback", "rows": rows}))


if __name__ == "__main__":
    main()
