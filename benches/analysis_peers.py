"""Prints as JSON how long `konkordia bench analysis`, CrystFEL, DIALS, pyFAI and azint take for a pixel of one image, on one core, in
turns: peakfinder8 of CrystFEL, the dispersion threshold of DIALS with its default settings, and the powder profile of 1000 bins with
and without splitting.

usage: analysis_peers.py PROGRAM PEERS IMAGE
PEERS: the folder of scripts/peers, which builds CrystFEL and installs pyFAI; IMAGE: a CBF file with its geometry. azint is installed
by hand: PEERS/build/python/bin/pip install git+https://github.com/maxiv-science/azint@1.2.5. DIALS is Debian's (scripts/setup slow). A peer that is not there has no rows. What is timed of CrystFEL is its function
peakfinder8 with its tables made before; of DIALS its threshold alone, without the groups of pixels and their centres, which are
in our figure; of pyFAI and azint the integration without reading. azint gets no mask, which it would apply to each image anew.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys

program, peers, image = sys.argv[1:4]
PYTHON, LIBRARY = f"{peers}/build/python/bin/python", f"{peers}/build/crystfel/libcrystfel/libcrystfel.so"
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

CRYSTFEL = """
import ctypes, json, sys, tempfile, time
library, file, x, y, distance, wavelength = *sys.argv[1:3], *map(float, sys.argv[3:7])
crystfel = ctypes.CDLL(library)
geometry = f'''
wavelength = {wavelength} A
adu_per_photon = 1
clen = {distance}
res = {1 / 172e-6}
flag_lessthan = 0
0/min_fs = 0
0/max_fs = 2462
0/min_ss = 0
0/max_ss = 2526
0/corner_x = {-x}
0/corner_y = {-y}
0/fs = x
0/ss = y
'''
pointer, whole, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
for name, result, arguments in (
    ("data_template_new_from_file", pointer, [ctypes.c_char_p]),
    ("image_read", pointer, [pointer, ctypes.c_char_p, ctypes.c_char_p, whole, whole, pointer]),
    ("prepare_peakfinder8", pointer, [pointer, whole]),
    ("peakfinder8", pointer, [pointer, whole, real, real, *[whole] * 7, pointer]),
    ("image_feature_count", whole, [pointer]),
    ("image_feature_list_free", None, [pointer]),
):
    function = getattr(crystfel, name)
    function.restype, function.argtypes = result, arguments
with tempfile.NamedTemporaryFile("w", suffix=".geom") as written:
    written.write(geometry)
    written.flush()
    template = crystfel.data_template_new_from_file(written.name.encode())
image = crystfel.image_read(template, file.encode(), None, 0, 0, None)
# struct image of libcrystfel/src/image.h begins with three pointers, an int, a pointer, three ints, and this pointer.
detector = ctypes.cast(image, ctypes.POINTER(pointer))[7]
taken = {}
for name, fast in ("peakfinder8", 0), ("peakfinder8, fast mode", 1):
    tables = crystfel.prepare_peakfinder8(detector, fast)
    taken[name] = []
    for n in range(3):
        begun = time.perf_counter()
        peaks = crystfel.peakfinder8(image, 100000, 10.0, 5.0, 2, 200, 4, 0, 1200, 1, fast, tables)
        ended = time.perf_counter()
        found = crystfel.image_feature_count(peaks)
        assert found > 300, found
        crystfel.image_feature_list_free(peaks)
        if n:
            taken[name].append((ended - begun) * 1e9 / (2463 * 2527))
print(json.dumps(taken))
"""

AZINT = """
import json, sys, time
import azint, fabio, numpy
file, x, y, distance, wavelength = sys.argv[1], *map(float, sys.argv[2:6])
image = fabio.open(file).data
detector = azint.detector.Detector(172e-6, 172e-6, image.shape)
place = azint.Poni(detector, distance, y * 172e-6, x * 172e-6, 0.0, 0.0, 0.0, wavelength * 1e-10)
taken = {}
for name, split in ("azimuthal", 1), ("azimuthal-split", 4):
    integrator = azint.AzimuthalIntegrator(place, split, 1000, unit="q", solid_angle=False)
    integrator.integrate(image)
    taken[name] = []
    for _ in range(2):
        begun = time.perf_counter()
        integrator.integrate(image)
        taken[name].append((time.perf_counter() - begun) * 1e9 / image.size)
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
        theirs = {
            "CrystFEL": answer("/usr/bin/python3", "-c", CRYSTFEL, LIBRARY, image, *place(image)),
            "DIALS": answer("/usr/bin/python3", "-c", DIALS, image),
            "pyFAI": answer(PYTHON, "-c", PYFAI, image, *place(image)),
            "azint": answer(PYTHON, "-c", AZINT, image, *place(image)),
        }
        for peer, taken in theirs.items():
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
