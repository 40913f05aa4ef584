"""Stages of `konkordia graph`: what they make of images is what the other verbs make of the same files, and what is known of
images travels with them. What happens when processes die stands in test_graph.py."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
import raw_files
import zmq
from driving import BINARY, ROOT, Master, free_ports, program, raw_tables, simulate

SHAPE = (40, 60)


def toml(tables):
    lines = []
    for kind, table in tables:
        lines.append(f"[[{kind}]]")
        lines += [f"{key} = {json.dumps(str(value) if isinstance(value, pathlib.Path) else value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def write_graph(folder, *stages, name="graph", **edge):
    """A graph file of stages one behind the other."""
    names = [stage["name"] for stage in stages]
    edges = [{"from": one, "to": two, "transport": "ipc", **edge} for one, two in itertools.pairwise(names)]
    path = folder / f"{name}.toml"
    path.write_text(toml([("stage", stage) for stage in stages] + [("edge", one) for one in edges]))
    return path


def run(path, code=0, timeout=120, **environment):
    """Runs a graph; the report and what was said."""
    variables = {**os.environ, "KONKORDIA_PYTHON": sys.executable, **environment}
    command = [BINARY, "graph", "run", str(path), "--json"]
    done = subprocess.run(command, cwd=path.parent, env=variables, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "panicked" not in done.stderr
    report = json.loads(done.stdout.splitlines()[0]) if code in (0, 1) else None
    for process in report["processes"] if report else []:
        assert process["state"] == "finished" and all(edge["imbalance"] is None for edge in process["edges"]), process
    return report, done.stderr


def write_file(name):
    return {"name": "write", "kind": "write", "file": name}


def files(*names):
    return {"name": "read", "kind": "files", "files": [str(name) for name in names]}


def images_file(folder, images, name="in.h5"):
    """A file of another program."""
    with h5py.File(folder / name, "w") as file:
        data = file.create_dataset("entry/data/data", data=images, chunks=(1, *images.shape[1:]))
        file["entry"].attrs["NX_class"], data.parent.attrs["NX_class"] = "NXentry", "NXdata"
    return folder / name


def counts(count, shape=SHAPE, seed=3):
    return np.random.default_rng(seed).poisson(20, (count, *shape)).astype(np.uint16)


def read(path):
    with h5py.File(path) as file:
        return file["entry/data/images"][()]


def chunks(stem, count):
    """The stored chunks of a run of one data file."""
    with h5py.File(f"{stem}_data_000001.h5") as file:
        data = file["entry/data/data"]
        return [data.id.read_direct_chunk((n, 0, 0)) for n in range(count)]


# Photons.


def calibration(folder, modules):
    """Planes of a calibration, some pixels of which have no gain."""
    rng = np.random.default_rng(5)
    shape = (modules, 512, 1024)
    path = folder / "calibration"
    path.mkdir()
    for stage, mean in enumerate((2900, 14500, 14000)):
        rng.normal(mean, 60, shape).astype("<f4").tofile(path / f"pedestal_g{stage}.f32")
    gains = np.stack([np.full(shape, gain) * rng.normal(1, 0.02, shape) for gain in (41.0, -1.44, -0.114)])
    gains[0][rng.random(shape) < 1e-3] = 0
    gains.astype("<f4").tofile(path / "gain_adu_per_kev.f32")
    return path


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Raw frames of two modules, of which packets and a frame are missing, and a calibration."""
    folder = tmp_path_factory.mktemp("raw")
    words = raw_files.frames(7, modules=2)
    lost = {(1, 0): [3, 4], (4, 1): range(64)}
    master = raw_files.write_sls(folder, words, numbers=[1, 2, 3, 5, 6, 7, 8], lost=lost)
    return master, calibration(folder, 2)


