"""Runs Debian's DIALS. It uses Debian's Python and takes the HDF5 filters of the images from hdf5plugin."""

import os
import subprocess
from pathlib import Path

import hdf5plugin
import pytest

needs_dials = pytest.mark.skipif(not Path("/usr/bin/dials.import").exists(), reason="DIALS is not installed: make setup-slow")


def call(folder, *arguments):
    """Runs a program in this folder and returns how it ended."""
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "HDF5_PLUGIN_PATH": hdf5plugin.PLUGIN_PATH}
    return subprocess.run(list(map(str, arguments)), cwd=folder, env=environment, capture_output=True, text=True)


def dials(folder, *arguments):
    """Output of a program that must exit with 0."""
    done = call(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
