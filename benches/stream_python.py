"""Prints as JSON how many images per second `konkordia.stream` unpacks into an array of numpy, beside plain pyzmq with the
same decompression into the same array and nothing else: no text is parsed, no number is looked at. STINS and bslz4; the
sender is a process of its own that sends the same messages again and again. Pixels are compared.

usage: stream_python.py [IMAGES]        after scripts/python
"""

import json
import multiprocessing
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/e2e")]
import konkordia  # noqa: E402
import numpy as np  # noqa: E402
import zmq  # noqa: E402

SIZES = {"512x1024": (512, 1024), "4m": (2162, 2068)}
PAIRS = 5


def image(shape):
    return np.random.default_rng(1).poisson(0.5, shape).astype("uint16")


def send(port, shape, images):
    """One series: a start, the images, an end."""
    chunk = konkordia.compress(image(shape), "bslz4")
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.sndhwm, socket.linger = 100, -1
    socket.bind(f"tcp://127.0.0.1:{port}")
    socket.send(b'{"htype":"header","msg_number":0,"filename":""}')
    for number in range(images):
        first = {"htype": "image", "msg_number": number + 1, "frame": number, "shape": shape, "type": "uint16", "compression": "bslz4"}
        socket.send_multipart([json.dumps(first).encode(), chunk], copy=False)
    socket.send(json.dumps({"htype": "series_end", "msg_number": images + 1}).encode())
    context.destroy()


def plain(url, shape, images, out):
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.rcvhwm = 64
    socket.connect(url)
    socket.recv()
    begun = None
    for number in range(images):
        parts = socket.recv_multipart()
        konkordia.decompress(parts[1], codec="bslz4", out=out)
        if number == 0:
            begun = time.perf_counter()
    seconds = time.perf_counter() - begun
    context.destroy(linger=0)
    return (images - 1) / seconds


def ours(url, shape, images, out):
    begun = seconds = None
    with konkordia.stream(url, timeout_s=30) as stream:
        for frame in stream:
            frame.read(out)
            if frame.number == 0:
                begun = time.perf_counter()
            elif frame.number == images - 1:
                seconds = time.perf_counter() - begun
    if stream.received != images or stream.lost:
        sys.exit(f"{stream}")
    return (images - 1) / seconds


def measured(receive, shape, images):
    out = np.zeros(shape, "uint16")
    context = zmq.Context()
    with context.socket(zmq.PUSH) as free:
        port = free.bind_to_random_port("tcp://127.0.0.1")
    context.term()
    sender = multiprocessing.get_context("spawn").Process(target=send, args=(port, shape, images))
    sender.start()
    rate_hz = receive(f"tcp://127.0.0.1:{port}", shape, images, out)
    sender.join()
    if not np.array_equal(out, image(shape)):
        sys.exit("the pixels differ")
    return rate_hz


def main():
    images = int((sys.argv[1:] or [2000])[0])
    report = {"images": images}
    for name, shape in SIZES.items():
        count = images if name == "512x1024" else images // 5
        pairs = [(measured(ours, shape, count), measured(plain, shape, count)) for _ in range(PAIRS)]
        stream_hz, plain_hz = (statistics.median(rates) for rates in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        report[name] = {"stream_hz": stream_hz, "plain_hz": plain_hz, "stream_of_plain": ratio}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