def same_file(ours, theirs):
    """Both have the same images, masks, states and facts of the measurement."""
    a, b = Master(ours), Master(theirs)
    assert a.images.dtype == b.images.dtype
    np.testing.assert_array_equal(a.images, b.images)
    np.testing.assert_array_equal(a.mask, b.mask)
    np.testing.assert_array_equal(a.columns["status"], b.columns["status"])
    with h5py.File(ours) as one, h5py.File(theirs) as two:
        for place in FACTS:
            if a.images.dtype.kind == "f" and place.endswith("_value"):
                continue  # Files of images and files of runs say different limits of floats.
            assert (place in one) == (place in two), place
            assert place not in one or np.array_equal(one[place][()], two[place][()]), place


FACTS = [
    "entry/instrument/beam/incident_wavelength",
    "entry/instrument/detector/detector_distance",
    "entry/instrument/detector/distance",
    "entry/instrument/detector/beam_center_x",
    "entry/instrument/detector/beam_center_y",
    "entry/instrument/detector/x_pixel_size",
    "entry/instrument/detector/sensor_material",
    "entry/instrument/detector/sensor_thickness",
    "entry/instrument/detector/saturation_value",
    "entry/instrument/detector/underload_value",
    "entry/sample/name",
    "entry/source/name",
]


@pytest.mark.parametrize("options", [{}, {"dtype": "int32", "geometry": "jungfrau-1m"}, {"dtype": "float32"}, {"config": "convert.toml"}], ids=str)
def test_photons_are_those_of_convert(tmp_path, raw, options):
    master, planes = raw
    config = '[detector]\ndetector_distance_mm = 123.0\nbeam_center_x_px = 500.0\nbeam_center_y_px = 490.0\n[[detector.tile]]\nrow = 0\ncolumn = 0\n'
    config += "[[detector.tile]]\nrow = 520\ncolumn = 3\nrotate_deg = 180\n"
    (tmp_path / "convert.toml").write_text(config)
    flags = [word for key, value in options.items() for word in (f"--{key}", tmp_path / value if key == "config" else value)]
    program("convert", master, "-o", tmp_path / "convert", "--calibration", planes, "--energy-kev", 12.4, *flags, check=1)
    stage = {"name": "convert", "kind": "convert", "calibration": planes, "energy_kev": 12.4, "workers": 2, **options}
    run(write_graph(tmp_path, files(master), stage, write_file("out")))
    same_file(tmp_path / "out_master.h5", tmp_path / "convert_master.h5")
    with h5py.File(tmp_path / "out_master.h5") as file:
        assert list(file["entry/konkordia/images/status"][()]) == [1, 2, 1, 0, 1, 2, 1, 1]


def test_photons_of_a_run_with_its_facts(tmp_path, raw):
    """Words in a file of Konkordia, with what is known of the measurement."""
    master, planes = raw
    facts = ["detector.detector_distance_mm=150.0", "output.sample_name=lysozyme", "detector.beam_center_x_px=12.5", "detector.beam_center_y_px=900.25"]
    settings = [word for fact in facts for word in ("--set", fact)]
    program("convert", master, "-o", tmp_path / "raw", "--dtype", "raw", *settings, check=1)
    source = tmp_path / "raw_master.h5"
    program("convert", source, "-o", tmp_path / "convert", "--calibration", planes, "--energy-kev", 9.5, check=1)
    stage = {"name": "convert", "kind": "convert", "calibration": planes, "energy_kev": 9.5}
    run(write_graph(tmp_path, files(source), stage, write_file("out")))
    same_file(tmp_path / "out_master.h5", tmp_path / "convert_master.h5")
    with h5py.File(tmp_path / "out_master.h5") as file:
        assert file["entry/sample/name"][()] == b"lysozyme"
        assert file["entry/instrument/detector/beam_center_x"][()] == 12.5


