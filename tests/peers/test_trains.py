"""EXtra-data, EXtra-geom and the client of karabo-bridge, unmodified, read what `konkordia trains` makes."""

import os
import subprocess
import time

import numpy as np
import pytest
import zmq
from programs import BUILD, HERE, PYTHON, needs, wait_until

from driving import free_ports
from trains import FIRST_ID, Detector, Trains

PACKAGES = BUILD / "extra-data-1.25"
# KONKORDIA_EXTRA_DATA: a Python that has the three packages, instead of the environment of the peers.
OTHER = os.environ.get("KONKORDIA_EXTRA_DATA")
pytestmark = [] if OTHER else [needs(PYTHON, "the environment of the peers"), needs(PACKAGES, "EXtra-data")]
extra_data = pytest.mark.peer("EXtra-data")
karabo_bridge = pytest.mark.peer("karabo-bridge")


def start(*arguments, **options):
    environment = dict(os.environ) if OTHER else {**os.environ, "PYTHONPATH": str(PACKAGES)}
    command = [OTHER or PYTHON, HERE / "read_trains.py", *arguments]
    return subprocess.Popen(list(map(str, command)), env=environment, text=True, stderr=subprocess.PIPE, **options)


def read(*arguments, out):
    process = start(*arguments, out)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-4000:]
    return np.load(str(out) + ".npz")


def recorded(folder, model, lost_module=5, lost_packets=None):
    """Four trains of 16 modules; in train 1 a module is missing, in train 2 some packets of it."""
    detector = Detector(model, modules=16, images=2)
    trains = Trains(detector, "--files", folder, "--trains", 4, "--timeout-ms", 300)
    for train in range(4):
        gone = {1: range(1000), 2: lost_packets or []}.get(train, [])
        trains.send_train(train, lambda m, p, gone=gone: m != lost_module or p not in gone, pause=0.5)
    code, report = trains.finish()
    assert code == 1 and report["trains"]["complete"] == (2 if lost_packets else 3), report
    return detector


@extra_data
@pytest.mark.parametrize("model", ["lpd", "dssc", "agipd"])
def test_extra_data_reads_the_run(tmp_path, model):
    """RunDirectory and LPD1M, DSSC1M, AGIPD1M give every pixel; the lost module is missing at its place."""
    detector = recorded(tmp_path, model, lost_packets=[4, 9])
    found = read("files", tmp_path, model, out=tmp_path / "found")
    assert list(found["ids"]) == [FIRST_ID + train for train in range(4)]
    assert list(found["modules"]) == list(range(16))
    np.testing.assert_array_equal(found["train"], np.repeat(found["ids"], 2))
    np.testing.assert_array_equal(found["pulse"], np.tile(detector.pulses, 4))
    shape = found["data"].shape
    for module in range(16):
        for train in range(4):
            part = found["data"][module, 2 * train : 2 * train + 2].reshape(2, *detector.pixels(0, 0).shape[1:])
            masked = found["masked"][module, 2 * train : 2 * train + 2].reshape(part.shape)
            if (train, module) == (1, 5):
                assert np.all(part == 65535), "the lost module is filled"
            elif (train, module) == (2, 5):
                gone = part != detector.pixels(train, module)
                # The two packets, without what lies behind the pixels; masked pixels are exactly those.
                assert 0 < gone.sum() <= 2 * 4092 and np.all(part[gone] == 0) and np.all(masked[gone] == 0)
                np.testing.assert_array_equal(masked[~gone], part[~gone])
            else:
                np.testing.assert_array_equal(part, detector.pixels(train, module), err_msg=f"{train} {module} of {shape}")
    first = found["first"].reshape(16, *detector.pixels(0, 0).shape)
    np.testing.assert_array_equal(first, [detector.pixels(0, module) for module in range(16)])
    assert list(found["flags"][:, 5]) == [0, 1, 2, 0] and np.count_nonzero(found["flags"]) == 2


@extra_data
def test_extra_geom_draws_the_run(tmp_path):
    """The geometry of LPD places all modules of a train and draws them."""
    detector = recorded(tmp_path, "lpd")
    found = read("drawn", tmp_path, "lpd", out=tmp_path / "drawn")
    truth = np.stack([detector.pixels(0, module)[:, 0] for module in range(16)], axis=1)
    np.testing.assert_array_equal(found["stacked"], truth)
    # Every pixel of the modules is in the drawn image once.
    image = found["image"]
    assert np.nansum(image.astype("f8")) == truth[0].astype("f8").sum()
    assert (tmp_path / "drawn.png").stat().st_size > 10_000


