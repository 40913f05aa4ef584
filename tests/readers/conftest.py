"""Sample runs of known content."""

import sys
from pathlib import Path

import hdf5plugin  # noqa: F401  (registers filter 32008 for h5py)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from samples import samples  # noqa: E402, F401  a fixture
