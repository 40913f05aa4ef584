"""Fixtures; the helpers are in driving.py."""

import os

import pytest
from driving import BINARY, Bench


@pytest.fixture(autouse=True, scope="session")
def the_program_is_built():
    if not os.access(BINARY, os.X_OK):
        pytest.exit(f"{BINARY} is not there: cargo build --release, or say where it is in KONKORDIA_BIN", returncode=3)


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    for receiver in bench.receivers:
        if receiver.process.poll() is None:
            receiver.process.kill()
            receiver.process.wait()
