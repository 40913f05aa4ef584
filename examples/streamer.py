"""Makes a stream of the frames of a detector's SDK: start `konkordia serve` with this as its upstream, then this.

usage: streamer.py ADDRESS [IMAGES]        for example streamer.py "tcp://*:9999" 1000
"""

import sys

import konkordia
import numpy as np

ROWS, COLUMNS = 512, 1024


def frames_of_sdk(count):
    """Stands for the SDK of a detector: it fills one buffer again and again."""
    buffer = np.empty((ROWS, COLUMNS), np.uint16)
    background = np.random.default_rng(1).poisson(3, buffer.shape).astype(np.uint16)
    for number in range(count):
        buffer[:] = background
        buffer[number % ROWS] = number
        yield number, buffer


def main(address, images):
    with konkordia.Streamer(
        address, protocol="stins", shape=(ROWS, COLUMNS), dtype="uint16", compression="bslz4", queue_images=64, full="wait"
    ) as out:
        print(f"listening at {out.url}", flush=True)
        out.series(images, metadata={"photon_energy": 12400.0, "count_time": 0.001})
        for number, frame in frames_of_sdk(images):
            out.send(frame, number)
        out.end()
    print(f"{out.sent} images sent, {out.dropped} dropped, {out.bytes_sent / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
