"""Runs that are received by one program and written by another: `konkordia writer` behind `[[writer]]`. Both run on this
machine, over loopback or shared memory; that stands in for two hosts."""

import json
import queue
import signal
import socket
import subprocess
import threading
import time

import h5py
import numpy as np
import pytest
from driving import BINARY, free_ports, mount_small_disk, program
from service import Service, served_bench, until, write_config

PER_FILE = 40
TCP, SHM, FABRIC_TCP, FABRIC_SHM = ("tcp", None), ("shm", None), ("libfabric", "tcp"), ("libfabric", "shm")


def over(*links):
    """The test runs once over each of these links."""
    return pytest.mark.parametrize("world", links, indirect=True, ids=lambda link: "-".join(filter(None, link)))


def skip_without(link):
    if link in (TCP, SHM):
        return
    offers = json.loads(program("links", "--json").stdout)["libfabric"]
    if isinstance(offers, dict):
        pytest.skip(offers["absent"])
    if link[1] not in {offer["provider"].split(";")[0] for offer in offers}:
        pytest.skip(f"libfabric has no provider {link[1]} here")

bench = pytest.fixture(served_bench)


class Writer:
    """`konkordia writer --json` in the background, listening."""

    def __init__(self, folder, port, *arguments):
        command = [BINARY, "writer", "--listen", f"127.0.0.1:{port}", "--folder", str(folder), "--json", "--sync-ms", "100"]
        command += map(str, arguments)
        self.folder, self.port, self.events, self._lines = folder, port, [], queue.Queue()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self.wait_for("listening")

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def wait_for(self, event, timeout=60):
        """The next event of this kind."""
        end = time.monotonic() + timeout
        while True:
            found = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            assert found is not None, f"ended without '{event}': {self.events} {self.process.stderr.read()}"
            self.events.append(found)
            if found["event"] == event:
                return found

    def end(self, number=signal.SIGINT, timeout=60):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(timeout)
        self._thread.join(10)
        errors = self.process.stderr.read()
        assert "panicked" not in errors, errors
        return self.process.returncode


class Proxy:
    """Passes a TCP connection on, until it is cut."""

    def __init__(self, to):
        self.to, self.pairs, self.is_open = to, [], True
        self.listener = socket.create_server(("127.0.0.1", free_ports()))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while self.is_open:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                continue
            self.pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    @staticmethod
    def _pass(one, other):
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs.clear()

    def close(self):
        self.is_open = False
        self.cut()
        self.listener.close()


@pytest.fixture
def world(bench, request):
    """A service with a writer beside it, over a link (`over`)."""
    link = getattr(request, "param", TCP)
    skip_without(link)

    class World:
        kind, provider = link
        folder = bench.folder / "far"
        writers = []

        def writer(self, *arguments, port=None):
            if self.kind != "tcp":
                arguments += ("--link", self.kind, *(("--provider", self.provider) if self.provider else ()))
            writer = Writer(self.folder, port or self.port, *arguments)
            self.writers.append(writer)
            return writer

        def serve(self, images, port=None, more="", **tables):
            text = f'[[writer]]\nname = "far"\naddress = "127.0.0.1:{port or self.port}"\n{more}\n'
            if self.kind != "tcp":
                text += f'link = "{self.kind}"\n' + (f'provider = "{self.provider}"\n' if self.provider else "")
            tables.setdefault("output", {})["images_per_file"] = PER_FILE
            return bench.serve(extra=text, run={"images": images, "stall_timeout_s": 5}, **tables)

        @property
        def master(self):
            return self.folder / "run_000001_master.h5"

    world = World()
    world.folder.mkdir()
    world.port, world.writers = free_ports(), []
    yield world
    for writer in world.writers:
        writer.process.kill()
        writer.end()


def account(service):
    """What the sender says of its writer at the end of the run."""

    def find():
        logs = service.request("GET", "logs")["logs"]
        found = [event for event in logs if event["event"] == "writer" and "offered" in event["data"]]
        return found[-1] if found else None

    return until(find, "the account of the writer", timeout=90)


def contents(path):
    """Every dataset and attribute of a file itself, by name. Links to other files are named, not followed."""
    found = {}
    with h5py.File(path) as file:

        def look(name, group):
            for key, value in group.attrs.items():
                found[f"{name}@{key}"] = np.asarray(value).tolist()
            if isinstance(group, h5py.Dataset):
                found[name] = group[()].tolist() if not group.is_virtual else [(s.file_name, s.dset_name, s.vspace.get_regular_hyperslab()) for s in group.virtual_sources()]
                return
            for key in group:
                link = group.get(key, getlink=True)
                if isinstance(link, h5py.HardLink):
                    look(f"{name}/{key}", group[key])
                else:
                    found[f"{name}/{key}"] = f"{link.path} {getattr(link, 'filename', '')}"

        look("", file)
    return found


