"""Prints as JSON how long the lysozyme measurement of Leonarski et al. 2020 takes from the first packet to the closed and checked file, in real time and with fewer modules: `konkordia serve` gets 9.2 s of dark frames, of which it takes the pedestals, and then 7.2 s of diffraction at 1.1 kHz, once with every frame as an image, once with sums of five. UDP over loopback, a software stand-in for a network; the simulator shares the processors.

The paper's 14 s (all frames) and 9.2 s (sums of five) are those of eight modules on a server of 48 cores, which received first and converted afterwards. Their 9.2 s is called the time of the collection itself, so the paper's frames without beam are likely within it; here they come before the beam, and both readings are given: `chain_s` from the first dark frame, `beam_chain_s` from the first frame with beam.

usage: lysozyme.py PROGRAM [DATA] [--modules N] [--rate HZ] [--dark-s S] [--beam-s S] [--folder DIR]
       DATA holds raw_*.u16 of one module with pedestals and gains (../shared/data/jungfrau-lyso); without it frames are made up
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("data", nargs="?", type=pathlib.Path, help="folder with raw_*.u16 of one module, its pedestals and gains")
parser.add_argument("--modules", type=int, default=1, help="modules that this machine keeps up with (the paper: 8)")
parser.add_argument("--rate", type=float, default=1100, help="frames per second")
parser.add_argument("--dark-s", type=float, default=9.2, help="time without beam")
parser.add_argument("--beam-s", type=float, default=7.2, help="time with beam")
parser.add_argument("--folder", default="/dev/shm", help="where the files go")
options = parser.parse_args()
os.environ["KONKORDIA_BIN"] = options.program

import h5py  # noqa: E402
import hdf5plugin  # noqa: E402, F401  registers the filters
import numpy as np  # noqa: E402
from service import Service, free_ports, write_config  # noqa: E402  the program's path is read when they are imported

MODULE = (512, 1024)
ENERGY_KEV = 12.4
# The storage cell of a JUNGFRAU that uses one.
CELL = 3
# Dark frames that are sent again and again, and their noise in G0.
DARKS, NOISE_ADU = 50, 25.0
# Sums, and the paper's seconds for the whole chain.
CASES = {"every frame": (1, 14.0), "sums of 5": (5, 9.2)}
# Measurements of int16; other values mark pixels without a number.
LOWEST, HIGHEST = -32765, 32766
MISSING = {"int16": -32766, "int32": -(2**31) + 2}


def konkordia(*arguments, **more):
    return subprocess.run([options.program, *map(str, arguments)], check=True, capture_output=True, text=True, **more)


def planes_of(folder):
    """Pedestals of each stage and gains of one module, made up if no data are given."""
    source = options.data
    if source is None:
        source = folder / "made-up"
        konkordia("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", source)
    pedestals = [np.fromfile(source / f"pedestal_g{stage}.f32", "<f4").reshape(MODULE) for stage in range(3)]
    return pedestals, np.fromfile(source / "gain_adu_per_kev.f32", "<f4").reshape(-1, *MODULE)[:3]


def frames_of(pedestals):
    """Words of ten frames with beam of one module."""
    if options.data is not None:
        return [np.fromfile(path, "<u2").reshape(MODULE) for path in sorted(options.data.glob("raw_*.u16"))]
    random = np.random.default_rng(1)
    photons = [random.poisson(0.5, MODULE) for _ in range(10)]
    adu_per_photon = 40 * ENERGY_KEV
    return [(pedestals[0] + random.normal(0, NOISE_ADU, MODULE) + adu_per_photon * n).clip(0, 16383).astype("<u2") for n in photons]


def prepare(folder):
    """Writes the frames that the simulator sends, and a calibration whose pedestals of G0 are 20 ADU wrong; returns the two lists of
    frames."""
    pedestals, gains = planes_of(folder)
    beam, random = frames_of(pedestals), np.random.default_rng(2)
    known = np.nan_to_num(pedestals[0], nan=0.0)
    dark = [(known + random.normal(0, NOISE_ADU, MODULE)).clip(0, 16383).astype("<u2") for _ in range(DARKS)]
    lists = []
    for name, frames in (("dark", dark), ("beam", beam)):
        lists.append([folder / f"{name}_{n:02}.u16" for n in range(len(frames))])
        for path, frame in zip(lists[-1], frames, strict=True):
            np.tile(frame, (options.modules, 1, 1)).tofile(path)
    names = []
    for stage, plane in enumerate([pedestals[0] + 20, *pedestals[1:]]):
        names.append(folder / f"pedestal_{stage}.f32")
        np.tile(plane.astype("<f4"), (options.modules, 1, 1)).tofile(names[-1])
    gain = []
    for stage, plane in enumerate(gains):
        gain.append(folder / f"gain_{stage}.f32")
        np.tile(plane.astype("<f4"), (options.modules, 1, 1)).tofile(gain[-1])
    konkordia("calibration", "import", "--modules", options.modules, "--cell", CELL, "-o", folder / "cal.h5", "--pedestal", *names, "--gain", *gain)
    return lists


def send(port, frames, files, first_frame):
    """Sends frames in a loop. Returns when the first and the last packet were sent, and what the simulator says."""
    command = [options.program, "simulate", "jungfrau", "--to", f"127.0.0.1:{port}", "--modules", options.modules, "--images", frames]
    command += ["--rate", options.rate, "--first-frame", first_frame, "--json", "--quiet", "--raw", *files]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    last = time.monotonic()
    process.communicate(timeout=60)
    sent = json.loads(line)
    assert process.returncode == 0 and sent["packets_sent"] == sent["packets_expected"], sent
    return last - sent["seconds"], last, sent


class Waiting(threading.Thread):
    """Waits until the detector is idle, and notes when that was."""

    def __init__(self, service):
        super().__init__()
        self.service, self.status, self.at = service, None, None
        self.start()

    def run(self):
        self.status = self.service.wait(300)
        self.at = time.monotonic()

    def done(self):
        self.join()
        assert self.status is not None, "the service did not answer"
        return self.at, self.status


def images_of(master, wanted=lambda number: True):
    """Those images of a file whose number is wanted, in their order."""
    number = 0
    with h5py.File(master) as file:
        data = file["/entry/data"]
        for part in (data[name] for name in sorted(data) if name.startswith("data_0")):
            for place in range(len(part)):
                if wanted(number):
                    yield number, part[place]
                number += 1


def verify(master, folder, files, summed, images):
    """Compares images of the file, spread over the run, with what `konkordia convert` makes of the same frames with the pedestals
    that were taken. Plain frames do not say their storage cell, so it gets them as planes."""
    planes, masked = folder / "planes", False
    planes.mkdir()
    with h5py.File(folder / "cal.h5") as file:
        for stage in range(3):
            group = file[f"cell_{CELL:02}/g{stage}"]
            group["mean"][()].astype("<f4").tofile(planes / f"pedestal_g{stage}.f32")
            masked = masked | (group["mask"][()] > 0)
        np.stack([file[f"gain/g{stage}"][()] for stage in range(3)]).astype("<f4").tofile(planes / "gain_adu_per_kev.f32")
    konkordia("convert", *files, "-o", folder / "again", "--calibration", planes, "--energy-kev", ENERGY_KEV, "--modules", options.modules, "--quiet")
    frames = np.stack([frame for _, frame in images_of(folder / "again_master.h5")]).astype(np.int64)
    valid = ((frames >= LOWEST) & (frames <= HIGHEST)).all(0) & ~masked.reshape(frames.shape[1:])
    assert valid.mean() > 0.9, "nearly all pixels have numbers"
    compared = 0
    for number, image in images_of(master, lambda number: number % 97 == 0 or number == images - 1):
        expected = sum(frames[(summed * number + frame) % len(frames)] for frame in range(summed))
        came = valid & (image != MISSING[image.dtype.name])
        assert np.array_equal(image[came], expected[came]), f"image {number} differs"
        compared += 1
    return compared


def measure(folder, lists, summed):
    port = free_ports(options.modules)
    dark_frames, beam_frames = round(options.dark_s * options.rate), round(options.beam_s * options.rate) // summed * summed
    tables = {
        "calibration": {"kind": "konkordia", "file": str(folder / "cal.h5")},
        "processing": {"summation": summed},
        "source": {"receive_buffer_mib": 256},
        "run": {"images": beam_frames // summed, "buffer_mib": 1024, "stall_timeout_s": 5},
        "output": {"prefix": f"lyso{summed}"},
    }
    detector = {"type": "jungfrau", "modules": options.modules, "energy_kev": ENERGY_KEV, "detector_distance_mm": 100.0}
    service = Service(write_config(folder, port, name=f"run{summed}.toml", detector=detector, **tables))
    try:
        service.command("pedestal", {"stage": "g0", "frames": dark_frames})
        waiting = Waiting(service)
        first, last_dark, _ = send(port, dark_frames, lists[0], 1)
        pedestals, status = waiting.done()
        # Frames that this machine is too slow for are missing from the means, and are counted below.
        assert status["ended"] in ("complete", "incomplete") and "has new pedestals" in status["message"], status
        dark = [event for event in service.request("GET", "logs")["logs"] if event["event"] == "pedestal"][-1]["data"]["pedestal"]["rows"]
        service.command("arm")
        armed = time.monotonic()
        waiting = Waiting(service)
        first_beam, last, sent = send(port, beam_frames, lists[1], dark_frames + 1)
        closed, status = waiting.done()
        ledger, master = service.statistics()["ledger"], pathlib.Path(status["file"])
    finally:
        service.end()
    begun = time.monotonic()
    # 1: whole as a file, but packets were lost.
    assert subprocess.run([options.program, "check", str(master)], capture_output=True).returncode in (0, 1)
    checked_s = time.monotonic() - begun
    images = beam_frames // summed
    stored = sum(path.stat().st_size for path in folder.glob(f"lyso{summed}_*.h5"))
    compared = verify(master, folder, lists[1], summed, images)
    return {
        "chain_s": closed - first,
        "chain_and_check_s": closed - first + checked_s,
        "collection_s": last - first,
        "beam_chain_s": closed - first_beam,
        "beam_chain_and_check_s": closed - first_beam + checked_s,
        "beam_s": last - first_beam,
        "closed_after_last_packet_s": closed - last,
        "pedestals_after_last_packet_s": pedestals - last_dark,
        "arm_s": armed - pedestals,
        "check_s": checked_s,
        "dark_frames": dark_frames,
        "dark_frames_taken": min(row["frames"] for row in dark),
        "rate_hz": sent["rate_hz"],
        "images": images,
        "images_complete": ledger["images_complete"],
        "packets_lost": ledger["packets_missing"],
        "gigabytes": stored / 1e9,
        "images_compared": compared,
        "complete": ledger["images_complete"] == images,
        "verified": compared > 0,
    }


def main():
    report = {"modules": options.modules, "rate_hz": options.rate, "dark_s": options.dark_s, "beam_s": options.beam_s, "paper_modules": 8, "cases": {}}
    for name, (summed, paper_s) in CASES.items():
        with tempfile.TemporaryDirectory(prefix="konkordia-bench-", dir=options.folder) as folder:
            lists = prepare(pathlib.Path(folder))
            report["cases"][name] = {"paper_chain_s": paper_s, **measure(pathlib.Path(folder), lists, summed)}
    report["verified"] = all(case["verified"] for case in report["cases"].values())
    print(json.dumps(report))
    return 0 if report["verified"] and all(case["complete"] for case in report["cases"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
