"""Runs the commands of docs/tutorial.md in their order."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest
from driving import BINARY, MISSING, ROOT, Master, program
from ports import free_ports
from service import free_port

PAGE = ROOT / "docs" / "tutorial.md"


def blocks(section):
    """The configurations and command lines of a section."""
    text = PAGE.read_text().split(f"## {section}. ")[1].split("\n## ")[0]
    return re.findall(r"```(toml|bash)\n(.*?)```", text, re.S)


@pytest.fixture()
def shell(tmp_path):
    """Runs command lines with `konkordia` on PATH, in a temporary folder."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "konkordia").symlink_to(BINARY)
    options = {"cwd": tmp_path, "env": {**os.environ, "PATH": f"{tmp_path / 'bin'}:{ROOT / '.venv/bin'}:{os.environ['PATH']}"}, "text": True}

    def run(line, code=0):
        done = subprocess.run(["bash", "-ec", line], capture_output=True, timeout=120, **options)
        assert done.returncode == code, f"{line}\n{done.stdout}\n{done.stderr}"
        return done

    run.begin = lambda line: subprocess.Popen(["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    run.env = options["env"]
    return run


def test_the_file_of_the_demonstration_is_looked_into(shell, tmp_path):
    assert "make demo" in PAGE.read_text().split("## 2. ")[0]
    shell("konkordia demo --images 20 --listen 127.0.0.1:0")
    outputs = [shell(block).stdout for _, block in blocks(2)]
    assert "images       20 of 512 x 1024" in outputs[0] and "whole and valid" in outputs[0]
    assert outputs[1].startswith("(20, 512, 1024) ")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_sender_and_receiver_are_started_apart(shell, tmp_path):
    """Sections 3 and 4, with a free port in place of that of the example."""
    port = str(free_ports())
    (_, ready), (_, receive), (_, send) = blocks(3)
    for line in ready.strip().split("\n"):
        shell(line.replace("50010", port))
        if line.startswith("konkordia config init"):
            config = tmp_path / "run.toml"
            config.write_text(config.read_text().replace("50010", port).replace('"0.0.0.0"', '"127.0.0.1"'))
    first = run_apart(shell, receive, send.replace("50010", port))
    # A busy machine may lose packets, which the report must say.
    assert first.returncode == 0 or "partial" in first.out, first.out + first.err
    assert len(Master(tmp_path / "run01_master.h5").images) == 1000
    (_, receive), (_, send) = blocks(4)
    second = run_apart(shell, receive, send.replace("50010", port))
    assert second.out.rstrip().endswith("exit code 1"), second.out
    assert re.search(r"^stream +received +placed +duplicate", second.out, re.M) and "partial" in second.out, second.out
    (stream,) = [re.split(r" {2,}", line) for line in second.out.splitlines() if line.startswith("udp://")]
    assert int(stream[3].replace(" ", "")) > 0, second.out
    lossy = Master(tmp_path / "lossy_master.h5").images
    assert len(lossy) == 200 and (np.asarray(lossy[:20]) == MISSING[str(lossy.dtype)]).any()
    with h5py.File(tmp_path / "lossy_master.h5") as file:
        assert file["/entry/konkordia/ledger"]


def run_apart(shell, receive, send):
    """Runs the receiver and the sender as in two terminals."""
    receiver = shell.begin(receive)
    try:
        said = ""
        while "armed" not in said:
            line = receiver.stdout.readline()
            assert line, said
            said += line
        shell(send.strip() + " -q")
        receiver.out, receiver.err = receiver.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            receiver.kill()
    return receiver


def test_a_detector_that_streams(shell, tmp_path):
    """Section 6."""
    url = f"http://127.0.0.1:{free_port()}"
    ports = {"9999": str(free_port()), "9988": str(free_port())}
    shell.env["KONKORDIA_URL"] = url
    outputs, served, runs = [], None, 0
    try:
        for kind, block in blocks(6):
            block = block.replace("http://127.0.0.1:8090", url)
            for port, free in ports.items():
                block = block.replace(f":{port}", f":{free}")
            if kind == "toml":
                (tmp_path / "stream.toml").write_text(block)
                continue
            if block.startswith("konkordia serve"):
                served = shell.begin(f"exec {block.strip()} --listen {url.removeprefix('http://')}")
                assert "ready" in served.stdout.readline()
                continue
            for line in block.strip().split("\n"):
                outputs.append(shell(line).stdout)
                if f":{ports['9999']}" in line:
                    # When a person types the next line, the series has begun.
                    runs += 1
                    wait_for_run(url, runs)
        served.send_signal(signal.SIGINT)
        assert served.wait(30) == 0
    finally:
        if served is not None:
            with contextlib.suppress(ProcessLookupError):
                served.kill()
            served.communicate(timeout=30)
    images = Master(tmp_path / "first_master.h5").images
    assert images.shape == (500, 512, 1024) and images[0].max() > 0
    assert (tmp_path / "latest.png").read_bytes().startswith(b"\x89PNG")
    assert np.array_equal(np.load(tmp_path / "latest.npy"), images[-1])
    # The series that was recorded and sent again.
    assert len(Master(tmp_path / "streamed_000002_master.h5").images) == 20
    assert "500 of 500 images complete" in "".join(outputs) and "whole and valid" in outputs[-1]


def wait_for_run(url, run):
    end = time.monotonic() + 10
    while True:
        (status,) = json.loads(program("status", "--json", "--url", url, check=0).stdout)
        if status["run"] >= run:
            return
        assert time.monotonic() < end, status
        time.sleep(0.05)