def images(master):
    with h5py.File(master) as file:
        data = file["/entry/data"]
        return data[data.attrs["signal"]][()], file["/entry/konkordia/images/status"][()]


def same(local, far):
    """Both runs have the same images and states; returns the pixels."""
    (one, states), (other, others) = images(local), images(far)
    assert states.tolist() == others.tolist()
    np.testing.assert_array_equal(one, other)
    return one


@over(TCP, SHM, FABRIC_TCP, FABRIC_SHM)
def test_the_file_on_the_other_host_is_that_of_this_host(world, bench):
    writer, service = world.writer(), world.serve(100, output={"compression": "bslz4"})
    service.consumers_connect()
    service.command("arm")
    bench.send(100, rate=100)
    service.wait()
    closed, said = writer.wait_for("closed"), account(service)
    assert closed["problem"] is None and closed["images"] == closed["images_sent"] == 100, closed
    data = said["data"]
    assert (said["severity"], data["durable"], data["lost"], data["again"], data["images_written"]) == ("info", 100, 0, 0, 100), said
    assert data["bytes_sent"] == data["bytes_written"] == closed["bytes"]
    assert same(bench.master(), world.master).any()
    names = sorted(path.name for path in world.folder.iterdir())
    assert names == sorted(path.name for path in bench.folder.iterdir() if path.name.startswith("run_000001"))
    for name in names:
        one, other = contents(bench.folder / name), contents(world.folder / name)
        # How long images took on each host is its own, and the far file has the account of the way to it.
        own = [key for key in one.keys() | other.keys() if "latency" in key or "/writer_" in key]
        different = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)} - set(own)
        assert not different, {key: (one.get(key), other.get(key)) for key in different}
    program("check", world.master, check=0)
    assert writer.end() == 0


@over(TCP, SHM, FABRIC_TCP, FABRIC_SHM)
def test_runs_follow_each_other_and_need_no_file_here(world, bench):
    writer, service = world.writer(), world.serve(20, output={"write": False})
    for run in (1, 2):
        service.consumers_connect()
        service.command("arm")
        bench.send(20)
        service.wait()
        assert writer.wait_for("closed")["problem"] is None
        assert account(service)["data"]["images_written"] == 20
        assert (images(world.folder / f"run_00000{run}_master.h5")[1] == 1).all()
    assert not list(bench.folder.glob("run_0*.h5"))
    # The same names again: nothing is replaced.
    service.end()
    again = world.serve(20, output={"write": False})
    again.consumers_connect()
    again.command("arm")
    bench.send(20)
    again.wait()
    assert "run" in writer.wait_for("refused")["why"]
    assert account(again)["severity"] == "error"


