"""Angles, unknown facts and metadata of the sample runs in h5py, nxmx and nxvalidate."""

import re
import subprocess
import sys
from pathlib import Path

import h5py
import nxmx
import numpy as np
import pytest
from content import RUNS

SAMPLE = "/entry/sample/transformations/"


def text(field):
    value = field[()] if isinstance(field, h5py.Dataset) else field
    return value.decode() if isinstance(value, bytes) else value


def rotation(axis, degrees):
    """Rodrigues' formula, computed here so that the library under test is not compared with itself."""
    x, y, z = np.asarray(axis) / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = np.radians(degrees)
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def test_a_sweep_has_an_angle_for_every_image_lost_ones_included(samples):
    """10 images, of which image 5 is lost, and 5 more that were announced and never came."""
    with h5py.File(samples / "sweep_master.h5") as file:
        assert text(file["/entry/sample/depends_on"]) == SAMPLE + "omega"
        omega = file[SAMPLE + "omega"]
        np.testing.assert_allclose(omega[()], 90 + 0.1 * np.arange(15), atol=1e-12)
        np.testing.assert_allclose(file[SAMPLE + "omega_end"][()], 90.1 + 0.1 * np.arange(15), atol=1e-12)
        assert file[SAMPLE + "omega_increment_set"][()] == pytest.approx(0.1)
        assert text(omega.attrs["transformation_type"]) == "rotation" and text(omega.attrs["units"]) == "deg"
        assert text(omega.attrs["depends_on"]) == "." and omega.attrs["vector"].tolist() == [-1, 0, 0]
        # Where XDS scripts and ALBULA look.
        old = file["/entry/sample/goniometer"]
        assert old["omega"] == omega and old["omega_start"][()] == 90
        assert old["omega_range_average"][()] == pytest.approx(0.1) and old["omega_increment"][()] == 0.1
        assert old["omega_range_total"][()] == pytest.approx(1.5)
        (entry,) = nxmx.NXmx(file).entries
        axes = nxmx.get_rotation_axes(nxmx.get_dependency_chain(entry.samples[0].depends_on))
        assert axes.names.tolist() == ["omega"] and axes.is_scan_axis.tolist() == [True]


def test_axes_carry_each_other_from_the_outermost_to_the_sample(samples):
    with h5py.File(samples / "kappa_master.h5") as file:
        (entry,) = nxmx.NXmx(file).entries
        chain = nxmx.get_dependency_chain(entry.samples[0].depends_on)
        axes = nxmx.get_rotation_axes(chain)
        assert axes.names.tolist() == ["phi", "kappa", "omega"]
        assert axes.is_scan_axis.tolist() == [True, False, False]
        np.testing.assert_allclose(axes.axes, [[-1, 0, 0], [0, 0.6, -0.8], [-1, 0, 0]])
        assert [len(axis) for axis in chain] == [10, 10, 10]
        wanted = rotation([-1, 0, 0], 30) @ rotation([0, 0.6, -0.8], 45) @ rotation([-1, 0, 0], -10 + 3 * 0.5)
        moved = [np.asarray(axis.matrix)[3 if axis.path.endswith("phi") else 0, :3, :3] for axis in chain]
        np.testing.assert_allclose(moved[2] @ moved[1] @ moved[0], wanted, atol=1e-12)


def test_a_detector_that_is_swung_and_tilted_lies_where_the_angles_say(samples):
    pixel, distance, centre = 75e-6, 0.15, (100.5, 30.25)
    with h5py.File(samples / "swung_master.h5") as file:
        (entry,) = nxmx.NXmx(file).entries
        (detector,) = entry.instruments[0].detectors
        assert [list(module.data_origin) for module in detector.modules] == [[0, 0], [32, 0]]
        assert [list(module.data_size) for module in detector.modules] == [[32, 200], [32, 200]]
        turn = rotation([-1, 0, 0], 20)
        tilt = rotation([0, -1, 0], -2) @ rotation([-1, 0, 0], 1)
        for module in detector.modules:
            origin = nxmx.get_cumulative_transformation(nxmx.get_dependency_chain(module.fast_pixel_direction)[1:])[0]
            row, column = module.data_origin
            at = np.array([(centre[0] - column) * pixel, (centre[1] - row) * pixel, 0])
            wanted = turn @ (tilt @ at + [0, 0, distance])
            np.testing.assert_allclose(origin[:3, 3] / 1000, wanted, atol=1e-12)
            np.testing.assert_allclose(origin[:3, :3], turn @ tilt, atol=1e-12)
        assert text(file["/entry/instrument/detector/depends_on"]).endswith("/tilt_fast")


def test_a_sweep_backwards_is_one_forwards_about_the_opposite_axis(samples):
    """DIALS opens no scan with negative steps. The older group `goniometer` keeps the angles as they were given."""
    with h5py.File(samples / "swung_master.h5") as file:
        omega = file[SAMPLE + "omega"]
        np.testing.assert_allclose(omega[()], -5 + 0.25 * np.arange(10))
        assert omega.attrs["vector"].tolist() == [1, 0, 0]
        np.testing.assert_allclose(file["/entry/sample/goniometer/omega"][()], 5 - 0.25 * np.arange(10))
        assert file["/entry/sample/goniometer/omega_range_average"][()] == pytest.approx(-0.25)


@pytest.mark.parametrize("run", ["int16", "whole", "bare", "empty"])
def test_without_angles_a_run_is_stills(samples, run):
    with h5py.File(samples / f"{run}_master.h5") as file:
        assert text(file["/entry/sample/depends_on"]) == "."
        assert "transformations" not in file["/entry/sample"] and "goniometer" not in file["/entry/sample"]