def test_what_cannot_be_converted(tmp_path, raw):
    _, planes = raw
    stage = {"name": "convert", "kind": "convert", "calibration": planes, "energy_kev": 12.4}
    path = write_graph(tmp_path, files(images_file(tmp_path, counts(3))), stage, write_file("out"))
    _, said = run(path, code=3)
    assert "they are not the words of a JUNGFRAU" in said
    missing = {**stage, "calibration": str(tmp_path / "no.h5")}
    _, said = run(write_graph(tmp_path, files(raw[0]), missing, write_file("out2")), code=3)
    assert "no.h5" in said


# What is known of images.


def test_facts_of_the_measurement_travel(tmp_path, raw):
    master, planes = raw
    facts = ["detector.detector_distance_mm=150.0", "output.sample_name=lysozyme", "detector.beam_center_x_px=12.5", "detector.beam_center_y_px=900.25"]
    settings = [word for fact in facts for word in ("--set", fact)]
    program("convert", master, "-o", tmp_path / "in", "--calibration", planes, "--energy-kev", 12.4, *settings, check=1)
    (tmp_path / "functions.py").write_text("def same(image, number):\n    return image\n\ndef half(image, number):\n    return image[::2].astype('f8')\n")
    stages = {name: {"name": name, "kind": "python", "function": f"functions:{name}"} for name in ("same", "half")}
    run(write_graph(tmp_path, files(tmp_path / "in_master.h5"), stages["same"], write_file("same"), name="a"))
    run(write_graph(tmp_path, files(tmp_path / "in_master.h5"), stages["half"], write_file("half"), name="b"))
    before = Master(tmp_path / "in_master.h5")
    present = before.columns["status"] != 0
    after = Master(tmp_path / "same_master.h5")
    np.testing.assert_array_equal(before.images[present], after.images[present])
    np.testing.assert_array_equal(before.mask, after.mask)
    with h5py.File(tmp_path / "in_master.h5") as one, h5py.File(tmp_path / "same_master.h5") as two, h5py.File(tmp_path / "half_master.h5") as other:
        for place in FACTS:
            assert place not in one or np.array_equal(one[place][()], two[place][()]), place
        assert two["entry/sample/name"][()] == other["entry/sample/name"][()] == b"lysozyme"
        # The images have another size: what says where their pixels are holds no longer, and the mask neither.
        assert "entry/instrument/detector/beam_center_x" not in other
        assert other["entry/data/images"].shape[1] == before.images.shape[1] // 2
        wanted = one["entry/instrument/beam/incident_wavelength"][()]
        assert other["entry/instrument/beam/incident_wavelength"][()] == wanted
    program("check", tmp_path / "same_master.h5", check=0)


# Compression.


@pytest.mark.parametrize("packing", [{}, {"compression": "bszstd", "level": 3}], ids=str)
def test_compressed_images_are_written_as_they_are(tmp_path, packing):
    images = counts(20, (64, 1024))
    source = files(images_file(tmp_path, images))
    plain = {**write_file("plain"), **packing}
    run(write_graph(tmp_path, source, plain, name="plain"))
    compress = {"name": "compress", "kind": "compress", "workers": 2, **packing}
    report, _ = run(write_graph(tmp_path, source, compress, write_file("out")))
    assert sum(process["input"]["done"] for process in report["processes"] if process["stage"] == "compress") == 20
    np.testing.assert_array_equal(read(tmp_path / "out_master.h5"), images)
    assert chunks(tmp_path / "out", 20) == chunks(tmp_path / "plain", 20)
    program("check", tmp_path / "out_master.h5", check=0)


# Programs of users.

PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Twice the image plus its number, as int32; image 7 fails, image 9 is not wanted, image 11 ends the program once. */
int main(int argc, char **argv) {
    uint64_t head[2];
    while (fread(head, 8, 2, stdin) == 2) {
        uint64_t number = head[0], length = head[1], fields[5];
        unsigned char *in = malloc(length);
        if (fread(in, 1, length, stdin) != length) return 1;
        memcpy(fields, in + 16, 40);
        uint64_t pixels = fields[0] * fields[1], zero = 0;
        if (strncmp((char *)in, "uint16 ", 7) || fields[2] != 2 * pixels) return 2;
        if (number == 7) {
            uint64_t said = 8;
            fwrite("F", 1, 1, stdout), fwrite(&said, 8, 1, stdout), fwrite("no seven", 1, 8, stdout);
        } else if (number == 9) {
            fwrite("N", 1, 1, stdout), fwrite(&zero, 8, 1, stdout);
        } else {
            if (number == 11 && access("was-11", F_OK)) {
                fclose(fopen("was-11", "w"));
                abort();
            }
            if (number == 13 && access("was-13", F_OK)) {
                fclose(fopen("was-13", "w"));
                sleep(1000);
            }
            uint64_t bytes = 4 * pixels, answer = 56 + bytes;
            int32_t *out = malloc(bytes);
            for (uint64_t n = 0; n < pixels; n++) {
                uint16_t value;
                memcpy(&value, in + 56 + 2 * n, 2);
                out[n] = 2 * value + (int32_t)number;
            }
            fwrite("I", 1, 1, stdout), fwrite(&answer, 8, 1, stdout);
            fwrite("int32           ", 1, 16, stdout), fwrite(fields, 8, 2, stdout), fwrite(&bytes, 8, 1, stdout);
            fwrite(&zero, 8, 1, stdout), fwrite(&zero, 8, 1, stdout), fwrite(out, 1, bytes, stdout);
            free(out);
        }
        fflush(stdout);
        free(in);
    }
    return 0;
}
"""

# Without numpy and without Konkordia, after the page in docs/graph.md.
SCRIPT = """
import struct, sys
images, answers = sys.stdin.buffer, sys.stdout.buffer
while head := images.read(16):
    number, length = struct.unpack("<QQ", head)
    data = images.read(length)
    kind, rows, columns, pixels, text, numbers = struct.unpack_from("<16sQQQQQ", data)
    assert kind.rstrip() == b"uint16" and pixels == 2 * rows * columns
    values = struct.unpack_from(f"<{rows * columns}H", data, 56)
    about = b'{"results": [["mean", "float64", 1], ["number", "uint64", 1]]}'
    made = struct.pack("<16sQQQQQ", b"int32".ljust(16), rows, columns, 4 * rows * columns, len(about), 2)
    made += struct.pack(f"<{rows * columns}i", *(2 * value + number for value in values)) + about
    made += struct.pack("<dQ", sum(values) / len(values), number)
    answers.write(b"I" + struct.pack("<Q", len(made)) + made)
    answers.flush()
