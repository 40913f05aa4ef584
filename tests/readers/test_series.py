"""Sample series in h5py with the filters of hdf5plugin: every shape, type, compression, both layouts, after a kill."""

import h5py
import nxmx
import numpy as np
import pytest
from content import SERIES, SERIES_STATUS, series_image, series_missing

STORED = [number for number, status in enumerate(SERIES_STATUS) if status == 1]


def stack(name):
    missing = np.full_like(series_image(name, 0), series_missing(SERIES[name][0]))
    return np.stack([series_image(name, number) if number in STORED else missing for number in range(10)])


@pytest.mark.parametrize("end", ["", "_repaired"])
@pytest.mark.parametrize("name", SERIES)
def test_h5py_reads_every_pixel_of_every_shape(samples, name, end):
    expected = stack(name)
    with h5py.File(samples / f"series_{name}{end}_master.h5") as file:
        data = file["/entry/data"]
        signal = data[data.attrs["signal"]]
        assert signal.is_virtual and signal.dtype == expected.dtype and signal.shape == expected.shape
        np.testing.assert_array_equal(signal[()], expected)
        linked = [data[f"data_{n:06d}"][()] for n in (1, 2, 3)]
        np.testing.assert_array_equal(np.concatenate(linked), expected)
        columns = file["/entry/konkordia/images"]
        assert columns["status"][()].tolist() == SERIES_STATUS
        assert columns["timestamp_ns"][9] == 9000 and columns["exposure_ns"][0] == 900
        assert columns["parts_missing"][()].tolist() == [0] * 10
        assert file["/entry/konkordia/special_values/missing"][()] == series_missing(SERIES[name][0])


@pytest.mark.parametrize("name", SERIES)
def test_chunks_are_pieces_and_the_filter_is_that_of_the_packing(samples, name):
    dtype, shape, channels, pieces, filter_id = SERIES[name]
    with h5py.File(samples / f"series_{name}_data_000001.h5") as file:
        data = file["/entry/data/data"]
        expected = (1, *((1,) if channels > 1 else ()), shape[0] // pieces, *shape[1:])
        assert data.chunks == expected
        assert data.fillvalue == series_missing(dtype)
        filters = data.id.get_create_plist()
        assert [filters.get_filter(n)[0] for n in range(filters.get_nfilters())] == ([filter_id] if filter_id else [])


@pytest.mark.parametrize("end", ["", "_repaired"])
@pytest.mark.parametrize("name", SERIES)
def test_the_master_has_fields_channels_and_the_required_ones(samples, name, end):
    channels = SERIES[name][2]
    with h5py.File(samples / f"series_{name}{end}_master.h5") as file:
        (entry,) = nxmx.NXmx(file).entries
        assert entry.definition == "NXmx" and entry.start_time.isoformat() == "2026-11-21T12:00:00+00:00"
        detector = file["/entry/instrument/detector"]
        assert detector["exptime"][()] == 0.5 and detector["nest/down"][()].tolist() == [1, 2] and detector["on"][()]
        assert [text.decode() for text in detector["names"][()]] == ["a", "b"]
        groups = sorted(name for name in detector if name.endswith("_channel"))
        assert groups == [f"threshold_{n + 1}_channel" for n in range(channels)]
        for n, group in enumerate(groups):
            assert detector[group].attrs["NX_class"] == b"NXdetector_channel"
            assert channels == 1 or detector[group]["threshold_energy"][()] == 4000 * (n + 1)
        if channels > 1:
            data = file["/entry/data"]
            assert [text.decode() for text in data["channel"][()]] == ["threshold_1", "threshold_2", "threshold_3"]
            assert list(data.attrs["axes"])[:2] == [b"image_id", b"channel"]


@pytest.mark.parametrize("name", SERIES)
def test_the_layout_of_max_iv(samples, name):
    expected = np.stack([series_image(name, number) for number in STORED])
    with h5py.File(samples / f"append_{name}.h5") as file:
        group = file["/entry/instrument/zyla"]
        assert group.attrs["NX_class"] == b"NXdetector"
        np.testing.assert_array_equal(group["data"][()], expected)
        assert group["data"].maxshape == (None, *expected.shape[1:])
        assert group["sequence_number"][()].tolist() == STORED and group["sequence_number"].dtype == np.uint32
        assert group["exptime"][()] == 0.5 and group["nest/down"][()].tolist() == [1, 2]
