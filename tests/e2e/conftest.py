"""Fixtures; the helpers are in driving.py, service.py and streams.py."""

import os
import subprocess

import pytest
from driving import BINARY, Bench, mount_small_disk
from maxiv import Receiver
from streams import StreamService


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


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if not mount_small_disk(folder):
        pytest.skip("only root can make a small disk, and not in every container")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def serve(tmp_path):
    """Starts services for streams; ends them after the test."""
    services = []

    def start(*arguments, **options):
        services.append(StreamService(options.pop("folder", tmp_path), *arguments, **options))
        return services[-1]

    yield start
    for service in services:
        service.close()


@pytest.fixture
def receiver(tmp_path):
    """Starts detectors of `detectors.yaml`; ends them after the test."""
    opened = []

    def make(entry=None, **options):
        opened.append(Receiver(tmp_path, entry or {}, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