"""


def expected(images, number):
    return images[number].astype(np.int32) * 2 + number


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_program_in_c_that_fails_now_and_then(tmp_path):
    (tmp_path / "twice.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-o", tmp_path / "twice", tmp_path / "twice.c"], check=True, timeout=60)
    images = counts(40)
    stage = {"name": "twice", "kind": "program", "command": [str(tmp_path / "twice")], "workers": 2, "response_ms_max": 1500}
    report, said = run(write_graph(tmp_path, files(images_file(tmp_path, images)), stage, write_file("out")), code=1)
    account = next(process["edges"][0]["account"] for process in report["processes"] if process["stage"] == "read")
    assert (account["done"], account["given_up"]) == (39, 1)
    works = [process["function"] for process in report["processes"] if process["stage"] == "twice"]
    assert sum(work["restarts"] for work in works) == 2 and sum(work["hangs"] for work in works) == 1, works
    given_up = next(process["edges"][0]["given_up"] for process in report["processes"] if process["stage"] == "read")
    assert given_up["image"] == 7 and "no seven" in given_up["why"], said
    written = read(tmp_path / "out_master.h5")
    for number in set(range(40)) - {7, 9}:
        np.testing.assert_array_equal(written[number], expected(images, number))


def test_a_program_in_plain_python_and_its_results(tmp_path):
    (tmp_path / "twice.py").write_text(SCRIPT)
    images = counts(12)
    stage = {"name": "twice", "kind": "program", "command": [sys.executable, "-S", "-E", str(tmp_path / "twice.py")]}
    run(write_graph(tmp_path, files(images_file(tmp_path, images)), stage, write_file("out")))
    written = read(tmp_path / "out_master.h5")
    for number in range(12):
        np.testing.assert_array_equal(written[number], expected(images, number))
    with h5py.File(tmp_path / "out_master.h5") as file:
        columns = file["entry/konkordia/images"]
        np.testing.assert_array_equal(columns["number"][()], np.arange(12, dtype=np.uint64))
        np.testing.assert_allclose(columns["mean"][()], images.mean(axis=(1, 2)), rtol=1e-12)
    program("check", tmp_path / "out_master.h5", check=0)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("answers.write(b'I' + struct.pack('<Q', 20) + b'x' * 20)", "the bytes of an image are too few"),
        ("answers.write(b'X' + struct.pack('<Q', 0))", "answered with the letter 88"),
        ("answers.write(b'I' + struct.pack('<Q', 1 << 40))", "returned 1099511627776 bytes"),
        ("sys.exit(3)", "exit status: 3"),
    ],
)
def test_wrong_answers_of_a_program(tmp_path, body, why):
    script = "import struct, sys\nimages, answers = sys.stdin.buffer, sys.stdout.buffer\nwhile head := images.read(16):\n"
    script += f"    images.read(struct.unpack('<QQ', head)[1])\n    {body}\n    answers.flush()\n"
    (tmp_path / "wrong.py").write_text(script)
    stage = {"name": "wrong", "kind": "program", "command": [sys.executable, "-S", "-E", str(tmp_path / "wrong.py")]}
    report, _ = run(write_graph(tmp_path, files(images_file(tmp_path, counts(2))), stage, write_file("out")), code=1)
    edge = next(process["edges"][0] for process in report["processes"] if process["stage"] == "read")
    assert edge["account"]["given_up"] == 2 and why in edge["given_up"]["why"], edge


def test_a_stage_that_starts_when_the_others_have_nothing_more_for_it(tmp_path):
    """All images were given up before the writer was there: it hears that it is over, and waits for nothing."""
    stage = {"name": "wrong", "kind": "program", "command": ["/bin/false"]}
    graph = write_graph(tmp_path, files(images_file(tmp_path, counts(2))), stage, write_file("out"))
    with contextlib.ExitStack() as stack:
        started = []
        for name in ("read", "wrong", "write"):
            if name == "write":
                state, until = tmp_path / "graph.run/read-0.json", time.monotonic() + 30
                while not state.exists() or json.loads(state.read_text())["edges"][0]["account"]["given_up"] < 2:
                    assert time.monotonic() < until, state.read_text()
                    time.sleep(0.05)
                time.sleep(1)
            command = [BINARY, "graph", "run", str(graph), "--stage", name]
            started.append(stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL)))
            stack.callback(started[-1].terminate)
        assert [process.wait(timeout=30) for process in started] == [1, 0, 0]


def test_a_program_that_does_not_exist(tmp_path):
    stage = {"name": "none", "kind": "program", "command": [str(tmp_path / "none")]}
    report, _ = run(write_graph(tmp_path, files(images_file(tmp_path, counts(1))), stage, write_file("out")), code=1)
    edge = next(process["edges"][0] for process in report["processes"] if process["stage"] == "read")
    assert "cannot be started" in edge["given_up"]["why"], edge


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_program_that_needs_too_much_memory(tmp_path):
    leak = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    leak += "int main(void) { char *all = malloc(600u << 20); if (!all) return 9; memset(all, 1, 600u << 20); return 5; }\n"
    (tmp_path / "leak.c").write_text(leak)
    subprocess.run(["gcc", "-O0", "-o", tmp_path / "leak", tmp_path / "leak.c"], check=True, timeout=60)
    for limit, status in [(None, 5), (200, 9)]:
        more = {"memory_mb_max": limit} if limit else {}
        stage = {"name": "leak", "kind": "program", "command": ["/bin/sh", "-c", f"sleep 0.2; exec {tmp_path}/leak"], **more}
        path = write_graph(tmp_path, files(images_file(tmp_path, counts(1))), stage, write_file(f"out{status}"))
        report, _ = run(path, code=1)
        edge = next(process["edges"][0] for process in report["processes"] if process["stage"] == "read")
        assert f"exit status: {status}" in edge["given_up"]["why"], edge


# Analysis.

RECIPE = """
[spots]
method = "dispersion"
[hits]
spots_min = 3
"""


def spotted(count):
    """Images of noise with some spots."""
    rng = np.random.default_rng(8)
    images = rng.poisson(4, (count, 128, 160)).astype(np.uint16)
    for number in range(count):
        for _ in range(2 * (number % 4)):
            row, column = rng.integers(8, 118), rng.integers(8, 150)
            images[number, row : row + 3, column : column + 3] += 150
    return images


RESULTS = """
def correct(image, number, results):
    assert results["spots"] >= 0 and isinstance(results["peakXPosRaw"], tuple), results
    return image, {"own": results["spots"] * 1.5, "half": number / 2}
