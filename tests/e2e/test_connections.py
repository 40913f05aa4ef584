"""Idle connections during a run. Each takes a file descriptor, of which data files and HTTP need some."""

import stat
import time

import pytest
from attacks import crowd_at, many_files_allowed
from driving import BINARY
from streams import Stins, pictures


@pytest.fixture
def many_files():
    with many_files_allowed():
        yield


@pytest.mark.parametrize("limits", ["ulimit -Sn 1024", "ulimit -n 1024"])
def test_idle_connections_to_a_zeromq_port_cost_neither_the_run_nor_http(serve, tmp_path, monkeypatch, many_files, limits):
    """With a limit of open files that the program may raise (soft), and with one that it may not (hard)."""
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/bash\n{limits} && exec "{BINARY}" "$@"\n')
    limited.chmod(limited.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr("service.BINARY", str(limited))
    folder = tmp_path / "data"
    folder.mkdir()
    service = serve(output_folder=folder, output="images_per_file = 4")
    images, stins = pictures(160), Stins()
    service.send(stins.start(), *(stins.image(n, images[n]) for n in range(10)))
    service.until(lambda s: s["images_written"] >= 10)
    crowd = crowd_at(service.addresses[0])
    try:
        for n in range(10, len(images)):
            service.send(stins.image(n, images[n]))
            # Data files are opened, and HTTP requests made, throughout.
            if n % 4 == 0:
                begin = time.monotonic()
                assert service.status()["state"] == "running"
                assert time.monotonic() - begin < 30
        service.send(stins.end())
        file = service.file(1, timeout=60)
        service.until_logged(lambda line: "connections were closed" in line)
        fds, _, _ = service.resources()
        assert fds < 600, fds
    finally:
        for idle in crowd:
            idle.close()
    file.equals(images)
    assert service.status()["severity"] == "success"
    assert service.end()[0] == 0
