"""The commands of docs/tutorial.md about a detector that streams, typed in their order."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time

import numpy as np
from driving import BINARY, ROOT, Master, program
from service import free_port

PAGE = ROOT / "docs" / "tutorial.md"


def blocks():
    text = PAGE.read_text().split("## 6. A detector that streams")[1]
    return re.findall(r"```(toml|bash)\n(.*?)```", text, re.S)


def test_the_page_works_as_it_is_written(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "konkordia").symlink_to(BINARY)
    url = f"http://127.0.0.1:{free_port()}"
    ports = {"9999": str(free_port()), "9988": str(free_port())}
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    options = {"cwd": tmp_path, "env": {**os.environ, "PATH": path, "KONKORDIA_URL": url}, "text": True}
    outputs, served, runs = [], None, 0
    try:
        for kind, block in blocks():
            block = block.replace("http://127.0.0.1:8090", url)
            for port, free in ports.items():
                block = block.replace(f":{port}", f":{free}")
            if kind == "toml":
                (tmp_path / "stream.toml").write_text(block)
                continue
            if block.startswith("konkordia serve"):
                command = f"exec {block.strip()} --listen {url.removeprefix('http://')}"
                served = subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
                assert "ready" in served.stdout.readline()
                continue
            for line in block.strip().split("\n"):
                done = subprocess.run(["bash", "-ec", line], capture_output=True, timeout=120, **options)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
                outputs.append(done.stdout)
                if f":{ports['9999']}" in line:
                    # A person is slower: the series has begun when the next line is typed.
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
    # What was kept and sent again.
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
