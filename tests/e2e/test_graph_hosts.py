"""`konkordia graph` on several hosts, in network namespaces: links that break and heal, lose and delay; hosts that are lost, or
have another clock or version. Each image is in the file once."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
import zmq
from driving import BINARY, free_ports
from network import Namespace, needs_namespaces
from service import until
from test_graph import sink, source_account

SHAPE = (24, 40)
PORT = 9300


def pattern(number):
    """The image that the stage `pattern` makes."""
    image = np.arange(SHAPE[0] * SHAPE[1], dtype=np.uint16)
    image[:4] = np.frombuffer(struct.pack("<Q", number), "<u2")
    return image.reshape(SHAPE)


class Hosts:
    """Host 0 makes images and writes them; hosts 1 and 2 have two processes each between. All are at one switch."""

    def __init__(self, folder, images=300, work_ms=10):
        self.folder, self.images, self.programs = folder, images, []
        self.switch, *self.hosts = self.all = [Namespace() for _ in range(4)]
        self.switch.ip("link add switch type bridge")
        self.switch.ip("link set switch up")
        for n, host in enumerate(self.hosts):
            self.switch.ip(f"link add port{n} type veth peer name wire{n}")
            self.switch.ip(f"link set wire{n} netns {host.holder.pid}")
            self.switch.ip(f"link set port{n} master switch up")
            host.ip(f"address add 10.7.0.{n + 1}/24 dev wire{n}")
            host.ip(f"link set wire{n} up")
            host.ip("link set lo up")
        self.path = folder / "graph.toml"
        self.path.write_text(f"""