@karabo_bridge
@pytest.mark.parametrize("sock", ["REQ", "PULL"])
def test_the_client_of_karabo_bridge_reads_trains(tmp_path, sock):
    """Trains with their ids, pixels and metadata; the missing module is empty in the stack; a client that reads nothing
    holds up nobody."""
    detector = Detector("lpd", modules=16, images=1)
    port = free_ports(2)
    inject = port + 1
    option = "--bridge" if sock == "REQ" else "--bridge-push"
    options = [option, f"tcp://127.0.0.1:{port}", "--inject", f"tcp://127.0.0.1:{inject}"]
    trains = Trains(detector, *options, "--timeout-ms", 150)
    context = zmq.Context.instance()
    push = context.socket(zmq.PUSH)
    push.connect(f"tcp://127.0.0.1:{inject}")
    # Asks for a train, and never reads it.
    silent = context.socket(zmq.REQ if sock == "REQ" else zmq.PULL)
    silent.setsockopt(zmq.RCVHWM, 1)
    silent.setsockopt(zmq.LINGER, 0)
    silent.connect(f"tcp://127.0.0.1:{port}")
    if sock == "REQ":
        silent.send(b"next")
    process = start("bridge", f"tcp://127.0.0.1:{port}", sock, tmp_path / "found", 6, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    sent = 0
    while process.poll() is None and sent < 60:
        push.send_json({"train_id": FIRST_ID + sent, "values": {"energy_kev": 9 + sent / 64}})
        trains.send_train(sent, lambda m, p, one=sent: m != one % 16, pause=0.3)
        sent += 1
    assert wait_until(lambda: process.poll() is not None, timeout=60) and process.returncode == 0, process.stderr.read()
    silent.close()
    code, report = trains.stop()
    assert code in (1, 130) and report["trains"]["incomplete"] == sent
    found = np.load(str(tmp_path / "found.npz"))
    assert len(set(found["ids"])) == 6 and list(found["ids"]) == sorted(found["ids"])
    for n, train_id in enumerate(found["ids"]):
        train = int(train_id) - FIRST_ID
        assert list(found["missing"][n])[:2] == [train % 16, -1]
        assert found["injected"][n] == 9 + train / 64
        for module in range(16):
            stacked = found["stacked"][n][:, module]
            if module == train % 16:
                assert np.isnan(stacked).all()
            else:
                np.testing.assert_array_equal(stacked, detector.pixels(train, module)[:, 0])
    assert found["time"].max() < 60 and time.time() > 0


def program_of_the_page(port):
    """The program of docs/trains.md, with another port and one line that says when it is there."""
    page = (HERE.parents[1] / "docs" / "trains.md").read_text()
    code = next(part.partition("```")[0] for part in page.split("```python\n") if "socket.connect" in part)
    assert "tcp://localhost:45002" in code
    return code.replace("tcp://localhost:45002", f"tcp://127.0.0.1:{port}").replace("while True:", "print('ready', flush=True)\nwhile True:")


@karabo_bridge
def test_the_program_of_the_page_judges_trains(tmp_path):
    """It counts images with a pixel above 1000 (all of them are), with the serializer of karabo-bridge."""
    detector = Detector("lpd", modules=2, images=3)
    port = free_ports()
    script = tmp_path / "judge.py"
    script.write_text(program_of_the_page(port))
    options = ["--files", tmp_path, "--process", f"tcp://127.0.0.1:{port}", "--process-timeout-ms", 20_000]
    trains = Trains(detector, *options, "--trains", 3)
    environment = dict(os.environ) if OTHER else {**os.environ, "PYTHONPATH": str(PACKAGES)}
    judge = subprocess.Popen([OTHER or PYTHON, script], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert judge.stdout.readline() == "ready\n", judge.stderr.read()
        for train in range(3):
            trains.send_train(train)
        code, report = trains.finish()
    finally:
        judge.kill()
        judge.communicate()
    assert (code, report["process"]["kept"], report["process"]["malformed"]) == (0, 3, 0), report
    assert list(read("numbers", tmp_path, "hits", out=tmp_path / "found")["hits"]) == [6.0] * 3
