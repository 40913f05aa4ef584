"""Slow lane: DIALS from Debian reads the sample runs and finds the spots of the simulated crystal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dials import call, dials, needs_dials
from lanes import slow_lane

HERE = Path(__file__).parent
BINARY = Path(os.environ.get("KONKORDIA_BIN", HERE.parents[1] / "target/release/konkordia"))

pytestmark = [slow_lane, needs_dials]


def test_every_sample_run_is_imported_as_nxmx_and_every_pixel_is_equal(samples, capsys):
    done = subprocess.run([HERE / "dials_check.sh", sys.executable, samples], capture_output=True, text=True)
    with capsys.disabled():
        print("\n" + done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_angles_modules_and_counts_of_sample_runs(samples, capsys):
    done = call(None, "/usr/bin/python3", HERE / "dials_angles.py", samples)
    with capsys.disabled():
        print("\n" + done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("run, what", [("sweep", "sweep:    1"), ("kappa", "sweep:    1"), ("swung", "sweep:    1"), ("int16", "num stills: 10")])
def test_dials_import_tells_sweeps_from_stills(samples, tmp_path, run, what):
    assert what in dials(tmp_path, "dials.import", samples / f"{run}_master.h5")


def test_a_file_without_wavelength_or_sensor_is_refused_and_one_without_distance_is_not(samples, tmp_path):
    """DIALS does what our warnings about unknown values say (decision 0009)."""
    refused = call(tmp_path, "dials.import", samples / "bare_master.h5")
    assert refused.returncode != 0 and "doesn't exist" in refused.stdout + refused.stderr
    dials(tmp_path, "dials.import", samples / "undistanced_master.h5", "geometry.detector.distance=150")


def test_spots_of_the_simulated_crystal_are_found_in_the_demonstration(tmp_path, capsys):
    subprocess.run([BINARY, "demo", "--images", "20", "--dir", tmp_path / "demo"], check=True, capture_output=True)
    imported = dials(tmp_path, "dials.import", "demo/demo_master.h5")
    assert "FormatNXmx" in imported and "num images: 20" in imported
    found = dials(tmp_path, "dials.find_spots", "imported.expt", "nproc=1")
    saved = next(line for line in found.splitlines() if line.startswith("Saved"))
    with capsys.disabled():
        print("\n" + saved)
    assert int(saved.split()[1]) > 100