def test_nothing_is_made_up(samples):
    with h5py.File(samples / "bare_master.h5") as file:
        entry = file["/entry"]
        absent = [
            "start_time",
            "source/name",
            "sample/name",
            "instrument/name",
            "instrument/beam/incident_wavelength",
            "instrument/beam/incident_energy",
            "instrument/detector/description",
            "instrument/detector/distance",
            "instrument/detector/sensor_material",
            "instrument/detector/sensor_thickness",
            "instrument/detector/x_pixel_size",
            "instrument/detector/beam_center_x",
            "instrument/detector/transformations/translation",
            "instrument/detector/module/fast_pixel_direction",
        ]
        assert [name for name in absent if name in entry] == []
        assert "unknown" not in [text(field) for field in every_text(entry)]
        # What is known stays: the images, their mask, the module.
        assert list(entry["instrument/detector/module/data_size"]) == [64, 200]


def every_text(group):
    found = []
    group.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) and item.shape == () and item.dtype.kind in "OS" else None)
    return found


@pytest.mark.parametrize("run", RUNS)
def test_the_depth_of_the_readout_names_no_count_a_special_value(samples, run):
    """dxtbx takes the two highest numbers of `bit_depth_readout` bits as special values, whatever the pixel type."""
    with h5py.File(samples / f"{run}_master.h5") as file:
        detector = file["/entry/instrument/detector"]
        data = file["/entry/data"]
        size = data[next(name for name in data if name.startswith(("data_0", "data")))].dtype.itemsize * 8
        if "bit_depth_readout" in detector:
            assert detector["bit_depth_readout"][()] == size
        else:
            assert RUNS[run][0] in ("int32", "float32")
        if run != "bare":
            assert detector["detectorSpecific/bit_depth_readout"][()] == 16


def test_sample_beam_and_detector_settings_stand_where_nxmx_has_them(samples):
    with h5py.File(samples / "sweep_master.h5") as file:
        sample, instrument = file["/entry/sample"], file["/entry/instrument"]
        assert sample["temperature"][()] == 100 and text(sample["temperature"].attrs["units"]) == "K"
        assert sample["unit_cell_abc"][()].tolist() == [79.1, 79.1, 38.2]
        assert sample["unit_cell_alphabetagamma"][()].tolist() == [90, 90, 90] and text(sample["space_group"]) == "P 43 21 2"
        beam = instrument["beam"]
        assert beam["total_flux"][()] == 1.5e12 and text(beam["total_flux"].attrs["units"]) == "Hz"
        assert text(beam.attrs["flux"]) == "total_flux"
        np.testing.assert_allclose(beam["incident_polarization_stokes"][()], [[1, 0.98, 0, 0]])
        assert instrument["attenuator/attenuator_transmission"][()] == 0.25
        detector = instrument["detector"]
        assert (detector["flatfield_applied"][()], detector["countrate_correction_applied"][()]) == (1, 0)
        assert text(detector["gain_setting"]) == "auto" and detector["distance_derived"][()] == 0
        assert detector["threshold_energy"][()] == 6400 and text(detector["threshold_energy"].attrs["units"]) == "eV"
        assert text(instrument["time_zone"]) == "+00:00"
        (entry,) = nxmx.NXmx(file).entries
        assert entry.instruments[0].beams[0].total_flux.to("1/s").magnitude == 1.5e12


def test_each_image_has_its_time(samples):
    """The origin of the detector's clock is unknown, so the times count from the first image."""
    with h5py.File(samples / "sweep_master.h5") as file:
        detector, columns = file["/entry/instrument/detector"], file["/entry/konkordia/images"]
        start = detector["start_time"][()]
        ticks, there = columns["timestamp"][()].astype(float), np.isin(columns["status"][()], (1, 2))
        assert np.isnan(start[~there]).all() and there.sum() == 9
        np.testing.assert_allclose(start[there], (ticks[there] - ticks[0]) * 1e-7)
        assert text(detector["start_time"].attrs["units"]) == "s"


@pytest.mark.parametrize("run", ["sweep", "kappa", "swung"])
def test_nxvalidate_finds_no_error_in_angles_and_modules(samples, run):
    program = Path(sys.executable).with_name("nxvalidate")
    result = subprocess.run([program, "-e", samples / f"{run}_master.h5"], capture_output=True, text=True, check=True)
    assert "Application Definition: NXmx" in result.stdout, result.stdout
    assert "Total number of errors: 0" in result.stdout, result.stdout


def test_nxvalidate_of_a_run_of_which_nothing_is_known_misses_only_what_is_not_known(samples):
    program = Path(sys.executable).with_name("nxvalidate")
    result = subprocess.run([program, "-e", samples / "bare_master.h5"], capture_output=True, text=True, check=True)
    assert "Application Definition: NXmx" in result.stdout
    missing = [line.split()[-1] for line in re.sub("\x1b[^m]*m", "", result.stdout).splitlines() if "Field: /entry" in line]
    assert sorted(missing) == [
        "/entry/instrument/beam/incident_wavelength",
        "/entry/instrument/detector/module/fast_pixel_direction",
        "/entry/instrument/detector/module/slow_pixel_direction",
        "/entry/instrument/detector/sensor_material",
        "/entry/instrument/detector/sensor_thickness",
        "/entry/instrument/name",
        "/entry/sample/name",
        "/entry/source/name",
        "/entry/start_time",
    ]
    assert f"Total number of errors: {len(missing)}" in result.stdout, result.stdout