"""


def results_of(path):
    """Results of `konkordia analyse --output`: the columns by name."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and item.ndim and name.count("/"):
            found[name.rsplit("/", 1)[1]] = item[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def test_results_are_those_of_analyse(tmp_path):
    images = spotted(24)
    source = images_file(tmp_path, images)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "functions.py").write_text(RESULTS)
    program("analyse", source, "--recipe", tmp_path / "recipe.toml", "--output", tmp_path / "results.h5", check=0)
    analyse = {"name": "analyse", "kind": "analyse", "recipe": str(tmp_path / "recipe.toml"), "workers": 2}
    python = {"name": "own", "kind": "python", "function": "functions:correct"}
    run(write_graph(tmp_path, files(source), analyse, python, write_file("out")))
    np.testing.assert_array_equal(read(tmp_path / "out_master.h5"), images)
    theirs = results_of(tmp_path / "results.h5")
    with h5py.File(tmp_path / "out_master.h5") as file:
        columns = file["entry/konkordia/images"]
        for name in ("spots", "nPeaks", "is_hit", "peakXPosRaw", "peakYPosRaw", "peakTotalIntensity"):
            np.testing.assert_array_equal(columns[name][()], theirs[name], err_msg=name)
        assert set(columns["is_hit"][()]) == {0, 1} and columns["spots"][()].max() >= 4
        np.testing.assert_array_equal(columns["own"][()], 1.5 * columns["spots"][()])
        np.testing.assert_array_equal(columns["half"][()], np.arange(24) / 2)
        # The results of the pixels are not those of another image: the function might have changed it.
        assert "sum_value" not in columns
    program("check", tmp_path / "out_master.h5", check=0)
    again = {**write_file("again")}
    run(write_graph(tmp_path, files(source), analyse, again, name="again"))
    with h5py.File(tmp_path / "again_master.h5") as file:
        columns = file["entry/konkordia/images"]
        for name in ("valid_pixels", "sum_value", "min_value", "max_value"):
            np.testing.assert_array_equal(columns[name][()], theirs[name], err_msg=name)
    # `convert` and `analyse` read the file as any other.
    done = program("analyse", tmp_path / "again_master.h5", "--recipe", tmp_path / "recipe.toml", "--json", check=0)
    spots = [len(json.loads(line)["spots"]["x_px"]) for line in done.stdout.splitlines()[1:-1]]
    np.testing.assert_array_equal(spots, theirs["spots"])


