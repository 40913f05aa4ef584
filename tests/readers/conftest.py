"""Sample runs of known content: written by the example `write_sample`, or taken from the directory KONKORDIA_SAMPLE."""

import fcntl
import os
import subprocess
from pathlib import Path

import hdf5plugin  # noqa: F401  (registers filter 32008 for h5py)
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    given = os.environ.get("KONKORDIA_SAMPLE")
    if given:
        return Path(given)
    # Processes that share the tests among themselves share one folder of samples, too; the first makes it.
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    directory, done = shared / "samples", shared / "samples.done"
    with open(shared / "samples.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            directory.mkdir(exist_ok=True)
            command = ["cargo", "run", "-q", "--release", "-p", "konkordia-sinks", "--example", "write_sample", "--", "samples", str(directory)]
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            done.touch()
    return directory
