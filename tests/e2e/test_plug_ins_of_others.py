"""Files whose chunks have filters that this program does not have: the plug-ins of hdf5plugin decode them in a process
behind the command. Plug-ins that crash, hang, lie or take all memory end only that process."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import h5py
import hdf5plugin
import numpy as np
import pytest
from driving import program
from others_files import dectris_legacy
from service import until

FILTERS = {
    "blosc": dict(hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
    "blosc2": dict(hdf5plugin.Blosc2(cname="blosclz")),
    "zfp": dict(hdf5plugin.Zfp(reversible=True)),
    "bzip2": dict(hdf5plugin.BZip2()),
    "fcidecomp": dict(hdf5plugin.FciDecomp()),
    "shuffle and gzip": {"compression": "gzip", "shuffle": True},
    "gzip and fletcher32": {"compression": "gzip", "fletcher32": True},
    "shuffle and bslz4": {"shuffle": True, **hdf5plugin.Bitshuffle(cname="lz4")},
    "bitshuffle alone": dict(hdf5plugin.Bitshuffle(cname="none")),
}
# zfp packs no 16-bit numbers, FCIDECOMP no 32-bit ones.
DTYPES = {"zfp": "i4", "fcidecomp": "u2"}

CRASHING = r"""
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
typedef struct { int version; int id; unsigned packs, unpacks; const char *name; void *can, *set;
    size_t (*filter)(unsigned, size_t, const unsigned *, size_t, size_t *, void **); } H5Z_class2_t;
static size_t filter(unsigned flags, size_t n, const unsigned *values, size_t bytes, size_t *room, void **buffer) {
    if (!(flags & 0x100)) return bytes;
    switch (n ? values[0] : 0) {
        case 1: *(volatile int *)8 = 1; return 0;
        case 2: for (;;) { volatile int i = 0; (void)i; }
        case 3: abort();
        case 4: _exit(0);
        case 5: for (;;) { char *more = malloc(64 << 20); if (!more) return 0; more[0] = 1; }
        case 6: return bytes - 2;
        case 7: (void)!write(1, "noise on the standard output\n", 29); return bytes;
        default: return bytes;
    }
}
static const H5Z_class2_t CLASS = { 1, 300, 1, 1, "a plug-in of the tests", 0, 0, filter };
int H5PLget_plugin_type(void) { return 0; }
const void *H5PLget_plugin_info(void) { return &CLASS; }
"""


def series(folder, filters, dtype="u2", images=4):
    """A file of another program, with one chunk for each image."""
    frames = np.random.default_rng(1).poisson(2, (images, 33, 65)).astype(dtype)
    path = folder / "others.h5"
    with h5py.File(path, "w") as file:
        file.create_group("entry").attrs["NX_class"] = "NXentry"
        data = file["entry"].create_group("data")
        data.attrs["NX_class"] = "NXdata"
        data.create_dataset("data", data=frames, chunks=(1, 33, 65), **filters)
    return path, frames


def environment(*folders, **more):
    return {**os.environ, "HDF5_PLUGIN_PATH": ":".join(map(str, folders)), **more}


THEIRS = environment(hdf5plugin.PLUGIN_PATH)


@pytest.mark.parametrize("name", FILTERS)
def test_chunks_of_other_filters_are_read(name, tmp_path):
    path, frames = series(tmp_path, FILTERS[name], DTYPES.get(name, "u2"))
    (tmp_path / "out").mkdir()
    program("repack", path, "-o", tmp_path / "out", "--compression", "bszstd", "--verify", check=0, env=THEIRS)
    with h5py.File(tmp_path / "out" / path.name) as file:
        assert np.array_equal(file["/entry/data/data"][...], frames)
        assert file["/entry/data/data"].id.get_create_plist().get_filter(0)[0] == 32008
    said = json.loads(program("inspect", path, "--json", check=0, env=THEIRS).stdout)
    assert said["stacks"][0]["images"] == len(frames) if "stacks" in said else True
    picture = tmp_path / "image.png"
    program("inspect", path, "--png", picture, "--image", 1, check=0, env=THEIRS)
    assert picture.stat().st_size > 100


def test_without_a_plug_in_the_filter_and_the_folders_are_named(tmp_path):
    path, _ = series(tmp_path, FILTERS["blosc"])
    (tmp_path / "out").mkdir()
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "libh5broken.so").write_text("this is no library")
    options = ["repack", path, "-o", tmp_path / "out", "--compression", "bszstd"]
    done = program(*options, check=1, env=environment(empty))
    assert "no plug-in for filter 32001" in done.stderr and str(empty) in done.stderr and "libh5broken.so" in done.stderr
    bare = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    done = program(*options, check=3, env=bare)
    assert "32001" in done.stderr and "HDF5_PLUGIN_PATH" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.fixture(scope="module")
def crashing(tmp_path_factory):
    compiler = shutil.which("cc") or pytest.skip("no C compiler: apt-get install gcc")
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "crashing.c").write_text(CRASHING)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", folder / "libcrashing.so", folder / "crashing.c"], check=True)
    return folder


def with_filter_300(folder, crashing, values):
    """A file with chunks of the filter of the tests; made by h5py with that plug-in, in a process of its own."""
    path, frames = folder / "bad.h5", np.arange(4 * 33 * 65, dtype="u2").reshape(4, 33, 65)
    np.save(folder / "frames.npy", frames)
    code = """