def test_results_that_do_not_fit_the_file(tmp_path):
    text = "def f(image, number):\n    return image, ({'a': 1} if number < 2 else {'b': 2} if number == 2 else {})\n"
    (tmp_path / "functions.py").write_text(text)
    stage = {"name": "f", "kind": "python", "function": "functions:f"}
    report, _ = run(write_graph(tmp_path, files(images_file(tmp_path, counts(4))), stage, write_file("out")), code=1)
    given_up = next(process["edges"][0]["given_up"] for process in report["processes"] if process["stage"] == "f")
    assert given_up["image"] == 2 and "no column for its result 'b'" in given_up["why"]
    with h5py.File(tmp_path / "out_master.h5") as file:
        np.testing.assert_array_equal(file["entry/konkordia/images/a"][[0, 1, 3]], [1, 1, np.nan])


# Streams.


def stins(number, image, message):
    head = {"htype": "image", "frame": number, "shape": list(image.shape), "type": image.dtype.name, "compression": "none", "msg_number": message}
    return [json.dumps(head).encode(), image.tobytes()]


@contextlib.contextmanager
def publisher(kind=zmq.PUSH):
    context = zmq.Context()
    socket = context.socket(kind)
    socket.linger, socket.sndhwm = 20_000, 4
    port = free_ports(1)
    socket.bind(f"tcp://127.0.0.1:{port}")
    try:
        yield socket, f"tcp://127.0.0.1:{port}"
    finally:
        context.destroy(linger=0)


def stream_graph(folder, address, **more):
    (folder / "functions.py").write_text("import time\ndef slow(image, number):\n    time.sleep(0.01)\n    return image\n")
    source = {"name": "take", "kind": "stream", "address": address, "queue": 8, **more}
    slow = {"name": "slow", "kind": "python", "function": "functions:slow"}
    return write_graph(folder, source, slow, write_file("out"), window=2)


def test_a_stream_becomes_a_file(tmp_path):
    # More than the process reads ahead (64 MiB), `queue` and what ZeroMQ keeps.
    numbers = np.arange(100, dtype=np.uint16)
    images = counts(5, (700, 1000))[numbers % 5] + numbers[:, None, None]
    with publisher() as (socket, address):
        path = stream_graph(tmp_path, address)
        waits = []

        def send():
            header = {"htype": "header", "filename": "x", "msg_number": 0, "photon_energy": 12400.0}
            socket.send_multipart([json.dumps(header).encode()])
            for number, image in enumerate(images):
                began = time.monotonic()
                socket.send_multipart(stins(number, image, number + 1))
                waits.append(time.monotonic() - began)
            socket.send_multipart([json.dumps({"htype": "series_end", "msg_number": 101}).encode()])

        sender = threading.Thread(target=send)
        sender.start()
        report, _ = run(path)
        sender.join(timeout=20)
    np.testing.assert_array_equal(read(tmp_path / "out_master.h5"), images)
    take = next(process for process in report["processes"] if process["stage"] == "take")
    assert take["edges"][0]["account"]["produced"] == 100
    # While the graph is full it does not read, so the sender has to wait.
    assert sum(waits) > 0.2, sum(waits)


def test_images_of_a_stream_that_do_not_come_are_counted(tmp_path):
    images = counts(10)
    with publisher() as (socket, address):
        path = stream_graph(tmp_path, address, silent_s_max=1.0)

        def send():
            socket.send_multipart([json.dumps({"htype": "header", "filename": "x", "msg_number": 0}).encode()])
            for number in (0, 1, 4, 5, 6):
                socket.send_multipart(stins(number, images[number], number + 1))

        sender = threading.Thread(target=send)
        sender.start()
        report, said = run(path, code=1)
        sender.join(timeout=20)
    assert "2 of 7 images did not come; nothing came for 1 s" in said
    take = next(process for process in report["processes"] if process["stage"] == "take")
    assert "2 of 7 images did not come" in take["last_refusal"]
    written = read(tmp_path / "out_master.h5")
    for number in (0, 1, 4, 5, 6):
        np.testing.assert_array_equal(written[number], images[number])


# Packets.