[[host]]
name = "h0"
address = "10.7.0.1"
[[host]]
name = "h1"
address = "10.7.0.2"
[[host]]
name = "h2"
address = "10.7.0.3"
[[stage]]
name = "read"
kind = "pattern"
images = {images}
shape = {list(SHAPE)}
host = "h0"
[[stage]]
name = "work"
kind = "wait"
work_ms = {work_ms}
workers = 4
hosts = ["h1", "h2"]
[[stage]]
name = "write"
kind = "write"
file = "{folder}/out"
host = "h0"
[[edge]]
from = "read"
to = "work"
port = {PORT}
window = 4
[[edge]]
from = "work"
to = "write"
port = {PORT + 10}
window = 4
""")

    def start(self, n, *before):
        """Starts the processes of a host; `before` stands before the command."""
        command = [*before, BINARY, "graph", "run", str(self.path), "--host", f"h{n}", "--json", "--folder", str(self.folder / f"states{n}")]
        with self.hosts[n].entered():
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            self.programs.append(subprocess.Popen(command, text=True, start_new_session=True, **pipes))
        return self.programs[-1]

    def start_all(self):
        return [self.start(n) for n in range(3)]

    def written(self):
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads((self.folder / "states0" / "write-0.json").read_text())["input"]["done"]
        return 0

    def until_written(self, count):
        until(lambda: self.written() >= count, f"{count} images written", timeout=60)

    def shape_traffic(self, n, how):
        with self.hosts[n].entered():
            subprocess.run(["tc", "qdisc", "replace", "dev", f"wire{n}", "root", "netem", *how.split()], check=True, capture_output=True)

    def finish(self, first, timeout=90):
        """Waits for host 0, and compares what was written."""
        output, said = first.communicate(timeout=timeout)
        assert first.returncode == 0, f"{output}\n{said}"
        report = json.loads(output.splitlines()[0])
        report["processes"] = [process for process in report["processes"] if process]
        assert (source_account(report)["done"], sink(report)["done"]) == (self.images, self.images)
        with h5py.File(f"{self.folder}/out_master.h5") as file:
            stack = file["entry/data/images"][()]
        np.testing.assert_array_equal(stack, [pattern(number) for number in range(self.images)])
        return report

    def end(self):
        for one in self.programs:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(one.pid, signal.SIGKILL)
            one.kill()
            one.communicate()
        for host in self.all:
            host.end()


@pytest.fixture
def hosts(tmp_path):
    needs_namespaces()
    made = []
    yield lambda **options: made.append(Hosts(tmp_path, **options)) or made[-1]
    for one in made:
        one.end()


def test_a_link_that_breaks_and_heals(hosts):
    """Its processes fall silent, others get their images; when it heals they work again, and the run ends on all hosts."""
    hosts = hosts(images=1200)
    first, *others = hosts.start_all()
    hosts.until_written(50)
    hosts.switch.ip("link set port2 down")
    before = hosts.written()
    hosts.until_written(before + 100)
    hosts.switch.ip("link set port2 up")
    taken = lambda: json.loads((hosts.folder / "states2" / "work-1.json").read_text())["input"]["taken"]
    until(lambda: taken() > 0, "the state of a process")
    before = taken()
    until(lambda: taken() > before + 20, "images for the host that was cut off", timeout=30)
    report = hosts.finish(first)
    assert source_account(report)["deaths"] >= 1 and source_account(report)["recoveries"] >= 1
    assert [other.wait(timeout=40) for other in others] == [0, 0]


def test_a_host_that_is_lost(hosts):
    hosts = hosts(images=600)
    first, _, lost = hosts.start_all()
    hosts.until_written(50)
    os.killpg(lost.pid, signal.SIGKILL)
    report = hosts.finish(first)
    assert source_account(report)["deaths"] >= 2


def test_a_host_that_comes_late(hosts):
    hosts = hosts(images=600)
    first, _ = hosts.start(0), hosts.start(1)
    hosts.until_written(100)
    hosts.start(2)
    hosts.finish(first)
    members = [json.loads((hosts.folder / "states2" / f"work-{n}.json").read_text())["input"]["taken"] for n in (1, 3)]
    assert min(members) > 10


def test_packets_that_are_lost_and_late(hosts):
    if subprocess.run(["tc", "-V"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs `tc` (iproute2)")
    hosts = hosts(images=200)
    first, *_ = hosts.start_all()
    try:
        hosts.shape_traffic(1, "delay 40ms 20ms loss 3%")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"netem is not in this kernel: {error.stderr}")
    hosts.finish(first)


def test_a_host_with_another_clock(hosts):
    """The clock of a host is eleven days ahead: nobody compares the times of two hosts."""
    hosts = hosts()
    ahead = ["unshare", "--time", "--monotonic", "1000000", "--boottime", "1000000", "--fork"]
    if subprocess.run([*ahead, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs time namespaces")
    first, *_ = hosts.start(0), hosts.start(1), hosts.start(2, *ahead)
    report = hosts.finish(first)
    assert source_account(report)["deaths"] == 0
    assert json.loads((hosts.folder / "states2" / "work-1.json").read_text())["input"]["done"] > 10


def hello(version, stage="work", member="work-7"):
    """The first message of a process, in a row of one (crates/graph/src/message.rs)."""
    names = b"".join(struct.pack("B", len(name)) + name.encode() for name in (stage, member))
    message = b"HKGRF" + struct.pack("<H", version) + names + struct.pack("<QII", 1, 4, 0)
    return struct.pack("<H", len(message)) + message


def small_graph(folder, port):
    (folder / "graph.toml").write_text(f"""
