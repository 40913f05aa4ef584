"""The master of a whole image of which two hosts receive a part each and a third writes the files, as DIALS reads it. Three
network namespaces stand in for the hosts."""

import json
import signal
import subprocess

import numpy as np
import pytest
from driving import BINARY, Master, Receiver, program
from network import Namespace, needs_namespaces
from service import until
from test_parts import part_config, state

from dials import dials, needs_dials

ROWS, COLUMNS, MISSING = 514, 1030, 0xFFFF

IN_DIALS = """
import json, sys
from dxtbx.model.experiment_list import ExperimentListFactory
# Stills: each image is a set of its own.
sets = ExperimentListFactory.from_filenames([sys.argv[1]]).imagesets()
found = []
for images, n in [(images, n) for images in sets for n in range(len(images))]:
    panels = zip(images.get_raw_data(n), images.get_mask(n))
    found.append([[int(data[0, 0]), mask.count(True)] for data, mask in panels])
print(json.dumps({"format": sets[0].get_format_class().__name__, "images": found}))
"""


class Hosts:
    """Two receivers and a writer, each in a namespace of its own, joined by wires."""

    def __init__(self):
        self.programs = []
        self.writer, *self.receivers = self.all = [Namespace() for _ in range(3)]
        for n, receiver in enumerate(self.receivers, 1):
            self.writer.ip(f"link add w{n} type veth peer name r{n}")
            self.writer.ip(f"link set r{n} netns {receiver.holder.pid}")
            for end, name, address in ((self.writer, f"w{n}", f"10.9.{n}.1/24"), (receiver, f"r{n}", f"10.9.{n}.2/24")):
                end.ip(f"address add {address} dev {name}")
                end.ip(f"link set {name} up")
        for host in self.all:
            host.ip("link set lo up")

    def start(self, host, command):
        """A program on this host, which ends with the hosts at the latest."""
        with host.entered():
            self.programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.programs[-1]

    def end(self):
        for program in self.programs:
            program.kill()
            program.communicate()
        for host in self.all:
            host.end()


@pytest.fixture
def hosts():
    needs_namespaces()
    hosts = Hosts()
    yield hosts
    hosts.end()


def eiger_config(folder, number):
    """A module of an EIGER of two, which lie over each other."""
    half = {"type": "eiger", "bits": 16, "geometry": "eiger-500k", "beam_center_y_px": 514.0 - ROWS * (number - 1)}
    part = {"row": ROWS * (number - 1), "image_rows": 2 * ROWS, "image_columns": COLUMNS}
    return part_config(folder, number, streams=4, detector=half, processing={"dtype": "uint16"}, part=part, run={"images": 30, "stall_timeout_s": 20})


def simulate_in(host, port, frames):
    """The simulator sends the frames of one module."""
    with host.entered():
        span = ["--first-frame", frames[0], "--images", len(frames)]
        program("simulate", "eiger", "--bits", 16, "--to", f"127.0.0.1:{port}", *span, "--rate", 40, "--quiet", check=0)


@pytest.mark.peer("DIALS")
@needs_dials
def test_a_killed_receiver_is_masked_in_dials(hosts, tmp_path):
    """Two receivers and a writer in three network namespaces, one receiver killed in mid-run: the master of the whole image
    opens in DIALS with the part that is missing masked, image by image."""
    far = tmp_path / "far"
    far.mkdir()
    writers, receivers, ports = [], [], []
    for n, host in enumerate(hosts.receivers, 1):
        address = f"10.9.{n}.1:940{n}"
        options = ["--folder", str(far), "--json", "--sync-ms", "100", "--patience", "4"]
        writers.append(hosts.start(hosts.writer, [BINARY, "writer", "--listen", address, *options]))
        assert json.loads(writers[-1].stdout.readline())["event"] == "listening"
        near = tmp_path / f"near{n}"
        near.mkdir()
        path, port = eiger_config(near, n)
        path.write_text(path.read_text() + f'[[writer]]\nname = "store"\naddress = "{address}"\nrequired = true\n')
        with host.entered():
            receivers.append(Receiver(path))
        receivers[-1].wait_for("armed")
        ports.append(port)
    for port, host in zip(ports, hosts.receivers, strict=True):
        simulate_in(host, port, range(1, 21))
    receivers[1].wait_until(lambda progress: progress["images_written"] == 20)
    # Its images are on the writer's disk, and are not yet all of the run.
    until(lambda: len(list(far.glob("run_part2_data_*.h5"))) >= 3, "data files of part 2")
    receivers[1].signal(signal.SIGKILL)
    receivers[1].process.wait(10)
    simulate_in(hosts.receivers[0], ports[0], range(21, 31))
    code, report = receivers[0].finish()
    assert code == 0, report
    master = far / "run_master.h5"
    # The writer waits for the killed receiver, and then closes what it has.
    until(lambda: master.exists() and state(master, 2) == "closed" and state(master, 1) == "closed", "the whole image", 60)
    whole = Master(master).images
    parts = [Master(far / f"run_part{n}_master.h5").images for n in (1, 2)]
    there = int((whole[:, ROWS:] != MISSING).any(axis=(1, 2)).sum())
    assert whole.shape == (30, 2 * ROWS, COLUMNS) and 10 <= there <= 20 and len(parts[0]) == 30
    assert np.array_equal(whole[:, :ROWS], parts[0]) and np.array_equal(whole[: len(parts[1]), ROWS:], parts[1])
    assert (whole[there:, ROWS:] == MISSING).all()
    for writer in writers:
        writer.send_signal(signal.SIGINT)
        writer.communicate(timeout=30)
    script = tmp_path / "in_dials.py"
    script.write_text(IN_DIALS)
    read = json.loads(dials(tmp_path, "/usr/bin/python3", script, master).splitlines()[-1])
    assert read["format"] == "FormatNXmx" and len(read["images"]) == 30, read
    sensitive = ROWS * COLUMNS - int((Master(master).mask[:ROWS] != 0).sum())
    assert sensitive == 512 * 1024, "but the gaps between chips"
    for n, panels in enumerate(read["images"]):
        (first, good), (second, good_of_second) = panels
        # DIALS has -1 where a pixel is missing.
        assert (first, second) == (whole[n, 0, 0], whole[n, ROWS, 0] if n < there else -1), n
        assert (good, good_of_second) == (sensitive, sensitive if n < there else 0), n
    assert "num images: 30" in dials(tmp_path, "dials.import", master)