import sys, h5py, numpy as np
frames = np.load(sys.argv[2])
with h5py.File(sys.argv[1], "w") as file:
    file.create_group("entry").attrs["NX_class"] = "NXentry"
    data = file["entry"].create_group("data")
    data.attrs["NX_class"] = "NXdata"
    data.create_dataset("data", data=frames, chunks=(1, 33, 65), compression=300, compression_opts=eval(sys.argv[3]))
"""
    command = [sys.executable, "-c", code, str(path), str(folder / "frames.npy"), repr(values)]
    subprocess.run(command, check=True, env=environment(crashing))
    return path, frames


def environment_of(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""  # gone, or of another user


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (1, ["crashed", "SIGSEGV"]),
        (2, ["gave no image within 2 s", "KONKORDIA_STUCK_S"]),
        (3, ["crashed", "SIGABRT"]),
        (4, ["ended the process that runs it"]),
        (5, ["reports a failure"]),
        (6, ["4288 bytes", "4290"]),
    ],
)
def test_a_bad_plug_in_is_an_error_of_the_image(kind, words, crashing, tmp_path):
    path, _ = with_filter_300(tmp_path, crashing, (kind,))
    (tmp_path / "out").mkdir()
    bad = environment(crashing, KONKORDIA_STUCK_S="2")
    done = program("repack", path, "-o", tmp_path / "out", "--compression", "bszstd", check=1, env=bad, timeout=120)
    assert all(word in done.stderr for word in [*words, "filter 300"]), done.stderr
    assert "panic" not in done.stderr and list((tmp_path / "out").iterdir()) == []
    # The process of the plug-in is gone too, also one that never returns.
    mark = f"HDF5_PLUGIN_PATH={crashing}".encode()
    processes = pathlib.Path("/proc")
    until(lambda: not any(mark in environment_of(path) for path in processes.glob("[0-9]*/environ")), "its process ends")
    # The structure of the file does not need the plug-in.
    program("inspect", path, check=0, env=bad)


def test_what_a_plug_in_prints_disturbs_nothing(crashing, tmp_path):
    path, frames = with_filter_300(tmp_path, crashing, (7,))
    (tmp_path / "out").mkdir()
    done = program("repack", path, "-o", tmp_path / "out", "--compression", "bslz4", "--json", check=0, env=environment(crashing))
    assert "noise" not in done.stdout
    with h5py.File(tmp_path / "out" / path.name) as file:
        assert np.array_equal(file["/entry/data/data"][...], frames)


def test_a_chunk_that_left_out_one_of_two_filters_is_refused(tmp_path):
    path, frames = series(tmp_path, FILTERS["shuffle and gzip"])
    with h5py.File(path, "r+") as file:
        stack = file["/entry/data/data"]
        # Shuffled, but not deflated: as libhdf5 stores what does not shrink.
        shuffled = np.ascontiguousarray(frames[1]).view("u1").reshape(-1, 2).T.tobytes()
        stack.id.write_direct_chunk((1, 0, 0), shuffled, filter_mask=2)
    (tmp_path / "out").mkdir()
    done = program("repack", path, "-o", tmp_path / "out", "--compression", "bszstd", check=6, env=THEIRS)
    assert "without some of its 2 filters" in done.stderr


def test_files_of_known_filters_need_no_plug_in(crashing, tmp_path):
    master, frames = dectris_legacy(tmp_path)
    (tmp_path / "out").mkdir()
    program("repack", master, "-o", tmp_path / "out", "--compression", "bszstd", "--verify", check=0, env=environment(crashing))
    with h5py.File(tmp_path / "out" / master.name) as file:
        assert file["/entry/data/data_000001"].shape[1:] == frames.shape[1:]