[[stage]]
name = "read"
kind = "pattern"
images = 20
[[stage]]
name = "work"
kind = "discard"
[[edge]]
from = "read"
to = "work"
port = {port}
""")
    return folder / "graph.toml"


@pytest.fixture
def socket():
    context = zmq.Context()
    made = []
    yield lambda kind: made.append(context.socket(kind)) or made[-1]
    context.destroy(linger=0)


def test_hosts_of_different_versions(tmp_path, socket):
    """Each side of another version is told so: by the one that has images, and the program when it is told."""
    port = free_ports(1)
    graph = small_graph(tmp_path, port)
    old = socket(zmq.DEALER)
    old.setsockopt(zmq.IDENTITY, b"work-7")
    old.connect(f"tcp://127.0.0.1:{port}")
    with subprocess.Popen([BINARY, "graph", "run", graph, "--stage", "read"], stdout=subprocess.DEVNULL) as read:
        old.send(hello(9))
        assert old.poll(20_000)
        answer = old.recv()
        assert answer[:1] == b"R" and b"version 9; install the same version of Konkordia on all hosts" in answer, answer
        # One with the right version that says it is of another stage is refused too, and rubbish is not answered.
        for wrong in (b"", b"\0", b"\xff" * 100, struct.pack("<H", 3) + b"XYZ", b"\x05\x00HKG"):
            old.send(wrong)
        old.send(hello(1, stage="elsewhere"))
        assert old.poll(20_000)
        assert b"leads to stage 'work'" in old.recv()
        read.terminate()
    refusing = socket(zmq.ROUTER)
    refusing.bind(f"tcp://127.0.0.1:{port}")
    command = [BINARY, "graph", "run", graph, "--stage", "work"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as work:
        assert refusing.poll(20_000)
        identity, _ = refusing.recv_multipart()
        refusing.send_multipart([identity, b"Rthis host speaks version 2"])
        _, said = work.communicate(timeout=30)
    assert work.returncode == 3
    assert "work-0 cannot take part in the graph" in said and "speaks version 2" in said and "one graph file and version" in said


def test_a_slow_process_gets_fewer_images(tmp_path):
    """One of four processes takes ten times as long: it does not hold up the others."""
    (tmp_path / "functions.py").write_text(
        "import os, time\n"
        "try:\n    os.close(os.open('slow', os.O_CREAT | os.O_EXCL)); work_s = 0.2\n"
        "except FileExistsError:\n    work_s = 0.01\n"
        "def same(image, number):\n    time.sleep(work_s)\n    return image\n"
    )
    (tmp_path / "graph.toml").write_text("""
[[stage]]
name = "read"
kind = "pattern"
images = 400
shape = [24, 40]
[[stage]]
name = "work"
kind = "python"
function = "functions:same"
workers = 4
[[stage]]
name = "keep"
kind = "discard"
compare = true
[[edge]]
from = "read"
to = "work"
transport = "ipc"
window = 2
[[edge]]
from = "work"
to = "keep"
transport = "ipc"
""")
    began = time.monotonic()
    environment = {**os.environ, "KONKORDIA_PYTHON": sys.executable}
    done = subprocess.run([BINARY, "graph", "run", "graph.toml", "--json"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    processes = json.loads(done.stdout.splitlines()[0])["processes"]
    taken = sorted(process["input"]["taken"] for process in processes if process["stage"] == "work")
    assert sum(taken) == 400 and taken[0] < 0.3 * taken[1], taken
    assert time.monotonic() - began < 60


def test_a_broadcast_reaches_all(tmp_path):
    """Two functions in one stage both get each image; what both hand on is written once."""
    (tmp_path / "graph.toml").write_text(f"""
[[stage]]
name = "read"
kind = "pattern"
images = 60
shape = {list(SHAPE)}
[[stage]]
name = "both"
kind = "wait"
work_ms = 1
workers = 2
[[stage]]
name = "write"
kind = "write"
file = "{tmp_path}/out"
[[edge]]
from = "read"
to = "both"
policy = "broadcast"
transport = "inproc"
[[edge]]
from = "both"
to = "write"
transport = "ipc"
""")
    done = subprocess.run([BINARY, "graph", "run", "graph.toml", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    processes = json.loads(done.stdout.splitlines()[0])["processes"]
    assert [process["input"]["done"] for process in processes if process["stage"] == "both"] == [60, 60]
    assert sink({"processes": processes})["done"] == 60
    with h5py.File(tmp_path / "out_master.h5") as file:
        np.testing.assert_array_equal(file["entry/data/images"][()], [pattern(number) for number in range(60)])
