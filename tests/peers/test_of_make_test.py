"""Repeats the tests of `make test` that use other people's readers and models, so that the matrix has their results."""

import os
import subprocess
import sys

import pytest
from programs import ROOT


def run(samples, path, choice, timeout=900):
    environment = {**os.environ, "KONKORDIA_SLOW": "1"}
    if samples:
        environment["KONKORDIA_SAMPLE"] = str(samples)
    environment.pop("KONKORDIA_PEERS_RESULTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path, "-k", choice]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-4000:]
    last = done.stdout.strip().splitlines()[-1]
    if " passed" not in last or " skipped" in last:
        pytest.skip(last)


READERS = ["h5py", "nxvalidate", "fabio", "silx"]


@pytest.mark.parametrize("reader", [pytest.param(name, marks=pytest.mark.peer(name), id=name) for name in READERS])
def test_samples(samples, reader):
    """Every pixel of every sample run that this reader can open; the validator reports no error."""
    run(samples, "tests/readers" if reader == "h5py" else "tests/readers/test_readers.py", reader)


@pytest.mark.peer("DIALS")
def test_samples_in_dials(samples):
    """Sample runs import as NXmx with every pixel and the geometry; the spots of the simulated crystal are found."""
    run(samples, "tests/readers/test_dials.py", "dials or spots or imported")


@pytest.mark.peer("dranspose")
def test_models_of_dranspose():
    """Its models accept the STINS messages that `konkordia serve` and `konkordia stream` send."""
    run("", "tests/e2e/test_stream_consumers.py", "every_protocol")
    run("", "tests/e2e/test_stream_record_replay.py", "stins")


@pytest.mark.peer("scapy")
def test_packets_of_rocev2():
    """Builds all our RoCEv2 packets anew, byte for byte with their iCRC; its own packets fill our memory as meant."""
    run(None, "tests/readers/test_roce.py", "test_")
