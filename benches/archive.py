"""Prints as JSON how long `konkordia archive` takes beside `repack --compression bszstd` of the same run, without and with `--verify`: alternately, median of the ratios.

The archive also makes SHA-256 of every source and every file of the bag and CRC-32 of each chunk, and brings them to the disk. What the sums alone take is measured too, with hashlib.

usage: archive.py PROGRAM [DATA] [--copies N] [--repeats N] [--folder DIR]
       DATA holds raw_*.u16 of one module with pedestals and gains (../shared/data/jungfrau-lyso); without it images are made up
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("data", nargs="?", type=pathlib.Path)
parser.add_argument("--copies", type=int, default=40, help="how often the frames of DATA are in the run")
parser.add_argument("--repeats", type=int, default=7)
parser.add_argument("--folder", default="/dev/shm")
options = parser.parse_args()


def konkordia(*arguments):
    """Seconds that the program took."""
    begun = time.perf_counter()
    subprocess.run([options.program, *map(str, arguments)], check=True, capture_output=True)
    return time.perf_counter() - begun


def make(folder):
    """A run packed with bslz4."""
    folder.mkdir()
    if options.data is None:
        konkordia("demo", "--images", 10 * options.copies, "--dir", folder, "--listen", "127.0.0.1:0")
        return next(folder.glob("*_master.h5"))
    raw = sorted(options.data.glob("raw_*.u16")) * options.copies
    konkordia("convert", *raw, "-o", folder / "run", "--calibration", options.data, "--energy-kev", "12.4", "--quiet")
    return folder / "run_master.h5"


def one_round(work, master):
    """Seconds of each way, with what they wrote removed afterwards."""
    out, bag = work / "out", work / "bag"
    seconds = {}
    for name, more in (("repack", []), ("repack_verified", ["--verify"])):
        out.mkdir()
        seconds[name] = konkordia("repack", master, "-o", out, "--compression", "bszstd", *more, "--quiet")
        shutil.rmtree(out)
    seconds["archive"] = konkordia("archive", master.parent, "-o", bag, "--quiet")
    begun = time.perf_counter()
    for path in filter(pathlib.Path.is_file, [*master.parent.rglob("*"), *(bag / "data").rglob("*")]):
        hashlib.sha256(path.read_bytes()).digest()
    seconds["sums_alone"] = time.perf_counter() - begun
    konkordia("archive", "--check", bag)
    shutil.rmtree(bag)
    return seconds


def main():
    with tempfile.TemporaryDirectory(prefix="konkordia-bench-", dir=options.folder) as folder:
        work = pathlib.Path(folder)
        master = make(work / "run")
        size = sum(path.stat().st_size for path in master.parent.rglob("*") if path.is_file())
        one_round(work, master)
        rounds = [one_round(work, master) for _ in range(options.repeats)]
    seconds = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    of = {name: statistics.median(each["archive"] / each[name] for each in rounds) for name in ("repack", "repack_verified")}
    print(json.dumps({"source_bytes": size, "repeats": options.repeats, "seconds": seconds, "archive_of": of, "verified": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