def test_packets_of_a_detector_become_a_file(bench, tmp_path):
    """The images are those that `konkordia receive` writes of the same packets."""
    config = bench.config(**raw_tables(images=12))
    send = ["jungfrau", "--to", bench.to, "--images", 12, "--rate", 20]
    receiver = bench.receive(config)
    simulate(*send)
    assert receiver.finish()[0] == 0
    source = {"name": "take", "kind": "receive", "config": str(config), "queue": 16}
    compress = {"name": "compress", "kind": "compress", "workers": 2}
    path = write_graph(tmp_path, source, compress, write_file("out"))
    with open(tmp_path / "said.txt", "w") as said:
        process = subprocess.Popen([BINARY, "graph", "run", str(path)], cwd=tmp_path, stdout=said, stderr=said)
    try:
        until = time.monotonic() + 30
        while "waits for packets" not in (tmp_path / "said.txt").read_text():
            assert process.poll() is None and time.monotonic() < until, (tmp_path / "said.txt").read_text()
            time.sleep(0.05)
        simulate(*send)
        assert process.wait(timeout=60) == 0, (tmp_path / "said.txt").read_text()
    finally:
        process.kill()
    live = Master(bench.master)
    np.testing.assert_array_equal(read(tmp_path / "out_master.h5"), live.images)
    with h5py.File(bench.master) as one, h5py.File(tmp_path / "out_master.h5") as two:
        place = "entry/instrument/beam/incident_wavelength"
        assert one[place][()] == two[place][()]


# Drawings.


def test_a_graph_is_drawn(tmp_path):
    images = counts(5)
    compress = {"name": "compress", "kind": "compress", "workers": 2}
    path = write_graph(tmp_path, files(images_file(tmp_path, images)), compress, write_file("out"))
    drawn = program("graph", "draw", path, check=0).stdout
    assert drawn == "read (files)\n└─ compress (compress x 2)  <- ipc least-workload\n   └─ write (write)  <- ipc least-workload\n"
    assert "there is no state of a graph" in program("graph", "draw", path, "--status", check=5).stderr
    run(path)
    drawn = program("graph", "draw", path, "--status", check=0).stdout
    assert "read (files)  [5 images]" in drawn
    assert "write (write)  <- ipc least-workload  [5 taken, 5 done, 0 open, 0 refused]" in drawn
    program("graph", "draw", path, "--svg", tmp_path / "graph.svg", "--dot", tmp_path / "graph.dot", check=0)
    svg, dot = (tmp_path / "graph.svg").read_text(), (tmp_path / "graph.dot").read_text()
    assert svg.startswith("<svg") and len(re.findall("<rect x=", svg)) == 3 and "compress x 2" in svg
    assert '"compress" -> "write"' in dot


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        ({"kind": "compress", "command": ["x"]}, "'command' belongs to kind = \"program\""),
        ({"kind": "convert"}, "kind = \"convert\" needs 'calibration'"),
        ({"kind": "analyse"}, "kind = \"analyse\" needs 'recipe'"),
        ({"kind": "program"}, "kind = \"program\" needs 'command'"),
        ({"kind": "compress", "level": 2}, "has no levels"),
        ({"kind": "compress", "compression": "zip"}, "is not a compression"),
    ],
)
def test_wrong_stages(tmp_path, stage, why):
    path = write_graph(tmp_path, files("in.h5"), {"name": "stage", **stage}, write_file("out"))
    assert why in program("graph", "run", path, check=3).stderr


# The example of docs/graph.md.


def test_the_example_of_a_large_detector(tmp_path):
    """All 32 modules, few images."""
    command = [sys.executable, ROOT / "examples/calibrate_32_modules.py", tmp_path, "--images", "3", "--workers", "2", "--compress", "1"]
    done = subprocess.run(command, env={**os.environ, "KONKORDIA_BIN": str(BINARY)}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["images"] == 3 and report["pixels_checked"] == 3 * 32 * 512 * 1024
