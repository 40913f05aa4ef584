"""Prints as JSON how long `konkordia bench analysis`, DIALS and pyFAI take for a pixel of one image, on one core, in turns: the
dispersion threshold of DIALS with its default settings, and the powder profile of 1000 bins with and without splitting.

usage: analysis_peers.py PROGRAM PYTHON IMAGE
PYTHON: that of an environment with pyFAI and fabio (scripts/peers makes one); IMAGE: a CBF file with its geometry.
DIALS is Debian's (scripts/setup slow). A peer that is not there has no rows. What is timed of DIALS is its threshold alone,
without the groups of pixels and their centres, which are in our figure; of pyFAI the integration without reading.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys

program, python, image = sys.argv[1:4]
TURNS = 5
ONE_CORE = ["taskset", "-c", "1", "env", "OMP_NUM_THREADS=1"]
WORK = ["peakfinder8", "dispersion", "azimuthal", "azimuthal-split"]

DIALS = """
import json, sys, time
from dxtbx.model.experiment_list import ExperimentListFactory
from dials.algorithms.image.threshold import DispersionExtendedThreshold, DispersionThreshold
from dials.array_family import flex
images = ExperimentListFactory.from_filenames([sys.argv[1]])[0].imageset
image, mask = images.get_raw_data(0)[0].as_double(), images.get_mask(0)[0]
taken = {}
for name, method in ("dispersion", DispersionExtendedThreshold), ("dispersion, not extended", DispersionThreshold):
    find = method(image.all(), (3, 3), 6.0, 3.0, 0.0, 2)
    result = flex.bool(image.accessor())
    find(image, mask, result)
    taken[name] = []
    for _ in range(2):
        begun = time.perf_counter()
        find(image, mask, result)
        taken[name].append((time.perf_counter() - begun) * 1e9 / image.size())
print(json.dumps(taken))
"""

PYFAI = """
import json, sys, time
import fabio, numpy, pyFAI
from pyFAI.integrator.azimuthal import AzimuthalIntegrator
file, x, y, distance, wavelength = sys.argv[1], *map(float, sys.argv[2:6])
image = fabio.open(file).data
integrator = AzimuthalIntegrator(dist=distance, poni1=y * 172e-6, poni2=x * 172e-6, pixel1=172e-6, pixel2=172e-6, wavelength=wavelength * 1e-10)
mask, taken = image < 0, {}
for name, split in ("azimuthal", "no"), ("azimuthal-split", "full"):
    for matrix in ("csr", "csc"):
        method = (split, matrix, "cython")
        run = lambda: integrator.integrate1d(image, 1000, unit="q_A^-1", mask=mask, method=method, correctSolidAngle=False)
        run()
        begun = time.perf_counter()
        run()
        taken[f"{name}, {matrix}"] = [(time.perf_counter() - begun) * 1e9 / image.size]
print(json.dumps(taken))
"""


def answer(*command):
    """What a program prints as JSON; nothing if it is not there."""
    done = subprocess.run([*ONE_CORE, *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return None
    return json.loads(done.stdout)


def place(path):
    """Beam centre in pixels, distance in metres, wavelength in angstrom, of the header of a CBF file."""
    header = pathlib.Path(path).read_bytes()[:4000].decode("latin-1")
    beam = re.search(r"Beam_xy \(([\d.]+), ([\d.]+)\)", header).groups()
    return *beam, re.search(r"Detector_distance ([\d.]+)", header)[1], re.search(r"Wavelength ([\d.]+)", header)[1]


def main():
    rows, machine, verified = {}, None, True
    for _ in range(TURNS):
        ours = answer(program, "bench", "analysis", "--image", image, "--work", *WORK, "--repeats", 3, "--json")
        if ours is None:
            sys.exit(f"{program} bench analysis failed")
        machine, verified = ours["machine"], verified and ours["verified"]
        for row in ours["rows"]:
            if row["pixels"] == "int32" and row["instruction_set"] in ("avx2", "avx512"):
                name = (f"konkordia, {row['instruction_set']}", row["work"])
                rows.setdefault(name, []).append(row["nanoseconds_per_pixel"]["median"])
        for peer, taken in ("DIALS", answer("/usr/bin/python3", "-c", DIALS, image)), ("pyFAI", answer(python, "-c", PYFAI, image, *place(image))):
            for work, times in (taken or {}).items():
                rows.setdefault((peer, work), []).extend(times)
    spread = lambda times: {"median": statistics.median(times), "lowest": min(times), "highest": max(times)}  # noqa: E731
    listed = [{"program": peer, "work": work, "nanoseconds_per_pixel": spread(times)} for (peer, work), times in rows.items()]
    for row in listed:
        # Their time as a multiple of ours for the same work, in the best instructions.
        same = row["work"].split(",")[0]
        best = [r["nanoseconds_per_pixel"]["median"] for r in listed if r["program"].startswith("konkordia") and r["work"] == same]
        if not row["program"].startswith("konkordia"):
            row["times_ours"] = row["nanoseconds_per_pixel"]["median"] / min(best)
    print(json.dumps({"machine": machine, "turns": TURNS, "verified": verified, "rows": listed}))


main()
