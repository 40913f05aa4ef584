"""What `make test` leaves to the long lanes (`make test-slow`)."""

import os

import pytest

SLOW = os.environ.get("KONKORDIA_SLOW") == "1"
slow_lane = pytest.mark.skipif(not SLOW, reason="slow lane: KONKORDIA_SLOW=1")


def lanes(short, slow):
    """The parameters of a test: those of each run, and those that only the slow lane has."""
    return [*short, *(pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=slow_lane) for one in slow)]
