"""docs/formats/reader.c, which was written from docs/formats/file.md alone, reads our files as h5py does."""

import os
import pathlib
import re
import shutil
import subprocess

import h5py
import hdf5plugin  # noqa: F401 (registers the filters)
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs/formats/reader.c"
LINES_MAX = 200


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    binary = tmp_path_factory.mktemp("reader") / "reader"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", binary, SOURCE], check=True)
    needed = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    assert "hdf5" not in needed and "lz4" not in needed and "zstd" not in needed
    return binary


def test_it_is_short_and_includes_nothing_else():
    text = SOURCE.read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= LINES_MAX
    assert set(re.findall(r"#include (.*)", text)) == {"<stdint.h>", "<stdio.h>", "<stdlib.h>", "<string.h>"}


def sums_of(reader, path):
    done = subprocess.run([reader, path], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {(name, *map(int, numbers[:-1])): int(numbers[-1]) for name, *numbers in lines}


def by_h5py(path, name="/entry/data/data"):
    with h5py.File(path) as file:
        stack = file[name]
        return {(name, *index): int(stack[index].astype(np.int64).sum()) for index in np.ndindex(*stack.shape[:-2])}


@pytest.fixture(scope="module")
def program():
    """Runs konkordia; it must succeed."""
    binary = os.environ.get("KONKORDIA_BIN", str(ROOT / "target/release/konkordia"))

    def run(*arguments):
        done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory, program):
    folder = tmp_path_factory.mktemp("run")
    program("demo", "--images", "70", "--dir", folder / "run", "--listen", "127.0.0.1:0")
    return folder / "run"


@pytest.mark.parametrize("codec", ["bslz4", "none"])
def test_sums_are_those_of_h5py(reader, run, program, tmp_path, codec):
    program("repack", run / "demo_master.h5", "-o", tmp_path, "--compression", codec)
    path = tmp_path / "demo_data_000001.h5"
    assert sums_of(reader, path) == by_h5py(path)


def test_an_archived_file_and_one_with_all_images(reader, run, program, tmp_path):
    program("archive", run, "-o", tmp_path / "run.bag", "--compression", "bslz4", "--quiet")
    path = tmp_path / "run.bag/data/demo_data_000001.h5"
    assert sums_of(reader, path) == by_h5py(path)
    assert (tmp_path / "run.bag/reader.c").read_bytes() == SOURCE.read_bytes()
    program("repack", run / "demo_master.h5", "-o", tmp_path, "--layout", "single")
    assert sums_of(reader, tmp_path / "demo.h5") == by_h5py(tmp_path / "demo.h5")


def test_damaged_files_end_it_with_a_reason(reader, program, tmp_path):
    program("demo", "--images", "2", "--dir", tmp_path / "two", "--listen", "127.0.0.1:0")
    whole = (tmp_path / "two/demo_data_000001.h5").read_bytes()
    path = tmp_path / "damaged.h5"
    for length in [0, 7, 47, 48, 200, 1000, 5000, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        done = subprocess.run([reader, path], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and "cannot read the file" in done.stderr, length
    rng = np.random.default_rng(7)
    for _ in range(100):
        damaged = bytearray(whole)
        for at in rng.integers(0, min(len(whole), 30_000), 4):
            damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        done = subprocess.run([reader, path], capture_output=True, timeout=60, check=False)
        assert done.returncode in (0, 1), "no crash"
