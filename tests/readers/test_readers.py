"""The sample runs in h5py, nxmx, nxvalidate, fabio and silx."""

import subprocess
import sys
from pathlib import Path

import bitshuffle
import fabio
import h5py
import numpy as np
import nxmx
import pytest
import silx.io
from content import MISSING, RUNS, SHAPE, VALID, image, stack
from silx.io.nxdata import get_default
from silx.io.url import DataUrl

LINKED = [run for run in RUNS if run not in ("virtual",)]
VIRTUAL = [run for run in RUNS if run not in ("links",)]


def master(samples, run):
    return samples / f"{run}_master.h5"


def data_files(run):
    _, images, per_file, *_ = RUNS[run]
    return -(-images // per_file)


@pytest.mark.parametrize("run", VIRTUAL)
def test_h5py_reads_every_pixel_through_the_virtual_data_set(samples, run):
    with h5py.File(master(samples, run)) as file:
        data = file["/entry/data"]
        signal = data[data.attrs["signal"]]
        assert signal.is_virtual
        assert signal.dtype == RUNS[run][0]
        np.testing.assert_array_equal(signal[()], stack(run))


@pytest.mark.parametrize("run", LINKED)
def test_h5py_reads_every_pixel_through_the_links(samples, run):
    with h5py.File(master(samples, run)) as file:
        data = file["/entry/data"]
        names = sorted(name for name in data if name.startswith("data"))
        assert names == [f"data_{n:06d}" for n in range(1, data_files(run) + 1)]
        np.testing.assert_array_equal(np.concatenate([data[name][()] for name in names]), stack(run))


@pytest.mark.parametrize("run", RUNS)
def test_data_files_are_stacks_of_chunks(samples, run):
    dtype, images, per_file, _, _, shape = RUNS[run]
    for number in range(1, data_files(run) + 1):
        with h5py.File(samples / f"{run}_data_{number:06d}.h5") as file:
            data = file["/entry/data/data"]
            count = min(per_file, images - (number - 1) * per_file)
            assert data.shape == (count, *shape)
            assert data.maxshape == (None, *shape)
            assert data.chunks == (1, *shape)
            assert data.fillvalue == MISSING[dtype]
            assert data.attrs["image_nr_low"] == (number - 1) * per_file + 1
            assert data.attrs["image_nr_high"] == (number - 1) * per_file + count
            filters = data.id.get_create_plist()
            if run == "plain":
                assert filters.get_nfilters() == 0
            else:
                assert filters.get_nfilters() == 1
                code, flags, values, _ = filters.get_filter(0)
                assert (code, flags, values) == (32008, 0, (0, 4, data.dtype.itemsize, 0, 2))


def test_chunks_decode_with_the_bitshuffle_package(samples):
    """Decodes the stored chunks with the bitshuffle package, a build separate from that of the HDF5 plug-in."""
    for run in ("int16", "uint32", "odd"):
        with h5py.File(samples / f"{run}_data_000001.h5") as file:
            data = file["/entry/data/data"]
            for number in range(data.shape[0]):
                _, chunk = data.id.read_direct_chunk((number, 0, 0))
                size, block = int.from_bytes(chunk[:8], "big"), int.from_bytes(chunk[8:12], "big")
                assert (size, block) == (image(run, number).nbytes, 8192)
                payload = np.frombuffer(chunk[12:], np.uint8)
                pixels = bitshuffle.decompress_lz4(payload, data.shape[1:], data.dtype, block // data.dtype.itemsize)
                np.testing.assert_array_equal(pixels, image(run, number))


@pytest.mark.parametrize("run", RUNS)
def test_nxmx_reads_the_geometry(samples, run):
    with h5py.File(master(samples, run)) as file:
        (entry,) = nxmx.NXmx(file).entries
        assert entry.definition == "NXmx"
        (instrument,) = entry.instruments
        (detector,) = instrument.detectors
        (beam,) = instrument.beams
        assert entry.samples[0].depends_on is None
        assert detector.pixel_mask.shape == RUNS[run][5]
        (module,) = detector.modules
        assert list(module.data_size) == list(RUNS[run][5]) and list(module.data_origin) == [0, 0]
        if run == "bare":
            # Its unknown values are absent: see test_metadata.py.
            return
        assert entry.source.name
        assert module.fast_pixel_direction[()].to("m").magnitude == pytest.approx(75e-6)
        chain = nxmx.get_dependency_chain(module.fast_pixel_direction)
        origin = nxmx.get_cumulative_transformation(chain[1:])[0, :3, 3]
        assert beam.incident_wavelength.to("angstrom").magnitude == pytest.approx(12.398419843320026 / 12.4)
        assert origin == pytest.approx([100.5 * 0.075, 30.25 * 0.075, 150.0])
        assert detector.distance.to("m").magnitude == 0.15
        assert detector.beam_center_x.magnitude == 100.5 and detector.beam_center_y.magnitude == 30.25
        assert detector.sensor_material == "Si"
        assert detector.sensor_thickness.to("um").magnitude == pytest.approx(320)
        assert detector.frame_time.to("ms").magnitude == pytest.approx(1)
        assert detector.count_time.to("us").magnitude == pytest.approx(840)
        assert entry.start_time.isoformat() == "2026-11-21T12:00:00+00:00"
        if run != "repaired":
            assert entry.end_time.isoformat() == "2026-11-21T12:00:09+00:00"
        if RUNS[run][0] in VALID and run != "raw":
            assert (detector.underload_value, detector.saturation_value) == VALID[RUNS[run][0]]


@pytest.mark.parametrize("run", [*(run for run in RUNS if run != "bare"), "empty", "scaled"])
def test_nxvalidate_finds_no_error(samples, run):
    program = Path(sys.executable).with_name("nxvalidate")
    result = subprocess.run([program, "-e", master(samples, run)], capture_output=True, text=True, check=True)
    assert "Application Definition: NXmx" in result.stdout, result.stdout
    assert "Total number of errors: 0" in result.stdout, result.stdout


@pytest.mark.parametrize("run", RUNS)
def test_fabio_counts_and_reads_every_image(samples, run):
    opened = fabio.open(str(master(samples, run)))
    assert type(opened).__name__ == "EigerImage"
    assert opened.nframes == RUNS[run][1]
    for number in range(opened.nframes):
        np.testing.assert_array_equal(opened.getframe(number).data, image(run, number))
    opened.close()
    alone = fabio.open(str(samples / f"{run}_data_000001.h5"))
    np.testing.assert_array_equal(alone.data, image(run, 0))
    alone.close()


@pytest.mark.parametrize("run", VIRTUAL)
def test_silx_finds_the_default_images(samples, run):
    signal = "data" if run == "virtual" else "images"
    url = DataUrl(file_path=str(master(samples, run)), data_path=f"/entry/data/{signal}", data_slice=(2,), scheme="silx")
    np.testing.assert_array_equal(silx.io.get_data(url), image(run, 2))
    with silx.io.open(str(master(samples, run))) as file:
        assert get_default(file).signal.shape == stack(run).shape


def test_an_empty_run_links_to_nothing(samples):
    with h5py.File(master(samples, "empty")) as file:
        assert list(file["/entry/data"]) == []
    assert not list(samples.glob("empty_data_*"))


@pytest.mark.parametrize("run", [*RUNS, "empty"])
def test_no_link_dangles(samples, run):
    with h5py.File(master(samples, run)) as file:
        for name in file["/entry/data"]:
            assert file["/entry/data"][name].shape[0] > 0


@pytest.mark.parametrize("run", RUNS)
def test_the_account_of_the_run(samples, run):
    _, images, _, lost, partial, _ = RUNS[run]
    with h5py.File(master(samples, run)) as file:
        own = file["/entry/konkordia"]
        columns = own["images"]
        status = np.ones(images, np.uint8)
        status[lost], status[partial] = 0, 2
        np.testing.assert_array_equal(columns["status"], status)
        kept = np.flatnonzero(status)
        frames = np.zeros(images, np.uint64)
        frames[kept] = 1000 + kept
        np.testing.assert_array_equal(columns["frame_number"], frames)
        received = columns["packets_received"][()]
        bitmap = columns["packet_bitmap"][()]
        assert received.shape == (images, 2) and bitmap.shape == (images, 2, 1)
        np.testing.assert_array_equal(np.bitwise_count(bitmap).sum(axis=2), received)
        np.testing.assert_array_equal(received[:, 0], np.select([status == 1, status == 2], [8, 7], 0))
        assert columns["timestamp"].dtype == np.uint64 and columns["bright_pixels"][2] == 4
        assert columns["lowest"].dtype == np.int64 and columns["lowest"][2] == -3
        assert columns["center"].dtype == np.float64 and columns["center"][2].tolist() == [0.5, 0.5]
        assert own["special_values/missing"][()] == MISSING[RUNS[run][0]]
        assert len(own["tiles/packets"]) == 2
        assert own["calibration_hash"].asstr()[()] == "sha256:0123"
        totals = {name: value[()] for name, value in own["ledger/totals"].items()}
        if run == "repaired":
            assert own["state"].asstr()[()] == "repaired"
            assert totals["images_complete"] == images - len(lost) - len(partial)
            return
        assert totals["images_complete"] + totals["images_partial"] + totals["images_lost"] == totals["images_expected"] == images
        assert own["ledger/ended"].asstr()[()] == "complete"
        streams = own["ledger/streams"]
        assert len(streams["name"]) == len(streams["packets_received"]) == 2
        assert own["state"].asstr()[()] == "closed"


def test_a_scaled_run_says_what_its_numbers_mean(samples):
    pixels = [image("int16", number) for number in range(10)]
    with h5py.File(samples / "scaled_master.h5") as file:
        (entry,) = nxmx.NXmx(file).entries
        (data,) = entry.data
        assert (data.data_scale_factor, data.data_offset) == (0.125, -40)
        assert data["data_scaling_factor"][()] == 0.125
        detector = file["entry/instrument/detector"]
        assert (detector["underload_value"][()], detector["saturation_value"][()]) == (0, 12000)
        assert np.array_equal(file["entry/data"][data.signal][()], np.stack(pixels)), "the numbers themselves are as stored"
        snapshots = file["entry/konkordia/pedestals"]
        assert snapshots["image"][()].tolist() == [3, 7]
        assert snapshots["pedestal_g0_adu"].attrs["units"] == b"ADU"
        column = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE) % 64 / 64
        for plane, number in zip(snapshots["pedestal_g0_adu"], [3, 7]):
            assert np.array_equal(plane, 2500 + number + column)
    # fabio counts the three numbers beside the images as images, after the real ones (docs/formats.md).
    with fabio.open(str(samples / "scaled_master.h5")) as file:
        assert file.nframes == 10 + 3
        for number in range(10):
            assert np.array_equal(file.getframe(number).data, pixels[number])
