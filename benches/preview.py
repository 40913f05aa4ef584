"""Prints as JSON what the newest images, which a service keeps for HTTP, cost while nobody looks: processor time per image of `konkordia serve`, without them and with the default of 16, by compression. One module over loopback, the loopback standing in for a network; the simulator is not counted.

usage: preview.py PROGRAM [IMAGES]
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
program, images = sys.argv[1], int((sys.argv[2:] or [800])[0])
os.environ["KONKORDIA_BIN"] = program

from driving import raw_tables  # noqa: E402  the program's path is read when it is imported
from service import Service, free_port, write_config  # noqa: E402

RATE_HZ, REPEATS = 100, 3


def processor_ms_per_image(compression, ring_images):
    """Of a whole run: reception, compression, file in memory, closing."""
    folder, port = pathlib.Path(tempfile.mkdtemp(prefix="konkordia-bench-", dir="/dev/shm")), free_port()
    tables = raw_tables(images=images, buffer_mib=256)
    detector = {"type": "jungfrau"}
    tables = {**tables, "service": {"ring_images": ring_images}, "output": {"compression": compression}}
    tables.pop("detector")
    service = Service(write_config(folder, port, detector=detector, **tables))
    try:
        service.command("arm")
        send = [program, "simulate", "jungfrau", "--to", f"127.0.0.1:{port}", "--images", str(images), "--rate", str(RATE_HZ)]
        subprocess.run(send, check=True, capture_output=True)
        service.wait(60)
        with open(f"/proc/{service.process.pid}/stat", encoding="utf-8") as file:
            user, system = file.read().rsplit(")", 1)[1].split()[11:13]
        message = service.status()["message"]
        assert f"{images} of {images} images complete" in message, message
        return 1000 * (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") / images
    finally:
        service.end()
        shutil.rmtree(folder)


def main():
    report = {"images": images, "rate_hz": RATE_HZ, "repeats": REPEATS}
    for compression in ("bslz4", "zstd"):
        # In turn, so that what else the machine does strikes both alike.
        pairs = [[processor_ms_per_image(compression, ring) for ring in (0, 16)] for _ in range(REPEATS)]
        without, kept = (statistics.median(column) for column in zip(*pairs))
        report[compression] = {"without_ms": without, "kept_ms": kept, "over_without": kept / without}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
