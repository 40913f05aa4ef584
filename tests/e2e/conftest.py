"""Fixtures; the helpers are in driving.py."""

import pytest
from driving import Bench


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    for receiver in bench.receivers:
        if receiver.process.poll() is None:
            receiver.process.kill()
            receiver.process.wait()
