"""Prints as JSON how long the Python package takes beside the program on one thread: reading and analysing images of a file;
photons of raw frames, beside the kernel alone (`konkordia bench kernels`, row "convert"); how long its import takes; and the round trip of an image of 4M uint16 pixels from a service over loopback. Results
and pixels are compared.

usage: python.py PROGRAM [IMAGES]       after scripts/python
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/e2e")]
os.environ["KONKORDIA_BIN"] = sys.argv[1]
program, images = sys.argv[1], int((sys.argv[2:] or [500])[0])
RECIPES = {
    "spots by dispersion": '[spots]\nmethod = "dispersion"\n',
    "spots by peakfinder8": '[spots]\nmethod = "peakfinder8"\n',
    "powder profile": "[azimuthal]\nbins = 1000\n",
}
# The first images are left out of both times: start of the program, tables of the geometry.
FIRST = images // 5
PAIRS = 3


def by_program(file, recipe, count):
    """Seconds for the first `count` images, and their numbers of spots."""
    begun = time.perf_counter()
    command = [program, "analyse", file, "--recipe", recipe, "--workers", "1", "--json", "--images", f":{count - 1}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return seconds, [line for line in lines if line["event"] == "image"]


def by_python(stack, recipe):
    analyser = stack.analyser(recipe.read_text())
    begun, results = None, []
    out = stack[0]
    for number in range(len(stack)):
        if number == FIRST:
            begun = time.perf_counter()
        results.append(analyser.analyse(stack.read(number, out), stack.valid_range))
    return time.perf_counter() - begun, results


def equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        if one.spots is not None and one.spots["x_px"].tolist() != other["spots"]["x_px"]:
            return False
        if one.profile is not None:
            found = [None if value != value else value for value in one.profile.intensity.tolist()]
            if found != other["profile"]["intensity"]:
                return False
    return True


def raw_frames(folder):
    """Ten files of one frame of one module each, like those of its dark current with a few photons, and their words."""
    import numpy as np

    subprocess.run([program, "simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", folder], check=True, capture_output=True)
    random, pedestal = np.random.default_rng(1), np.fromfile(folder / "pedestal_g0.f32", "<f4").reshape(512, 1024)
    frames = []
    for number in range(10):
        photons = random.poisson(0.05, pedestal.shape)
        words = (pedestal + random.normal(0, 20, pedestal.shape) + 500 * photons).clip(0, 16383).astype("<u2")
        switched = random.random(pedestal.shape)
        words[switched > 0.999] = 0x4000 | 14000
        words[switched > 0.99995] = 0xC000 | 13900
        words.tofile(folder / f"raw_{number:02}.u16")
        frames.append(words)
    return sorted(folder.glob("raw_*.u16")), np.stack(frames)


def photons(folder):
    """ms for a frame by `konkordia.convert` and by the kernel of the program; pixels are compared with `konkordia convert`."""
    import konkordia
    import numpy as np

    paths, frames = raw_frames(folder)
    command = [program, "convert", *paths, "--calibration", folder, "--energy-kev", "12.4", "-o", folder / "out", "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    calibration = konkordia.Calibration.from_files(folder)
    if not np.array_equal(konkordia.open(folder / "out_master.h5")[:], konkordia.convert(frames, calibration, energy_kev=12.4)):
        sys.exit("convert: the pixels differ")
    # As the kernel: one frame after the other into the same image.
    out = np.empty(frames.shape[1:], "int16")
    rounds, ours_ms, theirs_ms = 30, [], []
    kernels = [program, "bench", "kernels", "--raw", *paths, "--calibration", folder, "--seconds", "0.3", "--json"]
    for _ in range(PAIRS):
        begun = time.perf_counter()
        for frame in [*frames] * rounds:
            konkordia.convert(frame, calibration, energy_kev=12.4, out=out)
        ours_ms.append(1e3 * (time.perf_counter() - begun) / rounds / len(frames))
        rows = json.loads(subprocess.run(kernels, check=True, capture_output=True, text=True).stdout)["rows"]
        rate = max(row["gigabytes_raw_per_second"] for row in rows if row["name"] == "convert")
        theirs_ms.append(frames[0].nbytes / rate / 1e6)
    return {"python_ms": min(ours_ms), "program_ms": min(theirs_ms), "python_of_program": min(ours_ms) / min(theirs_ms)}


def round_trip(folder):
    import konkordia
    import numpy as np
    from streams import Stins, StreamService

    service = StreamService(folder)
    try:
        image = np.random.default_rng(1).poisson(2, (2162, 2068)).astype("uint16")
        service.send(*Stins().series([image]))
        service.until(lambda status: status["images_committed"] == 1)
        times_ms = []
        with konkordia.Client(service.url) as client:
            for _ in range(60):
                begun = time.perf_counter()
                found = client.image()
                times_ms.append(1e3 * (time.perf_counter() - begun))
                if not np.array_equal(found.pixels, image):
                    sys.exit("the pixels differ")
        return {"median": statistics.median(times_ms[10:]), "max": max(times_ms[10:])}
    finally:
        service.close()


def main():
    code = "import numpy, time; begun = time.perf_counter(); import konkordia; print(time.perf_counter() - begun)"
    imports = [float(subprocess.run([sys.executable, "-c", code], cwd=ROOT / "python", check=True, capture_output=True, text=True).stdout) for _ in range(5)]
    import konkordia

    report = {"images": images, "import_ms": 1e3 * min(imports)}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([program, "demo", "--once", "--images", str(images), "--dir", folder], check=True, capture_output=True)
        file, recipe = folder / "demo_master.h5", folder / "recipe.toml"
        for name, text in RECIPES.items():
            recipe.write_text(text)
            ours_s, theirs_s = [], []
            for _ in range(PAIRS):
                with konkordia.open(file) as stack:
                    seconds, ours = by_python(stack, recipe)
                ours_s.append(seconds)
                short, _ = by_program(file, recipe, FIRST)
                whole, theirs = by_program(file, recipe, images)
                theirs_s.append(whole - short)
                if not equal(ours, theirs):
                    sys.exit(f"{name}: the results differ")
            per_image = [1e3 * min(seconds) / (images - FIRST) for seconds in (ours_s, theirs_s)]
            report[name] = {"python_ms": per_image[0], "program_ms": per_image[1], "python_of_program": per_image[0] / per_image[1]}
    with tempfile.TemporaryDirectory() as folder:
        report["convert"] = photons(pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        report["image_of_4m_ms"] = round_trip(pathlib.Path(folder))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
