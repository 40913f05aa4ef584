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
    assert codec in program("inspect", bench.master, check=0).stdout
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
