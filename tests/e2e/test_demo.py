"""`konkordia demo`, the first thing that a new user tries."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import numpy as np
import pytest
from driving import BINARY, ROOT, Master, program
from service import until


def test_the_demonstration_proves_itself(tmp_path):
    done = program("demo", "--dir", tmp_path / "demo", "--images", 120, "--listen", "127.0.0.1:0", "--json", check=0)
    result = json.loads(done.stdout)
    assert result["pixels_different"] == 0 and result["pixels_compared"] == 120 * 512 * 1024
    assert result["pixels_equal_to_true_photons"] > 0.99 and result["seconds"] < 20
    ledger = result["ledger"]
    assert result["valid"] and ledger["images_complete"] == 120 and ledger["placed"] == ledger["received"] == 120 * 128
    assert result["status"]["ended"] == "finished" and result["status"]["severity"] == "success"
    assert Master(tmp_path / "demo" / "demo_master.h5").images.shape == (120, 512, 1024)
    program("check", tmp_path / "demo" / "demo_master.h5", check=0)
    # The configuration that it leaves is valid for a run of one's own.
    program("config", "check", tmp_path / "demo" / "demo.toml", check=0)


def test_it_can_be_repeated_and_speaks_to_people(tmp_path):
    for _ in range(2):
        done = program("demo", "--images", 20, check=0, cwd=tmp_path)
    for part in ["konkordia serve -c demo-out/demo.toml", "/api/v1/arm", "ledger    balances", "20 complete", "0 different", "nothing lost", "konkordia inspect demo-out/demo_master.h5"]:
        assert part in done.stdout, done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    done = program("demo", "--dir", tmp_path / "file", check=6)
    assert done.stderr.startswith("error: cannot make the folder") and "fix: " in done.stderr


@pytest.fixture
def going_on(tmp_path):
    """`konkordia demo --keep-serving` after its own check, and what it printed."""
    command = [BINARY, "demo", "--keep-serving", "--json", "--images", "30", "--listen", "127.0.0.1:0", "--again-every", "600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    line = process.stdout.readline()
    if not line:
        pytest.fail(process.communicate(timeout=30)[1])
    yield process, json.loads(line)
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=30)


def on_a_terminal(folder, *arguments):
    """`konkordia demo` as somebody at a terminal sees it: the process, and what it printed until now."""
    ours, its = pty.openpty()
    process = subprocess.Popen([BINARY, "demo", "--listen", "127.0.0.1:0", *arguments], stdin=its, stdout=its, stderr=its, cwd=folder)
    os.close(its)
    said = bytearray()

    def read():
        with contextlib.suppress(OSError):  # The other end is closed.
            while part := os.read(ours, 4096):
                said.extend(part)

    threading.Thread(target=read, daemon=True).start()
    return process, lambda: said.decode(errors="replace").replace("\r", "")


def test_a_new_user_sees_an_image_within_five_seconds_and_ends_it_with_ctrl_c(tmp_path):
    begun = time.monotonic()
    process, said = on_a_terminal(tmp_path, "--images", "200")
    try:
        url = until(lambda: re.search(r"browser at (http://[\d.:]+)/", said()), "the address")[1]

        def seen():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"{url}/api/v1/images/latest", timeout=5).read()

        picture = until(seen, "an image")
        assert picture.startswith(b"\x89PNG") and time.monotonic() - begun < 5
        assert b"<html" in urllib.request.urlopen(url, timeout=5).read()
        until(lambda: "runs on until Ctrl-C" in said(), said)
        assert process.poll() is None and "demo --keep-serving" not in said()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
    once, said = on_a_terminal(tmp_path, "--images", "20", "--once")
    assert once.wait(30) == 0 and "runs on" not in said()


def curls_of_the_readme():
    """The three curl lines at the top of README."""
    text = (ROOT / "README.md").read_text()
    block = next(block for block in re.findall(r"```bash\n(.*?)```", text, re.S) if "curl" in block)
    lines = [line.split("   #")[0].strip() for line in block.strip().split("\n")]
    assert len(lines) == 3 and all(line.startswith("curl ") for line in lines), lines
    return lines


def test_it_goes_on_and_the_curls_of_the_readme_work(tmp_path, going_on):
    process, shown = going_on
    assert shown["exit_code"] == 0 and shown["pixels_different"] == 0
    outputs = []
    for line in curls_of_the_readme():
        assert "http://localhost:8090/" in line
        typed = line.replace("http://localhost:8090", shown["url"])
        done = subprocess.run(["bash", "-ec", typed], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, f"{typed}\n{done.stderr}"
        outputs.append(done.stdout)
    status, run = json.loads(outputs[0]), json.loads(outputs[1])
    assert status["state"] == "idle" and status["images_written"] == 30
    assert (run["state"], run["ended"], run["severity"], run["run"]) == ("idle", "finished", "success", 2), run
    written = Master(run["file"]).images
    assert len(written) == run["images_written"] == run["images_expected"] > 0
    assert np.array_equal(np.load(tmp_path / "latest.npy"), written[-1])
    # The verbs, and a run without a planned end.
    target = ("--url", shown["url"])
    done = program("start", "--images", 12, "--prefix", "mine", "--wait", "--timeout", 30, *target, check=0)
    assert "12 of 12 images complete" in done.stdout
    program("start", "--images", 0, "--prefix", "open", *target, check=0)
    end = time.monotonic() + 30
    while json.loads(program("status", "--json", *target, check=0).stdout)[0]["images_committed"] < 5:
        assert time.monotonic() < end
    program("stop", *target, check=0)
    program("wait", "--timeout", 30, *target)
    assert len(Master(tmp_path / "demo-out" / "open_master.h5").images) >= 5
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_series_come_by_themselves_if_asked_for(tmp_path):
    command = [BINARY, "demo", "--keep-serving", "--again-every", "1", "--images", "10", "--json", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        url = json.loads(process.stdout.readline())["url"]
        end = time.monotonic() + 30
        while True:
            (status,) = json.loads(program("status", "--json", "--url", url, check=0).stdout)
            if status["run"] >= 3 and status["ended"] == "finished":
                break
            assert time.monotonic() < end, status
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_a_port_that_is_taken_is_left_alone(tmp_path):
    with socket.socket() as http:
        http.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # Another program has the port, which serves as well.
            http.bind(("127.0.0.1", 8090))
            http.listen()
        done = program("demo", "--images", 16, "--json", check=0, cwd=tmp_path)
    result = json.loads(done.stdout)
    assert not result["url"].endswith(":8090")
    # Without tokens it does not listen on a network.
    open_to_all = program("demo", "--images", 16, "--listen", "192.0.2.1:8090", check=3, cwd=tmp_path)
    assert "needs tokens" in open_to_all.stderr and "fix: " in open_to_all.stderr
