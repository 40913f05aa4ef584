"""Every compression through the whole program, read back by h5py with hdf5plugin, by fabio and by silx."""

import h5py
import hdf5plugin  # noqa: F401  (registers the filters for h5py)
import numpy as np
import pytest

from driving import MISSING, Master, balanced, lyso_raw, lyso_tables, needs_lyso, program, raw_tables, simulate
from test_real_frames import COLUMNS, ROWS, compare, truth  # noqa: F401  (a fixture)

CODECS = {
    ("bslz4", None): (32008, (0, 4, 2, 0, 2)),
    ("bszstd", None): (32008, (0, 4, 2, 32768, 3, 1)),
    ("bszstd", 5): (32008, (0, 4, 2, 32768, 3, 5)),
    ("lz4", None): (32004, (65536,)),
    ("zstd", None): (32015, (1,)),
    ("zstd", 7): (32015, (7,)),
    ("gzip", None): (1, (1,)),
    ("gzip", 6): (1, (6,)),
    ("none", None): None,
    ("bslz4,block=64k", None): (32008, (0, 4, 2, 32768, 2)),
    ("bszstd,level=5,block=8k", None): (32008, (0, 4, 2, 4096, 3, 5)),
    ("bszstd,block=128k", None): (32008, (0, 4, 2, 65536, 3, 1)),
    ("lz4,block=8k", None): (32004, (8192,)),
}


@needs_lyso
@pytest.mark.parametrize("codec, level", CODECS)
def test_what_is_packed_is_read_back(bench, truth, codec, level):  # noqa: F811
    """Complete images are exact; discarded ones read as missing."""
    images = 12
    tables = lyso_tables(images=images, stall_timeout_s=2)
    tables["processing"] = {"missing": "discard", "workers": 2}
    tables["output"] = {"compression": codec, "images_per_file": 5} | ({"compression_level": level} if level else {})
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 60, "--images", images, "--seed", 4, "--loss", 0.005, "--raw", *lyso_raw())
    code, report = receiver.finish()
    balanced(code, report)
    master = Master(bench.master)
    status = master.columns["status"]
    complete = np.flatnonzero(status == 1)
    assert 0 < len(complete) < images
    where = np.zeros((images, ROWS, COLUMNS), bool)
    where[complete] = True
    assert (master.images[~where] == MISSING["int16"]).all()
    differing, *_, compared = compare(master.images, truth, np.arange(images) % 10, where)
    assert differing == {"G0": 0, "G1": 0, "G2": 0} and compared > 0.9 * where.sum()
    with h5py.File(str(bench.master).replace("_master", "_data_000001")) as file:
        filters = file["/entry/data/data"].id.get_create_plist()
        found = [filters.get_filter(i) for i in range(filters.get_nfilters())]
        assert [(f[0], tuple(f[2])) for f in found] == ([CODECS[codec, level]] if CODECS[codec, level] else [])
    program("check", bench.master, check=0)
    assert codec.split(",")[0] in program("inspect", bench.master, check=0).stdout
    fabio = pytest.importorskip("fabio")
    with fabio.open(str(bench.master)) as series:
        assert (series.get_frame(int(complete[0])).data == master.images[complete[0]]).all()
    silx = pytest.importorskip("silx.io")
    with silx.open(f"silx:{bench.master}::/entry/data/images") as stack:
        assert (np.asarray(stack[int(complete[-1])]) == master.images[complete[-1]]).all()


def test_a_level_that_is_none_is_shown(bench):
    for codec, level, said in [("lz4", 3, "no levels"), ("gzip", 10, "1 to 9"), ("zstd", 23, "22")]:
        tables = raw_tables()
        tables["output"] = {"compression": codec, "compression_level": level}
        done = program("config", "check", bench.config(**tables), check=3)
        assert said in done.stderr and "^" in done.stderr, done.stderr


def test_a_wrong_option_says_what_the_codec_takes(bench):
    takes = "bszstd takes level=1 to 22 and block=1k to 128k, powers of two"
    for codec, said in [
        ("bszstd,speed=5", ['no option "speed"', takes]),
        ("bszstd,block=12k", ["no block 12k", takes]),
        ("bszstd,block", ["KEY=VALUE", takes]),
        ("lz4,level=2", ["lz4 has no levels", "lz4 takes block=1k to 128k"]),
        ("none,block=8k", ["none takes no options"]),
        ("bszsdt,level=2", ['did you mean "bszstd"']),
    ]:
        tables = raw_tables()
        tables["output"] = {"compression": codec}
        done = program("config", "check", bench.config(**tables), check=3)
        assert all(word in done.stderr for word in said) and "^" in done.stderr, done.stderr
    tables["output"] = {"compression": "bszstd,level=2", "compression_level": 3}
    assert "level twice" in program("config", "check", bench.config(**tables), check=3).stderr


# What hdf5plugin wrote with its own parameters, repacked with options; elements of a block and the chunks that have it.
@pytest.mark.parametrize(
    "text, values, block_bytes",
    [
        ("bslz4", (0, 4, 4, 0, 2), 8192),
        ("bslz4,block=1k", (0, 4, 4, 256, 2), 1024),
        ("bslz4,block=128KiB", (0, 4, 4, 32768, 2), 131072),
        ("bszstd,block=8192,level=3", (0, 4, 4, 2048, 3, 3), 8192),
        ("lz4,block=16k", (16384,), 16384),
    ],
)
def test_repack_takes_options_and_the_block_reaches_the_chunks(tmp_path, text, values, block_bytes):
    frames = np.random.default_rng(3).poisson(2, (3, 301, 207)).astype("u4")
    source = tmp_path / "source.h5"
    with h5py.File(source, "w") as file:
        group = file.create_group("entry/data")
        group.attrs["NX_class"] = "NXdata"
        group.create_dataset("data", data=frames, chunks=(1, 301, 207), **hdf5plugin.Bitshuffle(nelems=1024, cname="lz4"))
    (tmp_path / "out").mkdir()
    program("repack", source, "-o", tmp_path / "out", "--compression", text, "--verify", check=0)
    with h5py.File(tmp_path / "out/source.h5") as file:
        stack = file["/entry/data/data"]
        assert tuple(stack.id.get_create_plist().get_filter(0)[2]) == values
        assert np.array_equal(stack[...], frames)
        for image in range(3):
            assert int.from_bytes(stack.id.read_direct_chunk((image, 0, 0))[1][8:12], "big") == block_bytes
    # What has this form already is copied as it is.
    (tmp_path / "again").mkdir()
    program("repack", tmp_path / "out/source.h5", "-o", tmp_path / "again", "--compression", text, check=0)
    with h5py.File(tmp_path / "out/source.h5") as one, h5py.File(tmp_path / "again/source.h5") as other:
        first, second = (file["/entry/data/data"].id.read_direct_chunk((1, 0, 0))[1] for file in (one, other))
    assert first == second
