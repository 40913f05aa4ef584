"""The paths, types and texts that the XDS plug-ins look for, as h5py sees them. tests/peers/test_xds_plugins.py runs
neggia and durin themselves."""

import h5py
import numpy as np
import pytest
from content import RUNS, SERIES

LINKED = [run for run in RUNS if run != "virtual"]
DETECTOR = "/entry/instrument/detector"
SPECIFIC = f"{DETECTOR}/detectorSpecific"


@pytest.mark.parametrize("run", LINKED)
def test_master_has_what_neggia_looks_for(samples, run):
    with h5py.File(samples / f"{run}_master.h5") as file:
        # The detector of "bare" is unknown: neggia then gives a pixel size of 0, durin refuses the file.
        for name in () if run == "bare" else ("x_pixel_size", "y_pixel_size"):
            value = file[f"{DETECTOR}/{name}"]
            assert value.dtype in (np.float32, np.float64) and value.shape == () and value[()] == 75e-6
        for name, wanted in (("nimages", RUNS[run][1]), ("ntrigger", 1)):
            value = file[f"{SPECIFIC}/{name}"]
            assert value.dtype.kind in "iu" and value.shape == () and value[()] == wanted
        mask = file[f"{SPECIFIC}/pixel_mask"]
        assert mask.dtype == np.uint32 and mask.shape == RUNS[run][5]
        layout = mask.id.get_create_plist()
        assert layout.get_layout() == h5py.h5d.CONTIGUOUS and layout.get_nfilters() == 0 and mask.id.get_offset()
        assert file[f"{DETECTOR}/pixel_mask"] == mask, "the same data set for NXmx"
        assert "eiger_fw_version" not in file[SPECIFIC], "it makes dxtbx insist on EIGER sizes"


@pytest.mark.parametrize("run", LINKED)
def test_links_are_external_and_relative(samples, run):
    _, images, per_file, *_ = RUNS[run]
    with h5py.File(samples / f"{run}_master.h5") as file:
        for number in range(1, -(-images // per_file) + 1):
            link = file["/entry/data"].get(f"data_{number:06d}", getlink=True)
            assert isinstance(link, h5py.ExternalLink)
            assert (link.filename, link.path) == (f"{run}_data_{number:06d}.h5", "/entry/data/data")
        if run != "links":
            assert isinstance(file["/entry/data"].get("images", getlink=True), h5py.HardLink)


FILES = [f"{run}_{part}.h5" for run in ("int16", "repaired") for part in ("master", "data_000001")]


@pytest.mark.parametrize("name", [*FILES, *(f"series_{name}_master.h5" for name in SERIES), "append_block.h5"])
def test_texts_are_of_the_kind_that_every_reader_takes(samples, name):
    """ASCII of fixed length with a zero byte at the end. durin reads no other `NX_class`, and without the zero byte it
    loses the last letter."""
    found = set()

    def look(path, item):
        for key in item.attrs:
            kind = item.attrs.get_id(key).get_type()
            if isinstance(kind, h5py.h5t.TypeStringID):
                assert not kind.is_variable_str() and kind.get_cset() == h5py.h5t.CSET_ASCII, (path, key)
                assert kind.get_strpad() == h5py.h5t.STR_NULLTERM, (path, key)
                found.add(key)
        if isinstance(item, h5py.Dataset) and isinstance(item.id.get_type(), h5py.h5t.TypeStringID):
            kind = item.id.get_type()
            assert not kind.is_variable_str() and kind.get_cset() == h5py.h5t.CSET_ASCII, path

    with h5py.File(samples / name) as file:
        look("/", file)
        file.visititems(look)
        classes = [item.attrs.get("NX_class") for item in file.values()]
    assert "NX_class" in found
    if not name.startswith("append"):
        assert {"NX_class", "units", "signal"} <= found and classes == [b"NXentry"]