def run_with(world, bench, count, disturb, service, rate=100):
    """A run during which `disturb` is called once, when a third of it is received; the account of the sender."""
    service.consumers_connect()
    service.command("arm")
    sender = threading.Thread(target=bench.send, args=(count, rate))
    sender.start()
    try:
        service.until(lambda s: s["images_written"] > count // 3, timeout=60)
        disturb()
    finally:
        sender.join()
    service.wait(90)
    return account(service)


# Not over `shm`: who is killed there may leave the other waiting (docs/fabrics.md).
@over(TCP, SHM, FABRIC_TCP)
def test_a_writer_that_is_killed_and_started_again(world, bench):
    writer, service = world.writer(), world.serve(300)

    def kill():
        # In the middle of a data file.
        until(lambda: list(world.folder.glob("*_data_000003.h5.journal")), "the third data file")
        writer.process.kill()
        writer.end()
        self_started.append(world.writer())

    self_started = []
    said = run_with(world, bench, 300, kill, service)
    closed = self_started[0].wait_for("closed")
    data = said["data"]
    assert closed["continued_images"] > 2 * PER_FILE, closed
    assert closed["problem"] is None and said["severity"] == "info", (closed, said)
    same(bench.master(), world.master)
    # A busy machine may lose packets, and so images, before they are anybody's.
    with_pixels = int(np.isin(images(bench.master())[1], (1, 2)).sum())
    assert (data["durable"], data["lost"], data["images_written"]) == (300, 0, with_pixels), said
    assert with_pixels > 200
    program("check", world.master, check=0)
    assert not list(world.folder.glob(".*")), "nothing that was put aside is left"


def test_images_that_are_no_longer_kept_are_counted_named_and_missing(world, bench):
    writer = world.writer()
    # Only two images are kept, and the writer that comes next finds an empty folder.
    service = world.serve(200, more="keep_images = 2")

    def replace():
        writer.process.kill()
        writer.end()
        for path in world.folder.iterdir():
            path.unlink()
        started.append(world.writer())

    started = []
    said = run_with(world, bench, 200, replace, service)
    data, closed = said["data"], started[0].wait_for("closed")
    assert said["severity"] == "error" and closed["problem"] is not None, (said, closed)
    assert "the sender counts" in closed["problem"], closed
    pixels, states = images(world.master)
    local, _ = images(bench.master())
    there = states == 1
    assert 0 < there.sum() < 200 and closed["images"] == there.sum()
    np.testing.assert_array_equal(pixels[there], local[there])
    assert (pixels[~there] == np.iinfo(pixels.dtype).max).all()


# With libfabric, the connection beside the data is cut.
@over(TCP, SHM, FABRIC_TCP)
def test_a_link_that_is_cut_is_taken_up_again(world, bench):
    writer, proxy = world.writer(), Proxy(world.port)
    service = world.serve(300, port=proxy.port)

    def cut():
        for _ in range(3):
            before = len(writer.events)
            proxy.cut()
            writer.wait_for("resumed")
            assert len(writer.events) > before

    said = run_with(world, bench, 300, cut, service)
    closed = writer.wait_for("closed")
    assert closed["problem"] is None and said["severity"] == "info", (closed, said)
    assert said["data"]["durable"] == 300 and said["data"]["lost"] == 0
    # What was sent again, and had come, was recognised.
    assert closed["duplicates"] <= said["data"]["again"]
    same(bench.master(), world.master)
    proxy.close()


def test_a_writer_that_is_stopped_closes_its_file_and_says_so(world, bench):
    writer, service = world.writer(), world.serve(200)
    ended = []
    said = run_with(world, bench, 200, lambda: ended.append(writer.end(signal.SIGINT)), service)
    assert ended == [1] and said["severity"] == "error"
    program("check", world.master, check=0)
    _, states = images(world.master)
    assert 0 < len(states) < 200 and (states == 1).all()
    assert "stopped" in json.dumps([event for event in service.request("GET", "logs")["logs"] if event["event"] == "consumer"])


def test_a_disk_that_fills_is_said_on_both_hosts(world, bench):
    if not mount_small_disk(world.folder):
        pytest.skip("no right to mount a small disk")
    try:
        writer, service = world.writer(), world.serve(400, output={"compression": "none"})
        said = run_with(world, bench, 400, lambda: None, service, rate=200)
        failed, closed = writer.wait_for("failed"), writer.wait_for("closed")
        assert "free" in failed["why"] or "space" in failed["why"], failed
        assert closed["problem"] and said["severity"] == "error"
        program("check", world.master, check=0)
        pixels, states = images(world.master)
        local, _ = images(bench.master())
        np.testing.assert_array_equal(pixels[states == 1], local[: len(states)][states == 1])
        assert closed["images"] == (states == 1).sum() > 10
        writer.end()
    finally:
        for one in world.writers:
            one.process.kill()
            one.process.wait()
        subprocess.run(["umount", str(world.folder)], check=True)


def message(body, kind=3, magic=b"KLNK"):
    """A message of the link over TCP."""
    return magic + bytes([kind, 0, 0, 0]) + bytes(16) + len(body).to_bytes(4, "little") + bytes(4) + body


def hello(version=1, slot_bytes=1000, start_bytes=10):
    numbers = start_bytes.to_bytes(8, "little") + slot_bytes.to_bytes(8, "little")
    return message(b"HKWRT" + version.to_bytes(2, "little") + bytes(range(16)) + numbers + b"\0")


def ask(port, data):
    """What the writer answers: the first message, or nothing."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
        link.sendall(data)
        answer = b""
        while len(answer) < 32 or len(answer) < 32 + int.from_bytes(answer[24:28], "little"):
            try:
                got = link.recv(65536)
            except ConnectionError:
                return answer
            if not got:
                return answer
            answer += got
        return answer[32:]


def test_hostile_bytes_and_other_versions_are_refused(world, bench):
    writer = world.writer()
    assert b"version" in ask(world.port, hello(version=9))
    assert b"--memory" in ask(world.port, hello(slot_bytes=1 << 40))
    random = np.random.default_rng(1)
    for data in (
        b"GET / HTTP/1.1\r\n\r\n" * 4,
        message(b""),
        message(b"Z"),
        message(b"H" + bytes(50)),
        message(b"x" * 40, kind=2),
        hello(start_bytes=1 << 50),
        random.bytes(5000),
    ):
        ask(world.port, data)
    # A start that is none, and names that lead out of the folder.
    text = b"konkordia_run = 1\nprefix = ../x\nrows = 2\ncolumns = 2\n"
    for start, why in ((bytes(10), "run description"), (len(text).to_bytes(8, "little") + text + bytes(16), "plain file name")):
        with socket.create_connection(("127.0.0.1", world.port), timeout=30) as link:
            link.sendall(hello(start_bytes=len(start)) + message(b"P" + start))
            assert link.recv(65536)
            while why not in writer.wait_for("refused")["why"]:
                pass
    assert not list(world.folder.parent.glob("*x_*"))
    # All of this left the writer as it was.
    service = world.serve(20)
    service.consumers_connect()
    service.command("arm")
    bench.send(20)
    service.wait()
    while (closed := writer.wait_for("closed"))["images"] != 20:
        pass
    assert closed["problem"] is None
    assert sorted(path.name for path in world.folder.iterdir()) == ["run_000001_data_000001.h5", "run_000001_master.h5"]


def test_a_second_sender_is_refused_while_a_run_is_written(world, bench, tmp_path):
    writer, service = world.writer(), world.serve(20000)
    service.consumers_connect()
    service.command("arm")
    bench.send(10)
    until(lambda: list(world.folder.glob("*.journal")), "the first run")
    other = tmp_path / "other"
    other.mkdir()
    text = f'[[writer]]\nname = "far"\naddress = "127.0.0.1:{world.port}"\n'
    config = write_config(other, free_ports(4), extra=text, run={"images": 20}, output={"directory": str(other), "prefix": "b"})
    second = Service(config)
    bench.services.append(second)
    second.command("arm")
    assert "writing a run" in writer.wait_for("refused")["why"]
    second.command("cancel")
    service.command("stop")
    service.wait()
    assert writer.wait_for("closed")["problem"] is None


def test_a_writer_that_is_required_and_absent(world, bench):
    service = world.serve(20, more="required = true")
    problem = service.refused("arm")
    assert "far" in str(problem) and "[[writer]]" in str(problem), problem
    world.writer()
    service.consumers_connect()
    assert service.command("arm")["state"] == "armed"


def test_mistakes_in_the_configuration(bench):
    def said(text):
        config = write_config(bench.folder, bench.port, extra=text)
        return program("config", "check", config, check=3).stderr

    assert "no address" in said('[[writer]]\nname = "a"\naddress = "nowhere"\n')
    assert "is taken" in said('[[writer]]\nname = "file"\naddress = "a:1"\n')
    assert "link" in said('[[writer]]\nname = "a"\naddress = "a:1"\nlink = "pigeon"\n')
    assert "without link" in said('[[writer]]\nname = "a"\naddress = "a:1"\nprovider = "tcp"\n')
    problem = program("writer", "--listen", "127.0.0.1:0", "--device", "mlx5_0", check=2).stderr
    assert "--device" in problem and "--link verbs" in problem


def test_a_link_that_this_host_does_not_have_is_refused_at_once(bench):
    """Without libfabric the library is named, with it the provider."""
    problem = program("writer", "--listen", "127.0.0.1:0", "--link", "libfabric", "--provider", "pigeon", check=6).stderr
    assert "libfabric" in problem and ("libfabric1" in problem or "pigeon" in problem), problem
    text = '[[writer]]\nname = "a"\naddress = "127.0.0.1:1"\nlink = "libfabric"\nprovider = "pigeon"\n'
    config = write_config(bench.folder, bench.port, extra=text)
    problem = subprocess.run([BINARY, "serve", "-c", config, "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=60)
    assert problem.returncode == 6 and "writer 'a'" in problem.stderr and "libfabric" in problem.stderr, problem


@pytest.mark.parametrize("ours, theirs", [(TCP, FABRIC_TCP), (FABRIC_TCP, TCP), (FABRIC_TCP, FABRIC_SHM)])
def test_different_links_at_both_sides_are_said(world, bench, ours, theirs):
    skip_without(FABRIC_SHM)
    (world.kind, world.provider) = theirs
    writer = world.writer()
    (world.kind, world.provider) = ours
    service = world.serve(20, more="required = true" if ours != TCP else "")
    if ours != TCP:
        assert "far" in str(service.refused("arm"))
    else:
        service.command("arm")
    found = until(lambda: [e for e in service.request("GET", "logs")["logs"] if "same kind of link" in e["message"]], "the reason")
    assert "'libfabric tcp'" in found[0]["message"], found
    if ours == TCP:
        # It has sent something, which the writer cannot read.
        assert "same kind of link" in writer.wait_for("refused")["why"]
